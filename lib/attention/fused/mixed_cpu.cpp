#include "attention/fused/mixed_cpu.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "attention/fused/bf16_engine.h"
#include "attention/fused/scratch.h"
#include "attention/row_layout.h"
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

class Call {
 public:
  Call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m, const FusedPolicy& policy,
       bool gradient)
      : policy_(policy), distances_(policy.relative), by_row_(m.dim() > 2 ? m.stride(0) : 0), rows_(q.size(0)) {
    policy.describe(q, k, gradient, all_);
    all_.most_keys = all_.keys, all_.in = q.size(1), all_.out = m.size(-1);
    all_.key_size = q.size(3), all_.value_size = v.size(3), all_.by_query = m.dim() == 4;
    all_.relative = distances_.get();
    all_.bf16 = bf16_engine(q.scalar_type());
    all_.cache = kernels::second_level_cache();
    all_.dropped_first = policy.dropped_before_mixing, all_.dropout_head = all_.queries * all_.keys;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const kernels::MixedAttention& all() const { return all_; }
  // Rows of zeros included.
  int64_t distances() const { return all_.relative != nullptr ? all_.relative->distances : 0; }
  kernels::MixedAttention of_row(int64_t b) const {
    kernels::MixedAttention a = all_;
    if (policy_.drops)
      a.dropout_first =
          policy_.drops->first + static_cast<uint64_t>(b * (a.dropped_first ? a.in : a.out) * a.dropout_head);
    if (policy_.key_lengths.defined())
      a.keys = std::clamp<int64_t>(policy_.key_lengths.const_data_ptr<int64_t>()[b], 0, a.keys);
    return a;
  }
  const float* matrix(const at::Tensor& m, int64_t b) const { return m.const_data_ptr<float>() + b * by_row_; }

  // Into how many parts a row is cut.
  int64_t parts() const {
    const int64_t at_once = kernels::mixed_attention_rows(all_);
    return std::clamp<int64_t>((kPieces + rows_ - 1) / rows_, 1, (all_.queries + at_once - 1) / at_once);
  }

 private:
  const FusedPolicy& policy_;
  Distances distances_;
  int64_t by_row_, rows_;
  kernels::MixedAttention all_{};
};

// Rows of a batch that are worked at together, as many as keep all threads busy: their keys and values are packed, then
// their parts are gone through. visit(first row, rows).
template <class Visit>
void each_group(int64_t rows, int64_t parts, const Visit& visit) {
  const int64_t at_once = std::clamp<int64_t>((2 * at::get_num_threads() + parts - 1) / parts, 1, rows);
  for (int64_t first = 0; first < rows; first += at_once) visit(first, std::min(at_once, rows - first));
}

template <class T>
void pack_rows(const at::Tensor& k, const at::Tensor& v, const Call& call, bool backward, int64_t first, int64_t rows,
               const Scratch& packed) {
  const int64_t heads = call.all().in + call.all().out, size = kernels::mixed_pack_floats(call.all(), backward);
  at::parallel_for(0, rows * heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = first + i / heads;
      kernels::mixed_pack<T>(call.of_row(b), backward, i % heads, row_of<const T>(k, b), row_of<const T>(v, b),
                             packed.data() + i / heads * size);
    }
  });
}

// Few queries. keys(b) and values(b): of row b. Of fewer rows than threads each is shared by the threads.
template <class T, class Keys, class Values>
void few_rows(const at::Tensor& q, const Keys& keys, const Values& values, const at::Tensor& m, const Call& call,
              at::Tensor& out, at::Tensor& log_sums) {
  const auto row = [&](int64_t b, const Scratch& shared, const auto& each) {
    const kernels::MixedAttention a = call.of_row(b);
    each(a.in, [&](int64_t j) { kernels::mixed_few_logits<T>(a, j, row_of<const T>(q, b), keys(b), shared.data()); });
    kernels::mixed_few_mix(a, call.matrix(m, b), log_sums.mutable_data_ptr<float>() + b * log_sums.stride(0),
                           shared.data());
    each(a.out, [&](int64_t i) { kernels::mixed_few_values<T>(a, i, values(b), row_of<T>(out, b), shared.data()); });
  };
  const int64_t floats = kernels::mixed_few_floats(call.all()), rows = q.size(0);
  if (rows >= at::get_num_threads()) {
    at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
      const Scratch shared(floats);
      for (int64_t b = begin; b < end; ++b)
        row(b, shared, [](int64_t heads, const auto& f) {
          for (int64_t h = 0; h < heads; ++h) f(h);
        });
    });
    return;
  }
  const Scratch shared(floats);
  for (int64_t b = 0; b < rows; ++b)
    row(b, shared, [](int64_t heads, const auto& f) {
      at::parallel_for(0, heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t h = begin; h < end; ++h) f(h);
      });
    });
}

