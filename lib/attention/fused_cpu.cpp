#include "attention/fused_cpu.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "attention/head_scale.h"
#include "attention/scratch.h"
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
void each_head(const at::Tensor& q, int64_t scratch, const Visit& visit) {
  const int64_t heads = q.size(1);
  at::parallel_for(0, q.size(0) * heads, 1, [&](int64_t begin, int64_t end) {
    const Scratch memory(scratch);
    for (int64_t i = begin; i < end; ++i) visit(i, i / heads, i % heads, memory.data());
  });
}

// What is the same for q, k and v of all heads.
struct How {
  bool causal = false;
  at::Tensor key_lengths;
  std::optional<kernels::DropoutFrom> drops;
};

kernels::Attention describe(const at::Tensor& q, const at::Tensor& k, const How& how) {
  kernels::Attention a{q.size(2), k.size(2), q.size(3),
                       static_cast<float>(1 / std::sqrt(static_cast<double>(q.size(3)))), how.causal};
  if (how.drops) a.dropout = &how.drops->how, a.dropout_row = k.size(2);
  return a;
}

// Of head i, counted over all rows; with the keys that are real in row b.
kernels::Attention of_head(kernels::Attention a, const How& how, int64_t i, int64_t b) {
  if (how.drops) a.dropout_first = how.drops->first + static_cast<uint64_t>(i * a.queries * a.dropout_row);
  if (how.key_lengths.defined()) a.keys = std::min(a.keys, how.key_lengths.const_data_ptr<int64_t>()[b]);
  return a;
}

template <class T>
void forward_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const How& how, bool gradient,
                   at::Tensor& out, at::Tensor& sums) {
  kernels::Attention all = describe(q, k, how);
  all.gradient = gradient;
  auto* log_sums = sums.mutable_data_ptr<float>();
  each_head(q, kernels::attention_forward_scratch(all), [&](int64_t i, int64_t b, int64_t h, float* scratch) {
    kernels::attention_forward<T>(of_head(all, how, i, b), head_of<const T>(q, b, h), head_of<const T>(k, b, h),
                                  head_of<const T>(v, b, h), head_of<T>(out, b, h), log_sums + i * all.queries,
                                  scratch);
  });
}

template <class T>
void backward_heads(const variable_list& saved, const at::Tensor& dout, const How& how,
                    const std::array<at::Tensor, 3>& d) {
  const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3];
  const kernels::Attention all = describe(q, k, how);
  const auto* log_sums = saved[4].const_data_ptr<float>();
  each_head(q, kernels::attention_backward_scratch(all), [&](int64_t i, int64_t b, int64_t h, float* scratch) {
    kernels::AttentionGradients<T> gradients{head_of<T>(d[0], b, h), head_of<T>(d[1], b, h), head_of<T>(d[2], b, h)};
    kernels::attention_backward<T>(of_head(all, how, i, b), head_of<const T>(q, b, h), head_of<const T>(k, b, h),
                                   head_of<const T>(v, b, h), head_of<const T>(out, b, h), head_of<const T>(dout, b, h),
                                   log_sums + i * all.queries, gradients, scratch);
  });
}

at::Tensor with_contiguous_rows(const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

// (B, h, T, d) stored as (B, T, h, d), so that joining the heads needs no copy.
at::Tensor by_position(int64_t batch, int64_t heads, int64_t length, int64_t size, const at::TensorOptions& options) {
  return at::empty({batch, length, heads, size}, options).transpose(1, 2);
}

// The result and each query's log-sum-exp.
std::pair<at::Tensor, at::Tensor> attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const How& how,
                                         bool gradient) {
  at::Tensor out = by_position(q.size(0), q.size(1), q.size(2), q.size(3), q.options());
  at::Tensor sums = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
  if (q.scalar_type() == at::kFloat) forward_heads<float>(q, k, v, how, gradient, out, sums);
  else forward_heads<uint16_t>(q, k, v, how, gradient, out, sums);
  return {out, sums};
}

struct Fused : torch::autograd::Function<Fused> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const How& how) {
    const auto [out, sums] = attend(q, k, v, how, true);
    context->save_for_backward({q, k, v, out, sums, how.key_lengths});
    context->saved_data["causal"] = how.causal;
    if (how.drops)
      context->saved_data["drops"] = std::string(reinterpret_cast<const char*>(&*how.drops), sizeof *how.drops);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list given) {
    auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1];
    How how{context->saved_data["causal"].toBool(), saved[5], {}};
    if (const auto drops = context->saved_data.find("drops"); drops != context->saved_data.end())
      std::memcpy(&how.drops.emplace(), drops->second.toStringRef().data(), sizeof *how.drops);
    at::Tensor dout = with_contiguous_rows(given[0]);
    std::array<at::Tensor, 3> d;
    if (q.size(2) == k.size(2)) {
      // Side by side as in a joint projection; split_projection takes them as they are.
      at::Tensor joint = at::empty({q.size(0), q.size(2), 3, q.size(1), q.size(3)}, q.options());
      for (int64_t i = 0; i < 3; ++i) d[static_cast<size_t>(i)] = joint.select(2, i).transpose(1, 2);
    } else {
      d[0] = by_position(q.size(0), q.size(1), q.size(2), q.size(3), q.options());
      for (size_t i : {1, 2}) d[i] = by_position(k.size(0), k.size(1), k.size(2), k.size(3), k.options());
    }
    if (saved[5].defined())  // of keys that are not real
      for (size_t i : {1, 2}) d[i].zero_();
    if (q.scalar_type() == at::kFloat) backward_heads<float>(saved, dout, how, d);
    else backward_heads<uint16_t>(saved, dout, how, d);
    return {d[0], d[1], d[2], {}};
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

at::Tensor fused_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                     const at::Tensor& key_lengths, const std::optional<kernels::DropoutFrom>& drops) {
  const How how{causal, key_lengths.defined() ? key_lengths.contiguous() : at::Tensor(), drops};
  const at::Tensor rows[]{with_contiguous_rows(q), with_contiguous_rows(k), with_contiguous_rows(v)};
  if (!c10::GradMode::is_enabled() || !(q.requires_grad() || k.requires_grad() || v.requires_grad()))
    return attend(rows[0], rows[1], rows[2], how, false).first;
  return Fused::apply(rows[0], rows[1], rows[2], how);
}

std::array<at::Tensor, 3> split_projection(const at::Tensor& joint, int64_t heads, int64_t key_size,
                                           int64_t value_heads, int64_t value_size) {
  auto parts = Split::apply(joint, heads, key_size, value_heads, value_size);
  return {parts[0], parts[1], parts[2]};
}

}  // namespace mh::attention
