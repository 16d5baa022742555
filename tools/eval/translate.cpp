// mh-eval translate: translates lines of text.
#include <algorithm>

#include "base/command_line.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "common/processes.h"
#include "eval.h"
#include "task/translator.h"
#include "text/lines.h"
#include "text/text_batches.h"

namespace mh::eval {

namespace {

constexpr size_t kLinesPerBatch = 512;  // number of lines that are translated and written at once
constexpr int kScoreDigits = 4;  // decimals of a printed score; further digits vary with the batch, by rounding errors

struct TranslateJob {
  std::string model, prefix_file;
  std::vector<std::string> added_models;  // checkpoints of the further members of an ensemble
  std::vector<std::string> files;
  int64_t nbest = 1;
  bool prints_columns = false;  // whether the output has columns even for one translation per source line
  task::TranslationOptions translation;
  search::SamplingOptions sampling;
  std::shared_ptr<const CommandLineFields> fields;
  void describe(Fields& f);
  // Throws Error(usage) for options that contradict each other. Must be called before any file is read.
  void check() const;
};

void TranslateJob::describe(Fields& f) {
  f.section("", translation);
  f.section("", sampling);
  f.field(
      "nbest", nbest,
      "number of translations per source line, best first; above 1, the output has the three columns line, score, text",
      between(1, 1 << 16));
  f.field("scores", prints_columns,
          "print the three columns line, score, text even for one translation per source line");
}

void TranslateJob::check() const {
  std::vector<std::string> inputs{model, prefix_file};
  inputs.insert(inputs.end(), files.begin(), files.end());
  inputs.insert(inputs.end(), added_models.begin(), added_models.end());
  refuse_repeated_standard_input("translate", inputs);
  if (sampling.samples > 0)
    refuse_options({fields->option("nbest"), fields->option("beam")},
                   "no --samples with this option, since samples replace beam search, and all of them are written",
                   str("--samples ", sampling.samples));
  else
    refuse_options({fields->option("temperature"), fields->option("top_k"), fields->option("seed")},
                   "--samples with this option", "no --samples", "add --samples N");
  if (sampling.temperature == 0)
    refuse_options({fields->option("top_k"), fields->option("seed")},
                   "a temperature above 0 with this option, since 0 always takes the likeliest token",
                   "--temperature 0");
  if (nbest > translation.search.beam)
    refuse_usage("--nbest", str("at most the value of --beam, ", translation.search.beam), str(nbest),
                 "lower --nbest, or raise --beam");
}

// Writes the translations of consecutive source lines. `first_line`: index of the first of these lines, from 0.
void write_translations(const TranslateJob& job, const task::Translator& translator, int64_t first_line,
                        const std::vector<std::vector<search::Hypothesis>>& hypotheses) {
  const bool has_columns = job.nbest > 1 || job.prints_columns || job.sampling.samples > 1;
  auto sink = open_sink("-");
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const size_t num_written = job.sampling.samples > 0
                                   ? hypotheses[i].size()
                                   : std::min(hypotheses[i].size(), static_cast<size_t>(job.nbest));
    for (size_t k = 0; k < num_written; ++k) {
      const search::Hypothesis& hypothesis = hypotheses[i][k];
      if (has_columns)
        sink->write(
            str(first_line + static_cast<int64_t>(i) + 1, '\t', fixed_decimal(hypothesis.score, kScoreDigits), '\t'));
      sink->write(translator.text_of(hypothesis) + "\n");
    }
  }
  sink->close();  // flushes, so that a reader of the pipe receives the translations immediately
}

// Warns about unknown tokens and truncated sources.
void warn_about_input(const task::Translator& translator) {
  if (translator.num_unknown() > 0)
    log_warning(str("the input has ", count_of(translator.num_unknown(), "token"), " outside the vocabulary"));
  if (translator.num_unknown_in_prefixes() > 0)
    log_warning(str("the prefixes have ", count_of(translator.num_unknown_in_prefixes(), "token"),
                    " outside the vocabulary, written as the unknown token"));
  if (translator.num_truncated() > 0)
    log_warning(str("truncated ", count_of(translator.num_truncated(), "source sentence"),
                    " to the maximum length (--max-source)"));
}

void translate_lines(const Arguments& args, const TranslateJob& job) {
  start_process();  // before the checks, so that errors name the rank
  job.check();
  std::vector<std::string> input_files = job.files;
  input_files.insert(input_files.end(), {job.model, job.prefix_file});
  input_files.insert(input_files.end(), job.added_models.begin(), job.added_models.end());
  const distributed::Group& group = join_evaluation(input_files, args);
  refuse_output_onto_input("-", input_files);
  std::unique_ptr<text::Lines> prefixes;
  if (!job.prefix_file.empty()) prefixes = std::make_unique<text::Lines>(job.prefix_file);
  text::TextBatches text(job.files, text::LineEnds::refuse_crlf, {});
  std::vector<std::string> model_paths{job.model};
  model_paths.insert(model_paths.end(), job.added_models.begin(), job.added_models.end());
  model::LoadedModel model = load_ensemble(args, model_paths);
  if (!model.model->has_encoder())
    refuse_usage(model.name, "a translation model", "a language model", "use mh-eval generate for this model");
  task::Translator translator(*model.model, task::SourceTargetTokenizers(model.tokenizers), job.translation,
                              job.sampling);
  translator.set_group(&group);
  log_info("search: " + task::describe_decoding(job.translation.search, job.sampling));
  const bool takes_any_bytes = model.tokenizers.source_or_target().takes_any_bytes();
  ProgressLine progress("translate", prefixes != nullptr ? static_cast<int64_t>(prefixes->lines.size()) : 0, "lines");
  int64_t num_lines = 0;
  std::vector<search::Sentence> batch_sentences;
  std::vector<std::string> locations;
  const auto translate_and_write = [&] {
    const int64_t first_line = num_lines - static_cast<int64_t>(batch_sentences.size());
    const auto hypotheses = translator.translate(
        std::move(batch_sentences),
        [&](int64_t line_index) { return locations[static_cast<size_t>(line_index - first_line)]; },
        [&](int64_t num_completed) { progress.update(first_line + num_completed); });
    model.require_unchanged_file();
    write_translations(job, translator, first_line, hypotheses);
    batch_sentences.clear();
    locations.clear();
  };
  text::TextBatch batch;
  while (text.next(batch)) {
    for (const auto& s : batch.segments) {
      if (!takes_any_bytes) text::check_text(batch, s, false);
      locations.push_back(str(batch.file, ":", s.line_number));
      search::Sentence sentence{
          translator.encode_source(std::string_view(batch.text).substr(s.begin, s.end - s.begin), locations.back()),
          {},
          num_lines++};
      if (prefixes != nullptr) {
        if (num_lines > static_cast<int64_t>(prefixes->lines.size()))
          refuse_input(prefixes->name, "a prefix for each line of the text",
                       str("no prefix for line ", num_lines, " of the text"),
                       "add a line for each sentence; an empty line is an empty prefix");
        sentence.prefix = translator.encode_prefix(prefixes->lines[static_cast<size_t>(num_lines - 1)],
                                                   str(prefixes->name, ":", num_lines));
      }
      batch_sentences.push_back(std::move(sentence));
      if (batch_sentences.size() == kLinesPerBatch) translate_and_write();
    }
  }
  if (!batch_sentences.empty()) translate_and_write();
  progress.clear();
  if (prefixes != nullptr) text::require_line_count("the text", static_cast<size_t>(num_lines), *prefixes);
  warn_about_input(translator);
}

}  // namespace

void add_translate_subcommand(CLI::App& app, const std::shared_ptr<Arguments>& args,
                              const SharedOptions& shared_options, Jobs& jobs) {
  const auto job = std::make_shared<TranslateJob>();
  CLI::App* sub = app.add_subcommand("translate", "translate lines of text");
  sub->add_option("model", job->model, "checkpoint; - is standard input")->required()->type_name("MODEL");
  sub->add_option("text", job->files, "text to translate, one sentence per line; - is standard input")
      ->required()
      ->type_name("FILE...");
  sub->add_option("--add-model", job->added_models,
                  "checkpoint of another translation model with the same vocabularies, for an ensemble whose "
                  "probabilities are the mean over its models; can be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  sub->add_option("--prefix-file", job->prefix_file,
                  "file of prefixes with which the translations must begin, one prefix per source line")
      ->type_name("FILE");
  exclude(*sub, shared_options.scoring_options);
  sub->excludes(shared_options.format);
  job->fields = add_job(jobs, sub, job, [=] { translate_lines(*args, *job); });
}

}  // namespace mh::eval
