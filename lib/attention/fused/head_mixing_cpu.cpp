// The CPU backend with head mixing. Threads compute shares of the queries of each batch row; then the gradients of the
// shares are summed.
#include "attention/fused/head_mixing_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>

#include "attention/fused/autograd.h"
#include "attention/fused/bf16_gemm.h"
#include "attention/fused/scratch.h"
#include "attention/row_layout.h"
#include "ceil_div.h"
#include "cpu/head_mixing_attention.h"

namespace mh::attention {

namespace {

// Number of work items per batch to aim for. If there are fewer batch rows, the queries of each row are divided into
// shares of at least one tile. A constant, so that the order of additions does not depend on the number of threads.
constexpr int64_t kMinWorkItems = 8;

// Returns batch row b of a tensor (B, h, T, d).
template <class T>
kernels::HeadsView<T> row_of(const at::Tensor& x, int64_t b) {
  return {static_cast<T*>(const_cast<void*>(x.const_data_ptr())) + b * x.stride(0), x.stride(1), x.stride(2)};
}

// The kernel parameters of attention with head mixing over a batch.
class HeadMixingParams {
 public:
  HeadMixingParams(const Operands& x, bool needs_backward)
      : spec_(x.spec),
        mixing_matrix_(x.matrix),
        packed_relative_(x.spec.relative_positions),
        mixing_matrix_stride_(x.matrix.dim() > 2 ? x.matrix.stride(0) : 0),
        batch_size_(x.q.size(0)),
        shared_params_(x.spec.params(x.q, x.k, x.v, needs_backward)) {
    shared_params_.max_keys = shared_params_.keys, shared_params_.value_heads = static_cast<int>(x.matrix.size(-1));
    shared_params_.mixing_matrix = mixing_matrix_.const_data_ptr<float>();
    shared_params_.matrix_query_stride = mixing_matrix_.dim() == 4 ? mixing_matrix_.stride(1) : 0;
    shared_params_.relative = packed_relative_.params();
    shared_params_.bf16_gemm = bf16_gemm(x.q.scalar_type());
    shared_params_.l2_bytes = kernels::l2_cache_bytes();
  }
  HeadMixingParams(const HeadMixingParams&) = delete;
  HeadMixingParams& operator=(const HeadMixingParams&) = delete;

  const kernels::AttentionParams& shared_params() const { return shared_params_; }
  // Returns the kernel parameters of batch row b, with its mixing matrix, first dropout element and number of real
  // keys.
  kernels::AttentionParams row_params(int64_t b) const {
    kernels::AttentionParams params = shared_params_;
    params.mixing_matrix += b * mixing_matrix_stride_;
    params.dropout_offset += static_cast<uint64_t>(b * params.dropout_batch_stride);
    if (spec_.key_lengths.defined())
      params.keys = std::clamp<int64_t>(spec_.key_lengths.const_data_ptr<int64_t>()[b], 0, params.keys);
    return params;
  }

  // Returns the number of shares into which the queries of a batch row are divided.
  int64_t num_shares() const {
    const int64_t queries_per_tile = kernels::head_mixing_tile_rows(shared_params_);
    return std::clamp<int64_t>(ceil_div(kMinWorkItems, batch_size_), 1,
                               ceil_div(shared_params_.queries, queries_per_tile));
  }

