#include "train/optimizer.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "cpu/optimizer.h"
#include "cuda/table.h"
#include "model/device.h"
#include "model/load.h"

namespace mh::train {

namespace {

constexpr int64_t kGrain = 1 << 15;

double squares(const at::Tensor& x) {
  if (x.is_cuda()) return at::square(x.to(at::kDouble)).sum().item<double>();
  const auto* data = x.const_data_ptr<float>();
  // Chunks of a fixed size, added in order: the same bits however many threads there are.
  const int64_t chunks = (x.numel() + kGrain - 1) / kGrain;
  std::vector<double> sums(static_cast<size_t>(chunks));
  at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      sums[static_cast<size_t>(c)] = kernels::squares(data, c * kGrain, std::min(x.numel(), (c + 1) * kGrain));
  });
  double sum = 0;
  for (double s : sums) sum += s;
  return sum;
}

}  // namespace

Optimizer::Optimizer(model::ParameterList& parameters, const TrainOptions& options, const Groups& groups)
    : options_(options) {
  c10::NoGradGuard no_gradient;
  for (model::Parameter& p : parameters.all()) {
    if (!p.traits().trainable) continue;
    Slot slot{&p, options.optimizer, options.momentum, options.weight_decay, 0, 1, at::zeros_like(p.master()), {}};
    if (const GroupOptions* group = groups.of(p.name())) {
      if (!group->optimizer.empty()) slot.rule = group->optimizer, slot.momentum = 0;
      if (group->momentum >= 0) slot.momentum = group->momentum;
      if (group->weight_decay >= 0) slot.weight_decay = group->weight_decay;
      slot.lr = group->lr, slot.lr_factor = group->lr_factor;
    }
    if (slot.is_adam()) slot.second = at::zeros_like(p.master());
    slots_.push_back(slot);
  }
}

double Optimizer::gradient_norm(double scale) const {
  double sum = 0;
  for (const Slot& slot : slots_)
    if (const at::Tensor& g = slot.parameter->master().grad(); g.defined()) sum += squares(g.contiguous());
  return std::sqrt(sum) * scale;
}

void Optimizer::step(double lr, double scale) {
  c10::NoGradGuard no_gradient;
  for (Slot& slot : slots_)
    if (slot.parameter->master().grad().defined()) step(slot, lr, scale);
  last_lr = lr;
}

void Optimizer::step(Slot& slot, double schedule_lr, double scale) {
  model::Parameter& parameter = *slot.parameter;
  at::Tensor gradient = parameter.master().grad().contiguous();
  auto* p = parameter.master().mutable_data_ptr<float>();
  const auto* g = gradient.const_data_ptr<float>();
  auto* first = slot.first.mutable_data_ptr<float>();
  const int64_t count = gradient.numel();
  const bool gpu = gradient.is_cuda();
  auto each = [&](const auto& kernel) { at::parallel_for(0, count, kGrain, kernel); };

  const double lr = slot.lr > 0 ? slot.lr : slot.lr_factor * schedule_lr;
  const auto rate = static_cast<float>(lr), s = static_cast<float>(scale);
  const bool decays = slot.rule != "adamw" || parameter.traits().decay;
  const double wd = decays ? slot.weight_decay : 0;
  ++slot.steps;
  if (slot.is_adam()) {
    auto* second = slot.second.mutable_data_ptr<float>();
    const double b1 = options_.betas[0], b2 = options_.betas[1];
    const auto n = static_cast<double>(slot.steps);
    const bool correct = options_.bias_correction;
    kernels::AdamPlan plan{rate,
                           static_cast<float>(b1),
                           static_cast<float>(b2),
                           static_cast<float>(options_.epsilon),
                           correct ? static_cast<float>(1 - std::pow(b1, n)) : 1.0F,
                           correct ? static_cast<float>(1 - std::pow(b2, n)) : 1.0F,
                           static_cast<float>(lr * wd),
                           s};
    if (gpu) model::check_cuda(model::cuda_kernels().adam(plan, count, p, g, first, second));
    else each([&](int64_t begin, int64_t end) { kernels::adam(plan, begin, end, p, g, first, second); });
  } else if (slot.rule == "sgd") {
    kernels::MomentumPlan plan{rate, static_cast<float>(slot.momentum), static_cast<float>(wd), s};
    if (gpu) model::check_cuda(model::cuda_kernels().sgd(plan, count, p, g, first));
    else each([&](int64_t begin, int64_t end) { kernels::sgd(plan, begin, end, p, g, first); });
  } else {
    const double before = slot.lr > 0 || last_lr <= 0 ? lr : slot.lr_factor * last_lr;
    kernels::NagPlan plan{rate, static_cast<float>(slot.momentum), static_cast<float>(before > 0 ? lr / before : 1),
                          static_cast<float>(lr * wd), s};
    if (gpu) model::check_cuda(model::cuda_kernels().nag(plan, count, p, g, first));
    else each([&](int64_t begin, int64_t end) { kernels::nag(plan, begin, end, p, g, first); });
  }
  parameter.refresh_copy();
}

void Optimizer::reset() {
  for (Slot& slot : slots_) {
    slot.first.zero_();
    if (slot.second.defined()) slot.second.zero_();
    slot.steps = 0;
  }
  last_lr = 0;
}

std::map<std::string, int64_t> Optimizer::steps() const {
  std::map<std::string, int64_t> all;
  for (const Slot& slot : slots_) all[slot.parameter->name()] = slot.steps;
  return all;
}

void Optimizer::set_steps(const std::map<std::string, int64_t>& steps) {
  for (Slot& slot : slots_)
    if (auto it = steps.find(slot.parameter->name()); it != steps.end()) slot.steps = it->second;
}

std::vector<std::pair<std::string, at::Tensor>> Optimizer::state() {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (Slot& slot : slots_) {
    all.emplace_back(model::kOptimizerPrefix + slot.parameter->name() + ".first", slot.first);
    if (slot.second.defined())
      all.emplace_back(model::kOptimizerPrefix + slot.parameter->name() + ".second", slot.second);
  }
  return all;
}

}  // namespace mh::train
