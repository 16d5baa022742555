// One optimiser step: forward and backward passes over the micro-batches of an update, with gradient accumulation,
// gradient clipping and the update of the parameters.
#pragma once

#include <memory>
#include <vector>

#include "model/memories.h"
#include "train/batches.h"
#include "train/gradient_buckets.h"
#include "train/graphed_forward_backward.h"
#include "train/optimizer.h"
#include "train/pass_planner.h"
#include "train/run_config.h"

namespace mh::train {

class UpdateStep {
 public:
  struct Result {
    double nll = 0, smoothed_loss = 0;  // loss without and with label smoothing, summed over the targets, nats
    int64_t num_targets = 0;            // number of targets of all micro-batches of the update
    double gradient_norm = 0;           // norm of the gradient of the mean loss, before clipping
    // Stop signal that at least one process of the job has received; equal in all processes; 0: none.
    int stop_signal = 0;
    bool is_finite() const { return std::isfinite(smoothed_loss) && std::isfinite(gradient_norm); }
    // Returns 1 / num_targets, the factor from sums to means over the targets; 1 without targets.
    double sum_to_mean_factor() const { return 1 / static_cast<double>(std::max<int64_t>(1, num_targets)); }
  };

  // All arguments must outlive this object. The processes of `group` take each step together: each process computes its
  // own micro-batches, and losses and gradients are summed over all processes.
  UpdateStep(const RunConfig& config, model::LanguageModel& model, Batches& batches, Optimizer& optimizer,
             PassPlanner& planner, const distributed::Group& group);

  // Takes an optimiser step with learning rate `lr` on the batch of update progress.update. Reads and advances
  // `memories`, one for each micro-batch (empty: starts with new memories, if the model has a memory). Leaves the
  // parameters unchanged if the loss or the gradient norm is not finite.
  Result operator()(const TrainingPass& pass, const TrainProgress& progress, double lr,
                    std::vector<model::Memories>& memories);

  // Returns whether train.cuda_graph is set.
  bool uses_cuda_graph() const { return graphed_forward_backward_ != nullptr; }

 private:
  // Computes the losses and accumulates the gradients of all micro-batches of all processes.
  Result forward_backward(const TrainingPass& pass, const TrainProgress& progress,
                          std::vector<model::Memories>& memories);
  // Runs the forward and backward pass of one micro-batch: accumulates the gradients and returns the losses, whose
  // tensors are on the device of the model. `memory`: null for a model without memory.
  nn::SlicedLoss run_micro_batch(const model::Input& input, const model::Targets& targets,
                                 const nn::ForwardContext& context, model::Memories* memory);

  const RunConfig& config_;
  model::LanguageModel& model_;
  Batches& batches_;
  Optimizer& optimizer_;
  PassPlanner& pass_planner_;
  const distributed::Group& group_;
  GradientBuckets gradient_buckets_;
  const bool sums_statistics_;  // whether stages sum statistics over several processes
  TrainProgress progress_;      // `progress` of the last call of forward_backward()
  std::unique_ptr<GraphedForwardBackward> graphed_forward_backward_;  // null without train.cuda_graph
};

}  // namespace mh::train
