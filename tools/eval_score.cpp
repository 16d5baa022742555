// mh-eval MODEL… DATA: perplexity.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "eval.h"
#include "io/shard.h"
#include "model/device.h"
#include "train/run_config.h"

namespace mh::eval {

using nlohmann::ordered_json;

model::LoadedModel load(const Arguments& a, const std::string& path) {
  static const at::Device device = model::choose_device(a.device);
  model::LoadedModel m = model::load_model(path, device);
  m.model->set_path(a.attention == "composed" ? attention::Path::composed
                    : a.attention == "fused"  ? attention::Path::fused
                                              : attention::Path::automatic);
  if (a.precision == "bf16") m.model->parameters().set_bf16(true);
  return m;
}

namespace {

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

}  // namespace

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

}  // namespace mh::eval
