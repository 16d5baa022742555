// mh-eval MODEL… DATA: checks the arguments, and computes the perplexity of models on texts and pairs.
#include "score.h"

#include <cmath>
#include <filesystem>

#include "base/command_line.h"
#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/table.h"
#include "base/text.h"
#include "common/metric_option.h"
#include "common/processes.h"
#include "io/shard.h"
#include "model/ensemble.h"

namespace mh::eval {

using nlohmann::ordered_json;

void exclude(CLI::App& subcommand, const std::vector<CLI::Option*>& options) {
  for (CLI::Option* option : options) subcommand.excludes(option);
}

model::LoadedModel load_checkpoint(const Arguments& args, const std::string& path, bool names_model) {
  return load_with_options(args, io::Checkpoint(path), model::Masters::absent, args.assignments, names_model);
}

model::LoadedModel load_ensemble(const Arguments& args, const std::vector<std::string>& paths) {
  std::vector<model::LoadedModel> models;
  for (const std::string& path : paths) models.push_back(load_checkpoint(args, path, paths.size() > 1));
  return model::ensemble_of(std::move(models));
}

bool is_same_file(const std::string& a, const std::string& b) {
  const auto canonical_path = [](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path));
  };
  return !a.empty() && !b.empty() && canonical_path(a) == canonical_path(b);
}