template <class T>
void forward_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m, const Call& call,
                  at::Tensor& out, at::Tensor& log_sums) {
  const int64_t parts = call.parts(), size = kernels::mixed_pack_floats(call.all(), false);
  if (kernels::mixed_takes_few(call.all()))
    return few_rows<T>(
        q, [&](int64_t b) { return row_of<const T>(k, b); }, [&](int64_t b) { return row_of<const T>(v, b); }, m, call,
        out, log_sums);
  std::optional<Scratch> packed;
  each_group(q.size(0), parts, [&](int64_t first, int64_t rows) {
    if (!packed) packed.emplace(rows * size);
    pack_rows<T>(k, v, call, false, first, rows, *packed);
    at::parallel_for(0, rows * parts, 1, [&](int64_t begin, int64_t end) {
      const Scratch scratch(kernels::mixed_forward_scratch(call.all()));
      const WithEngine with(call.all().bf16);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = first + i / parts;
        kernels::mixed_forward<T>(call.of_row(b), i % parts, parts, row_of<const T>(q, b), row_of<const T>(k, b),
                                  row_of<const T>(v, b), packed->data() + i / parts * size, call.matrix(m, b),
                                  row_of<T>(out, b), log_sums.mutable_data_ptr<float>() + b * log_sums.stride(0),
                                  scratch.data());
      }
    });
  });
}

struct Gradients {
  at::Tensor q, k, v, m = {};
  // Of relative positions, from each part of each row, fp32: (B parts, h, dk padded to 16), twice, and (B parts, h, D,
  // dk padded).
  at::Tensor du = {}, dv_bias = {}, dr = {};
};

// `once`: each head of keys and values is read once, and has its gradient in its place; else that is its reader's.
template <class T>
void backward_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                   const at::Tensor& log_sums, const at::Tensor& dout, const Call& call, bool once, Gradients& d) {
  const int64_t parts = call.parts(), h = call.all().in, hv = call.all().out, numbers = h * hv;
  const int64_t of_keys = kernels::mixed_key_floats(call.all()), of_values = kernels::mixed_value_floats(call.all());
  const int64_t size = kernels::mixed_pack_floats(call.all(), true), of_part = of_keys + of_values;
  const auto* sums = log_sums.const_data_ptr<float>();
  const bool by_query = m.dim() == 4;
  auto* dm = d.m.mutable_data_ptr<float>();
  const int64_t wide = call.distances() > 0 ? call.all().relative->size : 0;
  if (wide > 0) {
    d.du = at::empty({q.size(0) * parts, h, wide}, at::kFloat), d.dv_bias = at::empty_like(d.du);
    d.dr = at::empty({q.size(0) * parts, h, call.distances(), wide}, at::kFloat);
  }
  std::optional<Scratch> packed, given;  // given: what each part gives keys and values
  each_group(q.size(0), parts, [&](int64_t first, int64_t rows) {
    if (!packed) packed.emplace(rows * size), given.emplace(rows * parts * of_part);
    pack_rows<T>(k, v, call, true, first, rows, *packed);
    at::parallel_for(0, rows * parts, 1, [&](int64_t begin, int64_t end) {
      const Scratch scratch(kernels::mixed_backward_scratch(call.all()));
      const WithEngine with(call.all().bf16);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = first + i / parts, part = i % parts;
        float* dk = given->data() + i * of_part;
        kernels::MixedGradients to{dk, dk + of_keys, dm + (by_query ? b * q.size(2) : b * parts + part) * numbers};
        if (const int64_t n = b * parts + part; wide > 0)
          to.du = d.du.mutable_data_ptr<float>() + n * h * wide,
          to.dv_bias = d.dv_bias.mutable_data_ptr<float>() + n * h * wide,
          to.dr = d.dr.mutable_data_ptr<float>() + n * h * call.distances() * wide;
        kernels::mixed_backward<T>(call.of_row(b), part, parts, row_of<const T>(q, b),
                                   packed->data() + i / parts * size, call.matrix(m, b), row_of<const T>(dout, b),
                                   sums + b * log_sums.stride(0), row_of<T>(d.q, b), to, scratch.data());
      }
    });
    at::parallel_for(0, rows * (h + hv), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / (h + hv), head = i % (h + hv), b = first + row;
        const kernels::MixedAttention a = call.of_row(b);
        const float* from = given->data() + row * parts * of_part;
        const auto gather = [&](const float* of_head, int64_t head_size, T* to, int64_t position) {
          kernels::mixed_gather<T>(of_head, parts, of_part, a.keys, head_size, to, position);
        };
        const auto dk = row_of<T>(d.k, b), dv = row_of<T>(d.v, b);
        if (head < h) {
          gather(from + head * (kernels::mixed_key_floats(a) / h), a.key_size, dk.at(once ? a.key_head(head) : head, 0),
                 dk.position);
        } else {
          const int64_t of = head - h;
          gather(from + of_keys + of * (kernels::mixed_value_floats(a) / hv), a.value_size,
                 dv.at(once ? a.value_head(of) : of, 0), dv.position);
        }
      }
    });
  });
}

