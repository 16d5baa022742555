// The CPU backend without head mixing: one kernel call for each head of each batch row.
#include "attention/fused/fused_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "attention/fused/autograd.h"
#include "attention/fused/bf16_gemm.h"
#include "attention/fused/scratch.h"
#include "attention/row_layout.h"
#include "cpu/attention.h"

namespace mh::attention {

namespace {

// Returns head `head` of batch row b of a tensor (B, h, T, d).
template <class T>
kernels::Matrix<T> head_of(const at::Tensor& x, int64_t b, int64_t head) {
  auto* data = static_cast<T*>(const_cast<void*>(x.const_data_ptr()));
  return {data + b * x.stride(0) + head * x.stride(1), x.stride(2)};
}

// Calls visit(b * h + head, b, head, scratch), in parallel, for each head of each batch row b, with `scratch_floats`
// floats of memory.
template <class Visit>
void for_each_head(const at::Tensor& q, const kernels::Bf16Gemm* gemm, int64_t scratch_floats, const Visit& visit) {
  const int64_t num_heads = q.size(1);
  at::parallel_for(0, q.size(0) * num_heads, 1, [&](int64_t begin, int64_t end) {
    const Scratch scratch(scratch_floats);
    const Bf16GemmScope gemm_scope(gemm);
    for (int64_t i = begin; i < end; ++i) visit(i, i / num_heads, i % num_heads, scratch.data());
  });
}

// Returns the kernel parameters that all heads of the batch share.
kernels::AttentionParams batch_params(const Operands& x, bool needs_backward,
                                      const PackedRelativePositions& packed_relative) {
  kernels::AttentionParams params = x.spec.params(x.q, x.k, x.v, needs_backward);
  params.bf16_gemm = bf16_gemm(x.q.scalar_type());
  params.l2_bytes = kernels::l2_cache_bytes();
  params.relative = packed_relative.params();
  return params;
}

// Returns the kernel parameters of head `head` of batch row b, with its scale factor, first dropout element and number
// of real keys.
kernels::AttentionParams head_params(kernels::AttentionParams params, const AttentionSpec& spec, int64_t b,
                                     int64_t head) {
  params.head = head;
  if (const at::Tensor& s = spec.head_scales; s.defined())
    params.head_scales = s.const_data_ptr<float>() + (s.dim() == 2 ? b * s.size(1) : 0);
  params.dropout_offset += static_cast<uint64_t>(b * params.dropout_batch_stride + head * params.dropout_head_stride);
  if (spec.key_lengths.defined())
    params.keys = std::clamp<int64_t>(spec.key_lengths.const_data_ptr<int64_t>()[b], 0, params.keys);
  return params;
}

// Returns the tensors of head h of batch row b that both the forward and the backward pass use.
template <class T>
kernels::HeadTensors<T> tensors_of(const Operands& x, const ForwardResult& result,
                                   const kernels::AttentionParams& shared_params, int64_t b, int64_t h) {
  return {.q = head_of<const T>(x.q, b, h),
          .k = head_of<const T>(x.k, b, shared_params.k_head(h)),
          .v = head_of<const T>(x.v, b, shared_params.v_head(h)),
          .out = head_of<T>(result.out, b, h),
          .lse = static_cast<float*>(const_cast<void*>(result.lse.const_data_ptr())) +
                 (b * x.q.size(1) + h) * shared_params.queries};
}

template <class T>
void forward_heads(const Operands& x, bool needs_backward, const ForwardResult& result) {
  const PackedRelativePositions packed_relative(x.spec.relative_positions);
  const kernels::AttentionParams shared_params = batch_params(x, needs_backward, packed_relative);
  for_each_head(x.q, shared_params.bf16_gemm, kernels::attention_forward_scratch_floats(shared_params),
                [&](int64_t i, int64_t b, int64_t h, float* scratch) {
                  kernels::attention_forward(head_params(shared_params, x.spec, b, h),
                                             tensors_of<T>(x, result, shared_params, b, h), scratch);
                });
}

// Writes all gradients to d. `has_one_reader_per_kv_head`: whether exactly one query head reads each key/value head. If
// so, d.k and d.v have the heads of k and v; otherwise they have one head for each query head, and the caller sums the
// heads. Gradients of relative positions and of scale factors are fp32 and separate for each head of each batch row:
// d.u and d.v_bias (B h, dk), d.r (B h, distances, dk) with the padding rows of r, d.head_scales (B, h), and, if
// required, d.sinks (B h) and d.position_bias (B h, distances).
template <class T>
void backward_heads(const SavedAttention& saved, const at::Tensor& dout, bool has_one_reader_per_kv_head,
                    OperandGradients& d) {
  const Operands& x = saved.operands;
  const at::Tensor& q = x.q;
  const PackedRelativePositions packed_relative(x.spec.relative_positions);
  const kernels::AttentionParams shared_params = batch_params(x, true, packed_relative);
  const int64_t head_size = q.size(3), num_batch_heads = q.size(0) * q.size(1),
                num_distances = shared_params.relative.num_distances;
  float *du = nullptr, *dv_bias = nullptr, *dr = nullptr;
  if (shared_params.has_relative_positions()) {
    d.u = at::empty({num_batch_heads, head_size}, at::kFloat),
    d.v_bias = at::empty({num_batch_heads, head_size}, at::kFloat);
    d.r = at::empty({num_batch_heads, num_distances, head_size}, at::kFloat);
    du = d.u.mutable_data_ptr<float>(), dv_bias = d.v_bias.mutable_data_ptr<float>();
    dr = d.r.mutable_data_ptr<float>();
  }
  const int64_t num_bias_distances = shared_params.position_bias.num_distances;
  float *dsinks = nullptr, *dposition_bias = nullptr;
  if (x.spec.sinks.defined() && x.spec.sinks.requires_grad())
    d.sinks = at::empty({num_batch_heads}, at::kFloat), dsinks = d.sinks.mutable_data_ptr<float>();
  if (shared_params.has_position_bias() && x.spec.position_bias.bias.requires_grad())
    d.position_bias = at::empty({num_batch_heads, num_bias_distances}, at::kFloat),
    dposition_bias = d.position_bias.mutable_data_ptr<float>();
  if (x.spec.head_scales.defined()) d.head_scales = at::empty({q.size(0), q.size(1)}, at::kFloat);
  for_each_head(q, shared_params.bf16_gemm, kernels::attention_backward_scratch_floats(shared_params),
                [&](int64_t i, int64_t b, int64_t h, float* scratch) {
                  kernels::HeadTensors<T> tensors = tensors_of<T>(x, saved.result, shared_params, b, h);
                  tensors.dout = head_of<const T>(dout, b, h);
                  tensors.dq = head_of<T>(d.q, b, h);
                  tensors.dk = head_of<T>(d.k, b, has_one_reader_per_kv_head ? shared_params.k_head(h) : h);
                  tensors.dv = head_of<T>(d.v, b, has_one_reader_per_kv_head ? shared_params.v_head(h) : h);
                  if (d.head_scales.defined()) tensors.dscale = d.head_scales.mutable_data_ptr<float>() + i;
                  if (shared_params.has_relative_positions())
                    tensors.du = du + i * head_size, tensors.dv_bias = dv_bias + i * head_size,
                    tensors.dr = dr + i * num_distances * head_size;
                  if (dsinks != nullptr) tensors.dsink = dsinks + i;
                  if (dposition_bias != nullptr) tensors.dposition_bias = dposition_bias + i * num_bias_distances;
                  kernels::attention_backward(head_params(shared_params, x.spec, b, h), tensors, scratch);
                });
}

// Returns the gradient x (B h, …) of u, v, r or the position bias summed over the batch, without the padding rows of r.
// The result has the shape (h, …) and the type of the operand `like`.
at::Tensor sum_over_rows(const at::Tensor& x, const at::Tensor& like) {
  at::Tensor sum = x.unflatten(0, {-1, like.size(0)}).sum(0);
  return sum.narrow(-2, 0, like.size(-2)).to(like.scalar_type());
}

struct AttentionCpuBackend {
  static constexpr bool kBackwardReadsOut = true;

