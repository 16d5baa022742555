// Log-probabilities of a corpus, token by token, and their sum.
#pragma once

#include <cstdint>
#include <functional>

#include "data/for_each_batch.h"

namespace mh::task {

struct Score {
  double nll = 0;      // nats, summed
  int64_t tokens = 0;  // scored
};

// A target and its log-probability under the model.
struct TokenScore {
  int64_t index;  // index among all targets
  int32_t token;
  double log_probability;  // nats
};

// Receives results while a corpus is scored; each member may be empty.
struct ScoreObserver {
  std::function<void(const TokenScore&)> each;              // called once for each target, in order
  std::function<void(int64_t done, int64_t all)> progress;  // in rows
  attention::Observer* observer = nullptr;                  // observes every forward pass
};

// Returns the sum over the corpus. Ends early, with the sum so far, if a signal asks the process to stop
// (base/signals.h).
Score score(model::LanguageModel& model, const data::Corpus& corpus, const data::ScoringOptions& options,
            const ScoreObserver& observer = {});

}  // namespace mh::task
