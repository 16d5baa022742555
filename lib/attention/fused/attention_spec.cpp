// Converts an AttentionSpec to kernel parameters, and implements helpers of the CPU and GPU backends.
#include "attention/fused/attention_spec.h"

#include <algorithm>
#include <cmath>

#include "nn/aten.h"

namespace mh::attention {

namespace {

// Checks that `tensor`, named `name`, is fp32, contiguous, and has `num_dims` axes, the first of them for the heads.
void check_head_tensor(const char* name, const at::Tensor& tensor, int64_t num_dims, int64_t num_heads) {
  TORCH_CHECK(tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && tensor.dim() == num_dims &&
                  tensor.size(0) == num_heads,
              name, ": expected a contiguous fp32 tensor of ", num_dims, " axes, the first of size ", num_heads,
              "; found ", tensor.scalar_type(), " ", tensor.sizes(),
              ". Pass one row for each query head, in fp32 and contiguous");
}

// Checks that the key ranges of a position bias cover all keys in increasing order, and that every visible key has a
// column of the bias.
void check_key_ranges(const kernels::AttentionParams& params) {
  const int64_t num_distances = params.position_bias.num_distances;
  int64_t num_covered_keys = 0;
  for (int n = 0; n < params.position_bias.num_key_ranges; ++n) {
    const kernels::KeyRange& range = params.position_bias.key_ranges[n];
    TORCH_CHECK(range.first_key == num_covered_keys && range.num_keys > 0,
                "position_bias.key_ranges: expected a range that begins at key ", num_covered_keys, "; found ",
                range.num_keys, " keys from key ", range.first_key, ". Pass ranges in increasing order without gaps");
    num_covered_keys += range.num_keys;
    // The column of query t and key s depends on s - t, which takes the values first … last for visible keys.
    int64_t first = range.first_key - (params.queries - 1), last = range.first_key + range.num_keys - 1;
    const int64_t offset = params.causal ? params.keys - params.queries : 0;
    if (params.causal) last = std::min(last, offset);
    else if (params.window > 0) last = std::min(last, params.window - 1);
    if (params.window > 0) first = std::max(first, offset - params.window + 1);
    const int64_t column = range.first_row + params.queries - 1 - range.first_key;  // of s - t = 0
    TORCH_CHECK(first > last || (column + first >= 0 && column + last < num_distances),
                "position_bias: expected columns from 0 to ", num_distances - 1, "; found columns from ",
                column + first, " to ", column + last, " for the keys from key ", range.first_key,
                " on. Pass a bias with a column for each distance");
  }
  TORCH_CHECK(num_covered_keys == params.keys, "position_bias.key_ranges: expected ranges of ", params.keys,
              " keys; found ", num_covered_keys, ". Pass ranges that cover all keys");
}

}  // namespace

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
  params.soft_cap = static_cast<float>(soft_cap);
  if (sinks.defined()) {
    check_head_tensor("sinks", sinks, 1, q.size(1));
    params.sinks = sinks.const_data_ptr<float>();
  }
  if (const at::Tensor& bias = position_bias.bias; bias.defined()) {
    check_head_tensor("position_bias.bias", bias, 2, q.size(1));
    params.position_bias = {.bias = bias.const_data_ptr<float>(),
                            .head_stride = bias.stride(0),
                            .key_ranges = position_bias.key_ranges.data(),
                            .num_distances = static_cast<int>(bias.size(1)),
                            .num_key_ranges = static_cast<int>(position_bias.key_ranges.size())};
    check_key_ranges(params);
  }
  if (!kv_head_of.empty()) params.k_head_of = params.v_head_of = kv_head_of.data();
  return params;
}

bool AttentionSpec::is_kv_permutation(int64_t kv_heads) const {
  if (kv_head_of.empty()) return true;
  std::vector<int64_t> sorted_heads = kv_head_of;
  std::sort(sorted_heads.begin(), sorted_heads.end());
  for (size_t i = 0; i < sorted_heads.size(); ++i)
    if (sorted_heads[i] != static_cast<int64_t>(i)) return false;
  return static_cast<int64_t>(sorted_heads.size()) == kv_heads;
}

at::Tensor AttentionSpec::reduce_to_kv_heads(const at::Tensor& gradient, const at::Tensor& like) const {
  // If every key/value head has the same number of consecutive query heads, as in grouped-query attention without a
  // pairing, one sum over each group suffices.
  const auto query_heads = static_cast<int64_t>(kv_head_of.size()), kv_heads = like.size(1);
  bool has_uniform_groups = query_heads % kv_heads == 0;
  for (int64_t i = 0; has_uniform_groups && i < query_heads; ++i)
    has_uniform_groups = kv_head_of[static_cast<size_t>(i)] == i / (query_heads / kv_heads);
  if (has_uniform_groups)
    return gradient.unflatten(1, {kv_heads, query_heads / kv_heads}).sum(2, false, at::kFloat).to(like.scalar_type());
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
