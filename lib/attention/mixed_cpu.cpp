#include "attention/mixed_cpu.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "attention/scratch.h"
#include "cpu/mixed_attention.h"

namespace mh::attention {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Pieces of work of a batch, at least: of fewer rows each is cut into parts. Fixed, so that the order of sums is.
constexpr int64_t kPieces = 8;

// One row of a tensor (B, h, T, d).
template <class T>
kernels::Heads<T> row_of(const at::Tensor& x, int64_t b) {
  return {static_cast<T*>(const_cast<void*>(x.const_data_ptr())) + b * x.stride(0), x.stride(1), x.stride(2)};
}

struct How {
  MixedMask mask;
  std::optional<MixedDropout> drops;
};

class Call {
 public:
  Call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m, const How& how,
       bool gradient)
      : how_(how), by_row_(m.dim() == 4 ? m.stride(0) : 0), rows_(q.size(0)) {
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
    all_ = {q.size(2),       k.size(2),    k.size(2), q.size(1),
            v.size(1),       q.size(3),    v.size(3), static_cast<float>(scale),
            how.mask.causal, m.dim() == 4, gradient};
    if (!how.drops) return;
    all_.dropout = &how.drops->from.how;
    all_.dropped_first = how.drops->before_mixing;
    all_.dropout_row = all_.keys, all_.dropout_head = all_.queries * all_.keys;
  }

  const kernels::MixedAttention& all() const { return all_; }
  kernels::MixedAttention of_row(int64_t b) const {
    kernels::MixedAttention a = all_;
    if (how_.drops)
      a.dropout_first =
          how_.drops->from.first + static_cast<uint64_t>(b * (a.dropped_first ? a.in : a.out) * a.dropout_head);
    if (how_.mask.key_lengths.defined())
      a.keys = std::clamp<int64_t>(how_.mask.key_lengths.const_data_ptr<int64_t>()[b], 0, a.keys);
    return a;
  }
  const float* matrix(const at::Tensor& m, int64_t b) const { return m.const_data_ptr<float>() + b * by_row_; }

  // Into how many parts a row is cut.
  int64_t parts() const {
    const int64_t at_once = kernels::mixed_attention_rows(all_);
    return std::clamp<int64_t>((kPieces + rows_ - 1) / rows_, 1, (all_.queries + at_once - 1) / at_once);
  }

 private:
  const How& how_;
  int64_t by_row_, rows_;
  kernels::MixedAttention all_{};
};

template <class T>
void forward_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m, const Call& call,
                  at::Tensor& out, at::Tensor& log_sums) {
  const int64_t parts = call.parts(), of_row = log_sums.stride(0);
  auto* sums = log_sums.mutable_data_ptr<float>();
  at::parallel_for(0, q.size(0) * parts, 1, [&](int64_t begin, int64_t end) {
    const Scratch scratch(kernels::mixed_forward_scratch(call.all()));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / parts;
      kernels::mixed_forward<T>(call.of_row(b), i % parts, parts, row_of<const T>(q, b), row_of<const T>(k, b),
                                row_of<const T>(v, b), call.matrix(m, b), row_of<T>(out, b), sums + b * of_row,
                                scratch.data());
    }
  });
}

struct Gradients {
  at::Tensor q, k, v, m;
};

template <class T>
void backward_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                   const at::Tensor& log_sums, const at::Tensor& dout, const Call& call, const Gradients& d) {
  const int64_t parts = call.parts(), h = q.size(1), hv = v.size(1), numbers = h * hv;
  const int64_t of_keys = kernels::mixed_key_floats(call.all()), of_values = kernels::mixed_value_floats(call.all());
  const auto* sums = log_sums.const_data_ptr<float>();
  const bool by_query = m.dim() == 4;
  auto* dm = d.m.mutable_data_ptr<float>();
  // What the parts of a row give keys and values, of as many rows at a time as keep all threads busy. Of one part it is
  // passed on before the thread goes to the next row.
  const int64_t at_once = std::clamp<int64_t>((at::get_num_threads() + parts - 1) / parts, 1, q.size(0));
  std::vector<float> shared(parts > 1 ? static_cast<size_t>(at_once * parts * (of_keys + of_values)) : 0);
  const auto gather = [&](int64_t b, const float* given) {
    const kernels::MixedAttention a = call.of_row(b);
    const int64_t key_head = kernels::mixed_key_floats(a) / h, value_head = kernels::mixed_value_floats(a) / hv;
    const auto dk = row_of<T>(d.k, b), dv = row_of<T>(d.v, b);
    for (int64_t j = 0; j < h; ++j)
      kernels::mixed_gather<T>(given + j * key_head, parts, of_keys + of_values, a.keys, a.key_size, dk.at(j, 0),
                               dk.position);
    for (int64_t i = 0; i < hv; ++i)
      kernels::mixed_gather<T>(given + of_keys + i * value_head, parts, of_keys + of_values, a.keys, a.value_size,
                               dv.at(i, 0), dv.position);
  };
  const int64_t size = kernels::mixed_backward_scratch(call.all());
  const auto part_of = [&](int64_t b, int64_t part, float* given, float* scratch) {
    kernels::mixed_backward<T>(call.of_row(b), part, parts, row_of<const T>(q, b), row_of<const T>(k, b),
                               row_of<const T>(v, b), call.matrix(m, b), row_of<const T>(dout, b),
                               sums + b * log_sums.stride(0), row_of<T>(d.q, b), given, given + of_keys,
                               dm + (by_query ? b * q.size(2) : b * parts + part) * numbers, scratch);
  };
  if (parts == 1) {
    at::parallel_for(0, q.size(0), 1, [&](int64_t begin, int64_t end) {
      const Scratch scratch(size + of_keys + of_values);
      for (int64_t b = begin; b < end; ++b) {
        part_of(b, 0, scratch.data() + size, scratch.data());
        gather(b, scratch.data() + size);
      }
    });
    return;
  }
  for (int64_t first = 0; first < q.size(0); first += at_once) {
    const int64_t rows = std::min(at_once, q.size(0) - first);
    const auto of_part = [&](int64_t i) { return shared.data() + i * (of_keys + of_values); };
    at::parallel_for(0, rows * parts, 1, [&](int64_t begin, int64_t end) {
      const Scratch scratch(size);
      for (int64_t i = begin; i < end; ++i) part_of(first + i / parts, i % parts, of_part(i), scratch.data());
    });
    at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) gather(first + b, of_part(b * parts));
    });
  }
}