 private:
  const AttentionSpec& spec_;
  const at::Tensor mixing_matrix_;
  PackedRelativePositions packed_relative_;
  int64_t mixing_matrix_stride_, batch_size_;
  kernels::AttentionParams shared_params_;
};

// Calls visit(first_row, count) for groups of `count` batch rows, large enough to keep all threads busy. The caller
// packs the keys and values of a group before computing the attention of the group.
template <class Visit>
void for_each_group(int64_t num_rows, int64_t num_shares, const Visit& visit) {
  const int64_t group_size = std::clamp<int64_t>(ceil_div(2 * at::get_num_threads(), num_shares), 1, num_rows);
  for (int64_t first_row = 0; first_row < num_rows; first_row += group_size)
    visit(first_row, std::min(group_size, num_rows - first_row));
}

// Packs the keys and values of the batch rows [first_row, first_row + num_rows) for the forward or the backward kernel.
template <class T>
void pack_rows(const Operands& x, const HeadMixingParams& mixing_params, bool for_backward, int64_t first_row,
               int64_t num_rows, const Scratch& packed_kv) {
  const kernels::AttentionParams& shared_params = mixing_params.shared_params();
  const int64_t num_packed_heads = shared_params.heads + shared_params.value_heads,
                packed_floats = kernels::head_mixing_pack_floats(shared_params, for_backward);
  at::parallel_for(0, num_rows * num_packed_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = first_row + i / num_packed_heads;
      kernels::head_mixing_pack<T>(mixing_params.row_params(b), for_backward, i % num_packed_heads,
                                   row_of<const T>(x.k, b), row_of<const T>(x.v, b),
                                   packed_kv.data() + i / num_packed_heads * packed_floats);
    }
  });
}

// Computes the attention of batch rows with few queries, as in decoding; keys_of_row(b) and values_of_row(b) return the
// keys and values of batch row b. If there are fewer rows than threads, the threads share the heads of each row.
template <class T, class Keys, class Values>
void decode_rows(const at::Tensor& q, const Keys& keys_of_row, const Values& values_of_row,
                 const HeadMixingParams& mixing_params, ForwardResult& result) {
  float* lse = result.lse.mutable_data_ptr<float>();
  const auto decode_row = [&](int64_t b, const Scratch& scratch, const auto& for_each_head) {
    const kernels::AttentionParams params = mixing_params.row_params(b);
    for_each_head(params.heads, [&](int64_t j) {
      kernels::head_mixing_decode_logits<T>(params, j, row_of<const T>(q, b), keys_of_row(b), scratch.data());
    });
    kernels::head_mixing_decode_mix(params, lse + b * result.lse.stride(0), scratch.data());
    for_each_head(params.value_heads, [&](int64_t i) {
      kernels::head_mixing_decode_values<T>(params, i, values_of_row(b), row_of<T>(result.out, b), scratch.data());
    });
  };
  const int64_t scratch_floats = kernels::head_mixing_decode_scratch_floats(mixing_params.shared_params()),
                num_rows = q.size(0);
  if (num_rows >= at::get_num_threads()) {
    at::parallel_for(0, num_rows, 1, [&](int64_t begin, int64_t end) {
      const Scratch scratch(scratch_floats);
      for (int64_t b = begin; b < end; ++b)
        decode_row(b, scratch, [](int64_t num_heads, const auto& f) {
          for (int64_t h = 0; h < num_heads; ++h) f(h);
        });
    });
    return;
  }
  const Scratch scratch(scratch_floats);
  for (int64_t b = 0; b < num_rows; ++b)
    decode_row(b, scratch, [](int64_t num_heads, const auto& f) {
      at::parallel_for(0, num_heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t h = begin; h < end; ++h) f(h);
      });
    });
}

