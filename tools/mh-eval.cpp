// Scores language models on a text, or lets them write one.
//
//   mh-eval run1/best.safetensors run2/best.safetensors test.mhs
//   mh-eval generate run1/best.safetensors --prompt "The history of" --length 50
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/command_line.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/tool.h"
#include "io/shard.h"
#include "model/load.h"
#include "task/generation.h"
#include "task/scoring.h"
#include "train/run_config.h"

using namespace mh;
using nlohmann::ordered_json;

namespace {

struct Arguments {
  std::vector<std::string> files;
  std::string format = "table", device = "auto", precision = "fp32", attention = "auto", per_token, model, prompt;
  int threads = 0;
};

model::LoadedModel load(const Arguments& a, const std::string& path) {
  if (a.device == "cuda")
    throw Error(Exit::device,
                Problem{"--device cuda", "a build with its CUDA half", "none in this version", "use --device cpu"});
  model::LoadedModel m = model::load_model(path, at::kCPU);
  m.model->set_path(a.attention == "composed" ? attention::Path::composed
                    : a.attention == "fused"  ? attention::Path::fused
                                              : attention::Path::automatic);
  if (a.precision == "bf16") m.model->parameters().set_bf16(true);
  return m;
}

int64_t training_block(const model::LoadedModel& m) {
  Config config;
  config.load_text(m.toml, m.name);
  train::TrainOptions options;
  config.read("train", options);
  return options.block;
}

void print(ByteSink& sink, const ordered_json& j, const std::string& format, bool header) {
  if (format == "json") return sink.write(j.dump() + "\n");
  std::vector<std::string> keys, values;
  for (auto& [key, value] : j.items()) {
    keys.push_back(key);
    values.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  }
  if (header) sink.write(join(keys, "\t") + "\n");
  sink.write(join(values, "\t") + "\n");
}

void score(const Arguments& a, const task::ScoringOptions& given) {
  if (a.files.size() < 2)
    throw Error(Exit::usage, Problem{"mh-eval", "one or more models, then the data", str(a.files.size(), " files"),
                                     "mh-eval MODEL… DATA"});
  if (std::count(a.files.begin(), a.files.end(), "-") > 1)
    throw Error(Exit::usage, Problem{"mh-eval", "standard input for one file", "- more than once", ""});
  if (!a.per_token.empty()) refuse_output_onto_input(a.per_token, a.files);
  const std::string& data = a.files.back();
  io::TokenText text = io::read_tokens(data);
  io::require_kind(text.header, data, "language-model");
  auto sink = open_sink("-");
  for (size_t i = 0; i + 1 < a.files.size(); ++i) {
    model::LoadedModel m = load(a, a.files[i]);
    io::require_vocabulary(text.header, data, m.tokenizer->fingerprint(), m.name);
    task::ScoringOptions options = given;
    if (options.block == 0) options.block = training_block(m);
    for (const std::string& line : m.model->describe_paths(false)) log_detail("attention: " + line);
    std::unique_ptr<ByteSink> tokens =
        a.per_token.empty() ? nullptr : open_sink(a.per_token + (a.files.size() > 2 ? str(".", i) : ""));
    if (tokens != nullptr) tokens->write("index\ttoken\tpiece\tlog_probability\n");
    task::EachToken each;
    if (tokens != nullptr)
      each = [&](int64_t index, int32_t token, double p) {
        tokens->write(str(index, '\t', token, '\t', m.tokenizer->piece(token), '\t', shortest(p), '\n'));
      };
    task::Score s = task::score_text(*m.model, text.tokens, m.tokenizer->end_of_line(), options, each);
    if (tokens != nullptr) tokens->close();
    if (s.tokens == 0) throw Error(Exit::input, Problem{data, "tokens to score", "none", ""});
    const double nll = s.nll / static_cast<double>(s.tokens);
    ordered_json j{
        {"model", m.name},
        {"tokens", s.tokens},
        {"nll", nll},
        {"perplexity", std::exp(nll)},
        {"bits_per_token", nll / std::log(2.0)},
        {"bits_per_byte", s.nll / std::log(2.0) / static_cast<double>(std::max<uint64_t>(1, text.counts.text_bytes))},
        {"block", options.block},
        {"context", options.context},
        {"precision", a.precision},
        {"protocol", options.context > 0 ? "context-window" : "independent-blocks"}};
    print(*sink, j, a.format, i == 0);
  }
  sink->close();
}

void write_text(const Arguments& a, const task::GenerationOptions& options) {
  model::LoadedModel m = load(a, a.model);
  // The text starts a new line, so the model first sees an end-of-line symbol.
  std::vector<int32_t> prompt{m.tokenizer->end_of_line()};
  m.tokenizer->encoder()->encode(a.prompt, prompt);
  auto unknown = std::count(prompt.begin(), prompt.end(), m.tokenizer->unknown());
  if (unknown > 0) log_warning(str(unknown, " tokens of the prompt are unknown to the vocabulary"));
  auto sink = open_sink("-");
  for (int64_t sample = 0; sample < options.samples; ++sample) {
    std::vector<int32_t> tokens(prompt.begin() + 1, prompt.end());
    task::generate(*m.model, prompt, options, sample, [&](int32_t token) {
      tokens.push_back(token);
      return true;
    });
    std::string out = m.tokenizer->decode(tokens);
    sink->write(out + (out.empty() || out.back() != '\n' ? "\n" : ""));
  }
  sink->close();
}

}  // namespace

int main(int argc, char** argv) {
  Tool tool({"mh-eval", "Scores language models on a text: mh-eval MODEL... DATA. Its subcommand lets them write one.",
             "  mh-eval run1/best.safetensors run2/best.safetensors test.mhs\n"
             "  cat test.mhs | mh-eval --format json --context 192 run1/best.safetensors -\n"
             "  mh-eval generate run1/best.safetensors --prompt 'The history of' --length 50"});
  Arguments a;
  CLI::App& app = tool.app();
  app.add_option("files", a.files, "checkpoints, then a shard; one of them may be - for standard input")
      ->type_name("MODEL... DATA");
  app.add_option("--format", a.format, "table or json [table]")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"table", "json"}));
  app.add_option("--per-token", a.per_token, "write each token's log-probability (nats) to a table")->type_name("FILE");
  app.add_option("--device", a.device, "auto, cpu or cuda [auto]")
      ->type_name("WHERE")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--precision", a.precision, "of matrix products: fp32 or bf16 [fp32]")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--attention", a.attention, "auto, composed or fused [auto]")
      ->type_name("PATH")
      ->check(CLI::IsMember({"auto", "composed", "fused"}));
  app.add_option("--threads", a.threads, "0: all cores [0]")->type_name("N")->check(CLI::NonNegativeNumber);
  task::ScoringOptions scoring;
  CommandLineFields scoring_fields(app);
  scoring_fields.declare(scoring);
  CLI::App* generate = app.add_subcommand("generate", "continue a prompt");
  generate->add_option("model", a.model, "checkpoint; - is standard input")->required()->type_name("MODEL");
  generate->add_option("--prompt", a.prompt, "text to continue [an empty line]")->type_name("TEXT");
  task::GenerationOptions generation;
  CommandLineFields generation_fields(*generate);
  generation_fields.declare(generation);
  return tool.run(argc, argv, [&] {
    scoring_fields.take(scoring);
    generation_fields.take(generation);
    model::prepare_cpu(a.threads);
    try {
      if (generate->parsed()) write_text(a, generation);
      else score(a, scoring);
    } catch (const BrokenPipe&) {  // its reader has seen enough
    }
  });
}
