#include "attention/fused/fused_cpu.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "attention/fused/bf16_engine.h"
#include "attention/fused/scratch.h"
#include "attention/row_layout.h"
#include "attention/weighing.h"
#include "cpu/attention.h"

namespace mh::attention {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One head of one row of a tensor (B, h, T, d).
template <class T>
kernels::Matrix<T> head_of(const at::Tensor& x, int64_t b, int64_t head) {
  auto* data = static_cast<T*>(const_cast<void*>(x.const_data_ptr()));
  return {data + b * x.stride(0) + head * x.stride(1), x.stride(2)};
}

template <class Visit>
void each_head(const at::Tensor& q, const kernels::Bf16Engine* engine, int64_t scratch, const Visit& visit) {
  const int64_t heads = q.size(1);
  at::parallel_for(0, q.size(0) * heads, 1, [&](int64_t begin, int64_t end) {
    const Scratch memory(scratch);
    const WithEngine with(engine);
    for (int64_t i = begin; i < end; ++i) visit(i, i / heads, i % heads, memory.data());
  });
}

kernels::Attention describe(const at::Tensor& q, const at::Tensor& k, const FusedPolicy& policy, bool gradient,
                            const Distances& distances) {
  kernels::Attention a{};
  policy.describe(q, k, gradient, a);
  a.size = q.size(3);
  a.bf16 = bf16_engine(q.scalar_type());
  a.cache = kernels::second_level_cache();
  a.relative = distances.get();
  return a;
}

// Of head i, counted over all rows; with the keys that are real in row b.
kernels::Attention of_head(kernels::Attention a, const FusedPolicy& policy, int64_t i, int64_t b, int64_t head) {
  a.head = head;
  if (const at::Tensor& s = policy.head_scales; s.defined())
    a.head_scales = s.const_data_ptr<float>() + (s.dim() == 2 ? b * s.size(1) : 0);
  if (policy.drops) a.dropout_first = policy.drops->first + static_cast<uint64_t>(i * a.queries * a.dropout_row);
  if (policy.key_lengths.defined())
    a.keys = std::clamp<int64_t>(policy.key_lengths.const_data_ptr<int64_t>()[b], 0, a.keys);
  return a;
}

template <class T>
void forward_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const FusedPolicy& policy,
                   bool gradient, at::Tensor& out, at::Tensor& sums) {
  const Distances distances(policy.relative);
  const kernels::Attention all = describe(q, k, policy, gradient, distances);
  auto* log_sums = sums.mutable_data_ptr<float>();
  each_head(q, all.bf16, kernels::attention_forward_scratch(all), [&](int64_t i, int64_t b, int64_t h, float* scratch) {
    kernels::attention_forward<T>(of_head(all, policy, i, b, h), head_of<const T>(q, b, h),
                                  head_of<const T>(k, b, all.key_head(h)), head_of<const T>(v, b, all.value_head(h)),
                                  head_of<T>(out, b, h), log_sums + i * all.queries, scratch);
  });
}

struct Gradients {
  std::array<at::Tensor, 3> qkv;
  RelativePositions relative;  // of each head of each row, fp32: (B, h, d) twice and (B, h, D, d)
  at::Tensor head_scales;      // (B, h)
};