namespace {

// Returns the output path for row `index` of the table, counted from 0: `path`, followed by "." and the index if there
// are several rows; "" if `path` is empty.
std::string file_of(const ScoreJob& job, const std::string& path, size_t index) {
  return path.empty() ? "" : path + (job.num_rows() > 1 ? str(".", index) : "");
}

// Throws Error for invalid arguments. Called before the first model is scored.
void check_arguments(const ScoreJob& job) {
  const DecodeJob& decoding = job.decoding;
  if (job.files.size() < 2)
    refuse_usage("", "one or more models, then the data",
                 job.files.empty() ? "none" : str(job.files[0], ", without data"), "usage: mh-eval MODEL... DATA");
  if (job.is_ensemble && job.files.size() < 3)
    refuse_usage("--ensemble", "two or more models, then the data", str("one model, ", job.files[0]),
                 "add a model, or leave --ensemble out");
  refuse_repeated_standard_input("", job.files);
  if (job.per_token_path == "-")
    refuse_usage("--per-token", "a file, since the scores go to standard output", "-", "name a file");
  refuse_misspelling(*job.tool, job.files[0]);
  if (!job.examples.prints_scores())
    refuse_options({job.format_option}, "scores on standard output with this option",
                   job.examples.predictions_path == "-" ? "--predictions -" : "--best-answers -");
  std::vector<std::string> inputs = job.files;
  if (!decoding.references_path.empty()) inputs.push_back(decoding.references_path);
  refuse_output_onto_input("-", inputs);
  for (const std::string& path : job.model_paths())
    if (path != "-") io::Checkpoint header(path);
  for (size_t i = 0; i < job.num_rows(); ++i) {
    for (const std::string& output : {job.per_token_path, decoding.hypotheses_path})
      if (!output.empty()) refuse_output_onto_input(file_of(job, output, i), inputs);
    if (!job.per_token_path.empty() &&
        is_same_file(file_of(job, job.per_token_path, i), file_of(job, decoding.hypotheses_path, i)))
      refuse_usage("--hypotheses", "a file other than the file of --per-token", decoding.hypotheses_path,
                   "name another file");
  }
}

// Returns the number of bytes of the scored text. With a begin token, the token at the end of each record, which counts
// as one byte, the line end, may be the begin token, which is not scored.
uint64_t scored_text_bytes(const ShardSource& source, const text::Tokenizer& tokenizer,
                           const data::ScoringOptions& options) {
  const io::ShardCounts& counts = source.counts();
  const bool scores_ends = !options.uses_begin_token() || tokenizer.end_of_line_id() != tokenizer.begin_id();
  return scores_ends ? counts.text_bytes : counts.text_bytes - counts.num_records;
}

// Returns the table row with the scores of model `index` on texts or pairs, and writes the files of --per-token and
// --hypotheses.
ordered_json score_tokens(const ScoreJob& job, const ShardSource& source, model::LoadedModel& model,
                          const task::Dataset& dataset, size_t index) {
  data::ScoringOptions scoring_options = job.scoring_options;
  scoring_options.text_rows = job.text_options.text_rows;
  const data::ScoringOptions options = resolved_scoring_options(model, scoring_options, dataset);
  std::unique_ptr<ByteSink> token_table =
      job.per_token_path.empty() ? nullptr : open_sink(file_of(job, job.per_token_path, index));
  if (token_table != nullptr) token_table->write("index\ttoken\tpiece\tlog_probability\n");
  task::ScoreCallbacks callbacks;
  callbacks.on_progress = progress_bar("score", "rows");
  callbacks.group = job.group;
  int64_t num_unknown = 0;
  callbacks.on_token = [&](const task::TokenScore& token_score) {
    const auto [position, token, log_p] = token_score;
    num_unknown += token == model.tokenizers.target->unknown_id();
    if (token_table != nullptr)
      token_table->write(str(position, '\t', token, '\t', text::escape_piece(model.tokenizers.target->piece(token)),
                             '\t', shortest_decimal(log_p), '\n'));
  };
  const task::NllSum score = task::score(*model.model, dataset.corpus(), options, callbacks);
  callbacks.on_progress = {};
  model.require_unchanged_file();
  if (token_table != nullptr) token_table->close();
  ordered_json row{{"model", model.name}, {"tokens", score.num_tokens}, {"unknown", num_unknown}};
  const uint64_t num_bytes = scored_text_bytes(source, *model.tokenizers.target, options);
  for (const task::LikelihoodScore& likelihood_score : task::likelihood_scores())
    row[likelihood_score.name] = likelihood_score.value(score, num_bytes);
  if (job.text_options.words > 0)
    row["word_perplexity"] = std::exp(score.nll / static_cast<double>(job.text_options.words));
  row.update({{"block", options.sequence_length},
              {"context", options.context},
              {"memory", options.memory},
              {"streams", options.streams},
              {"precision", job.args->precision},
              {"set", join(job.args->assignments, " ")},
              {"protocol", data::protocol_of(options)}});
  if (options.has_begin_token) row["begin"] = name_of(options.begin);
  if (!job.decoding.option_names.empty())
    row.update(decode_and_score(job.decoding, model, dataset, source.name(),
                                file_of(job, job.decoding.hypotheses_path, index), job.group));
  return row;
}

void score(ScoreJob& job) {
  start_process();  // before the checks, so that errors name the rank
  check_arguments(job);
  job.examples.check(job.files);
  std::vector<std::string> inputs = job.files;
  inputs.push_back(job.decoding.references_path);
  job.group = &join_evaluation(inputs, *job.args);
  job.decoding.prepare();
  const ShardSource source(job.files.back());
  if (job.is_ensemble && !source.holds_pairs())
    refuse_usage("--ensemble", "a shard of pairs, since an ensemble consists of translation models",
                 str(source.name(), ", of the kind ", source.header().kind), "leave --ensemble out");
  for (const std::string& path : job.model_paths())
    if (path != "-") source.require_readable_by(io::Checkpoint(path));
  const bool scores_tokens = source.task().traits().has_perplexity;
  for (const auto& [option, file] : {std::pair("--predictions", job.examples.predictions_path),
                                     std::pair("--best-answers", job.examples.best_answers_path)})
    if (scores_tokens && !file.empty())
      refuse_usage(option, "a shard of examples or questions",
                   str(source.name(), ", of the kind ", source.header().kind), str("leave ", option, " out"));
  if (!source.task().traits().has_text_order)
    refuse_options(job.text_cli_options, "a shard of a text with this option",
                   str(source.name(), ", of the kind ", source.header().kind));
  Table table(Table::format_named(job.args->format),
              !job.per_token_path.empty() || !job.decoding.hypotheses_path.empty());
  for (size_t i = 0; i < job.num_rows(); ++i) {
    model::LoadedModel model = job.is_ensemble ? load_ensemble(*job.args, job.model_paths())
                                               : load_checkpoint(*job.args, job.files[i], job.num_rows() > 1);
    const auto dataset = source.dataset_for(model);
    job.decoding.check(*dataset, source.name());  // throws for options of translation if the shard has no pairs
    const ordered_json row =
        scores_tokens ? score_tokens(job, source, model, *dataset, i) : score_examples(job, source, model, *dataset);
    if (job.examples.prints_scores()) table.print_row(row);
  }
}

}  // namespace

