#include "train/optimizer.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <stdexcept>
#include <tuple>

#include "ceil_div.h"
#include "cpu/optimizer.h"
#include "cuda/cuda_api.h"
#include "model/load.h"
#include "nn/device.h"
#include "train/gradient_buckets.h"

namespace mh::train {

namespace {

constexpr int64_t kGrainSize = 1 << 15;  // number of elements in a chunk of a parallel loop

// Returns the sum of squares of a tensor on a CPU.
double sum_of_squares(const at::Tensor& x) {
  const auto* elements = x.const_data_ptr<float>();
  // Chunks have a fixed size and are added in order, so the result does not depend on the number of threads.
  const int64_t num_chunks = ceil_div(x.numel(), kGrainSize);
  std::vector<double> sums(static_cast<size_t>(num_chunks));
  at::parallel_for(0, num_chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      sums[static_cast<size_t>(c)] =
          kernels::sum_of_squares(elements, c * kGrainSize, std::min(x.numel(), (c + 1) * kGrainSize));
  });
  double sum = 0;
  for (double s : sums) sum += s;
  return sum;
}

// Returns the sum of squares of all elements of all tensors on a GPU, with a few kernel launches and one
// synchronisation.
double sum_of_squares(const nn::Gpu& gpu, const std::vector<at::Tensor>& tensors) {
  std::vector<kernels::FloatSpan> spans;
  int64_t num_chunks = 0;
  for (const at::Tensor& x : tensors) {
    spans.push_back({x.numel(), x.const_data_ptr<float>()});
    num_chunks += ceil_div(x.numel(), kernels::kUpdateChunkSize);
  }
  const at::Tensor sums = at::empty({num_chunks}, tensors[0].options().dtype(at::kDouble));
  nn::check_cuda(gpu.kernels->sum_of_squares(spans.data(), static_cast<int64_t>(spans.size()),
                                             sums.mutable_data_ptr<double>(), gpu.stream));
  return sums.sum().item<double>();
}

// Returns the number of elements of each parameter that the optimiser updates.
std::vector<int64_t> trainable_sizes(const nn::ParameterList& parameters) {
  std::vector<int64_t> sizes;
  for (const nn::Parameter& p : parameters.all())
    if (p.traits().trainable) sizes.push_back(p.gradient_leaf().numel());
  return sizes;
}

using kernels::AdamParams;
using kernels::MomentumParams;
using kernels::NagParams;
using kernels::Update;

void update_range(int64_t begin, int64_t end, const Update<AdamParams>& u) {
  kernels::adam(u.params, begin, end, u.p, u.g, u.first_moment, u.second_moment);
}
void update_range(int64_t begin, int64_t end, const Update<MomentumParams>& u) {
  kernels::sgd(u.params, begin, end, u.p, u.g, u.first_moment);
}
void update_range(int64_t begin, int64_t end, const Update<NagParams>& u) {
  kernels::nag(u.params, begin, end, u.p, u.g, u.first_moment);
}

}  // namespace

// The updates of all parameters in one step on a GPU, launched together at the end of the step, by update rule. On a
// CPU, step() updates each parameter directly.
struct Optimizer::BatchedUpdates {
  std::tuple<std::vector<Update<AdamParams>>, std::vector<Update<MomentumParams>>, std::vector<Update<NagParams>>>
      updates;
  std::vector<at::Tensor> gradients;  // owners of the gradients that `updates` points to

  void launch(const nn::Gpu& gpu) const {
    const auto launch_kernel = [&](const auto& rule_updates, const auto& kernel) {
      if (!rule_updates.empty())
        nn::check_cuda(kernel(rule_updates.data(), static_cast<int64_t>(rule_updates.size()), gpu.stream));
    };
    launch_kernel(std::get<0>(updates), gpu.kernels->adam);
    launch_kernel(std::get<1>(updates), gpu.kernels->sgd);
    launch_kernel(std::get<2>(updates), gpu.kernels->nag);
  }
};

