#include "train/gradient_buckets.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "nn/aten.h"

namespace mh::train {

namespace {

constexpr int64_t kFirstBucketBytes = 1 << 20;  // limit of the first bucket; small, so that its sum starts early

// Returns how many leaf tensors of a parameter (master, bf16 copy) receive gradients.
int num_leaves_of(const nn::Parameter& p) { return p.has_bf16_copy() && p.traits().is_lookup_table ? 2 : 1; }

}  // namespace

// Calls on_gradient_added() after a backward pass has added a gradient to a leaf tensor.
class GradientBuckets::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientBuckets& buckets, size_t slot_index, bool is_master)
      : buckets_(buckets), slot_index_(slot_index), is_master_(is_master) {}
  void operator()(const torch::autograd::Variable& /*leaf*/) override {
    buckets_.on_gradient_added(slot_index_, is_master_);
  }

 private:
  GradientBuckets& buckets_;
  const size_t slot_index_;
  const bool is_master_;
};

GradientBuckets::GradientBuckets(distributed::Group group, nn::ParameterList& parameters, int64_t bucket_bytes)
    : group_(std::move(group)), parameters_(parameters), bucket_bytes_(bucket_bytes) {}

GradientBuckets::~GradientBuckets() {
  for (Slot& slot : slots_) remove_hooks(slot);
}

void GradientBuckets::make_buckets() {
  for (Slot& slot : slots_) remove_hooks(slot);
  slots_.clear();
  buckets_.clear();
  std::vector<at::Tensor> gradient_leaves;
  for (auto p = parameters_.all().rbegin(); p != parameters_.all().rend(); ++p)
    if (p->gradient_leaf().requires_grad()) {
      Slot& slot = slots_.emplace_back();
      slot.parameter = &*p;
      gradient_leaves.push_back(p->gradient_leaf());
    }
  if (slots_.empty()) return;
  const auto bucket_bytes = static_cast<size_t>(bucket_bytes_);
  const auto assignment = std::get<0>(c10d::compute_bucket_assignment_by_size(
      gradient_leaves, {std::min<size_t>(kFirstBucketBytes, bucket_bytes), bucket_bytes}));
  for (const std::vector<size_t>& slots : assignment) {
    Bucket bucket;
    bucket.slots = slots;
    for (const size_t i : slots) bucket.num_gradient_elements += gradient_leaves[i].numel();
    bucket.values = at::empty({bucket.num_gradient_elements + static_cast<int64_t>(slots.size())},
                              gradient_leaves[0].options().requires_grad(false));
    int64_t offset = 0;
    for (const size_t i : slots) {
      slots_[i].bucket = buckets_.size();
      slots_[i].gradient = bucket.values.narrow(0, offset, gradient_leaves[i].numel()).view(gradient_leaves[i].sizes());
      offset += gradient_leaves[i].numel();
    }
    buckets_.push_back(std::move(bucket));
  }
}

void GradientBuckets::install_hooks(size_t slot_index) {
  Slot& slot = slots_[slot_index];
  std::vector<at::Tensor> leaves{slot.parameter->gradient_leaf()};
  if (slot.parameter->has_bf16_copy()) leaves.push_back(slot.parameter->value());
  const bool are_installed = slot.hooked_leaves.size() == leaves.size() &&
                             std::equal(leaves.begin(), leaves.end(), slot.hooked_leaves.begin(),
                                        [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
  if (are_installed) return;
  remove_hooks(slot);
  for (size_t i = 0; i < leaves.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(leaves[i], std::make_unique<Hook>(*this, slot_index, i == 0));
  slot.hooked_leaves = std::move(leaves);
}

void GradientBuckets::remove_hooks(Slot& slot) {
  for (const at::Tensor& leaf : slot.hooked_leaves) torch::autograd::impl::set_post_acc_grad_hooks(leaf, nullptr);
  slot.hooked_leaves.clear();
}

void GradientBuckets::begin_pass() {
  if (group_.is_single()) return;
  size_t index = 0;
  bool is_same_set = true;
  for (auto p = parameters_.all().rbegin(); p != parameters_.all().rend(); ++p)
    if (p->gradient_leaf().requires_grad()) {
      is_same_set = is_same_set && index < slots_.size() && slots_[index].parameter == &*p;
      ++index;
    }
  if (!is_same_set || index != slots_.size()) make_buckets();
  is_last_backward_ = false;
  num_started_ = num_started_early_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.values.zero_();
    bucket.num_missing_slots = bucket.slots.size();
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.has_gradient = false;
    slot.num_missing_leaves = num_leaves_of(*slot.parameter);
    slot.parameter->gradient_leaf().mutable_grad() = slot.gradient;
    install_hooks(i);
  }
}

void GradientBuckets::on_gradient_added(size_t slot_index, bool is_master) {
  Slot& slot = slots_[slot_index];
  if (is_master && slot.parameter->has_bf16_copy() && !slot.parameter->traits().is_lookup_table)
    throw std::logic_error(slot.parameter->name() +
                           ": expected a gradient of the bf16 copy only; found one of the master; set is_lookup_table");
  slot.has_gradient = true;
  if (!is_master) slot.parameter->collect_gradient();
  if (!is_last_backward_ || --slot.num_missing_leaves > 0) return;
  --buckets_[slot.bucket].num_missing_slots;
  start_sums_of_complete_buckets();
}

void GradientBuckets::start_sums_of_complete_buckets() {
  while (num_started_ < buckets_.size() && buckets_[num_started_].num_missing_slots == 0) {
    start_sum(buckets_[num_started_]);
    ++num_started_early_;
  }
}

void GradientBuckets::start_sum(Bucket& bucket) {
  c10::NoGradGuard no_gradient;
  for (size_t i = 0; i < bucket.slots.size(); ++i)
    if (slots_[bucket.slots[i]].has_gradient)
      bucket.values[bucket.num_gradient_elements + static_cast<int64_t>(i)].fill_(1);
  bucket.sum = group_.start_sum(bucket.values);
  ++num_started_;
}

void GradientBuckets::finish() {
  if (group_.is_single()) return;
  while (num_started_ < buckets_.size()) start_sum(buckets_[num_started_]);
  for (Bucket& bucket : buckets_) {
    bucket.sum.wait();
    const at::Tensor counts =
        bucket.values.narrow(0, bucket.num_gradient_elements, static_cast<int64_t>(bucket.slots.size())).to(at::kCPU);
    for (size_t i = 0; i < bucket.slots.size(); ++i)
      if (counts[static_cast<int64_t>(i)].item<float>() == 0)
        slots_[bucket.slots[i]].parameter->gradient_leaf().mutable_grad() = at::Tensor();
  }
  is_last_backward_ = false;
}

}  // namespace mh::train
