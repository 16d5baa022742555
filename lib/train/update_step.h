// One step of the optimiser: forward and backward passes over the micro-batches of an update, gradient clipping, and
// the change of the parameters.
#pragma once

#include <memory>
#include <vector>

#include "model/memories.h"
#include "train/batches.h"
#include "train/graphed_pass.h"
#include "train/optimizer.h"
#include "train/pass_planner.h"
#include "train/run_config.h"

namespace mh::train {

class UpdateStep {
 public:
  struct Result {
    double nll = 0, smoothed = 0;  // sums over the targets
    int64_t tokens = 0;            // targets
    double norm = 0;               // of the gradient of the mean loss
    bool finite() const { return std::isfinite(smoothed) && std::isfinite(norm); }
    // Factor that turns the sums into means over the targets.
    double scale() const { return 1 / static_cast<double>(std::max<int64_t>(1, tokens)); }
  };

  // All arguments must outlive this.
  UpdateStep(const RunConfig& config, model::LanguageModel& model, Batches& batches, Optimizer& optimizer,
             PassPlanner& planner);

  // Takes a step with the learning rate `lr` over the batch of the update after `progress`. Advances `memories`, one
  // for each micro-batch. Leaves the parameters unchanged if the loss or the gradient norm is not finite.
  Result operator()(const Pass& pass, const TrainProgress& progress, double lr, std::vector<model::Memories>& memories);

  // Returns whether train.cuda_graph is set.
  bool records() const { return recorded_ != nullptr; }

 private:
  // Accumulates the gradients of all micro-batches.
  Result forward_backward(const Pass& pass, const TrainProgress& progress, std::vector<model::Memories>& memories);
  // Adds the gradients of one micro-batch to those of the parameters, and returns its losses on the device. `memory`
  // may be null.
  nn::SlicedLoss micro_batch(const model::Input& input, const model::Targets& targets,
                             const nn::ForwardContext& context, model::Memories* memory);

  const RunConfig& config_;
  model::LanguageModel& model_;
  Batches& batches_;
  Optimizer& optimizer_;
  PassPlanner& pass_planner_;
  TrainProgress progress_;                 // of the step in progress
  std::unique_ptr<GraphedPass> recorded_;  // null without train.cuda_graph
};

}  // namespace mh::train
