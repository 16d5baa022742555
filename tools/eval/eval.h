// The jobs of mh-eval.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/model_options.h"
#include "lines.h"
#include "metrics/bleu.h"
#include "metrics/chrf.h"
#include "model/load.h"
#include "search/generation.h"
#include "task/scoring.h"
#include "task/translation.h"

namespace mh {
class TextSource;
}

namespace mh::eval {

struct Arguments : ModelArguments {
  Arguments() { precision = "fp32", attention = "auto"; }
  std::vector<std::string> files, sets;
  std::string format = "table", per_token;
  std::string model, prompt, prompt_file;  // of generate
};

// Translations of a shard of pairs, and what they are compared with.
struct DecodeJob {
  bool wanted = false;
  std::string hypotheses, references;  // files; the second empty: the shard's targets
  task::TranslationOptions translation;
  metrics::BleuOptions bleu;
  std::shared_ptr<const Lines> lines;  // of `references`
  void describe(Fields& f);
  // What can be seen before a model is read; reads the references.
  void start();
  void check(const task::Corpus& corpus, const std::string& shard) const;
};

// Of a shard of examples.
struct ExamplesJob {
  std::string predictions, best;  // files
  void check(const std::vector<std::string>& files) const;
};

// Of translate.
struct TranslateJob {
  std::string model, prefix_file;
  std::vector<std::string> files;
  int64_t nbest = 1;
  bool scores = false;
  task::TranslationOptions translation;
  search::SamplingOptions sampling;
  void describe(Fields& f);
  void check() const;
};

// Of bleu, which runs no model.
struct BleuJob {
  std::string hypotheses, format;
  std::vector<std::string> references;
  bool sentence = false, chrf = false;
  metrics::BleuOptions bleu;
  metrics::ChrfOptions chrf_options;  // its lower case is BLEU's
  void describe(Fields& f);
};

// The model, on the device and path that the arguments ask for.
model::LoadedModel load(const Arguments& a, const std::string& path);
void score(const Arguments& a, const task::ScoringOptions& given, DecodeJob job, const ExamplesJob& of_examples);
void score_examples(const Arguments& a, const task::ScoringOptions& given, const ExamplesJob& job,
                    const DecodeJob& decoding, const TextSource& source);
// Writes the hypotheses to `file`, unless it is empty; gives the columns of BLEU.
nlohmann::ordered_json decode(const DecodeJob& job, model::LoadedModel& m, const task::Pairs& pairs,
                              const std::string& shard, const std::string& file);
void translate_lines(const Arguments& a, TranslateJob job);
void write_text(const Arguments& a, const search::GenerationOptions& options);
void score_text(BleuJob job);

}  // namespace mh::eval