Optimizer::Optimizer(nn::ParameterList& parameters, const TrainOptions& options, const ParameterGroups& groups,
                     const distributed::Group& processes)
    : options_(options),
      device_(parameters.device()),
      is_sharded_(options.shard == "optimizer" && !processes.is_single()),
      shards_(trainable_sizes(parameters), is_sharded_ ? processes.size() : 1),
      exchange_(processes, GradientBuckets::kBucketBytes) {
  c10::NoGradGuard no_gradient;
  for (nn::Parameter& p : parameters.all()) {
    if (!p.traits().trainable) continue;
    const OptimizerOptions& o = options.optimizer;
    Slot slot{.parameter = &p,
              .rule = o.rule,
              .momentum = o.momentum,
              .weight_decay = o.weight_decay,
              .decay_norms_and_biases = o.decay_norms_and_biases,
              .range = shards_.of(slots_.size(), is_sharded_ ? processes.rank() : 0)};
    if (const ParameterGroupOptions* group = groups.group_of(p.name())) {
      if (!group->rule.empty()) {
        slot.rule = group->rule, slot.momentum = 0;
        slot.decay_norms_and_biases = group->decay_norms_and_biases;
      }
      if (group->momentum >= 0) slot.momentum = group->momentum;
      if (group->weight_decay >= 0) slot.weight_decay = group->weight_decay;
      slot.lr = group->lr, slot.lr_factor = group->lr_factor;
    }
    slot.first_moment = new_moment(slot);
    if (slot.is_adam()) slot.second_moment = new_moment(slot);
    slots_.push_back(slot);
  }
}

at::Tensor Optimizer::new_moment(const Slot& slot) const {
  const at::Tensor& leaf = slot.parameter->gradient_leaf();
  const auto options = leaf.options().requires_grad(false);
  return is_sharded_ ? at::zeros({slot.range.size()}, options) : at::zeros(leaf.sizes(), options);
}

void Optimizer::divide_masters() {
  if (!is_sharded_) return;
  for (const Slot& slot : slots_)
    if (slot.parameter->has_bf16_copy() && has_divisible_master(slot.parameter->traits()))
      slot.parameter->divide_master(slot.range.begin, slot.range.size());
}

double Optimizer::gradient_norm(double scale) const {
  std::vector<at::Tensor> gradients;
  for (const Slot& slot : slots_)
    if (const at::Tensor& g = slot.parameter->gradient_leaf().grad(); g.defined()) gradients.push_back(g.contiguous());
  double sum = 0;
  if (const nn::Gpu gpu = nn::gpu_of(device_)) {
    if (!gradients.empty()) sum = sum_of_squares(gpu, gradients);
  } else {
    for (const at::Tensor& g : gradients) sum += sum_of_squares(g);
  }
  return std::sqrt(sum) * scale;
}

void Optimizer::step(double lr, double scale) {
  c10::NoGradGuard no_gradient;
  BatchedUpdates batched_updates;
  const nn::Gpu gpu = nn::gpu_of(device_);
  for (Slot& slot : slots_)
    if (slot.parameter->gradient_leaf().grad().defined()) step(slot, lr, scale, gpu ? &batched_updates : nullptr);
  if (gpu) batched_updates.launch(gpu);
  if (is_sharded_) exchange_updated_elements();
  last_lr = lr;
}

void Optimizer::step(Slot& slot, double schedule_lr, double scale, BatchedUpdates* batched_updates) {
  const nn::Parameter& parameter = *slot.parameter;
  const double lr = slot.lr > 0 ? slot.lr : slot.lr_factor * schedule_lr;
  const auto lr_fp32 = static_cast<float>(lr), scale_fp32 = static_cast<float>(scale);
  const bool applies_decay = !slot.is_adam() || slot.decay_norms_and_biases || parameter.traits().has_weight_decay;
  const double weight_decay = applies_decay ? slot.weight_decay : 0;
  ++slot.steps;
  if (slot.is_adam()) {
    const double b1 = options_.optimizer.betas[0], b2 = options_.optimizer.betas[1];
    const auto n = static_cast<double>(slot.steps);
    const bool bias_correction = options_.optimizer.bias_correction;
    apply(slot,
          AdamParams{lr_fp32, static_cast<float>(b1), static_cast<float>(b2),
                     static_cast<float>(options_.optimizer.epsilon),
                     bias_correction ? static_cast<float>(1 - std::pow(b1, n)) : 1.0F,
                     bias_correction ? static_cast<float>(1 - std::pow(b2, n)) : 1.0F,
                     static_cast<float>(lr * weight_decay), scale_fp32},
          batched_updates);
  } else if (slot.rule == "sgd") {
    apply(slot,
          MomentumParams{lr_fp32, static_cast<float>(slot.momentum), static_cast<float>(weight_decay), scale_fp32},
          batched_updates);
  } else {
    const double previous_lr = slot.lr > 0 || last_lr <= 0 ? lr : slot.lr_factor * last_lr;
    apply(slot,
          NagParams{lr_fp32, static_cast<float>(slot.momentum),
                    static_cast<float>(previous_lr > 0 ? lr / previous_lr : 1), static_cast<float>(lr * weight_decay),
                    scale_fp32},
          batched_updates);
  }
}

