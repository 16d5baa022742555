// Random test cases for the GPU attention kernels in the emulator: tensors, attention parameters, and a check of the
// error of a result against the result of plain loops in double precision.
#pragma once

#include <rapidcheck.h>

#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "ceil_div.h"
#include "cuda/attention.h"
#include "cuda/philox.h"
#include "emulator/host_thread.h"
#include "oracle/kernel_attention.h"
#include "oracle/tolerance.h"

namespace cuda_cases {

using mh::kernels::AttentionParams;
using mh::kernels::AttentionTensors;
using mh::kernels::StridedTensor;
using reference::Doubles;

// Returns a random integer from low to high, both included.
inline int64_t pick(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }

// Returns x rounded to T.
template <class T>
T from_double(double x) {
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(x);
  else return T{host::narrow(static_cast<float>(x), T{})};
}
template <class T>
double to_double(T x) {
  if constexpr (std::is_same_v<T, float>) return x;
  else return host::widen(x.bits, T{});
}

// A tensor (batch, heads, length, size) in heap memory, in which the address sanitizer detects accesses out of bounds.
// is_position_major: stored as (batch, length, heads, size), the layout of a joint projection of all heads. Elements
// are NaN at first.
template <class T>
struct Tensor {
  int64_t batch, heads, length, size;
  bool is_position_major;
  std::vector<T> data;
  Tensor(int64_t b, int64_t h, int64_t n, int64_t d, bool position_major)
      : batch(b),
        heads(h),
        length(n),
        size(d),
        is_position_major(position_major),
        data(static_cast<size_t>(b * h * n * d), from_double<T>(NAN)) {}
  template <class U>
  StridedTensor<U> view_of(U* elements) const {
    return is_position_major ? StridedTensor<U>{elements, length * heads * size, size, heads * size}
                             : StridedTensor<U>{elements, heads * length * size, length * size, size};
  }
  StridedTensor<const T> const_view() const { return view_of<const T>(data.data()); }
  StridedTensor<T> view() { return view_of<T>(data.data()); }
  mh::kernels::UntypedTensor untyped_view() {
    const StridedTensor<T> r = view();
    return {r.data, r.batch_stride, r.head_stride, r.row_stride};
  }
  // Returns the elements in the order (batch, heads, length, size), whatever the layout of the tensor.
  Doubles to_doubles() const {
    Doubles values;
    const StridedTensor<const T> r = const_view();
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < length; ++t)
          for (int64_t e = 0; e < size; ++e)
            values.push_back(to_double(r.data[b * r.batch_stride + h * r.head_stride + t * r.row_stride + e]));
    return values;
  }
  // Fills the tensor with normally distributed numbers of mean 0.
  void fill(std::mt19937& random, double stddev) {
    std::normal_distribution<double> normal(0, stddev);
    for (T& x : data) x = from_double<T>(normal(random));
  }
};

// Returns the largest magnitude of the finite elements of x; 0 if there are none.
inline double max_magnitude(const Doubles& x) {
  double result = 0;
  for (const double e : x) result = std::max(result, std::isfinite(e) ? std::abs(e) : 0);
  return result;
}
// Returns the largest |x[i] - y[i]|, where the difference of equal infinities counts as 0; infinite if any x[i] or y[i]
// is NaN.
inline double max_difference(const Doubles& x, const Doubles& y) {
  RC_ASSERT(x.size() == y.size());
  double result = 0;
  for (size_t i = 0; i < x.size(); ++i)
    if (!(x[i] == y[i])) result = std::isnan(x[i] - y[i]) ? HUGE_VAL : std::max(result, std::abs(x[i] - y[i]));
  return result;
}

// Returns whether an error is within its bound; false for an infinite bound, which a NaN in the exact or in the
// composed result causes.
inline bool is_within(double error, double bound) { return std::isfinite(bound) && error <= bound; }

template <class T>
inline constexpr double kUnitRoundoff = std::is_same_v<T, float>               ? tolerance::kFp32
                                        : std::is_same_v<T, mh::kernels::Fp16> ? tolerance::kFp16
                                                                               : tolerance::kBf16;

