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

// A mini-batch after its forward pass, as BatchVisitor::visit() receives it.
struct ForwardedBatch : MiniBatch {
  at::Tensor hidden;  // (B, n, d), hidden states after the last layer, before the output layer
};

struct BatchVisitor {
  // Observes the forward pass of every mini-batch that `visit` receives; null: no observer. Observer::begin_batch()
  // receives the lengths of the rows first.
  attention::Observer* observer = nullptr;
  std::function<void(const ForwardedBatch&)> visit;                       // called after each scored mini-batch
  std::function<void(int64_t num_completed, int64_t total)> on_progress;  // receives numbers of rows; may be empty
};

// Runs the model over the corpus. `options` are completed by Corpus::resolve(), whose errors this function throws. Does
// not visit mini-batches that only fill the Transformer-XL memory. Computes gradients if the caller has enabled them;
// no gradient passes through the memory. Returns early after a stop signal (base/signals.h).
void for_each_batch(model::LanguageModel& model, const Corpus& corpus, const ScoringOptions& options,
                    const BatchVisitor& visitor);

}  // namespace mh::data
