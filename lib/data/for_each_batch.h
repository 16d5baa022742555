// Runs a model over a corpus, mini-batch by mini-batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "data/corpus.h"

namespace mh::attention {
class Observer;
}

namespace mh::data {

// A mini-batch and the results of its forward pass.
struct VisitedBatch : MiniBatch {
  at::Tensor hidden;  // (B, n, d), last hidden states
};

struct BatchVisitor {
  attention::Observer* observer = nullptr;  // observes the visited forward passes; receives their lengths
  std::function<void(const VisitedBatch&)> visit;
  std::function<void(int64_t done, int64_t all)> progress;  // in rows; may be empty
};

// Runs the model over the corpus by `options`; mini-batches that only fill a memory are not visited. Computes gradients
// if the caller has enabled them; memories never carry them. Ends early if a signal asks the process to stop
// (base/signals.h). Throws the errors of Corpus::resolve().
void for_each_batch(model::LanguageModel& model, const Corpus& corpus, const ScoringOptions& options,
                    const BatchVisitor& visitor);

}  // namespace mh::data