// Checks the result of a fused kernel: its error may not exceed a bound that follows from the error of the same
// computation composed of matrix operations in type T (tolerance::composed_error_bound) and from the errors of logits.
template <class T>
struct ExpectClose {
  double logit_magnitude;  // largest Σ |term| over the terms of a logit

  // actual: result of the kernel; exact: result in double precision; composed: result in type T; magnitudes: Σ |term|
  // over the terms of each element of `exact`.
  void operator()(const std::string& name, const Doubles& actual, const Doubles& exact, const Doubles& composed,
                  const Doubles& magnitudes) const {
    const double error = max_difference(actual, exact), magnitude = max_magnitude(magnitudes),
                 bound =
                     tolerance::composed_error_bound(max_difference(composed, exact), kUnitRoundoff<T>, magnitude) +
                     tolerance::logit_error_bound(logit_magnitude, magnitude) +
                     (std::is_same_v<T, float> ? tolerance::split_logit_error_bound(logit_magnitude, magnitude) : 0);
    RC_LOG() << name << ": error " << error << ", bound " << bound << ", largest magnitude " << max_magnitude(exact)
             << "\n";
    RC_ASSERT(is_within(error, bound));
  }
};

// The parameters of a random case. any: any parameters; windows: causal with a window of at most 24 keys; lengths: not
// causal, with key_lengths from 0 to 8.
enum class CaseKind { any, windows, lengths };

// A random case: sizes and attention parameters, for the reference (oracle_case) and for the kernels (params). Since
// oracle_case and params point to the other members, a case cannot be copied.
struct Case {
  reference::OracleCase oracle_case;
  AttentionParams params;
  mh::kernels::DropoutParams dropout{{17, 4}, 3, 5, 1 << 22, 4.0F / 3};
  std::vector<int64_t> k_head_of, v_head_of;
  std::vector<float> scales;