at::Tensor with_contiguous_rows(const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

// (B, h, T, d) stored as (B, T, h, d), so that joining the heads needs no copy.
at::Tensor by_position(const at::Tensor& like, int64_t heads, int64_t size) {
  return at::empty({like.size(0), like.size(2), heads, size}, like.options()).transpose(1, 2);
}

std::pair<at::Tensor, at::Tensor> attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                         const at::Tensor& m, const How& how, bool gradient) {
  at::Tensor out = by_position(q, v.size(1), v.size(3));
  at::Tensor sums = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
  const Call call(q, k, v, m, how, gradient);
  if (q.scalar_type() == at::kFloat) forward_rows<float>(q, k, v, m, call, out, sums);
  else forward_rows<uint16_t>(q, k, v, m, call, out, sums);
  return {out, sums};
}

struct Mixed : torch::autograd::Function<Mixed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& m, const How& how) {
    const auto [out, sums] = attend(q, k, v, m, how, true);
    context->save_for_backward({q, k, v, m, sums, how.mask.key_lengths});
    context->saved_data["causal"] = how.mask.causal;
    if (how.drops)
      context->saved_data["drops"] = std::string(reinterpret_cast<const char*>(&*how.drops), sizeof *how.drops);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list given) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &m = saved[3];
    How how{{context->saved_data["causal"].toBool(), saved[5]}, {}};
    if (const auto drops = context->saved_data.find("drops"); drops != context->saved_data.end())
      std::memcpy(&how.drops.emplace(), drops->second.toStringRef().data(), sizeof *how.drops);
    const at::Tensor dout = with_contiguous_rows(given[0]);
    const Call call(q, k, v, m, how, true);
    Gradients d = places(q, k, v);
    if (saved[5].defined()) d.k.zero_(), d.v.zero_();  // of keys that are not real
    d.m = m.dim() == 4 ? at::empty(m.sizes(), m.options())
                       : at::empty({q.size(0) * call.parts(), m.size(0), m.size(1)}, m.options());
    if (q.scalar_type() == at::kFloat) backward_rows<float>(q, k, v, m, saved[4], dout, call, d);
    else backward_rows<uint16_t>(q, k, v, m, saved[4], dout, call, d);
    return {d.q, d.k, d.v, m.dim() == 4 ? d.m : d.m.sum(0, false, at::kDouble).to(at::kFloat), {}};
  }

 private:
  // Where there are as many queries as keys: side by side as in a joint projection, which takes them as they are
  // (split_projection).
  static Gradients places(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const int64_t h = q.size(1), hv = v.size(1), keys = h * q.size(3), values = hv * v.size(3);
    if (q.size(2) != k.size(2))
      return {by_position(q, h, q.size(3)), by_position(k, h, k.size(3)), by_position(v, hv, v.size(3)), {}};
    const at::Tensor joint = at::empty({q.size(0), q.size(2), 2 * keys + values}, q.options());
    const auto part = [&](int64_t first, int64_t heads, int64_t size) {
      return joint.narrow(2, first, heads * size).unflatten(2, {heads, size}).transpose(1, 2);
    };
    return {part(0, h, q.size(3)), part(keys, h, q.size(3)), part(2 * keys, hv, v.size(3)), {}};
  }
};

}  // namespace

bool has_mixed_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return q.is_cpu() && (q.scalar_type() == at::kFloat || q.scalar_type() == at::kBFloat16) &&
         k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type() && q.numel() > 0 && k.numel() > 0 &&
         v.numel() > 0;
}

at::Tensor mixed_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                     const MixedMask& mask, const std::optional<MixedDropout>& drops) {
  How how{mask, drops};
  if (how.mask.key_lengths.defined()) how.mask.key_lengths = how.mask.key_lengths.contiguous();
  const at::Tensor rows[]{with_contiguous_rows(q), with_contiguous_rows(k), with_contiguous_rows(v)};
  const at::Tensor matrix = m.to(at::kFloat).contiguous();
  const auto wanted = [](const at::Tensor& x) { return x.requires_grad(); };
  if (!c10::GradMode::is_enabled() || !(wanted(q) || wanted(k) || wanted(v) || wanted(m)))
    return attend(rows[0], rows[1], rows[2], matrix, how, false).first;
  return Mixed::apply(rows[0], rows[1], rows[2], matrix, how);
}

}  // namespace mh::attention
