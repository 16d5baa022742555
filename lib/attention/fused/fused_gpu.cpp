// The GPU backends, with and without head mixing: parameters, workspaces and gradients for the CUDA kernels.
#include "attention/fused/fused_gpu.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "attention/fused/autograd.h"
#include "attention/row_layout.h"
#include "cuda/attention.h"
#include "cuda/cuda_api.h"
#include "nn/device.h"

namespace mh::attention {

namespace {

using kernels::AttentionTensors;

// Returns the data pointer of a tensor (B, h, T, d), and its strides in elements.
kernels::UntypedTensor untyped_tensor(const at::Tensor& x) {
  return {const_cast<void*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

// Returns whether all rows x[b, h, t] begin and end at multiples of 16 bytes.
bool has_aligned_rows(const at::Tensor& x) {
  const int64_t element_bytes = x.element_size();
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0 && x.stride(0) * element_bytes % 16 == 0 &&
         x.stride(1) * element_bytes % 16 == 0 && x.stride(2) * element_bytes % 16 == 0 &&
         x.size(3) * element_bytes % 16 == 0;
}

// Copies key ranges to device memory, as a tensor (3 * number of ranges) int64: the three members of range 0, then of
// range 1, and so on.
at::Tensor key_ranges_to_device(const std::vector<kernels::KeyRange>& key_ranges, at::Device device) {
  static_assert(sizeof(kernels::KeyRange) == 3 * sizeof(int64_t));
  std::vector<int64_t> range_members(3 * key_ranges.size());
  std::memcpy(range_members.data(), key_ranges.data(), key_ranges.size() * sizeof(kernels::KeyRange));
  // A single key range (keys without a gap) differs between calls only in its number of keys, so few tensors are
  // cached. Several key ranges, in a memory with gaps, differ at random between calls and are copied in every call.
  return key_ranges.size() == 1 ? nn::cached_constant(device, range_members)
                                : nn::to_device(at::tensor(range_members), device);
}

// The kernel parameters of a call, which point to tensors of the operands and to tensors in device memory that this
// object owns.
struct DeviceParams {
  kernels::AttentionParams params;

  // `kernel_tensors`: the tensors whose alignment is checked, that is, the tensors that the kernels read and write row
  // by row.
  DeviceParams(const Operands& x, bool needs_backward, std::initializer_list<const at::Tensor*> kernel_tensors)
      : params(x.spec.params(x.q, x.k, x.v, needs_backward)) {
    const AttentionSpec& spec = x.spec;
    const at::Device device = x.q.device();
    if (!spec.kv_head_of.empty()) {
      kv_head_of_ = nn::to_device(at::tensor(spec.kv_head_of), device);
      params.k_head_of = params.v_head_of = kv_head_of_.const_data_ptr<int64_t>();
    }
    if (spec.key_lengths.defined()) params.key_lengths = spec.key_lengths.const_data_ptr<int64_t>();
    params.has_aligned_rows = std::all_of(kernel_tensors.begin(), kernel_tensors.end(),
                                          [](const at::Tensor* t) { return has_aligned_rows(*t); });
    if (const at::Tensor& s = spec.head_scales; s.defined()) {
      params.head_scales = s.const_data_ptr<float>();
      params.head_scales_stride = s.dim() == 2 ? s.size(1) : 0;
    }
    if (spec.relative_positions.u.defined()) set_relative_params(spec.relative_positions, device);
    if (params.has_position_bias()) {
      bias_key_ranges_ = key_ranges_to_device(spec.position_bias.key_ranges, device);
      params.position_bias.key_ranges = static_cast<const kernels::KeyRange*>(bias_key_ranges_.const_data_ptr());
    }
    if (x.matrix.defined()) set_matrix_params(x.matrix);
  }
  DeviceParams(const DeviceParams&) = delete;
  DeviceParams& operator=(const DeviceParams&) = delete;

  // Adds the transpose of the mixing matrix, which a backward pass reads.
  void add_transposed_matrix(const at::Tensor& m) {
    matrix_transposed_ = m.transpose(-2, -1).contiguous();
    params.mixing_matrix_transposed = matrix_transposed_.const_data_ptr<float>();
  }

 private:
  void set_relative_params(const RelativePositions& relative_positions, at::Device device) {
    u_ = relative_positions.u.to(at::kFloat).contiguous(), v_bias_ = relative_positions.v.to(at::kFloat).contiguous(),
    key_ranges_ = key_ranges_to_device(relative_positions.key_ranges, device);
    params.relative = {.u = u_.const_data_ptr<float>(),
                       .v = v_bias_.const_data_ptr<float>(),
                       .r = relative_positions.r.const_data_ptr(),
                       .head_stride = relative_positions.r.stride(0),
                       .row_stride = relative_positions.r.stride(1),
                       .key_ranges = static_cast<const kernels::KeyRange*>(key_ranges_.const_data_ptr()),
                       .num_distances = static_cast<int>(relative_positions.r.size(1)),
                       .num_key_ranges = static_cast<int>(relative_positions.key_ranges.size())};
    const int64_t element_bytes = relative_positions.r.element_size();
    params.has_aligned_rows = params.has_aligned_rows &&
                              reinterpret_cast<uintptr_t>(relative_positions.r.const_data_ptr()) % 16 == 0 &&
                              relative_positions.r.stride(0) * element_bytes % 16 == 0 &&
                              relative_positions.r.stride(1) * element_bytes % 16 == 0;
  }
  void set_matrix_params(const at::Tensor& m) {
    params.value_heads = static_cast<int>(m.size(-1));
    params.mixing_matrix = m.const_data_ptr<float>();
    const int64_t matrix_size = m.size(-2) * m.size(-1);
    params.matrix_query_stride = m.dim() == 4 ? matrix_size : 0;
    params.matrix_batch_stride = m.dim() == 4 ? params.queries * matrix_size : m.dim() == 3 ? matrix_size : 0;
  }

  at::Tensor kv_head_of_, u_, v_bias_, key_ranges_, bias_key_ranges_,
      matrix_transposed_;  // in the memory layout of the kernels
};

AttentionTensors tensors_of(const GpuKernels& gpu, const Operands& x, const at::Tensor& lse) {
  AttentionTensors tensors;
  tensors.batch = x.q.size(0);
  tensors.q = untyped_tensor(x.q), tensors.k = untyped_tensor(x.k), tensors.v = untyped_tensor(x.v);
  tensors.lse = static_cast<float*>(const_cast<void*>(lse.const_data_ptr()));
  tensors.stream = gpu.stream;
  return tensors;
}

// Allocates the gradients of q, k and v, and sets their pointers in `tensors`.
OperandGradients allocate_gradients(const Operands& x, AttentionTensors& tensors) {
  OperandGradients d = empty_gradients(x, false);
  tensors.dq = untyped_tensor(d.q), tensors.dk = untyped_tensor(d.k), tensors.dv = untyped_tensor(d.v);
  tensors.has_one_reader_per_kv_head = false;
  return d;
}

struct AttentionGpuBackend {
  static constexpr bool kBackwardReadsOut = true;
  GpuKernels gpu;

  ForwardResult forward(const Operands& x, bool needs_backward) const {
    ForwardResult result = empty_result(x);
    const DeviceParams device_params(x, needs_backward, {&x.q, &x.k, &x.v, &result.out});
    AttentionTensors tensors = tensors_of(gpu, x, result.lse);
    tensors.out = untyped_tensor(result.out);
    tensors.num_splits = gpu.kernels->num_splits(device_params.params, tensors.batch);
    at::Tensor partial_out;
    if (tensors.num_splits > 1) {
      partial_out =
          at::empty({x.q.size(0), x.q.size(1), x.q.size(2), tensors.num_splits, x.v.size(3) + 2}, result.lse.options());
      tensors.partial_out = partial_out.mutable_data_ptr<float>();
    }
    nn::check_cuda(gpu.kernels->forward(device_params.params, tensors));
    return result;
  }

  OperandGradients backward(const SavedAttention& saved, const at::Tensor& grad_out) const {
    const Operands& x = saved.operands;
    const at::Tensor &q = x.q, &out = saved.result.out, &lse = saved.result.lse, &scales = x.spec.head_scales;
    const at::Tensor dout = with_contiguous_rows(grad_out), delta = at::empty_like(lse);
    AttentionTensors tensors = tensors_of(gpu, x, lse);
    OperandGradients d = allocate_gradients(x, tensors);
    const DeviceParams device_params(x, true, {&q, &x.k, &x.v, &out, &dout, &d.q, &d.k, &d.v});
    tensors.out = untyped_tensor(out), tensors.dout = untyped_tensor(dout),
    tensors.delta = delta.mutable_data_ptr<float>();
    const int64_t num_tiles = gpu.kernels->num_query_tiles(device_params.params);
    if (scales.defined()) {
      d.head_scales = at::empty({q.size(0), q.size(1), num_tiles}, lse.options());
      tensors.dscale = d.head_scales.mutable_data_ptr<float>();
    }
    const RelativePositions& relative_positions = x.spec.relative_positions;
    if (relative_positions.u.defined()) {
      d.u = at::empty({q.size(0), q.size(1), num_tiles, q.size(3)}, lse.options()), d.v_bias = at::empty_like(d.u);
      d.r = at::empty(
          {q.size(0), relative_positions.r.size(0), relative_positions.r.size(1), relative_positions.r.size(2)},
          lse.options());
      tensors.du = d.u.mutable_data_ptr<float>(), tensors.dv_bias = d.v_bias.mutable_data_ptr<float>();
      tensors.dr = d.r.mutable_data_ptr<float>();
    }
    // Sinks of zeros and the position bias of ALiBi are constants without a gradient.
    const at::Tensor &bias = x.spec.position_bias.bias, &sinks = x.spec.sinks;
    if (bias.defined() && bias.requires_grad()) {
      d.position_bias = at::empty({q.size(0), bias.size(0), bias.size(1)}, lse.options());
      tensors.dposition_bias = d.position_bias.mutable_data_ptr<float>();
    }
    nn::check_cuda(gpu.kernels->backward(device_params.params, tensors));
    if (d.position_bias.defined()) d.position_bias = d.position_bias.sum(0);
    if (sinks.defined() && sinks.requires_grad())
      d.sinks = (sinks.unsqueeze(1) - lse).exp_().mul_(delta).sum(at::IntArrayRef{0, 2}).neg_();
    if (!x.spec.kv_head_of.empty())
      d.k = x.spec.reduce_to_kv_heads(d.k, x.k), d.v = x.spec.reduce_to_kv_heads(d.v, x.v);
    if (scales.defined())
      d.head_scales = scales.dim() == 2 ? d.head_scales.sum(2) : d.head_scales.sum(at::IntArrayRef{0, 2});
    if (relative_positions.u.defined()) {
      d.u = d.u.sum(at::IntArrayRef{0, 2}).to(relative_positions.u.scalar_type());
      d.v_bias = d.v_bias.sum(at::IntArrayRef{0, 2}).to(relative_positions.v.scalar_type());
      d.r = d.r.sum(0).to(relative_positions.r.scalar_type());
    }
    return d;
  }
};

// Returns q (B, h, Tq, dk) plus a bias (h, dk), in the layout of the head mixing kernels; q if the bias is undefined.
at::Tensor add_bias(const at::Tensor& q, const at::Tensor& bias) {
  return bias.defined() ? with_contiguous_rows(q.add(bias.to(at::kFloat).unsqueeze(1)).to(q.scalar_type())) : q;
}

struct HeadMixingGpuBackend {
  static constexpr bool kBackwardReadsOut = false;
  GpuKernels gpu;

  ForwardResult forward(const Operands& x, bool needs_backward) const {
    const int64_t num_heads = x.matrix.size(-2), num_value_heads = x.matrix.size(-1);
    ForwardResult result = empty_result(x);
    const at::Tensor q_u = add_bias(x.q, x.spec.relative_positions.u), q_v = add_bias(x.q, x.spec.relative_positions.v);
    const DeviceParams device_params(x, needs_backward, {&x.q, &x.k, &x.v, &result.out, &q_u, &q_v});
    AttentionTensors tensors = tensors_of(gpu, x, result.lse);
    tensors.out = untyped_tensor(result.out), tensors.q_u = untyped_tensor(q_u), tensors.q_v = untyped_tensor(q_v);
    tensors.num_splits = gpu.kernels->head_mixing_num_splits(device_params.params, tensors.batch);
    at::Tensor partial_out;
    if (tensors.num_splits > 1) {
      partial_out = at::empty(
          {tensors.batch * x.q.size(2) * tensors.num_splits * std::max(2 * num_heads, num_value_heads * x.v.size(3))},
          result.lse.options());
      tensors.partial_out = partial_out.mutable_data_ptr<float>();
    }
    nn::check_cuda(gpu.kernels->head_mixing_forward(device_params.params, tensors));
    return result;
  }

  OperandGradients backward(const SavedAttention& saved, const at::Tensor& grad_out) const {
    const Operands& x = saved.operands;
    const at::Tensor &q = x.q, &m = x.matrix, &lse = saved.result.lse;
    const RelativePositions& relative_positions = x.spec.relative_positions;
    const at::Tensor dout = with_contiguous_rows(grad_out), prob_sums = at::empty_like(lse),
                     stats = at::empty({prob_sums.numel() + kernels::kStatsPadding, 4}, prob_sums.options());
    AttentionTensors tensors = tensors_of(gpu, x, lse);
    OperandGradients d = allocate_gradients(x, tensors);
    const at::Tensor q_u = add_bias(q, relative_positions.u), q_v = add_bias(q, relative_positions.v),
                     dq_v = relative_positions.u.defined() ? allocate_by_position(q, q.size(1), q.size(2), q.size(3))
                                                           : d.q;
    DeviceParams device_params(x, true, {&q, &x.k, &x.v, &dout, &d.q, &d.k, &d.v, &q_u, &q_v, &dq_v});
    device_params.add_transposed_matrix(m);
    tensors.q_u = untyped_tensor(q_u), tensors.q_v = untyped_tensor(q_v);
    tensors.dout = untyped_tensor(dout);
    tensors.prob_sums = prob_sums.mutable_data_ptr<float>();
    tensors.query_stats = static_cast<kernels::QueryStats*>(stats.mutable_data_ptr());
    static_assert(sizeof(kernels::QueryStats) == 4 * sizeof(float));
    const at::Tensor matrix_gradients = at::empty(
        {q.size(0), gpu.kernels->head_mixing_num_matrix_gradients(device_params.params), m.size(-2), m.size(-1)},
        prob_sums.options());
    tensors.dm = matrix_gradients.mutable_data_ptr<float>();
    if (relative_positions.u.defined()) {
      d.r = at::empty(
          {q.size(0), relative_positions.r.size(0), relative_positions.r.size(1), relative_positions.r.size(2)},
          prob_sums.options());
      tensors.dq_v = untyped_tensor(dq_v), tensors.dr = d.r.mutable_data_ptr<float>();
    }
    nn::check_cuda(gpu.kernels->head_mixing_backward(device_params.params, tensors));
    if (!x.spec.kv_head_of.empty())
      d.k = x.spec.reduce_to_kv_heads(d.k, x.k), d.v = x.spec.reduce_to_kv_heads(d.v, x.v);
    if (relative_positions.u.defined()) {
      const auto bias_gradient = [](const at::Tensor& row_gradients, const at::Tensor& bias) {
        return row_gradients.sum(at::IntArrayRef{0, 2}, false, at::kFloat).to(bias.scalar_type());
      };
      d.u = bias_gradient(d.q, relative_positions.u), d.v_bias = bias_gradient(dq_v, relative_positions.v);
      d.r = d.r.sum(0).to(relative_positions.r.scalar_type());
      d.q = d.q.add(dq_v);
    }
    d.matrix = m.dim() == 4   ? matrix_gradients
               : m.dim() == 3 ? matrix_gradients.sum(1)
                              : matrix_gradients.sum(at::IntArrayRef{0, 1});
    return d;
  }
};

// Returns the reason that a constraint of the kernels gives; empty for null.
std::string text_of(const char* reason) { return reason != nullptr ? reason : ""; }

int max_head_size_of(const LayerSpec& layer_spec) {
  return static_cast<int>(std::max(layer_spec.key_size, layer_spec.value_size));
}

// Returns the kernels for a layer that meets the constraint of why_no_gpu_kernels().
const kernels::AttentionKernels& kernels_of(at::ScalarType type, const LayerSpec& layer_spec) {
  return *nn::cuda_kernels().attention_kernels(*nn::dtype_of(type), max_head_size_of(layer_spec));
}

// Returns the operands in device memory and in the layout of the kernels, without a mixing matrix. Leaves
// spec.head_scales unchanged.
Operands prepare_operands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionSpec& spec) {
  Operands x{with_contiguous_rows(q), with_contiguous_rows(k), with_contiguous_rows(v), {}, spec};
  if (at::Tensor& lengths = x.spec.key_lengths; lengths.defined())
    lengths = nn::to_device(lengths, q.device()).clamp(0, c10::nullopt).contiguous();
  for (at::Tensor* t : {&x.spec.sinks, &x.spec.position_bias.bias})
    if (t->defined()) *t = t->to(at::kFloat).contiguous();
  if (at::Tensor& r = x.spec.relative_positions.r; r.defined())
    r = (r.stride(2) == 1 ? r : r.contiguous()).to(q.scalar_type());
  return x;
}

}  // namespace

std::string why_no_gpu_type(at::ScalarType type) {
  return nn::dtype_of(type) ? "" : std::string("no kernel for elements of type ") + c10::toString(type);
}

std::string why_no_gpu_kernels(at::ScalarType type, const LayerSpec& layer_spec) {
  nn::check_cuda(nn::cuda_kernels().device_problem());
  return text_of(nn::cuda_kernels().missing_kernels(*nn::dtype_of(type), max_head_size_of(layer_spec)));
}

std::string why_no_gpu_relative_positions(at::ScalarType type, const LayerSpec& layer_spec) {
  return text_of(kernels_of(type, layer_spec).relative_constraint());
}

std::string why_no_gpu_logit_terms(at::ScalarType type, const LayerSpec& layer_spec, bool has_head_mixing,
                                   bool has_relative_positions) {
  if (has_head_mixing) return "logit terms (soft cap, sinks, position bias, two-sided window) with head mixing";
  return text_of(kernels_of(type, layer_spec).logit_term_constraint(has_relative_positions));
}

std::string why_no_gpu_head_mixing(at::ScalarType type, const LayerSpec& layer_spec, bool has_relative_positions) {
  return text_of(kernels_of(type, layer_spec)
                     .head_mixing_constraint(static_cast<int>(layer_spec.heads),
                                             static_cast<int>(layer_spec.value_heads), has_relative_positions));
}

GpuKernels gpu_kernels(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto dtype = nn::dtype_of(q.scalar_type());
  if (!q.is_cuda() || !dtype || k.scalar_type() != q.scalar_type() || v.scalar_type() != q.scalar_type()) return {};
  return {nn::cuda_kernels().attention_kernels(*dtype, static_cast<int>(std::max(q.size(3), v.size(3)))),
          nn::current_stream(q.device())};
}

at::Tensor fused_gpu(const GpuKernels& gpu, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionSpec& spec) {
  Operands x = prepare_operands(q, k, v, spec);
  if (at::Tensor& s = x.spec.head_scales; s.defined()) s = s.to(at::kFloat).contiguous();
  return attend(AttentionGpuBackend{gpu}, x);
}

at::Tensor head_mixing_gpu(const GpuKernels& gpu, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& m, const AttentionSpec& spec) {
  Operands x = prepare_operands(q, k, v, spec);
  x.matrix = scaled_matrix(m, spec.head_scales);
  x.spec.head_scales = at::Tensor();
  return attend(HeadMixingGpuBackend{gpu}, x);
}

}  // namespace mh::attention