Job make_score_job(CLI::App& app, const std::shared_ptr<Arguments>& args, SharedOptions& shared_options) {
  const auto job = std::make_shared<ScoreJob>();
  job->tool = &app;
  job->args = args;
  const auto add_file = [&](const char* name, std::string& path, const char* help) {
    return app.add_option(name, path, help)->type_name("FILE");
  };
  shared_options.scoring_options.push_back(
      app.add_option("files", job->files, "checkpoints, then a shard; one of these files may be - for standard input")
          ->type_name("MODEL... DATA"));
  shared_options.scoring_options.push_back(app.add_flag(
      "--ensemble", job->is_ensemble,
      "evaluate all models as one ensemble, whose probabilities are the mean over the models, for a shard of pairs"));
  shared_options.format = job->format_option = add_format_option(app, args->format);
  shared_options.scoring_options.push_back(add_file(
      "--per-token", job->per_token_path, "output file of a table with the log-probability of each token, in nats"));
  shared_options.model_options.push_back(add_set_option(app, args->assignments));
  shared_options.scoring_options.push_back(
      add_file("--predictions", job->examples.predictions_path,
               "output file of predicted classes, numbers or answers, in the format of the GLUE server or the SQuAD "
               "script; - writes the predictions to standard output instead of the scores"));
  shared_options.scoring_options.push_back(
      add_file("--best-answers", job->examples.best_answers_path,
               "output file of the best answers to each question with their scores, for a shard of questions"));
  for (CLI::Option* option : add_model_options(app, *args).all()) shared_options.model_options.push_back(option);
  const auto fields = std::make_shared<CommandLineFields>(app), text_fields = std::make_shared<CommandLineFields>(app),
             decoding = std::make_shared<CommandLineFields>(app);
  fields->declare(job->scoring_options);
  text_fields->declare(job->text_options);
  // Each of these options makes mh-eval translate the shard.
  std::vector<CLI::Option*> decode_options{
      add_file(
          "--hypotheses", job->decoding.hypotheses_path,
          "output file of the translations of the source sentences, for a shard of pairs; adds BLEU to the scores"),
      add_file("--references", job->decoding.references_path,
               "file of reference translations for BLEU, for a shard of pairs [the decoded targets of the shard]")};
  decoding->declare(job->decoding);
  decode_options.insert(decode_options.end(), decoding->options().begin(), decoding->options().end());
  for (const auto& options : {fields->options(), text_fields->options(), decode_options})
    shared_options.scoring_options.insert(shared_options.scoring_options.end(), options.begin(), options.end());
  return {&app, [job, fields, text_fields, decoding, decode_options] {
            fields->store_values(job->scoring_options);
            text_fields->store_values(job->text_options);
            job->text_cli_options = text_fields->options();
            decoding->store_values(job->decoding);
            check_bleu_options(*decoding, job->decoding.options.bleu);
            for (const CLI::Option* option : decode_options)
              if (option->count() > 0) job->decoding.option_names.push_back(option->get_name());
            score(*job);
          }};
}

}  // namespace mh::eval
