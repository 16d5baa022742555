#include "attention/fused/fused_gpu.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "attention/fused/mixed_cpu.h"
#include "attention/row_layout.h"
#include "cuda/table.h"
#include "nn/device.h"

namespace mh::attention {

namespace {

using kernels::AttentionTensors;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::AnyRows rows_of(const at::Tensor& x) {
  return {const_cast<void*>(x.const_data_ptr()), x.stride(0), x.stride(1), x.stride(2)};
}

bool aligned(const at::Tensor& x) {
  const int64_t bytes = x.element_size();
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0 && x.stride(0) * bytes % 16 == 0 &&
         x.stride(1) * bytes % 16 == 0 && x.stride(2) * bytes % 16 == 0 && x.size(3) * bytes % 16 == 0;
}

at::Tensor on_device(const std::vector<kernels::Run>& runs, at::Device device) {
  static_assert(sizeof(kernels::Run) == 3 * sizeof(int64_t));
  std::vector<int64_t> numbers(3 * runs.size());
  std::memcpy(numbers.data(), runs.data(), runs.size() * sizeof(kernels::Run));
  // Keys without a gap differ by their number alone; gaps are those of a memory, which are drawn.
  return runs.size() == 1 ? nn::constant_on(device, numbers) : nn::to_device(at::tensor(numbers), device);
}

// A policy's tensors on the GPU, as long as a call needs them, and the call. Call: AttentionCall or MixedCall.
template <class Call>
struct Described {
  Call call;
  at::Tensor heads, u, bias, runs;  // as the kernels read them
  const kernels::Relative flag{};   // says that there are positions

  Described(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const FusedPolicy& policy, bool gradient,
            std::initializer_list<const at::Tensor*> all) {
    policy.describe(q, k, gradient, call);
    call.key_size = static_cast<int>(q.size(3)), call.value_size = static_cast<int>(v.size(3));
    if (!policy.key_heads.empty()) {
      heads = nn::constant_on(q.device(), policy.key_heads);
      call.key_heads = call.value_heads = heads.const_data_ptr<int64_t>();
    }
    if (policy.key_lengths.defined()) call.key_lengths = policy.key_lengths.const_data_ptr<int64_t>();
    if (policy.drops) call.dropping = policy.drops->how, call.dropout_first = policy.drops->first;
    call.aligned = std::all_of(all.begin(), all.end(), [](const at::Tensor* x) { return aligned(*x); });
    if (const RelativePositions& p = policy.relative; p.u.defined()) {
      u = p.u.to(at::kFloat).contiguous(), bias = p.v.to(at::kFloat).contiguous(), runs = on_device(p.runs, q.device());
      call.relative = &flag;
      call.positions = {u.template const_data_ptr<float>(),
                        bias.template const_data_ptr<float>(),
                        p.r.const_data_ptr(),
                        p.r.stride(0),
                        p.r.stride(1),
                        static_cast<const kernels::Run*>(runs.const_data_ptr()),
                        static_cast<int>(p.r.size(1)),
                        static_cast<int>(p.runs.size())};
      const int64_t bytes = p.r.element_size();
      call.aligned = call.aligned && reinterpret_cast<uintptr_t>(p.r.const_data_ptr()) % 16 == 0 &&
                     p.r.stride(0) * bytes % 16 == 0 && p.r.stride(1) * bytes % 16 == 0;
    }
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;
};

struct DescribedPlain : Described<kernels::AttentionCall> {
  DescribedPlain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const FusedPolicy& policy,
                 bool gradient, std::initializer_list<const at::Tensor*> all)
      : Described(q, k, v, policy, gradient, all) {
    call.heads = call.dropout_heads = static_cast<int>(q.size(1));
    if (const at::Tensor& s = policy.head_scales; s.defined()) {
      call.head_scales = s.const_data_ptr<float>();
      call.scales_row = s.dim() == 2 ? s.size(1) : 0;
    }
  }
};

struct DescribedMixing : Described<kernels::MixedCall> {
  DescribedMixing(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                  const FusedPolicy& policy, bool gradient, std::initializer_list<const at::Tensor*> all)
      : Described(q, k, v, policy, gradient, all) {
    call.in = static_cast<int>(m.size(-2)), call.heads = static_cast<int>(m.size(-1));
    call.dropped_first = policy.dropped_before_mixing;
    call.dropout_heads = call.dropped_first ? call.in : call.heads;
    call.matrix = m.const_data_ptr<float>();
    const int64_t numbers = m.size(-2) * m.size(-1);
    call.matrix_query = m.dim() == 4 ? numbers : 0;
    call.matrix_row = m.dim() == 4 ? call.queries * numbers : m.dim() == 3 ? numbers : 0;
  }
  // For a backward pass.
  void turn(const at::Tensor& m) {
    turned_ = m.transpose(-2, -1).contiguous();
    call.turned = turned_.const_data_ptr<float>();
  }