template <class T>
void forward_rows(const Operands& x, const HeadMixingParams& mixing_params, ForwardResult& result) {
  const int64_t num_shares = mixing_params.num_shares(),
                packed_floats = kernels::head_mixing_pack_floats(mixing_params.shared_params(), false);
  if (kernels::is_head_mixing_decode(mixing_params.shared_params()))
    return decode_rows<T>(
        x.q, [&](int64_t b) { return row_of<const T>(x.k, b); }, [&](int64_t b) { return row_of<const T>(x.v, b); },
        mixing_params, result);
  float* lse = result.lse.mutable_data_ptr<float>();
  std::optional<Scratch> packed_kv;
  for_each_group(x.q.size(0), num_shares, [&](int64_t first_row, int64_t num_rows) {
    if (!packed_kv) packed_kv.emplace(num_rows * packed_floats);
    pack_rows<T>(x, mixing_params, false, first_row, num_rows, *packed_kv);
    at::parallel_for(0, num_rows * num_shares, 1, [&](int64_t begin, int64_t end) {
      const Scratch scratch(kernels::head_mixing_forward_scratch_floats(mixing_params.shared_params()));
      const Bf16GemmScope gemm_scope(mixing_params.shared_params().bf16_gemm);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = first_row + i / num_shares;
        const kernels::BatchRowTensors<T> row{.q = row_of<const T>(x.q, b),
                                              .k = row_of<const T>(x.k, b),
                                              .v = row_of<const T>(x.v, b),
                                              .packed_kv = packed_kv->data() + i / num_shares * packed_floats,
                                              .out = row_of<T>(result.out, b),
                                              .lse = lse + b * result.lse.stride(0)};
        kernels::head_mixing_forward(mixing_params.row_params(b), {i % num_shares, num_shares}, row, scratch.data());
      }
    });
  });
}

