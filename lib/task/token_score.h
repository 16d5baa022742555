// Scores a corpus: the log-probability of each target token under a model, and their sum.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "data/for_each_batch.h"

namespace mh::task {

struct NllSum {
  double nll = 0;          // negative log-likelihood, summed over all scored tokens, nats
  int64_t num_tokens = 0;  // number of scored tokens
};

// A score of a text or of sentence pairs that follows from the log-probabilities of the target tokens.
struct LikelihoodScore {
  const char* name;     // name in tables
  const char* meaning;  // meaning with its unit
  // Returns the value for a corpus whose text (for pairs, the text of the targets) has `text_bytes` bytes.
  double (*value)(const NllSum& score, uint64_t text_bytes);
};
// Returns the scores that all tasks with TaskTraits::has_perplexity share.
std::span<const LikelihoodScore> likelihood_scores();

// A target token and its log-probability under the model.
struct TokenScore {
  int64_t index;  // position in the text, or among all target tokens of the sentence pairs
  int32_t token;
  double log_probability;  // natural logarithm (nats)
};

// Callbacks, observer and processes of score(); each may be empty or null.
struct ScoreCallbacks {
  std::function<void(const TokenScore&)> on_token;  // called once for each scored token, in corpus order
  std::function<void(int64_t num_completed, int64_t total)> on_progress;  // receives numbers of rows
  attention::Observer* observer = nullptr;    // observes every forward pass that scores tokens
  const distributed::Group* group = nullptr;  // processes that share the mini-batches (data::BatchVisitor::group)
};

// Returns the summed negative log-likelihood of a corpus, with the same bits for any number of processes. After a stop
// signal (base/signals.h), returns early with the sum over the tokens scored so far.
NllSum score(model::LanguageModel& model, const data::Corpus& corpus, const data::ScoringOptions& options,
             const ScoreCallbacks& callbacks = {});

}  // namespace mh::task