 private:
  at::Tensor turned_;
};

at::Tensor log_sums_of(const at::Tensor& q) {
  return at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
}

AttentionTensors tensors_of(const GpuKernels& gpu, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& log_sums) {
  AttentionTensors x;
  x.batch = q.size(0);
  x.q = rows_of(q), x.k = rows_of(k), x.v = rows_of(v);
  x.log_sums = static_cast<float*>(const_cast<void*>(log_sums.const_data_ptr()));
  x.stream = gpu.stream;
  return x;
}

// Of q, k and v, as their readers see them.
std::array<at::Tensor, 3> gradients_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t values,
                                       AttentionTensors& x) {
  std::array<at::Tensor, 3> d{by_position(q, q.size(1), q.size(2), q.size(3)),
                              by_position(k, q.size(1), k.size(2), k.size(3)),
                              by_position(v, values, v.size(2), v.size(3))};
  x.dq = rows_of(d[0]), x.dk = rows_of(d[1]), x.dv = rows_of(d[2]);
  return d;
}

GpuKernels kept(AutogradContext& context) {
  auto& data = context.saved_data;
  return {reinterpret_cast<const kernels::AttentionKernels*>(data["kernels"].toInt()),
          reinterpret_cast<void*>(data["stream"].toInt())};
}
void keep(AutogradContext& context, const GpuKernels& gpu) {
  context.saved_data["kernels"] = static_cast<int64_t>(reinterpret_cast<intptr_t>(gpu.kernels));
  context.saved_data["stream"] = static_cast<int64_t>(reinterpret_cast<intptr_t>(gpu.stream));
}

std::pair<at::Tensor, at::Tensor> attend(const GpuKernels& gpu, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const FusedPolicy& policy, bool gradient) {
  at::Tensor out = by_position(q, q.size(1), q.size(2), v.size(3)), sums = log_sums_of(q);
  const DescribedPlain plain(q, k, v, policy, gradient, {&q, &k, &v, &out});
  AttentionTensors x = tensors_of(gpu, q, k, v, sums);
  x.out = rows_of(out);
  x.parts = gpu.kernels->key_parts(plain.call, x.batch);
  at::Tensor found;
  if (x.parts > 1) {
    found = at::empty({q.size(0), q.size(1), q.size(2), x.parts, v.size(3) + 2}, sums.options());
    x.found = found.mutable_data_ptr<float>();
  }
  nn::check_cuda(gpu.kernels->forward(plain.call, x));
  return {out, sums};
}

struct FusedOnGpu : torch::autograd::Function<FusedOnGpu> {
  // The scales, u, bias and r are the policy's, as inputs of the graph.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const Given& scales, const Given& u, const Given& bias, const Given& r,
                            const FusedPolicy& policy, const GpuKernels& gpu) {
    const auto [out, sums] = attend(gpu, q, k, v, policy, true);
    context->save_for_backward({q, k, v, out, sums, policy.key_lengths, policy.head_scales, policy.relative.u,
                                policy.relative.v, policy.relative.r});
    policy.keep(*context);
    keep(*context, gpu);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list given) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &scales = saved[6];
    const FusedPolicy policy = FusedPolicy::kept(*context, saved[5], {saved[7], saved[8], saved[9], {}}, scales);
    const at::Tensor dout = with_contiguous_rows(given[0]), d = at::empty_like(saved[4]);
    const GpuKernels gpu = kept(*context);
    AttentionTensors x = tensors_of(gpu, q, k, v, saved[4]);
    std::array<at::Tensor, 3> g = gradients_of(q, k, v, q.size(1), x);
    const DescribedPlain plain(q, k, v, policy, true, {&q, &k, &v, &out, &dout, &g[0], &g[1], &g[2]});
    x.out = rows_of(out), x.dout = rows_of(dout), x.d = d.mutable_data_ptr<float>(), x.joined = false;
    at::Tensor dscale;
    if (scales.defined()) {
      dscale = at::empty({q.size(0), q.size(1), gpu.kernels->scale_tiles(plain.call)}, d.options());
      x.dscale = dscale.mutable_data_ptr<float>();
    }
    const RelativePositions& p = policy.relative;
    at::Tensor du, dbias, dr;
    if (p.u.defined()) {
      const int64_t tiles = gpu.kernels->scale_tiles(plain.call);
      du = at::empty({q.size(0), q.size(1), tiles, q.size(3)}, d.options()), dbias = at::empty_like(du);
      dr = at::empty({q.size(0), p.r.size(0), p.r.size(1), p.r.size(2)}, d.options());
      x.du = du.mutable_data_ptr<float>(), x.dv_bias = dbias.mutable_data_ptr<float>();
      x.dr = dr.mutable_data_ptr<float>();
    }
    nn::check_cuda(gpu.kernels->backward(plain.call, x));
    if (!policy.key_heads.empty()) g[1] = policy.of_heads(g[1], k), g[2] = policy.of_heads(g[2], v);
    if (dscale.defined()) dscale = scales.dim() == 2 ? dscale.sum(2) : dscale.sum(at::IntArrayRef{0, 2});
    if (du.defined()) {
      du = du.sum(at::IntArrayRef{0, 2}).to(p.u.scalar_type());
      dbias = dbias.sum(at::IntArrayRef{0, 2}).to(p.v.scalar_type());
      dr = dr.sum(0).to(p.r.scalar_type());
    }
    return {g[0], g[1], g[2], dscale, du, dbias, dr, {}, {}};
  }
};