template <class Params>
void Optimizer::apply(Slot& slot, const Params& params, BatchedUpdates* batched_updates) {
  nn::Parameter& parameter = *slot.parameter;
  const at::Tensor gradient = parameter.gradient_leaf().grad().contiguous();
  float* const master = parameter.has_whole_master()
                            ? parameter.master().template mutable_data_ptr<float>() + slot.range.begin
                            : parameter.master_shard().template mutable_data_ptr<float>();
  const Update<Params> update{params,
                              slot.range.size(),
                              master,
                              gradient.const_data_ptr<float>() + slot.range.begin,
                              slot.first_moment.mutable_data_ptr<float>(),
                              slot.second_moment.defined() ? slot.second_moment.mutable_data_ptr<float>() : nullptr,
                              parameter.has_bf16_copy()
                                  ? static_cast<uint16_t*>(parameter.value().mutable_data_ptr()) + slot.range.begin
                                  : nullptr};
  if (batched_updates != nullptr) {
    std::get<std::vector<Update<Params>>>(batched_updates->updates).push_back(update);
    batched_updates->gradients.push_back(gradient);
    return;
  }
  at::parallel_for(0, update.count, kGrainSize, [&](int64_t begin, int64_t end) { update_range(begin, end, update); });
  if (!parameter.has_whole_master()) parameter.refresh_bf16_shard();
  else if (!is_sharded_) parameter.refresh_bf16_copy();
}

void Optimizer::exchange_updated_elements() {
  std::vector<ShardExchange::Values> values;
  for (size_t i = 0; i < slots_.size(); ++i)
    if (nn::Parameter& p = *slots_[i].parameter; p.gradient_leaf().grad().defined())
      values.push_back({i, p.has_whole_master() ? p.master() : p.value()});
  exchange_.all_gather(shards_, values);
  for (const ShardExchange::Values& v : values)
    if (nn::Parameter& p = *slots_[v.parameter_index].parameter; p.has_whole_master()) p.refresh_bf16_copy();
}

void Optimizer::reset() {
  for (Slot& slot : slots_) {
    slot.first_moment.zero_();
    if (slot.second_moment.defined()) slot.second_moment.zero_();
    slot.steps = 0;
  }
  last_lr = 0;
}

std::map<std::string, int64_t> Optimizer::steps() const {
  std::map<std::string, int64_t> steps_by_name;
  for (const Slot& slot : slots_) steps_by_name[slot.parameter->name()] = slot.steps;
  return steps_by_name;
}

void Optimizer::set_steps(const std::map<std::string, int64_t>& steps) {
  for (Slot& slot : slots_)
    if (auto it = steps.find(slot.parameter->name()); it != steps.end()) slot.steps = it->second;
}

std::vector<std::pair<std::string, at::Tensor>> Optimizer::moments() {
  if (is_sharded_)
    throw std::logic_error(
        "Optimizer::moments(): expected whole moments; found moments that several processes divide; "
        "call moment_shards()");
  std::vector<std::pair<std::string, at::Tensor>> named_moments;
  for (Slot& slot : slots_) {
    named_moments.emplace_back(model::kOptimizerPrefix + slot.parameter->name() + ".first", slot.first_moment);
    if (slot.second_moment.defined())
      named_moments.emplace_back(model::kOptimizerPrefix + slot.parameter->name() + ".second", slot.second_moment);
  }
  return named_moments;
}

TensorShard Optimizer::shard_of(size_t slot_index, std::string name, const at::Tensor& elements) const {
  const Slot& slot = slots_[slot_index];
  return {std::move(name), slot.parameter->gradient_leaf().sizes().vec(), slot_index, slot.range.begin,
          elements.view(-1)};
}

std::vector<TensorShard> Optimizer::moment_shards() {
  std::vector<TensorShard> result;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const std::string prefix = model::kOptimizerPrefix + slots_[i].parameter->name();
    result.push_back(shard_of(i, prefix + ".first", slots_[i].first_moment));
    if (slots_[i].second_moment.defined()) result.push_back(shard_of(i, prefix + ".second", slots_[i].second_moment));
  }
  return result;
}

std::vector<TensorShard> Optimizer::master_shards() const {
  std::vector<TensorShard> result;
  for (size_t i = 0; i < slots_.size(); ++i)
    if (const nn::Parameter& p = *slots_[i].parameter; !p.has_whole_master())
      result.push_back(shard_of(i, p.name(), p.master_shard()));
  return result;
}

}  // namespace mh::train