std::pair<at::Tensor, at::Tensor> attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                         const at::Tensor& m, const FusedPolicy& policy, bool gradient) {
  at::Tensor out = by_position(q, m.size(-1), q.size(2), v.size(3));
  at::Tensor sums = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
  const Call call(q, k, v, m, policy, gradient);
  if (q.scalar_type() == at::kFloat) forward_rows<float>(q, k, v, m, call, out, sums);
  else forward_rows<uint16_t>(q, k, v, m, call, out, sums);
  return {out, sums};
}

// x (n, h, …) of the parts -> as `like` is, without what fills it up.
at::Tensor over_parts(const at::Tensor& x, const at::Tensor& like) {
  at::Tensor sum = x.sum(0).narrow(-1, 0, like.size(-1));
  return sum.narrow(-2, 0, like.size(-2)).to(like.scalar_type());
}

struct Mixed : torch::autograd::Function<Mixed> {
  // u, bias and r are the policy's, as inputs of the graph.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& m, const Given& u, const Given& bias, const Given& r,
                            const FusedPolicy& policy) {
    const auto [out, sums] = attend(q, k, v, m, policy, true);
    context->save_for_backward(
        {q, k, v, m, sums, policy.key_lengths, policy.relative.u, policy.relative.v, policy.relative.r});
    policy.keep(*context);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list given) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &m = saved[3];
    const FusedPolicy policy = FusedPolicy::kept(*context, saved[5], {saved[6], saved[7], saved[8], {}}, {});
    const bool once = policy.each_head_once(k.size(1));
    const at::Tensor dout = with_contiguous_rows(given[0]);
    const Call call(q, k, v, m, policy, true);
    Gradients d = places(q, k, v, m.size(-1), once);
    if (saved[5].defined()) d.k.zero_(), d.v.zero_();  // of keys that are not real
    d.m = m.dim() == 4 ? at::empty(m.sizes(), m.options())
                       : at::empty({q.size(0), call.parts(), m.size(-2), m.size(-1)}, m.options());
    if (q.scalar_type() == at::kFloat) backward_rows<float>(q, k, v, m, saved[4], dout, call, once, d);
    else backward_rows<uint16_t>(q, k, v, m, saved[4], dout, call, once, d);
    if (!once) d.k = policy.of_heads(d.k, k), d.v = policy.of_heads(d.v, v);
    at::Tensor du, dv_bias, dr;
    if (d.du.defined())
      du = over_parts(d.du, saved[6]), dv_bias = over_parts(d.dv_bias, saved[7]), dr = over_parts(d.dr, saved[8]);
    const at::Tensor dm = m.dim() == 4   ? d.m
                          : m.dim() == 3 ? d.m.sum(1)
                                         : d.m.sum(at::IntArrayRef{0, 1}, false, at::kDouble).to(at::kFloat);
    return {d.q, d.k, d.v, dm, du, dv_bias, dr, {}};
  }

 private:
  // Where there are as many queries as keys: side by side as in a joint projection, which takes them as they are
  // (split_projection).
  static Gradients places(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t hv, bool once) {
    const int64_t h = q.size(1), keys = h * q.size(3), values = hv * v.size(3);
    if (q.size(2) != k.size(2) || !once)
      return {by_position(q, h, q.size(2), q.size(3)), by_position(k, h, k.size(2), k.size(3)),
              by_position(v, hv, v.size(2), v.size(3))};
    const at::Tensor joint = at::empty({q.size(0), q.size(2), 2 * keys + values}, q.options());
    const auto part = [&](int64_t first, int64_t heads, int64_t size) {
      return joint.narrow(2, first, heads * size).unflatten(2, {heads, size}).transpose(1, 2);
    };
    return {part(0, h, q.size(3)), part(keys, h, q.size(3)), part(2 * keys, hv, v.size(3))};
  }
};

}  // namespace

