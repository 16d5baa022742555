// mh-eval MODEL... DATA: the options and results of scoring, of translation, and of predictions for a shard.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "eval.h"
#include "task/token_score.h"
#include "task/translator.h"
#include "text/lines.h"

namespace mh::eval {

// The translation of a shard of pairs, and the references for BLEU.
struct DecodeJob {
  std::vector<std::string> option_names;  // options of translation on the command line; empty: no translation
  // Paths of the files of translations and of references. Without references, BLEU is computed against the targets of
  // the shard.
  std::string hypotheses_path, references_path;
  task::DecodingOptions options;
  std::shared_ptr<const text::Lines> reference_lines;  // contents of the file `references_path`
  void describe(Fields& f);
  // If an option of translation is on the command line, checks the options and reads the file of references. Called
  // before a model is loaded, so that errors appear early.
  void prepare();
  // If an option of translation is on the command line, throws Error(usage) for a dataset without pairs, and
  // Error(input) if the numbers of references and pairs differ.
  void check(const task::Dataset& dataset, const std::string& shard) const;
};

// The output files of predictions for a shard of examples or questions.
struct ExamplesJob {
  std::string predictions_path, best_answers_path;  // paths of the files of --predictions and --best-answers
  // If an output file is set, throws Error(usage) for several models, for an output file that is also an input, and for
  // two equal output files. `files`: paths of the models, then of the shard.
  void check(const std::vector<std::string>& files) const;
  // Returns whether standard output receives the scores; otherwise it receives predictions or best answers.
  bool prints_scores() const { return predictions_path != "-" && best_answers_path != "-"; }
};

// The options of scoring that apply only to a text.
struct TextScoreOptions {
  data::TextRows text_rows = data::TextRows::automatic;
  int64_t words = 0;
  void describe(Fields& f) {
    f.choice("text_rows", text_rows,
             {{data::TextRows::automatic, "auto"},
              {data::TextRows::blocks, "blocks"},
              {data::TextRows::sentences, "sentences"}},
             "rows of a text; blocks: consecutive tokens, across ends of lines; sentences: one line in each row, "
             "without context from other lines; auto: sentences if the model was trained with train.batch.order = "
             "sentences and --context is 0, otherwise blocks");
    f.field("words", words,
            "number of words of the scored text, ends of lines included, for the score word_perplexity; 0: no "
            "word_perplexity",
            at_least(0));
  }
};

struct ScoreJob {
  const CLI::App* tool = nullptr;
  std::shared_ptr<Arguments> args;
  std::vector<std::string> files;  // paths of the models, then of the shard
  bool is_ensemble = false;        // whether all models form one ensemble, with one row of the table
  std::string per_token_path;      // path of the file of --per-token
  CLI::Option* format_option = nullptr;
  data::ScoringOptions scoring_options;
  TextScoreOptions text_options;
  std::vector<CLI::Option*> text_cli_options;  // the command-line options of text_options
  DecodeJob decoding;
  ExamplesJob examples;
  const distributed::Group* group = nullptr;  // the processes that share the batches
  std::vector<std::string> model_paths() const { return {files.begin(), files.end() - 1}; }
  // Returns the number of rows of the table.
  size_t num_rows() const { return is_ensemble ? 1 : files.size() - 1; }
};

// Returns the table row with the scores of a model on examples, questions or documents, and writes its predictions.
nlohmann::ordered_json score_examples(const ScoreJob& job, const ShardSource& source, model::LoadedModel& model,
                                      const task::Dataset& dataset);

// Translates the pairs of the dataset, writes the hypotheses to `file` unless `file` is empty, and returns the table
// columns of BLEU and of the search options. `group`: the processes that share the batches.
nlohmann::ordered_json decode_and_score(const DecodeJob& job, model::LoadedModel& model, const task::Dataset& dataset,
                                        const std::string& shard, const std::string& file,
                                        const distributed::Group* group);

}  // namespace mh::eval