// Writes all gradients to d. `has_one_reader_per_kv_head`: whether exactly one query head reads each key/value head. If
// so, d.k and d.v have the heads of k and v; otherwise they have one head for each query head, and the caller sums the
// heads. Gradients of relative positions are fp32 and separate for each share of the queries of each batch row, with dk
// padded to a multiple of 16: d.u and d.v_bias (B · shares, h, dk), d.r (B · shares, h, distances, dk) with the padding
// rows of r; and, if required, d.sinks (B · shares, h) and d.position_bias (B · shares, h, distances).
template <class T>
void backward_rows(const SavedAttention& saved, const at::Tensor& dout, const HeadMixingParams& mixing_params,
                   bool has_one_reader_per_kv_head, OperandGradients& d) {
  const Operands& x = saved.operands;
  const kernels::AttentionParams& shared_params = mixing_params.shared_params();
  const int64_t num_shares = mixing_params.num_shares(), h = shared_params.heads, hv = shared_params.value_heads,
                matrix_size = h * hv;
  const int64_t key_floats = kernels::head_mixing_key_floats(shared_params),
                value_floats = kernels::head_mixing_value_floats(shared_params);
  const int64_t packed_floats = kernels::head_mixing_pack_floats(shared_params, true),
                partial_floats = key_floats + value_floats;
  auto* lse = static_cast<float*>(const_cast<void*>(saved.result.lse.const_data_ptr()));
  const int64_t lse_stride = saved.result.lse.stride(0);
  auto* dm = d.matrix.mutable_data_ptr<float>();
  // `padded_size` and `num_distances` are 0 without relative positions.
  const int64_t padded_size = shared_params.relative.row_stride, num_distances = shared_params.relative.num_distances;
  if (padded_size > 0) {
    d.u = at::empty({x.q.size(0) * num_shares, h, padded_size}, at::kFloat), d.v_bias = at::empty_like(d.u);
    d.r = at::empty({x.q.size(0) * num_shares, h, num_distances, padded_size}, at::kFloat);
  }
  const int64_t num_bias_distances = shared_params.position_bias.num_distances;
  float *dsinks = nullptr, *dposition_bias = nullptr;
  if (x.spec.sinks.defined() && x.spec.sinks.requires_grad())
    d.sinks = at::empty({x.q.size(0) * num_shares, h}, at::kFloat), dsinks = d.sinks.mutable_data_ptr<float>();
  if (shared_params.has_position_bias() && x.spec.position_bias.bias.requires_grad())
    d.position_bias = at::empty({x.q.size(0) * num_shares, h, num_bias_distances}, at::kFloat),
    dposition_bias = d.position_bias.mutable_data_ptr<float>();
  std::optional<Scratch> packed_kv, partial_gradients;  // partial_gradients: gradients of k and v from each share
  for_each_group(x.q.size(0), num_shares, [&](int64_t first_row, int64_t num_rows) {
    if (!packed_kv)
      packed_kv.emplace(num_rows * packed_floats), partial_gradients.emplace(num_rows * num_shares * partial_floats);
    pack_rows<T>(x, mixing_params, true, first_row, num_rows, *packed_kv);
    at::parallel_for(0, num_rows * num_shares, 1, [&](int64_t begin, int64_t end) {
      const Scratch scratch(kernels::head_mixing_backward_scratch_floats(shared_params));
      const Bf16GemmScope gemm_scope(shared_params.bf16_gemm);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = first_row + i / num_shares, share_index = i % num_shares, n = b * num_shares + share_index;
        const bool has_matrix_per_query = shared_params.matrix_query_stride != 0;
        kernels::BatchRowTensors<T> row{.q = row_of<const T>(x.q, b),
                                        .k = {},
                                        .v = {},
                                        .packed_kv = packed_kv->data() + i / num_shares * packed_floats,
                                        .out = {},
                                        .lse = lse + b * lse_stride,
                                        .dout = row_of<const T>(dout, b),
                                        .dq = row_of<T>(d.q, b)};
        row.dk = partial_gradients->data() + i * partial_floats, row.dv = row.dk + key_floats;
        row.dm = dm + (has_matrix_per_query ? b * x.q.size(2) : n) * matrix_size;
        if (padded_size > 0)
          row.du = d.u.mutable_data_ptr<float>() + n * h * padded_size,
          row.dv_bias = d.v_bias.mutable_data_ptr<float>() + n * h * padded_size,
          row.dr = d.r.mutable_data_ptr<float>() + n * h * num_distances * padded_size;
        if (dsinks != nullptr) row.dsinks = dsinks + n * h;
        if (dposition_bias != nullptr) row.dposition_bias = dposition_bias + n * h * num_bias_distances;
        kernels::head_mixing_backward(mixing_params.row_params(b), {share_index, num_shares}, row, scratch.data());
      }
    });
    at::parallel_for(0, num_rows * (h + hv), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / (h + hv), head = i % (h + hv), b = first_row + row;
        const kernels::AttentionParams params = mixing_params.row_params(b);
        const float* row_gradients = partial_gradients->data() + row * num_shares * partial_floats;
        const auto sum_partials = [&](const float* partial_sums, int64_t head_size,
                                      const kernels::HeadsView<T>& destination, int64_t destination_head) {
          kernels::head_mixing_sum_partials(partial_sums, num_shares, partial_floats, params.keys, head_size,
                                            kernels::HeadsView<T>{destination.at(destination_head, 0),
                                                                  destination.head_stride, destination.row_stride});
        };
        if (head < h) {
          sum_partials(row_gradients + head * (kernels::head_mixing_key_floats(params) / h), params.key_size,
                       row_of<T>(d.k, b), has_one_reader_per_kv_head ? params.k_head(head) : head);
        } else {
          const int64_t value_head = head - h;
          sum_partials(row_gradients + key_floats + value_head * (kernels::head_mixing_value_floats(params) / hv),
                       params.value_size, row_of<T>(d.v, b),
                       has_one_reader_per_kv_head ? params.v_head(value_head) : value_head);
        }
      }
    });
  });
}

// Sums x (n, h, …) over n shares. The result (h, …) is cut to the shape of `like` and has the type of `like`.
at::Tensor sum_over_shares(const at::Tensor& x, const at::Tensor& like) {
  at::Tensor sum = x.sum(0).narrow(-1, 0, like.size(-1));
  return sum.narrow(-2, 0, like.size(-2)).to(like.scalar_type());
}

struct HeadMixingCpuBackend {
  static constexpr bool kBackwardReadsOut = false;

