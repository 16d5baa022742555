// mh-eval generate: continues prompts with a language model.
#include <algorithm>

#include "base/command_line.h"
#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/table.h"
#include "base/text.h"
#include "eval.h"
#include "huggingface/companion_files.h"
#include "io/checkpoint.h"
#include "search/generation.h"
#include "text/lines.h"
#include "text/text_bytes.h"

namespace mh::eval {

namespace {

struct GenerateJob {
  std::shared_ptr<Arguments> args;
  std::string model, prompt_file, prompt_lines_file;
  std::vector<std::string> prompts;
  search::GenerationOptions options;
  std::shared_ptr<const CommandLineFields> fields;
  void describe(Fields& f) { options.describe(f); }
};

// A prompt as a text that the vocabulary can encode.
struct Prompt {
  std::string text;
  std::string name;  // name of the prompt in messages
};

constexpr size_t kMaxPromptBytes = 1 << 20;  // maximum size of a prompt, 1 MiB, which exceeds the context of any model

std::string read_prompt_file(const std::string& path) {
  auto source = open_source(path);
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

// Returns the prompts of the command line, of --prompt-file or of --prompts; an empty prompt if there is none.
std::vector<Prompt> read_prompts(const GenerateJob& job, const text::Tokenizer& tokenizer) {
  const bool takes_any_bytes = tokenizer.takes_any_bytes();
  std::vector<Prompt> prompts;
  if (!job.prompt_file.empty()) {
    prompts.push_back({read_prompt_file(job.prompt_file), input_name(job.prompt_file)});
    if (!takes_any_bytes) prompts[0].text = text::validate_text(prompts[0].text, prompts[0].name);
  } else if (!job.prompt_lines_file.empty()) {
    const text::Lines lines(job.prompt_lines_file);
    for (const std::string_view line : lines.lines) {
      prompts.push_back({std::string(line), str(lines.name, ":", prompts.size() + 1)});
      if (const size_t offset = takes_any_bytes ? line.npos : text::find_invalid_byte(line); offset != line.npos)
        text::refuse_invalid_byte(lines.name, prompts.size(), static_cast<uint64_t>(line.data() - lines.text.data()),
                                  line, offset);
    }
  } else {
    for (const std::string& text : job.prompts.empty() ? std::vector<std::string>{""} : job.prompts) {
      prompts.push_back({text, str("prompt ", prompts.size() + 1)});
      if (takes_any_bytes) continue;
      if (const size_t offset = text::find_invalid_byte(text); offset != text.npos)
        refuse_input("--prompt", "UTF-8 text", str("an invalid byte at offset ", offset), "write the prompt in UTF-8");
      prompts.back().text = text::drop_byte_order_mark(text, prompts.back().name);
    }
  }
  return prompts;
}

// Returns the tokens of a prompt. If the vocabulary has a begin token, the first token is the begin token, and line
// feeds are text; otherwise the first token is an end-of-line token, since the prompt starts a new line, and line feeds
// are end-of-line tokens.
std::vector<int32_t> encode_prompt(const text::Tokenizer& tokenizer, text::Encoder& encoder, const std::string& text) {
  const bool has_begin_token = tokenizer.begin_id() >= 0;
  std::vector<int32_t> tokens;
  const bool is_one_text = has_begin_token && tokenizer.encodes_line_feeds();
  for (const std::string& line : is_one_text ? std::vector{text} : split(text, '\n')) {
    tokens.push_back(tokens.empty() && has_begin_token ? tokenizer.begin_id() : tokenizer.end_of_line_id());
    encoder.encode(line, tokens);
  }
  return tokens;
}

// Logs the begin token of the prompts, and warns about unknown tokens.
void log_prompts(const text::Tokenizer& tokenizer, const std::vector<std::vector<int32_t>>& prompts) {
  uint64_t num_tokens = 0, num_unknown = 0;
  for (const auto& prompt : prompts) {
    num_tokens += prompt.size();
    num_unknown += text::count_unknown(prompt, tokenizer);
  }
  const bool is_one = prompts.size() == 1;
  const std::string subject = is_one ? "the prompt has " : str("the ", prompts.size(), " prompts have ");
  if (num_unknown > 0) log_warning(str(subject, count_of(num_unknown, "token"), " outside the vocabulary"));
  if (tokenizer.begin_id() >= 0)
    log_info(str(subject, count_of(num_tokens, "token"), ", of which the first ", is_one ? "" : "of each prompt ",
                 "is the begin token ", text::escape_piece(tokenizer.piece(tokenizer.begin_id())), " (",
                 tokenizer.begin_id(), ")"));
}

// Returns the tokens that end a text with --stop-at-end. The begin token ends a text, too, since it starts the next one
// in shards (text::Tokenizer::end_of_line_id()).
std::vector<int32_t> end_ids_of(const model::LoadedModel& model) {
  const text::Tokenizer& tokenizer = *model.tokenizers.target;
  std::vector<int32_t> ids =
      huggingface::end_token_ids(model.huggingface_companions, model.name + ": " + io::kHuggingFaceKey);
  ids.insert(ids.end(), {tokenizer.end_of_line_id(), tokenizer.end_id()});
  return ids;
}

// Writes a text. `prompt`, `sample`: indices from 0.
void write_text(const GenerateJob& job, size_t prompt, int64_t sample, const std::string& text) {
  if (job.args->format == "json")
    return Table(Table::Format::json).print_row({{"prompt", prompt + 1}, {"sample", sample + 1}, {"text", text}});
  auto sink = open_sink("-");
  sink->write(text + (text.empty() || text.back() != '\n' ? "\n" : ""));
  sink->close();  // flushes, so that a reader of the pipe receives the text immediately
}

void write_texts(const GenerateJob& job) {
  const search::GenerationOptions& options = job.options;
  const std::vector<std::string> files{job.model, job.prompt_file, job.prompt_lines_file};
  if (options.temperature == 0)
    refuse_options({job.fields->option("top_k"), job.fields->option("seed")},
                   "a temperature above 0 with this option, since 0 always takes the likeliest token",
                   "--temperature 0");
  refuse_repeated_standard_input("generate", files);
  model::LoadedModel model = load_checkpoint(*job.args, job.model);
  if (model.model->has_encoder())
    refuse_usage(model.name, "a language model", "a translation model", "use mh-eval translate for this model");
  const text::Tokenizer& tokenizer = *model.tokenizers.target;
  const std::vector<Prompt> texts = read_prompts(job, tokenizer);
  const auto encoder = tokenizer.encoder();
  std::vector<std::vector<int32_t>> prompts;
  for (const Prompt& text : texts) {
    prompts.push_back(encode_prompt(tokenizer, *encoder, text.text));
    // The model does not read the last generated token, so that this token needs no position.
    model.model->require_length((texts.size() == 1 ? "the prompt" : text.name) + " and --length together",
                                static_cast<int64_t>(prompts.back().size()) + options.length - 1);
  }
  log_prompts(tokenizer, prompts);
  if (prompts.size() > 1 || options.samples > 1)
    log_info(str("batches of at most ", options.batch, " texts, of prompts with the same number of tokens"));
  int64_t num_texts = 0;
  const std::vector<int32_t> end_ids = options.stop_at_end ? end_ids_of(model) : std::vector<int32_t>();
  search::generate(*model.model, prompts, end_ids, options,
                   [&](size_t prompt, const std::vector<int32_t>& generated_tokens) {
                     model.require_unchanged_file();
                     std::vector<int32_t> tokens(prompts[prompt].begin() + 1, prompts[prompt].end());
                     tokens.insert(tokens.end(), generated_tokens.begin(), generated_tokens.end());
                     // Any end token is printed as a line end.
                     if (std::count(end_ids.begin(), end_ids.end(), tokens.back()) > 0)
                       tokens.back() = tokenizer.end_of_line_id();
                     write_text(job, prompt, num_texts++ % options.samples, tokenizer.decode(tokens));
                   });
}

}  // namespace

void add_generate_subcommand(CLI::App& app, const std::shared_ptr<Arguments>& args, const SharedOptions& shared_options,
                             Jobs& jobs) {
  const auto job = std::make_shared<GenerateJob>();
  job->args = args;
  CLI::App* sub = app.add_subcommand("generate", "write texts that continue prompts");
  sub->add_option("model", job->model, "checkpoint; - is standard input")->required()->type_name("MODEL");
  auto* prompt =
      sub->add_option("--prompt", job->prompts, "text to continue; can be repeated for several texts [an empty line]")
          ->type_name("TEXT")
          ->allow_extra_args(false);
  auto* prompt_file =
      sub->add_option("--prompt-file", job->prompt_file, "file with one text to continue; - is standard input")
          ->type_name("FILE")
          ->excludes(prompt);
  sub->add_option("--prompts", job->prompt_lines_file, "file with texts to continue, one per line; - is standard input")
      ->type_name("FILE")
      ->excludes(prompt)
      ->excludes(prompt_file);
  exclude(*sub, shared_options.scoring_options);  // the subcommand scores nothing
  job->fields = add_job(jobs, sub, job, [=] {
    job->prompts = prompt->results();  // CLI11 stores the text {} as a list without elements
    write_texts(*job);
  });
}

}  // namespace mh::eval
