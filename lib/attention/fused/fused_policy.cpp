#include "attention/fused/fused_policy.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace mh::attention {

void FusedPolicy::describe(const at::Tensor& q, const at::Tensor& k, bool gradient, kernels::Policy& policy) const {
  for (const int64_t head : key_heads) TORCH_CHECK(head >= 0 && head < k.size(1), "key_heads: no head ", head);
  policy.queries = q.size(2), policy.keys = k.size(2);
  policy.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(q.size(3))));
  policy.causal = causal, policy.window = window;
  policy.normaliser = normaliser;
  policy.gradient = gradient;
  if (drops) policy.dropout = &drops->how, policy.dropout_row = policy.keys;
  if (!key_heads.empty()) policy.key_heads = policy.value_heads = key_heads.data();
}

bool FusedPolicy::each_head_once(int64_t heads) const {
  if (key_heads.empty()) return true;
  std::vector<int64_t> sorted = key_heads;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<int64_t>(i)) return false;
  return static_cast<int64_t>(sorted.size()) == heads;
}

at::Tensor FusedPolicy::of_heads(const at::Tensor& gradient, const at::Tensor& like) const {
  // One after the other: index_add would add in an order of its own on a GPU, and wants its indices there.
  const at::Tensor sums = at::zeros_like(like, like.options().dtype(at::kFloat));
  for (size_t i = 0; i < key_heads.size(); ++i)
    sums.select(1, key_heads[i]).add_(gradient.select(1, static_cast<int64_t>(i)));
  return sums.to(like.scalar_type());
}

void FusedPolicy::keep(torch::autograd::AutogradContext& context) const {
  auto& data = context.saved_data;
  data["causal"] = causal, data["window"] = window;
  data["sigsoftmax"] = normaliser == kernels::Normaliser::sigsoftmax;
  data["before"] = dropped_before_mixing;
  if (drops) data["drops"] = std::string(reinterpret_cast<const char*>(&*drops), sizeof *drops);
  std::vector<int64_t> runs;
  for (const kernels::Run& r : relative.runs) runs.insert(runs.end(), {r.first, r.count, r.row});
  data["runs"] = runs;
  data["heads"] = key_heads;
}

FusedPolicy FusedPolicy::kept(torch::autograd::AutogradContext& context, const at::Tensor& key_lengths,
                              const RelativePositions& tensors, const at::Tensor& head_scales) {
  auto& data = context.saved_data;
  FusedPolicy p{data["causal"].toBool(), data["window"].toInt(), key_lengths};
  if (data["sigsoftmax"].toBool()) p.normaliser = kernels::Normaliser::sigsoftmax;
  p.dropped_before_mixing = data["before"].toBool();
  if (const auto drops = data.find("drops"); drops != data.end())
    std::memcpy(&p.drops.emplace(), drops->second.toStringRef().data(), sizeof *p.drops);
  p.relative = tensors;
  const std::vector<int64_t> runs = data["runs"].toIntVector();
  for (size_t i = 0; i < runs.size(); i += 3) p.relative.runs.push_back({runs[i], runs[i + 1], runs[i + 2]});
  p.key_heads = data["heads"].toIntVector();
  p.head_scales = head_scales;
  return p;
}

Distances::Distances(const RelativePositions& given) {
  if (!given.u.defined()) return;
  const int64_t behind = (16 - given.r.size(2) % 16) % 16;  // whole vectors
  const auto wide = [&](const at::Tensor& x, int64_t rows) {
    return at::constant_pad_nd(x.detach().to(at::kFloat), {0, behind, 0, rows}).contiguous();
  };
  u_ = wide(given.u, 0), v_ = wide(given.v, 0);
  rows_ = wide(given.r, kernels::Relative::kBehind);
  turned_ = rows_.transpose(1, 2).contiguous();
  runs_ = given.runs;
  relative_ = {u_.const_data_ptr<float>(),
               v_.const_data_ptr<float>(),
               rows_.const_data_ptr<float>(),
               turned_.const_data_ptr<float>(),
               rows_.size(1),
               rows_.size(2),
               runs_.data(),
               static_cast<int64_t>(runs_.size())};
}

}  // namespace mh::attention