  ForwardResult forward(const Operands& x, bool needs_backward) const {
    ForwardResult result = empty_result(x);
    const HeadMixingParams mixing_params(x, needs_backward);
    if (x.q.scalar_type() == at::kFloat) forward_rows<float>(x, mixing_params, result);
    else forward_rows<uint16_t>(x, mixing_params, result);
    return result;
  }

  OperandGradients backward(const SavedAttention& saved, const at::Tensor& grad_output) const {
    const Operands& x = saved.operands;
    const at::Tensor &q = x.q, &m = x.matrix;
    const bool has_one_reader_per_kv_head = x.spec.is_kv_permutation(x.k.size(1));
    const at::Tensor dout = with_contiguous_rows(grad_output);
    const HeadMixingParams mixing_params(x, true);
    OperandGradients d = empty_gradients(x, has_one_reader_per_kv_head);
    if (x.spec.key_lengths.defined()) d.k.zero_(), d.v.zero_();  // the kernel writes no gradients of padding keys
    d.matrix = m.dim() == 4 ? at::empty(m.sizes(), m.options())
                            : at::empty({q.size(0), mixing_params.num_shares(), m.size(-2), m.size(-1)}, m.options());
    if (q.scalar_type() == at::kFloat) backward_rows<float>(saved, dout, mixing_params, has_one_reader_per_kv_head, d);
    else backward_rows<uint16_t>(saved, dout, mixing_params, has_one_reader_per_kv_head, d);
    if (!has_one_reader_per_kv_head)
      d.k = x.spec.reduce_to_kv_heads(d.k, x.k), d.v = x.spec.reduce_to_kv_heads(d.v, x.v);
    if (const RelativePositions& relative_positions = x.spec.relative_positions; d.u.defined())
      d.u = sum_over_shares(d.u, relative_positions.u), d.v_bias = sum_over_shares(d.v_bias, relative_positions.v),
      d.r = sum_over_shares(d.r, relative_positions.r);
    if (d.sinks.defined()) d.sinks = d.sinks.sum(0);
    if (d.position_bias.defined()) d.position_bias = sum_over_shares(d.position_bias, x.spec.position_bias.bias);
    if (m.dim() == 3) d.matrix = d.matrix.sum(1);
    else if (m.dim() == 2) d.matrix = d.matrix.sum(at::IntArrayRef{0, 1}, false, at::kDouble).to(at::kFloat);
    return d;
  }
};

}  // namespace

at::Tensor head_mixing_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                           const AttentionSpec& spec) {
  Operands x{with_contiguous_rows(q), with_contiguous_rows(k), with_contiguous_rows(v),
             scaled_matrix(m, spec.head_scales), spec};
  x.spec.head_scales = at::Tensor();
  if (at::Tensor& lengths = x.spec.key_lengths; lengths.defined()) lengths = lengths.contiguous();
  return attend(HeadMixingCpuBackend{}, x);
}

at::Tensor head_mixing_decode_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                                  const AttentionSpec& spec, Cache& cache) {
  const Cache::InPlaceView cache_view = cache.append_in_place(k, v);
  const Operands x{with_contiguous_rows(q), cache_view.keys, cache_view.values, scaled_matrix(m, spec.head_scales),
                   spec};
  ForwardResult result = empty_result(x);
  const HeadMixingParams mixing_params(x, false);
  const auto run_decode = [&]<class T>(T) {
    const auto cached_rows = [&](const at::Tensor& cached) {
      return [&](int64_t b) {
        kernels::HeadsView<const T> heads = row_of<const T>(cached, 0);
        heads.cache_row_of = cache_view.row_table.const_data_ptr<int32_t>() + b * cache_view.row_table.stride(0),
        heads.batch_stride = cached.stride(0);
        return heads;
      };
    };
    decode_rows<T>(x.q, cached_rows(cache_view.keys), cached_rows(cache_view.values), mixing_params, result);
  };
  if (q.scalar_type() == at::kFloat) run_decode(float{});
  else run_decode(uint16_t{});
  return result.out;
}

}  // namespace mh::attention
