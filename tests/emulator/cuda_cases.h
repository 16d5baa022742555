// Random cases for the attention kernels of a GPU, as its threads run on the CPU: tensors of a type and their numbers,
// what a policy may say, and how far results may be from the loops in double.
#pragma once

#include <rapidcheck.h>

#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda/attention.h"
#include "cuda/philox.h"
#include "emulator/host_thread.h"
#include "oracle/policy.h"
#include "oracle/tolerance.h"

namespace cuda_cases {

using mh::kernels::AttentionParams;
using mh::kernels::AttentionTensors;
using mh::kernels::Rows;
using reference::Doubles;

inline int64_t pick(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }

template <class T>
T narrowed(double x) {
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(x);
  else return T{host::narrow(static_cast<float>(x), T{})};
}
template <class T>
double widened(T x) {
  if constexpr (std::is_same_v<T, float>) return x;
  else return host::wide(x.bits, T{});
}

// (batch, heads, length, size), of the heap so that nothing beside it may be touched; by position, as a joint
// projection, or by head.
template <class T>
struct Tensor {
  int64_t batch, heads, length, size;
  bool by_position;
  std::vector<T> data;
  Tensor(int64_t b, int64_t h, int64_t n, int64_t d, bool positions)
      : batch(b),
        heads(h),
        length(n),
        size(d),
        by_position(positions),
        data(static_cast<size_t>(b * h * n * d), narrowed<T>(NAN)) {}
  template <class U>
  Rows<U> rows_of(U* from) const {
    return by_position ? Rows<U>{from, length * heads * size, size, heads * size}
                       : Rows<U>{from, heads * length * size, length * size, size};
  }
  Rows<const T> read() const { return rows_of<const T>(data.data()); }
  Rows<T> write() { return rows_of<T>(data.data()); }
  mh::kernels::AnyRows any() {
    const Rows<T> r = write();
    return {r.data, r.batch_stride, r.head_stride, r.row_stride};
  }
  Doubles numbers() const {  // (batch, heads, length, size)
    Doubles all;
    const Rows<const T> r = read();
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < length; ++t)
          for (int64_t e = 0; e < size; ++e)
            all.push_back(widened(r.data[b * r.batch_stride + h * r.head_stride + t * r.row_stride + e]));
    return all;
  }
  void fill(std::mt19937& random, double spread) {
    std::normal_distribution<double> normal(0, spread);
    for (T& x : data) x = narrowed<T>(normal(random));
  }
};

inline double largest(const Doubles& x) {
  double most = 0;
  for (const double e : x) most = std::max(most, std::isfinite(e) ? std::abs(e) : 0);
  return most;
}
inline double distance(const Doubles& x, const Doubles& y) {
  RC_ASSERT(x.size() == y.size());
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i)
    if (!(x[i] == y[i])) most = std::isnan(x[i]) ? HUGE_VAL : std::max(most, std::abs(x[i] - y[i]));
  return most;
}

// The rounding unit of T.
template <class T>
inline constexpr double kRounding = std::is_same_v<T, float>               ? tolerance::kFp32
                                    : std::is_same_v<T, mh::kernels::Fp16> ? tolerance::kFp16
                                                                           : tolerance::kBf16;

// Checks a fused result against the exact one: its error may not exceed the bound of tolerance::beside_composed, which
// follows from the error of the composed result of type T.
template <class T>
struct ExpectClose {
  double logit_size;  // the largest logit if all its terms had one sign

  // `sizes`: the exact numbers if all their terms had one sign.
  void operator()(const std::string& what, const Doubles& found, const Doubles& exact, const Doubles& composed,
                  const Doubles& sizes) const {
    const double error = distance(found, exact), size = largest(sizes),
                 bound = tolerance::beside_composed(distance(composed, exact), kRounding<T>, size) +
                         tolerance::of_logits(logit_size, size) +
                         (std::is_same_v<T, float> ? tolerance::of_split_logits(logit_size, size) : 0);
    RC_LOG() << what << ": error " << error << " of " << bound << ", largest number " << largest(exact) << "\n";
    RC_ASSERT(error <= bound);
  }
};

// Sizes, and all else that a policy says.
// What cases are about: anything; windows, of which most end within the keys; or rows of few real keys, or none, in
// blocks of their own.
enum class About { anything, windows, lengths };

struct Case {
  reference::PolicyCase exact;
  AttentionParams call;
  mh::kernels::Dropout dropout{{17, 4}, 3, 5, 1 << 22, 4.0F / 3};
  std::vector<int64_t> of_keys, of_values;
  std::vector<float> scales;