  // `heads`, `value_heads`: numbers of query heads and of value heads. `max_length`: largest number of queries.
  // `max_size`: in half of the cases, keys and values both have this size, rounded up to a multiple of 8; in the other
  // half, their sizes are random, at most `max_size`, and equal if `has_equal_sizes`.
  Case(int64_t heads, int64_t value_heads, int64_t max_length, int64_t max_size, bool has_equal_sizes,
       CaseKind kind = CaseKind::any) {
    reference::OracleCase& c = oracle_case;
    c.batch = pick(1, 2), c.heads = heads, c.value_heads = value_heads;
    const bool is_aligned = pick(0, 1) == 1;
    c.key_size = is_aligned ? mh::round_up(max_size, 8) : pick(1, max_size);
    c.value_size = has_equal_sizes || is_aligned ? c.key_size : pick(1, max_size);
    mh::kernels::AttentionParams& p = c.params;
    const bool is_windowed = kind == CaseKind::windows, has_lengths = kind == CaseKind::lengths;
    p.causal = is_windowed || (!has_lengths && pick(0, 1) == 1);
    p.queries = pick(1, max_length), p.keys = p.causal ? p.queries + pick(0, max_length) : pick(0, max_length);
    p.window = is_windowed ? pick(1, 24) : p.causal && pick(0, 1) == 1 ? pick(1, p.keys + 5) : 0;
    p.scale = 0.25F;
    p.normaliser = pick(0, 3) == 0 ? mh::kernels::Normaliser::sigsoftmax : mh::kernels::Normaliser::softmax;
    if (has_lengths || (!p.causal && pick(0, 1) == 1))
      for (int64_t b = 0; b < c.batch; ++b)
        c.key_lengths.push_back(pick(0, has_lengths ? std::min<int64_t>(p.keys, 8) : p.keys));
    c.k_heads = heads, c.v_heads = value_heads;
    if (pick(0, 2) == 0) {
      c.k_heads = pick(1, 3), c.v_heads = pick(1, 3);
      for (int64_t j = 0; j < heads; ++j) k_head_of.push_back(pick(0, c.k_heads - 1));
      for (int64_t i = 0; i < value_heads; ++i) v_head_of.push_back(pick(0, c.v_heads - 1));
      p.k_head_of = k_head_of.data(), p.v_head_of = v_head_of.data();
    }
    const bool has_scales_per_row = pick(0, 1) == 1;
    if (pick(0, 2) == 0) {
      for (int64_t i = 0; i < (has_scales_per_row ? c.batch : 1) * value_heads; ++i)
        scales.push_back(0.5F * static_cast<float>(pick(-1, 4)));
      for (int64_t i = 0; i < c.batch * value_heads; ++i)
        c.head_scales.push_back(scales[static_cast<size_t>(has_scales_per_row ? i : i % value_heads)]);
      p.head_scales = scales.data();
    }
    if (pick(0, 2) == 0) {
      c.dropout_before_mixing = heads != value_heads || pick(0, 1) == 1;
      // Consecutive rows, heads and batch rows of the dropout mask are adjacent in the random stream or have gaps
      // between them.
      const auto gap = [this] { return pick(0, 1) == 1 ? int64_t{1} << pick(0, 40) : 0; };
      p.dropout = dropout, p.dropout_offset = static_cast<uint64_t>(pick(0, 1000));
      p.dropout_row_stride = p.keys + gap(), p.dropout_head_stride = p.queries * p.dropout_row_stride + gap();
      p.dropout_batch_stride = (c.dropout_before_mixing ? heads : value_heads) * p.dropout_head_stride + gap();
      c.dropout_factor = [this](int64_t b, int64_t h, int64_t t, int64_t s) {
        const AttentionParams& case_params = oracle_case.params;
        const uint64_t element =
            case_params.dropout_offset +
            static_cast<uint64_t>(b * case_params.dropout_batch_stride + h * case_params.dropout_head_stride +
                                  t * case_params.dropout_row_stride + s);
        return mh::kernels::dropout_keeps(dropout, mh::kernels::philox(dropout, element / 4).word[element % 4])
                   ? static_cast<double>(dropout.scale)
                   : 0.0;
      };
    }
    params = p;
    params.value_heads = static_cast<int>(value_heads), params.key_size = static_cast<int>(c.key_size),
    params.value_size = static_cast<int>(c.value_size);
    params.key_lengths = c.key_lengths.empty() ? nullptr : c.key_lengths.data();
    params.head_scales_stride = has_scales_per_row ? value_heads : 0;
    params.has_aligned_rows = c.key_size % 8 == 0 && c.value_size % 8 == 0;
  }
  // Adds relative positions: random key ranges, the biases u and v, and r with some rows that no pair of query and
  // key uses. Replaces `r`, which must outlive the case, since params points to its elements.
  template <class T>
  void add_relative_positions(Tensor<T>& r, std::mt19937& random) {
    reference::OracleCase& c = oracle_case;
    c.key_ranges = random_key_ranges(c.num_distances);
    r = Tensor<T>(1, c.heads, c.num_distances, c.key_size, r.is_position_major);
    r.fill(random, 0.5);
    std::normal_distribution<float> normal;
    for (std::vector<float>* bias : {&u, &v_bias})
      for (int64_t i = 0; i < c.heads * c.key_size; ++i) bias->push_back(normal(random));
    c.u.assign(u.begin(), u.end()), c.v_bias.assign(v_bias.begin(), v_bias.end()), c.r = r.to_doubles();
    params.relative = {.u = u.data(),
                       .v = v_bias.data(),
                       .r = r.data.data(),
                       .head_stride = r.const_view().head_stride,
                       .row_stride = r.const_view().row_stride,
                       .key_ranges = c.key_ranges.data(),
                       .num_distances = static_cast<int>(c.num_distances),
                       .num_key_ranges = static_cast<int>(c.key_ranges.size())};
  }
  // Adds at least one logit term: a soft cap, sinks, a position bias with random key ranges, or a window without a
  // causal mask.
  void add_logit_terms(std::mt19937& random) {
    reference::OracleCase& c = oracle_case;
    const int64_t terms = pick(1, 15);
    std::normal_distribution<float> normal;
    if ((terms & 1) != 0) c.params.soft_cap = params.soft_cap = 0.5F * static_cast<float>(pick(1, 8));
    if ((terms & 2) != 0) {
      for (int64_t j = 0; j < c.heads; ++j) sinks.push_back(2 * normal(random));
      c.sinks.assign(sinks.begin(), sinks.end()), params.sinks = sinks.data();
    }
    if ((terms & 4) != 0) {
      c.bias_key_ranges = random_key_ranges(c.num_bias_distances);
      const int64_t stride = c.num_bias_distances + pick(0, 2);
      for (int64_t i = 0; i < c.heads * stride; ++i) {
        position_bias.push_back(i % stride < c.num_bias_distances ? normal(random) : NAN);
        if (i % stride < c.num_bias_distances) c.position_bias.push_back(static_cast<double>(position_bias.back()));
      }
      params.position_bias = {.bias = position_bias.data(),
                              .head_stride = stride,
                              .key_ranges = c.bias_key_ranges.data(),
                              .num_distances = static_cast<int>(c.num_bias_distances),
                              .num_key_ranges = static_cast<int>(c.bias_key_ranges.size())};
    }
    if ((terms & 8) != 0 && !params.causal) c.params.window = params.window = pick(1, params.keys + 5);
  }
  std::vector<float> u, v_bias, sinks, position_bias;
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