// q and a bias (h, dk), as kernels of mixed heads read it; q where there is none.
at::Tensor biased(const at::Tensor& q, const at::Tensor& bias) {
  return bias.defined() ? with_contiguous_rows(q.add(bias.to(at::kFloat).unsqueeze(1)).to(q.scalar_type())) : q;
}

std::pair<at::Tensor, at::Tensor> mix(const GpuKernels& gpu, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v, const at::Tensor& m, const FusedPolicy& policy,
                                      bool gradient) {
  at::Tensor out = by_position(q, m.size(-1), q.size(2), v.size(3)), sums = log_sums_of(q);
  const at::Tensor q_u = biased(q, policy.relative.u), q_v = biased(q, policy.relative.v);
  const DescribedMixing mixing(q, k, v, m, policy, gradient, {&q, &k, &v, &out, &q_u, &q_v});
  AttentionTensors x = tensors_of(gpu, q, k, v, sums);
  x.out = rows_of(out), x.biased = rows_of(q_u), x.shifted = rows_of(q_v);
  x.parts = gpu.kernels->mixed_key_parts(mixing.call, x.batch);
  at::Tensor found;
  if (x.parts > 1) {
    found =
        at::empty({x.batch * q.size(2) * x.parts * std::max(2 * m.size(-2), m.size(-1) * v.size(3))}, sums.options());
    x.found = found.mutable_data_ptr<float>();
  }
  nn::check_cuda(gpu.kernels->mixed_forward(mixing.call, x));
  return {out, sums};
}

struct MixedOnGpu : torch::autograd::Function<MixedOnGpu> {
  // u, bias and r are the policy's, as inputs of the graph.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& m, const Given& u, const Given& bias, const Given& r,
                            const FusedPolicy& policy, const GpuKernels& gpu) {
    const auto [out, sums] = mix(gpu, q, k, v, m, policy, true);
    context->save_for_backward(
        {q, k, v, m, sums, policy.key_lengths, policy.relative.u, policy.relative.v, policy.relative.r});
    policy.keep(*context);
    keep(*context, gpu);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list given) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &m = saved[3], &log_sums = saved[4];
    const FusedPolicy policy = FusedPolicy::kept(*context, saved[5], {saved[6], saved[7], saved[8], {}}, {});
    const RelativePositions& p = policy.relative;
    const at::Tensor dout = with_contiguous_rows(given[0]), sums = at::empty_like(log_sums),
                     known = at::empty({sums.numel() + kernels::kQueriesBehind, 4}, sums.options()),
                     of_queries = at::empty({q.size(0), q.size(2), m.size(-2), m.size(-1)}, sums.options());
    const GpuKernels gpu = kept(*context);
    AttentionTensors x = tensors_of(gpu, q, k, v, log_sums);
    std::array<at::Tensor, 3> g = gradients_of(q, k, v, m.size(-1), x);
    const at::Tensor q_u = biased(q, p.u), q_v = biased(q, p.v),
                     dshifted = p.u.defined() ? by_position(q, q.size(1), q.size(2), q.size(3)) : g[0];
    DescribedMixing mixing(q, k, v, m, policy, true, {&q, &k, &v, &dout, &g[0], &g[1], &g[2], &q_u, &q_v, &dshifted});
    mixing.turn(m);
    x.biased = rows_of(q_u), x.shifted = rows_of(q_v);
    x.dout = rows_of(dout), x.joined = false;
    x.sums = sums.mutable_data_ptr<float>();
    x.of_queries = static_cast<kernels::OfQuery*>(known.mutable_data_ptr());
    static_assert(sizeof(kernels::OfQuery) == 4 * sizeof(float));
    x.g = of_queries.mutable_data_ptr<float>();
    at::Tensor du, dbias, dr;
    if (p.u.defined()) {
      dr = at::empty({q.size(0), p.r.size(0), p.r.size(1), p.r.size(2)}, sums.options());
      x.dshifted = rows_of(dshifted), x.dr = dr.mutable_data_ptr<float>();
    }
    nn::check_cuda(gpu.kernels->mixed_backward(mixing.call, x));
    if (!policy.key_heads.empty()) g[1] = policy.of_heads(g[1], k), g[2] = policy.of_heads(g[2], v);
    if (p.u.defined()) {
      const auto of_bias = [](const at::Tensor& of_rows, const at::Tensor& bias) {
        return of_rows.sum(at::IntArrayRef{0, 2}, false, at::kFloat).to(bias.scalar_type());
      };
      du = of_bias(g[0], p.u), dbias = of_bias(dshifted, p.v);
      dr = dr.sum(0).to(p.r.scalar_type());
      g[0] = g[0].add(dshifted);
    }
    const at::Tensor dm = m.dim() == 4   ? of_queries
                          : m.dim() == 3 ? of_queries.sum(1)
                                         : of_queries.sum(at::IntArrayRef{0, 1});
    return {g[0], g[1], g[2], dm, du, dbias, dr, {}, {}};
  }
};

