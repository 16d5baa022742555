#include "train/update_step.h"

#include "base/signals.h"
#include "distributed/stop_signal.h"
#include "train/process_checks.h"

namespace mh::train {

UpdateStep::UpdateStep(const RunConfig& config, model::LanguageModel& model, Batches& batches, Optimizer& optimizer,
                       PassPlanner& planner, const distributed::Group& group)
    : config_(config),
      model_(model),
      batches_(batches),
      optimizer_(optimizer),
      pass_planner_(planner),
      group_(group),
      gradient_buckets_(group, model.parameters()),
      sums_statistics_(!group.is_single() && has_running_statistics(model.parameters())) {
  if (config_.train.cuda_graph)
    graphed_forward_backward_ = std::make_unique<GraphedForwardBackward>(
        model_,
        [this](const model::Input& input, const model::Targets& targets, const nn::ForwardContext& context) {
          return run_micro_batch(input, targets, context, nullptr);
        },
        nn::make_device_graph);
}

UpdateStep::Result UpdateStep::operator()(const TrainingPass& pass, const TrainProgress& progress, double lr,
                                          std::vector<model::Memories>& memories) {
  pass_planner_.apply(pass, progress);
  Result result = forward_backward(pass, progress, memories);
  result.gradient_norm = optimizer_.gradient_norm(result.sum_to_mean_factor());
  if (result.is_finite()) {
    const double max_norm = config_.train.optimizer.clip_norm;
    const double clip_factor =
        max_norm > 0 && result.gradient_norm > max_norm ? max_norm / (result.gradient_norm + 1e-6) : 1;
    optimizer_.step(lr, result.sum_to_mean_factor() * clip_factor);
  }
  model_.parameters().zero_gradients();
  return result;
}

UpdateStep::Result UpdateStep::forward_backward(const TrainingPass& pass, const TrainProgress& progress,
                                                std::vector<model::Memories>& memories) {
  progress_ = progress;
  const at::Device device = model_.parameters().device();
  const std::vector<Batches::MicroBatch> micro_batches = batches_.micro_batches(progress.update);
  Result sums;
  // (2) fp64: nll and smoothed loss, summed over the micro-batches.
  at::Tensor losses = at::zeros({2}, at::TensorOptions(device).dtype(at::kDouble));
  gradient_buckets_.begin_pass();
  for (size_t micro_batch_index = 0; micro_batch_index < micro_batches.size(); ++micro_batch_index) {
    // Sums of statistics in the backward pass must have the same place among the sums of buckets in all processes, but
    // which gradients are complete may differ: a parameter may have no gradient in one process.
    if (micro_batch_index + 1 == micro_batches.size() && !sums_statistics_) gradient_buckets_.begin_last_backward();
    const Batches::MicroBatch& micro_batch = micro_batches[micro_batch_index];
    data::Batch batch = batches_.load(progress.update, micro_batch);
    if (micro_batch.is_filler) batch.targets.fill_(-1);
    const nn::ForwardContext context{.training = true,
                                     .seed = static_cast<uint64_t>(config_.train.seed),
                                     .update = static_cast<uint32_t>(progress.update),
                                     .row_offset = micro_batch.first_row,
                                     .dropout_index = config_.train.dropout_index,
                                     .requests = &pass.requests,
                                     .processes = group_.is_single() ? nullptr : &group_,
                                     .counts_rows = !micro_batch.is_filler,
                                     .recomputes_layers = config_.train.recompute};
    std::unique_ptr<model::Memories> filler_memory;  // a filler has no streams whose memory continues
    model::Memories* memory = nullptr;
    if (model_.memory_length() > 0 && micro_batch.is_filler) {
      filler_memory = model_.new_memory(model_.memory_length());
      memory = filler_memory.get();
    } else if (model_.memory_length() > 0) {
      if (micro_batch_index == memories.size())
        memories.push_back(std::move(*model_.new_memory(model_.memory_length())));
      memory = &memories[micro_batch_index];
    }
    const bool uses_graph = graphed_forward_backward_ != nullptr && pass.requests.empty();
    const nn::SlicedLoss loss = uses_graph
                                    ? (*graphed_forward_backward_)(batch, context)
                                    : run_micro_batch(batch.input.to(device), batch.model_targets(), context, memory);
    losses.add_(at::stack({loss.nll, loss.smoothed.detach().to(at::kDouble)}));
    sums.num_targets += loss.num_scored;
  }
  gradient_buckets_.finish();
  losses = losses.to(at::kCPU);  // in a single process, the only synchronisation of CPU and GPU here
  if (!group_.is_single()) {
    const int64_t num_flags = static_cast<int64_t>(kStopSignals.size());
    const at::Tensor totals =
        nn::cat({losses, at::full({1}, sums.num_targets, at::kDouble), at::zeros({num_flags}, at::kDouble)});
    distributed::set_stop_flag(totals.narrow(0, 3, num_flags));
    group_.sum(totals);
    losses = totals.narrow(0, 0, 2);
    sums.num_targets = totals[2].item<int64_t>();
    sums.stop_signal = distributed::stop_signal_in(totals.narrow(0, 3, num_flags));
  } else {
    sums.stop_signal = stop_signal();
  }
  sums.nll = losses[0].item<double>(), sums.smoothed_loss = losses[1].item<double>();
  return sums;
}

nn::SlicedLoss UpdateStep::run_micro_batch(const model::Input& input, const model::Targets& targets,
                                           const nn::ForwardContext& context, model::Memories* memory) {
  attention::Observer* observer = config_.regularisers.observer();
  if (observer != nullptr) observer->begin_batch(input.lengths);
  const at::Tensor hidden = model_.hidden(input, context, memory, observer);
  nn::SlicedLoss loss = model_.loss(hidden, targets, config_.train.label_smoothing, context);
  // Regularisation terms are added to the mean loss per token. Gradients are later divided by the number of targets in
  // the update, so a term is multiplied by the number of targets in the micro-batch here.
  const at::Tensor term = config_.regularisers.loss(progress_);
  const at::Tensor total_loss =
      term.defined() ? loss.smoothed + term.to(loss.smoothed.device()) * static_cast<double>(loss.num_scored)
                     : loss.smoothed;
  // The loss of a micro-batch depends on no trained parameter if, for example, only one band of an adaptive vocabulary
  // is trained and no token of the micro-batch is in that band.
  if (total_loss.requires_grad()) total_loss.backward();
  model_.parameters().collect_gradients();
  return loss;
}

}  // namespace mh::train