at::Tensor weighed(const at::Tensor& m, const at::Tensor& scales) {
  at::Tensor matrix = m.to(at::kFloat);
  if (scales.defined()) {
    at::Tensor s = scales.to(at::kFloat);
    if (s.dim() == 2) s = s.unsqueeze(1);
    if (s.dim() == 3 && m.dim() == 4) s = s.unsqueeze(1);
    matrix = matrix * s;
  }
  return matrix.contiguous();
}

bool has_mixed_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return q.is_cpu() && (q.scalar_type() == at::kFloat || q.scalar_type() == at::kBFloat16) &&
         k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type() && q.numel() > 0 && k.numel() > 0 &&
         v.numel() > 0;
}

at::Tensor mixed_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                     const FusedPolicy& given) {
  FusedPolicy policy = given;
  if (policy.key_lengths.defined()) policy.key_lengths = policy.key_lengths.contiguous();
  const at::Tensor rows[]{with_contiguous_rows(q), with_contiguous_rows(k), with_contiguous_rows(v)};
  const at::Tensor matrix = weighed(m, policy.head_scales);
  policy.head_scales = at::Tensor();
  const RelativePositions& p = policy.relative;
  const auto wanted = [](const at::Tensor& x) { return x.requires_grad(); };
  if (!c10::GradMode::is_enabled() || !(wanted(q) || wanted(k) || wanted(v) || wanted(matrix) || p.wants_gradient()))
    return attend(rows[0], rows[1], rows[2], matrix, policy, false).first;
  return Mixed::apply(rows[0], rows[1], rows[2], matrix, given_or_not(p.u), given_or_not(p.v), given_or_not(p.r),
                      policy);
}

at::Tensor mixed_in_place(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& m,
                          const FusedPolicy& policy, Cache& cache) {
  const Cache::InPlace all = cache.extend(k, v);
  const int64_t rows = q.size(0), last = all.rows.size(1) - 1;
  all.keys.narrow(0, 0, rows).select(2, last).copy_(k.select(2, 0));
  all.values.narrow(0, 0, rows).select(2, last).copy_(v.select(2, 0));
  const at::Tensor matrix = weighed(m, policy.head_scales), queries = with_contiguous_rows(q);
  at::Tensor out = by_position(q, m.size(-1), 1, v.size(3));
  at::Tensor sums = at::empty({rows, q.size(1), 1}, q.options().dtype(at::kFloat));
  const Call call(queries, all.keys, all.values, matrix, policy, false);
  const auto attend = [&]<class T>(T) {
    const auto of = [&](const at::Tensor& x) {
      return [&](int64_t b) {
        kernels::Heads<const T> heads = row_of<const T>(x, 0);
        heads.table = all.rows.const_data_ptr<int32_t>() + b * all.rows.stride(0), heads.row = x.stride(0);
        return heads;
      };
    };
    few_rows<T>(queries, of(all.keys), of(all.values), matrix, call, out, sums);
  };
  if (q.scalar_type() == at::kFloat) attend(float{});
  else attend(uint16_t{});
  return out;
}

}  // namespace mh::attention
