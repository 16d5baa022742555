// Calls the decoding kernel for each head of each batch row.
#include "attention/fused/cached_attention.h"

#include <ATen/Parallel.h>

#include <vector>

#include "attention/fused/attention_spec.h"
#include "attention/row_layout.h"
#include "cpu/cached_attention.h"
#include "nn/aten.h"

namespace mh::attention {

namespace {

// The data pointer of a tensor (B, h, T, d), and its strides in elements.
template <class T>
struct StridedHeads {
  T* data;
  int64_t batch_stride, head_stride, position_stride;
  explicit StridedHeads(const at::Tensor& x)
      : data(static_cast<T*>(const_cast<void*>(x.const_data_ptr()))),
        batch_stride(x.stride(0)),
        head_stride(x.stride(1)),
        position_stride(x.stride(2)) {}
  T* at(int64_t b, int64_t h, int64_t t) const {
    return data + b * batch_stride + h * head_stride + t * position_stride;
  }
  kernels::CachedRows<T> rows(int64_t h) const { return {at(0, h, 0), batch_stride, position_stride}; }
};

template <class T>
void attend(const at::Tensor& q, const kernels::AttentionParams& params, const Cache::InPlaceView& cache,
            const at::Tensor& out) {
  const int64_t num_heads = q.size(1), d = q.size(3), num_keys = cache.row_table.size(1);
  const StridedHeads<T> queries(q), keys(cache.keys), values(cache.values), outputs(out);
  const auto* row_table = cache.row_table.const_data_ptr<int32_t>();
  const int64_t row_table_stride = cache.row_table.stride(0);
  const kernels::PositionBiasParams& position_bias = params.position_bias;
  const int64_t first_column = params.has_position_bias() ? position_bias.key_ranges[0].first_row : 0;
  // A thread computes heads of consecutive batch rows. In beam search, consecutive batch rows are hypotheses of one
  // sentence, which read mostly the same keys.
  at::parallel_for(0, q.size(0) * num_heads, num_heads, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(static_cast<size_t>(kernels::cached_attention_scratch_floats(num_keys, d)));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / num_heads, h = i % num_heads;
      const kernels::CachedQuery<T> query{
          queries.at(b, h, 0),
          params.scale,
          d,
          keys.rows(params.k_head(h)),
          values.rows(params.v_head(h)),
          row_table + b * row_table_stride,
          params.visible_end(0),
          params.visible_begin(0),
          params.soft_cap,
          params.has_position_bias() ? position_bias.bias + h * position_bias.head_stride + first_column : nullptr,
          params.sinks != nullptr ? params.sinks + h : nullptr};
      kernels::cached_attention(query, outputs.at(b, h, 0), scratch.data());
    }
  });
}

}  // namespace

at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionSpec& spec,
                            Cache& cache) {
  const Cache::InPlaceView view = cache.append_in_place(k, v);
  const kernels::AttentionParams params = spec.params(q, view.keys, view.values, false);
  TORCH_CHECK(params.position_bias.num_key_ranges < 2,
              "position_bias.key_ranges: expected one range, since a cache has consecutive positions; found ",
              params.position_bias.num_key_ranges, ". Pass one range of all keys");
  at::Tensor out = allocate_by_position(q, q.size(1), 1, q.size(3));
  if (q.scalar_type() == at::kFloat) attend<float>(q, params, view, out);
  else attend<uint16_t>(q, params, view, out);
  return out;
}

}  // namespace mh::attention