  ForwardResult forward(const Operands& x, bool needs_backward) const {
    ForwardResult result = empty_result(x);
    if (x.q.scalar_type() == at::kFloat) forward_heads<float>(x, needs_backward, result);
    else forward_heads<uint16_t>(x, needs_backward, result);
    return result;
  }

  OperandGradients backward(const SavedAttention& saved, const at::Tensor& grad_output) const {
    const Operands& x = saved.operands;
    const bool has_one_reader_per_kv_head = x.spec.is_kv_permutation(x.k.size(1));
    const at::Tensor dout = with_contiguous_rows(grad_output);
    OperandGradients d = empty_gradients(x, has_one_reader_per_kv_head);
    if (x.spec.key_lengths.defined()) d.k.zero_(), d.v.zero_();  // the kernel writes no gradients of padding keys
    if (x.q.scalar_type() == at::kFloat) backward_heads<float>(saved, dout, has_one_reader_per_kv_head, d);
    else backward_heads<uint16_t>(saved, dout, has_one_reader_per_kv_head, d);
    if (!has_one_reader_per_kv_head)
      d.k = x.spec.reduce_to_kv_heads(d.k, x.k), d.v = x.spec.reduce_to_kv_heads(d.v, x.v);
    if (const RelativePositions& relative_positions = x.spec.relative_positions; d.u.defined())
      d.u = sum_over_rows(d.u, relative_positions.u), d.v_bias = sum_over_rows(d.v_bias, relative_positions.v),
      d.r = sum_over_rows(d.r, relative_positions.r);
    if (d.sinks.defined()) d.sinks = d.sinks.unflatten(0, {-1, x.q.size(1)}).sum(0);
    if (d.position_bias.defined()) d.position_bias = sum_over_rows(d.position_bias, x.spec.position_bias.bias);
    if (d.head_scales.defined() && x.spec.head_scales.dim() != 2) d.head_scales = d.head_scales.sum(0);
    return d;
  }
};

}  // namespace

int64_t max_decode_queries() { return kernels::kMaxDecodeQueries; }

at::Tensor fused_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionSpec& spec) {
  Operands x{with_contiguous_rows(q), with_contiguous_rows(k), with_contiguous_rows(v), {}, spec};
  if (at::Tensor& lengths = x.spec.key_lengths; lengths.defined()) lengths = lengths.contiguous();
  if (at::Tensor& scales = x.spec.head_scales; scales.defined()) {
    const auto shape = scales.sizes();
    TORCH_CHECK(!shape.empty() && shape.size() < 3 && shape.back() == q.size(1),
                "head_scales: expected the shape (h) or (B, h); found ", shape);
    if (scales.dim() == 2) scales = scales.expand({q.size(0), q.size(1)});
    scales = scales.to(at::kFloat).contiguous();
  }
  return attend(AttentionCpuBackend{}, x);
}

}  // namespace mh::attention
