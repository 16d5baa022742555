// Runs a model over a corpus, mini-batch by mini-batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "data/corpus.h"
#include "distributed/ordered_work.h"

namespace mh::attention {
class Observer;
}

namespace mh::data {

// A mini-batch after its forward pass, as BatchVisitor::visit() and BatchVisitor::compute() receive it.
struct ForwardedBatch : MiniBatch {
  at::Tensor hidden;  // (B, n, d), hidden states after the last layer, before the output layer
};

// The computations on each scored mini-batch: either `visit`, in a single process, or the pair `compute` and `add`,
// with which several processes can divide the mini-batches.
struct BatchVisitor {
  // Observes the forward pass of every scored mini-batch that this process computes; null: no observer.
  // Observer::begin_batch() receives the lengths of the rows first.
  attention::Observer* observer = nullptr;
  std::function<void(const ForwardedBatch&)> visit = {};  // called after each scored mini-batch
  // `compute` returns tensors on the CPU, and is called by the process that computes the mini-batch. `add` receives
  // them in every process, in the order of the mini-batches.
  std::function<distributed::OrderedWork::Results(const ForwardedBatch&)> compute = {};
  std::function<void(const MiniBatch&, const distributed::OrderedWork::Results&)> add = {};
  // The processes that share the mini-batches; null: one process. Every process calls for_each_batch(). Requires
  // `compute`, which must return everything that the observer contributes to the results. With a Transformer-XL memory,
  // a process computes all mini-batches of a group of streams (ScoringOptions::batch), and keeps their results in
  // memory until the other processes have computed their groups of streams. If all streams form a single group of
  // streams, each process computes all mini-batches.
  const distributed::Group* group = nullptr;
  std::function<void(int64_t num_completed, int64_t total)> on_progress = {};  // receives numbers of rows; may be empty
};

// Runs the model over the corpus. `options` are completed by Corpus::resolve(), whose errors this function throws. Does
// not visit mini-batches that only fill the Transformer-XL memory. Computes gradients if the caller has enabled them;
// no gradient passes through the memory. Returns early after a stop signal (base/signals.h) to any process.
void for_each_batch(model::LanguageModel& model, const Corpus& corpus, const ScoringOptions& options,
                    const BatchVisitor& visitor);

}  // namespace mh::data