 private:
  // Returns random key ranges, and writes the number of their distances, of which some belong to no pair of query and
  // key, to num_distances.
  std::vector<mh::kernels::KeyRange> random_key_ranges(int64_t& num_distances) const {
    const mh::kernels::AttentionParams& p = oracle_case.params;
    std::vector<mh::kernels::KeyRange> key_ranges;
    num_distances = 0;
    for (int64_t first = 0; first < p.keys;) {
      const int64_t count = pick(1, p.keys - first),
                    num_visible = p.causal ? std::min(count, p.keys - p.queries - first + 1) : count;
      key_ranges.push_back({first, count, num_distances});
      num_distances += std::max<int64_t>(1, p.queries + num_visible - 1) + pick(0, 3);  // up to 3 unused rows
      first += count;
    }
    return key_ranges;
  }
};

// The tensors of a case. dk has one head for each query head, and dv one for each value head
// (has_one_reader_per_kv_head is false).
template <class T>
struct CaseTensors {
  Tensor<T> q, k, v, dout, out, dq, dk, dv;
  std::vector<float> lse, delta;
  CaseTensors(const Case& random_case, std::mt19937& random) : CaseTensors(random_case.oracle_case, pick(0, 1) == 1) {
    for (auto* t : {&q, &k, &v, &dout}) t->fill(random, 1);
  }
  AttentionTensors attention_tensors() {
    AttentionTensors x;
    x.batch = q.batch, x.q = q.untyped_view(), x.k = k.untyped_view(), x.v = v.untyped_view(),
    x.out = out.untyped_view(), x.dout = dout.untyped_view();
    x.dq = dq.untyped_view(), x.dk = dk.untyped_view(), x.dv = dv.untyped_view(), x.has_one_reader_per_kv_head = false;
    x.lse = lse.data(), x.delta = delta.data();
    return x;
  }

 private:
  CaseTensors(const reference::OracleCase& c, bool is_position_major)
      : q(c.batch, c.heads, c.params.queries, c.key_size, is_position_major),
        k(c.batch, c.k_heads, c.params.keys, c.key_size, is_position_major),
        v(c.batch, c.v_heads, c.params.keys, c.value_size, is_position_major),
        dout(c.batch, c.value_heads, c.params.queries, c.value_size, is_position_major),
        out(dout),
        dq(q),
        dk(c.batch, c.heads, c.params.keys, c.key_size, is_position_major),
        dv(c.batch, c.value_heads, c.params.keys, c.value_size, is_position_major),
        lse(static_cast<size_t>(c.batch * c.heads * c.params.queries), NAN),
        delta(lse) {}
};

}  // namespace cuda_cases