FusedPolicy on_device(const FusedPolicy& given, const at::Tensor& q) {
  FusedPolicy policy = given;
  if (policy.key_lengths.defined())
    policy.key_lengths = nn::to_device(policy.key_lengths, q.device()).clamp(0, c10::nullopt).contiguous();
  if (at::Tensor& r = policy.relative.r; r.defined()) r = (r.stride(2) == 1 ? r : r.contiguous()).to(q.scalar_type());
  return policy;
}

template <class... Tensors>
bool wants_gradient(const Tensors&... x) {
  return c10::GradMode::is_enabled() && ((x.defined() && x.requires_grad()) || ...);
}

}  // namespace

std::string unfused_on_gpu(at::ScalarType type, const Shape& shape, bool mixes, bool positions) {
  const auto dtype = nn::dtype_of(type);
  if (!dtype) return std::string("numbers of type ") + c10::toString(type);
  const int size = static_cast<int>(std::max(shape.key_size, shape.value_size));
  const char* lacks = nn::cuda_kernels().lacks(*dtype, size);
  if (lacks == nullptr && positions && !mixes) lacks = nn::cuda_kernels().attention(*dtype, size)->relative_lacks();
  if (lacks == nullptr && mixes)
    lacks = nn::cuda_kernels()
                .attention(*dtype, size)
                ->mixed_lacks(static_cast<int>(shape.heads), static_cast<int>(shape.value_heads), positions);
  return lacks != nullptr ? lacks : "";
}

GpuKernels gpu_kernels(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto dtype = nn::dtype_of(q.scalar_type());
  if (!q.is_cuda() || !dtype || k.scalar_type() != q.scalar_type() || v.scalar_type() != q.scalar_type()) return {};
  return {nn::cuda_kernels().attention(*dtype, static_cast<int>(std::max(q.size(3), v.size(3)))),
          nn::current_stream(q.device())};
}

at::Tensor fused_gpu(const GpuKernels& gpu, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const FusedPolicy& given) {
  FusedPolicy policy = on_device(given, q);
  if (at::Tensor& s = policy.head_scales; s.defined()) s = s.to(at::kFloat).contiguous();
  const RelativePositions& p = policy.relative;
  const at::Tensor rows[]{with_contiguous_rows(q), with_contiguous_rows(k), with_contiguous_rows(v)};
  if (!wants_gradient(q, k, v, policy.head_scales, p.u, p.v, p.r))
    return attend(gpu, rows[0], rows[1], rows[2], policy, false).first;
  return FusedOnGpu::apply(rows[0], rows[1], rows[2], given_or_not(policy.head_scales), given_or_not(p.u),
                           given_or_not(p.v), given_or_not(p.r), policy, gpu);
}

at::Tensor mixed_gpu(const GpuKernels& gpu, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& m, const FusedPolicy& given) {
  FusedPolicy policy = on_device(given, q);
  const at::Tensor rows[]{with_contiguous_rows(q), with_contiguous_rows(k), with_contiguous_rows(v)};
  const at::Tensor matrix = weighed(m, policy.head_scales);
  policy.head_scales = at::Tensor();
  const RelativePositions& p = policy.relative;
  if (!wants_gradient(q, k, v, matrix, p.u, p.v, p.r))
    return mix(gpu, rows[0], rows[1], rows[2], matrix, policy, false).first;
  return MixedOnGpu::apply(rows[0], rows[1], rows[2], matrix, given_or_not(p.u), given_or_not(p.v), given_or_not(p.r),
                           policy, gpu);
}

}  // namespace mh::attention