template <class T>
void backward_heads(const variable_list& saved, const at::Tensor& dout, const FusedPolicy& policy, Gradients& d) {
  const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3];
  const Distances distances(policy.relative);
  const kernels::Attention all = describe(q, k, policy, true, distances);
  const auto* log_sums = saved[4].const_data_ptr<float>();
  const int64_t size = q.size(3), rows = q.size(0) * q.size(1);
  std::array<float*, 3> of_positions{};
  if (all.relative != nullptr) {
    d.relative.u = at::empty({rows, size}, at::kFloat), d.relative.v = at::empty({rows, size}, at::kFloat);
    d.relative.r = at::empty({rows, distances.rows(), size}, at::kFloat);
    of_positions = {d.relative.u.mutable_data_ptr<float>(), d.relative.v.mutable_data_ptr<float>(),
                    d.relative.r.mutable_data_ptr<float>()};
  }
  if (policy.head_scales.defined()) d.head_scales = at::empty({q.size(0), q.size(1)}, at::kFloat);
  // Where a head is read twice, each reader's gradient has a place of its own.
  const bool once = policy.each_head_once(k.size(1));
  each_head(q, all.bf16, kernels::attention_backward_scratch(all),
            [&](int64_t i, int64_t b, int64_t h, float* scratch) {
              const int64_t key_head = all.key_head(h), value_head = all.value_head(h);
              kernels::AttentionGradients<T> gradients{head_of<T>(d.qkv[0], b, h),
                                                       head_of<T>(d.qkv[1], b, once ? key_head : h),
                                                       head_of<T>(d.qkv[2], b, once ? value_head : h)};
              if (d.head_scales.defined()) gradients.dscale = d.head_scales.mutable_data_ptr<float>() + i;
              if (all.relative != nullptr)
                gradients.du = of_positions[0] + i * size, gradients.dv_bias = of_positions[1] + i * size,
                gradients.dr = of_positions[2] + i * distances.rows() * size;
              kernels::attention_backward<T>(of_head(all, policy, i, b, h), head_of<const T>(q, b, h),
                                             head_of<const T>(k, b, key_head), head_of<const T>(v, b, value_head),
                                             head_of<const T>(out, b, h), head_of<const T>(dout, b, h),
                                             log_sums + i * all.queries, gradients, scratch);
            });
}

// x (B h, …) of each row -> (h, …), as `like` is.
at::Tensor over_rows(const at::Tensor& x, const at::Tensor& like) {
  at::Tensor sum = x.unflatten(0, {-1, like.size(0)}).sum(0);
  return sum.narrow(-2, 0, like.size(-2)).to(like.scalar_type());
}

// The result and each query's log-sum-exp.
std::pair<at::Tensor, at::Tensor> attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                         const FusedPolicy& policy, bool gradient) {
  at::Tensor out = by_position(q, q.size(1), q.size(2), q.size(3));
  at::Tensor sums = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
  if (q.scalar_type() == at::kFloat) forward_heads<float>(q, k, v, policy, gradient, out, sums);
  else forward_heads<uint16_t>(q, k, v, policy, gradient, out, sums);
  return {out, sums};
}

struct Fused : torch::autograd::Function<Fused> {
  // u, bias, r and the scales are the policy's, as inputs of the graph.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const Given& u, const Given& bias, const Given& r, const Given& scales,
                            const FusedPolicy& policy) {
    const auto [out, sums] = attend(q, k, v, policy, true);
    context->save_for_backward({q, k, v, out, sums, policy.key_lengths, policy.relative.u, policy.relative.v,
                                policy.relative.r, policy.head_scales});
    policy.keep(*context);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list given) {
    auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1];
    const FusedPolicy policy = FusedPolicy::kept(*context, saved[5], {saved[6], saved[7], saved[8], {}}, saved[9]);
    const bool once = policy.each_head_once(k.size(1));
    at::Tensor dout = with_contiguous_rows(given[0]);
    Gradients g;
    std::array<at::Tensor, 3>& d = g.qkv;
    if (q.size(2) == k.size(2) && once) {
      // Side by side as in a joint projection; split_projection takes them as they are.
      at::Tensor joint = at::empty({q.size(0), q.size(2), 3, q.size(1), q.size(3)}, q.options());
      for (int64_t i = 0; i < 3; ++i) d[static_cast<size_t>(i)] = joint.select(2, i).transpose(1, 2);
    } else {
      d[0] = by_position(q, q.size(1), q.size(2), q.size(3));
      for (size_t i : {1, 2}) d[i] = by_position(k, q.size(1), k.size(2), k.size(3));
    }
    if (saved[5].defined())  // of keys that are not real
      for (size_t i : {1, 2}) d[i].zero_();
    if (q.scalar_type() == at::kFloat) backward_heads<float>(saved, dout, policy, g);
    else backward_heads<uint16_t>(saved, dout, policy, g);
    if (!once) d[1] = policy.of_heads(d[1], k), d[2] = policy.of_heads(d[2], saved[2]);
    variable_list all{d[0], d[1], d[2], {}, {}, {}, {}, {}};
    if (const RelativePositions& p = g.relative; p.u.defined())
      all[3] = over_rows(p.u, saved[6]), all[4] = over_rows(p.v, saved[7]), all[5] = over_rows(p.r, saved[8]);
    if (g.head_scales.defined()) all[6] = saved[9].dim() == 2 ? g.head_scales : g.head_scales.sum(0);
    return all;
  }
};