  // Heads of logits, and of the result; sizes up to most_size.
  Case(int64_t in, int64_t out, int64_t most_length, int64_t most_size, bool one_size, About about = About::anything) {
    reference::PolicyCase& c = exact;
    c.batch = pick(1, 2), c.in = in, c.out = out;
    const bool whole = pick(0, 1) == 1;  // of which all rows are aligned
    c.key_size = whole ? (most_size + 7) / 8 * 8 : pick(1, most_size);
    c.value_size = one_size || whole ? c.key_size : pick(1, most_size);
    mh::kernels::AttentionParams& p = c.policy;
    const bool windows = about == About::windows, lengths = about == About::lengths;
    p.causal = windows || (!lengths && pick(0, 1) == 1);
    p.queries = pick(1, most_length), p.keys = p.causal ? p.queries + pick(0, most_length) : pick(0, most_length);
    p.window = windows ? pick(1, 24) : p.causal && pick(0, 1) == 1 ? pick(1, p.keys + 5) : 0;
    p.scale = 0.25F;
    p.normaliser = pick(0, 3) == 0 ? mh::kernels::Normaliser::sigsoftmax : mh::kernels::Normaliser::softmax;
    if (lengths || (!p.causal && pick(0, 1) == 1))
      for (int64_t b = 0; b < c.batch; ++b)
        c.key_lengths.push_back(pick(0, lengths ? std::min<int64_t>(p.keys, 8) : p.keys));
    c.key_heads = in, c.value_heads = out;
    if (pick(0, 2) == 0) {
      c.key_heads = pick(1, 3), c.value_heads = pick(1, 3);
      for (int64_t j = 0; j < in; ++j) of_keys.push_back(pick(0, c.key_heads - 1));
      for (int64_t i = 0; i < out; ++i) of_values.push_back(pick(0, c.value_heads - 1));
      p.key_heads = of_keys.data(), p.value_heads = of_values.data();
    }
    const bool by_row = pick(0, 1) == 1;
    if (pick(0, 2) == 0) {
      for (int64_t i = 0; i < (by_row ? c.batch : 1) * out; ++i)
        scales.push_back(0.5F * static_cast<float>(pick(-1, 4)));
      for (int64_t i = 0; i < c.batch * out; ++i) c.scales.push_back(scales[static_cast<size_t>(by_row ? i : i % out)]);
      p.head_scales = scales.data();
    }
    if (pick(0, 2) == 0) {
      p.dropout = dropout, p.dropout_first = static_cast<uint64_t>(pick(0, 1000)), p.dropout_row = p.keys;
      c.dropped_first = in != out || pick(0, 1) == 1;
      const int64_t heads = c.dropped_first ? in : out;
      c.keep = [this, heads](int64_t b, int64_t h, int64_t t, int64_t s) {
        const mh::kernels::AttentionParams& policy = exact.policy;
        const uint64_t element = policy.dropout_first +
                                 static_cast<uint64_t>(((b * heads + h) * policy.queries + t) * policy.dropout_row + s);
        return mh::kernels::keeps(dropout, mh::kernels::philox(dropout, element / 4).word[element % 4])
                   ? static_cast<double>(dropout.scale)
                   : 0.0;
      };
    }
    call = p;
    call.out_heads = call.dropout_heads = static_cast<int>(out), call.key_size = static_cast<int>(c.key_size),
    call.value_size = static_cast<int>(c.value_size);
    call.key_lengths = c.key_lengths.empty() ? nullptr : c.key_lengths.data();
    call.head_scales_stride = by_row ? out : 0;
    call.aligned = c.key_size % 8 == 0 && c.value_size % 8 == 0;
  }
  // Keys of a case in runs with gaps between them, r and biases of heads of queries; r is the table as stored.
  template <class T>
  void add_positions(Tensor<T>& r, std::mt19937& random) {
    reference::PolicyCase& c = exact;
    const mh::kernels::AttentionParams& p = c.policy;
    for (int64_t first = 0; first < p.keys;) {
      const int64_t count = pick(1, p.keys - first),
                    seen = p.causal ? std::min(count, p.keys - p.queries - first + 1) : count;
      c.runs.push_back({first, count, c.distances});
      c.distances += std::max<int64_t>(1, p.queries + seen - 1) + pick(0, 3);  // some that no pair has
      first += count;
    }
    r = Tensor<T>(1, c.in, c.distances, c.key_size, r.by_position);
    r.fill(random, 0.5);
    std::normal_distribution<float> normal;
    for (std::vector<float>* bias : {&u, &v_bias})
      for (int64_t i = 0; i < c.in * c.key_size; ++i) bias->push_back(normal(random));
    c.u.assign(u.begin(), u.end()), c.v_bias.assign(v_bias.begin(), v_bias.end()), c.r = r.numbers();
    call.relative = {.u = u.data(),
                     .v = v_bias.data(),
                     .rows = r.data.data(),
                     .head_stride = r.read().head_stride,
                     .row_stride = r.read().row_stride,
                     .runs = c.runs.data(),
                     .distances = static_cast<int>(c.distances),
                     .num_runs = static_cast<int>(c.runs.size())};
  }
  std::vector<float> u, v_bias;
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;
};

// What a case reads and writes, and where the kernels find it: dk and dv have the heads of their readers.
template <class T>
struct CaseTensors {
  Tensor<T> q, k, v, dout, out, dq, dk, dv;
  std::vector<float> lse, delta;
  CaseTensors(const Case& z, std::mt19937& random) : CaseTensors(z.exact, pick(0, 1) == 1) {
    for (auto* t : {&q, &k, &v, &dout}) t->fill(random, 1);
  }
  AttentionTensors pointers() {
    AttentionTensors x;
    x.batch = q.batch, x.q = q.any(), x.k = k.any(), x.v = v.any(), x.out = out.any(), x.dout = dout.any();
    x.dq = dq.any(), x.dk = dk.any(), x.dv = dv.any(), x.kv_read_once = false;
    x.lse = lse.data(), x.delta = delta.data();
    return x;
  }

 private:
  CaseTensors(const reference::PolicyCase& c, bool by_position)
      : q(c.batch, c.in, c.policy.queries, c.key_size, by_position),
        k(c.batch, c.key_heads, c.policy.keys, c.key_size, by_position),
        v(c.batch, c.value_heads, c.policy.keys, c.value_size, by_position),
        dout(c.batch, c.out, c.policy.queries, c.value_size, by_position),
        out(dout),
        dq(q),
        dk(c.batch, c.in, c.policy.keys, c.key_size, by_position),
        dv(c.batch, c.out, c.policy.keys, c.value_size, by_position),
        lse(static_cast<size_t>(c.batch * c.in * c.policy.queries), NAN),
        delta(lse) {}
};

}  // namespace cuda_cases
