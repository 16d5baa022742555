// mh-eval generate: continues a prompt with a language model.
#include <algorithm>

#include "base/command_line.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "eval.h"
#include "search/generation.h"
#include "text/text_bytes.h"

namespace mh::eval {

namespace {

struct GenerateJob {
  std::shared_ptr<Arguments> args;
  std::string model, prompt, prompt_file;
  search::GenerationOptions options;
  void describe(Fields& f) { options.describe(f); }
};

constexpr size_t kMaxPromptBytes = 1 << 20;  // maximum size of a prompt, 1 MiB, which exceeds the context of any model

std::string read_prompt(const GenerateJob& job) {
  if (job.prompt_file.empty()) return job.prompt;
  auto source = open_source(job.prompt_file);
  std::string text(kMaxPromptBytes + 1, '\0');
  size_t size = 0;
  while (size_t n = size < text.size() ? source->read(text.data() + size, text.size() - size) : 0) size += n;
  text.resize(size);
  if (size > kMaxPromptBytes)
    refuse_input(source->name(), str("a prompt of at most ", kMaxPromptBytes, " bytes"), "a longer prompt",
                 "keep only the last lines");
  // The final newline is removed, so that the model continues the last line.
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// Returns the tokens of the prompt. The first one is the begin token of the vocabulary, and line feeds are text;
// without a begin token it is an end-of-line token, since the prompt starts a new line, and line feeds are end-of-line
// tokens.
std::vector<int32_t> encode_prompt(const text::Tokenizer& tokenizer, std::string_view text, const std::string& name) {
  if (!tokenizer.takes_any_bytes()) text = text::validate_text(text, name);
  const bool has_begin_token = tokenizer.begin_id() >= 0;
  std::vector<int32_t> tokens;
  auto encoder = tokenizer.encoder();
  const bool is_one_text = has_begin_token && tokenizer.encodes_line_feeds();
  for (const std::string& line : is_one_text ? std::vector{std::string(text)} : split(text, '\n')) {
    tokens.push_back(tokens.empty() && has_begin_token ? tokenizer.begin_id() : tokenizer.end_of_line_id());
    encoder->encode(line, tokens);
  }
  auto num_unknown = std::count(tokens.begin(), tokens.end(), tokenizer.unknown_id());
  if (num_unknown > 0) log_warning(str("the prompt has ", count_of(num_unknown, "token"), " outside the vocabulary"));
  if (has_begin_token)
    log_info(str("the prompt has ", count_of(tokens.size(), "token"), ", of which the first is the begin token ",
                 text::escape_piece(tokenizer.piece(tokens.front())), " (", tokens.front(), ")"));
  return tokens;
}

void write_text(const GenerateJob& job) {
  const search::GenerationOptions& options = job.options;
  model::LoadedModel model = load_checkpoint(*job.args, job.model);
  if (model.model->has_encoder())
    refuse_usage(model.name, "a language model", "a translation model", "use mh-eval translate for this model");
  const std::string name = job.prompt_file.empty() ? "the prompt" : input_name(job.prompt_file);
  const std::string prompt_text = read_prompt(job);
  if (job.prompt_file.empty() && !model.tokenizers.target->takes_any_bytes())
    if (const size_t offset = text::find_invalid_byte(prompt_text); offset != prompt_text.npos)
      refuse_input("--prompt", "UTF-8 text", str("an invalid byte at offset ", offset), "write the prompt in UTF-8");
  const std::vector<int32_t> prompt = encode_prompt(*model.tokenizers.target, prompt_text, name);
  // The model does not read the last generated token, so that this token needs no position.
  model.model->require_length("the prompt and --length together",
                              static_cast<int64_t>(prompt.size()) + options.length - 1);
  auto sink = open_sink("-");
  for (int64_t sample = 0; sample < options.samples; ++sample) {
    std::vector<int32_t> tokens(prompt.begin() + 1, prompt.end());
    search::generate(*model.model, prompt, options, sample, [&](int32_t token) {
      tokens.push_back(token);
      return true;
    });
    model.require_unchanged_file();
    std::string output_text = model.tokenizers.target->decode(tokens);
    sink->write(output_text + (output_text.empty() || output_text.back() != '\n' ? "\n" : ""));
  }
  sink->close();
}

}  // namespace

void add_generate_subcommand(CLI::App& app, const std::shared_ptr<Arguments>& args, const SharedOptions& shared_options,
                             Jobs& jobs) {
  const auto job = std::make_shared<GenerateJob>();
  job->args = args;
  CLI::App* sub = app.add_subcommand("generate", "write text that continues a prompt");
  sub->add_option("model", job->model, "checkpoint; - is standard input")->required()->type_name("MODEL");
  auto* prompt = sub->add_option("--prompt", job->prompt, "text to continue [an empty line]")->type_name("TEXT");
  sub->add_option("--prompt-file", job->prompt_file, "file with the text to continue; - is standard input")
      ->type_name("FILE")
      ->excludes(prompt);
  exclude(*sub, shared_options.scoring_options);  // the subcommand scores nothing
  sub->excludes(shared_options.format);
  add_job(jobs, sub, job, [=] { write_text(*job); });
}

}  // namespace mh::eval