struct Split : torch::autograd::Function<Split> {
  static variable_list forward(AutogradContext* context, const at::Tensor& joint, int64_t heads, int64_t key_size,
                               int64_t value_heads, int64_t value_size) {
    context->saved_data["sizes"] = joint.sizes().vec();
    const int64_t keys = heads * key_size;
    auto part = [&](int64_t first, int64_t h, int64_t size) {
      return joint.narrow(-1, first, h * size).view({joint.size(0), joint.size(1), h, size}).transpose(1, 2);
    };
    return {part(0, heads, key_size), part(keys, heads, key_size), part(2 * keys, value_heads, value_size)};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto sizes = context->saved_data["sizes"].toIntVector();
    const int64_t length = sizes[1], width = sizes[2];
    int64_t offset = gradients[0].storage_offset();
    bool joined = true;
    for (const at::Tensor& g : gradients) {
      joined = joined && g.is_alias_of(gradients[0]) && g.storage_offset() == offset &&
               g.strides() == at::IntArrayRef({length * width, g.size(3), width, 1});
      offset += g.size(1) * g.size(3);
    }
    if (joined)
      return {
          gradients[0].as_strided(sizes, {length * width, width, 1}, gradients[0].storage_offset()), {}, {}, {}, {}};
    std::vector<at::Tensor> parts;
    for (const at::Tensor& g : gradients) parts.push_back(join_heads(g));
    return {at::cat(parts, -1), {}, {}, {}, {}};
  }
};

}  // namespace

bool has_fused_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return q.is_cpu() && (q.scalar_type() == at::kFloat || q.scalar_type() == at::kBFloat16) &&
         k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type() && q.numel() > 0 && k.numel() > 0 &&
         q.size(3) % 16 == 0 && v.size(3) == q.size(3);
}

at::Tensor fused_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const FusedPolicy& given) {
  FusedPolicy policy = given;
  if (policy.key_lengths.defined()) policy.key_lengths = policy.key_lengths.contiguous();
  at::Tensor& scales = policy.head_scales;
  if (scales.defined()) {
    const auto shape = scales.sizes();
    TORCH_CHECK(!shape.empty() && shape.size() < 3 && shape.back() == q.size(1), "head_scales: ", shape);
    if (scales.dim() == 2) scales = scales.expand({q.size(0), q.size(1)});
    scales = scales.to(at::kFloat).contiguous();
  }
  const at::Tensor rows[]{with_contiguous_rows(q), with_contiguous_rows(k), with_contiguous_rows(v)};
  const RelativePositions& p = policy.relative;
  const auto wanted = [](const at::Tensor& x) { return x.requires_grad(); };
  if (!c10::GradMode::is_enabled() ||
      !(wanted(q) || wanted(k) || wanted(v) || p.wants_gradient() || (scales.defined() && wanted(scales))))
    return attend(rows[0], rows[1], rows[2], policy, false).first;
  return Fused::apply(rows[0], rows[1], rows[2], given_or_not(p.u), given_or_not(p.v), given_or_not(p.r),
                      given_or_not(scales), policy);
}

std::array<at::Tensor, 3> split_projection(const at::Tensor& joint, int64_t heads, int64_t key_size,
                                           int64_t value_heads, int64_t value_size) {
  auto parts = Split::apply(joint, heads, key_size, value_heads, value_size);
  return {parts[0], parts[1], parts[2]};
}

}  // namespace mh::attention
