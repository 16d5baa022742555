// Converts an AttentionSpec to kernel parameters, and implements helpers of the CPU and GPU backends.
#include "attention/fused/attention_spec.h"

#include <algorithm>
#include <cmath>

#include "nn/aten.h"

namespace mh::attention {

kernels::AttentionParams AttentionSpec::params(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                               bool needs_backward) const {
  for (const int64_t head : kv_head_of)
    TORCH_CHECK(head >= 0 && head < k.size(1), "kv_head_of: expected key/value heads from 0 to ", k.size(1) - 1,
                "; found ", head);
  kernels::AttentionParams params;
  params.queries = q.size(2), params.keys = k.size(2);
  params.heads = params.value_heads = static_cast<int>(q.size(1));
  params.key_size = static_cast<int>(q.size(3)), params.value_size = static_cast<int>(v.size(3));
  params.scale = static_cast<float>(scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(q.size(3))));
  params.causal = causal, params.window = window;
  params.normaliser = normaliser;
  params.has_backward = needs_backward;
  if (dropout) {
    params.dropout = dropout->params, params.dropout_offset = dropout->stream_offset;
    params.dropout_batch_stride = dropout->batch_stride, params.dropout_head_stride = dropout->head_stride,
    params.dropout_row_stride = dropout->run_stride;
    params.dropout_before_mixing = dropout_before_mixing;
  }
  if (!kv_head_of.empty()) params.key_head_of = params.value_head_of = kv_head_of.data();
  return params;
}

bool AttentionSpec::is_kv_permutation(int64_t num_kv_heads) const {
  if (kv_head_of.empty()) return true;
  std::vector<int64_t> sorted_heads = kv_head_of;
  std::sort(sorted_heads.begin(), sorted_heads.end());
  for (size_t i = 0; i < sorted_heads.size(); ++i)
    if (sorted_heads[i] != static_cast<int64_t>(i)) return false;
  return static_cast<int64_t>(sorted_heads.size()) == num_kv_heads;
}

at::Tensor AttentionSpec::reduce_to_kv_heads(const at::Tensor& gradient, const at::Tensor& like) const {
  // If every key/value head has the same number of consecutive query heads, as in grouped-query attention without a
  // pairing, one sum over each group suffices.
  const auto num_query_heads = static_cast<int64_t>(kv_head_of.size()), num_kv_heads = like.size(1);
  bool has_uniform_groups = num_query_heads % num_kv_heads == 0;
  for (int64_t i = 0; has_uniform_groups && i < num_query_heads; ++i)
    has_uniform_groups = kv_head_of[static_cast<size_t>(i)] == i / (num_query_heads / num_kv_heads);
  if (has_uniform_groups)
    return gradient.unflatten(1, {num_kv_heads, num_query_heads / num_kv_heads})
        .sum(2, false, at::kFloat)
        .to(like.scalar_type());
  // Adds one head at a time: on a GPU, index_add would add in an unspecified order and would need its indices in device
  // memory.
  const at::Tensor sums = at::zeros_like(like, like.options().dtype(at::kFloat));
  for (size_t i = 0; i < kv_head_of.size(); ++i)
    sums.select(1, kv_head_of[i]).add_(gradient.select(1, static_cast<int64_t>(i)));
  return sums.to(like.scalar_type());
}

bool are_cpu_kernel_types(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const at::ScalarType type = q.scalar_type();
  return q.is_cpu() && (type == at::kFloat || type == at::kBFloat16) && k.scalar_type() == type &&
         v.scalar_type() == type;
}

at::Tensor scaled_matrix(const at::Tensor& m, const at::Tensor& scales) {
  at::Tensor matrix = m.to(at::kFloat);
  if (scales.defined()) {
    at::Tensor s = scales.to(at::kFloat);
    if (s.dim() == 2) s = s.unsqueeze(1);
    if (s.dim() == 3 && m.dim() == 4) s = s.unsqueeze(1);
    matrix = matrix * s;
  }
  return matrix.contiguous();
}

PackedRelativePositions::PackedRelativePositions(const RelativePositions& relative_positions) {
  if (!relative_positions.u.defined()) return;
  const int64_t padding_size = (16 - relative_positions.r.size(2) % 16) % 16;  // pads dk to a multiple of 16
  const auto pad = [&](const at::Tensor& x, int64_t num_padding_rows) {
    return at::constant_pad_nd(x.detach().to(at::kFloat), {0, padding_size, 0, num_padding_rows}).contiguous();
  };
  u_ = pad(relative_positions.u, 0), v_ = pad(relative_positions.v, 0);
  r_ = pad(relative_positions.r, kernels::RelativeParams::kPaddingRows);
  r_transposed_ = r_.transpose(1, 2).contiguous();
  key_ranges_ = relative_positions.key_ranges;
  params_ = {.u = u_.const_data_ptr<float>(),
             .v = v_.const_data_ptr<float>(),
             .r = r_.const_data_ptr(),
             .head_stride = r_.stride(0),
             .row_stride = r_.stride(1),
             .key_ranges = key_ranges_.data(),
             .num_distances = static_cast<int>(r_.size(1)),
             .num_key_ranges = static_cast<int>(key_ranges_.size()),
             .r_transposed = r_transposed_.const_data_ptr<float>()};
}

}  // namespace mh::attention
