// The CPU attention kernels without LibTorch, also under the sanitizers: accesses within the bounds of each buffer for
// odd sizes, partial tiles, fully masked rows, decoding of few queries, fp32 and bf16, dropout before and after mixing,
// and every attention parameter. unit/attention/fused/attention_spec.cpp compares the results with the reference
// equations for all options; these tests check that every element is written, compare results with the equations for
// soft caps, sinks, position biases and windows, and check results for extreme logits and many keys. Work that callers
// may do in parallel runs in threads, so that the thread sanitizer detects conflicting accesses.
#pragma GCC diagnostic ignored "-Wpsabi"  // no vector is passed by value to another object file
#include "cpu/attention.h"

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ceil_div.h"
#include "cpu/head_mixing_attention.h"
#include "cpu/simd_level.h"
#include "cpu/vector.h"
#include "oracle/kernel_attention.h"
#include "oracle/tolerance.h"

using namespace mh::kernels;

namespace {

// Returns a buffer of NaNs, which reveal elements that a kernel does not write.
std::vector<float> nan_buffer(int64_t floats) {
  return std::vector<float>(static_cast<size_t>(floats), std::numeric_limits<float>::quiet_NaN());
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

template <class T>
struct Tensor {
  int64_t heads, length, size;
  std::vector<T> data;
  Tensor(int64_t h, int64_t n, int64_t d, std::mt19937& random)
      : heads(h), length(n), size(d), data(static_cast<size_t>(h * n * d)) {
    std::uniform_int_distribution<int> integer(-2, 2);
    for (T& x : data)
      if constexpr (std::is_same_v<T, float>) x = static_cast<float>(integer(random));
      else x = static_cast<uint16_t>(0x3F80 | (random() & 0x8000));  // 1 or -1
  }
  HeadsView<const T> const_view() const { return {data.data(), length * size, size}; }
  HeadsView<T> view() { return {data.data(), length * size, size}; }
  reference::Doubles to_doubles() const {
    reference::Doubles values;
    for (const T& x : data) values.push_back(to_float(x));
    return values;
  }
  bool equals(const Tensor& other) const { return data == other.data; }
  bool all_finite() const {
    for (const T& x : data)
      if constexpr (std::is_same_v<T, float>) {
        if (!std::isfinite(x)) return false;
      } else if ((x & 0x7F80) == 0x7F80) {
        return false;
      }
    return true;
  }
};

int64_t pick(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }

int pick_int(int low, int high) { return static_cast<int>(pick(low, high)); }

// Relative positions over random key ranges, and their gradients.
struct RelativeBuffers {
  std::vector<float> u, v_bias, r, transposed_r, du, dv_bias, dr;
  std::vector<KeyRange> key_ranges;
  RelativeParams relative{};

  RelativeBuffers() = default;
  RelativeBuffers(const AttentionParams& params, int64_t heads, int64_t size) {
    int64_t num_rows = 0;  // number of rows of r
    for (int64_t first = 0; first < params.keys;) {
      const int64_t range_keys = pick(1, params.keys - first),
                    num_visible =
                        params.causal ? std::min(range_keys, params.keys - params.queries - first + 1) : range_keys;
      key_ranges.push_back({first, range_keys, num_rows});
      num_rows += std::max<int64_t>(1, params.queries + num_visible - 1);
      first += range_keys;
    }
    num_rows += RelativeParams::kPaddingRows;
    for (auto* bias : {&u, &v_bias}) bias->assign(static_cast<size_t>(heads * size), 0.5F);
    for (auto* table : {&r, &transposed_r}) table->assign(static_cast<size_t>(heads * num_rows * size), 0.25F);
    du = dv_bias = nan_buffer(heads * size), dr = nan_buffer(heads * num_rows * size);
    relative = {.u = u.data(),
                .v = v_bias.data(),
                .r = r.data(),
                .head_stride = num_rows * size,
                .row_stride = size,
                .key_ranges = key_ranges.data(),
                .num_distances = static_cast<int>(num_rows),
                .num_key_ranges = static_cast<int>(key_ranges.size()),
                .r_transposed = transposed_r.data()};
  }
  bool all_finite() const { return ::all_finite(du) && ::all_finite(dv_bias) && ::all_finite(dr); }
};

// Random key/value heads and head scales in half of the cases, set in `params`; empty in the other half.
struct HeadChoices {
  std::vector<int64_t> k_head_of, v_head_of;
  std::vector<float> scales;
  HeadChoices(AttentionParams& params, int64_t heads, int64_t value_heads) {
    if (pick(0, 1) == 0) return;
    for (int64_t j = 0; j < heads; ++j) k_head_of.push_back(pick(0, heads - 1));
    for (int64_t i = 0; i < value_heads; ++i)
      v_head_of.push_back(pick(0, value_heads - 1)), scales.push_back(0.5F * static_cast<float>(pick(-1, 3)));
    params.k_head_of = k_head_of.data(), params.v_head_of = v_head_of.data(), params.head_scales = scales.data();
  }
};

// A soft cap, sinks and a position bias over random key ranges, each in half of the cases, set in `params`.
struct LogitTerms {
  std::vector<float> sinks, position_bias;  // (heads); (heads, params.position_bias.num_distances)
  std::vector<KeyRange> key_ranges;
  LogitTerms(AttentionParams& params, int64_t heads, std::mt19937& random) {
    std::normal_distribution<float> normal;
    if (pick(0, 1) == 1) params.soft_cap = *rc::gen::element(0.5F, 3.0F, 50.0F);
    if (pick(0, 1) == 1) {
      for (int64_t j = 0; j < heads; ++j) sinks.push_back(2 * normal(random));
      params.sinks = sinks.data();
    }
    if (pick(0, 1) == 0) return;
    int64_t num_distances = pick(1, 3);  // some columns belong to no pair of query and key
    for (int64_t first = 0; first < params.keys;) {
      const int64_t range_keys = pick(1, params.keys - first),
                    num_visible =
                        params.causal ? std::min(range_keys, params.keys - params.queries - first + 1) : range_keys;
      key_ranges.push_back({first, range_keys, num_distances});
      num_distances += std::max<int64_t>(1, params.queries + num_visible - 1);
      first += range_keys;
    }
    for (int64_t n = 0; n < heads * num_distances; ++n) position_bias.push_back(normal(random));
    params.position_bias = {.bias = position_bias.data(),
                            .head_stride = num_distances,
                            .key_ranges = key_ranges.data(),
                            .num_distances = static_cast<int>(num_distances),
                            .num_key_ranges = static_cast<int>(key_ranges.size())};
  }
};

// The tensors of a forward and a backward pass of one batch row. dm, dsinks and dposition_bias: gradients of the mixing
// matrices, of the sinks and of the position bias; dm is empty without head mixing.
template <class T>
struct PassTensors {
  const Tensor<T>&q, &k, &v, &dout, &out, &dq, &dk, &dv;
  const std::vector<float>&lse, &dm, &dsinks, &dposition_bias;
};

// Compares the results of a pass with the reference equations. With head mixing every entry of a mixing matrix is 0.5,
// and PassTensors::dm has one matrix for each query. Relative positions, dropout, head scales and choices of key/value
// heads must be off.
template <class T>
void check_equations(const AttentionParams& params, const PassTensors<T>& x) {
  reference::OracleCase c;
  c.params = params, c.heads = c.k_heads = x.q.heads, c.value_heads = c.v_heads = x.v.heads;
  c.key_size = x.q.size, c.value_size = x.v.size;
  const bool mixes_heads = !x.dm.empty();
  if (mixes_heads) c.matrix.assign(static_cast<size_t>(params.queries * x.q.heads * x.v.heads), 0.5);
  const int64_t first_head = mixes_heads ? 0 : params.head;
  if (params.sinks != nullptr) c.sinks.assign(params.sinks + first_head, params.sinks + first_head + x.q.heads);
  if (params.has_position_bias()) {
    const PositionBiasParams& position_bias = params.position_bias;
    const float* bias = position_bias.bias + first_head * position_bias.head_stride;
    c.num_bias_distances = position_bias.num_distances;
    c.position_bias.assign(bias, bias + x.q.heads * c.num_bias_distances);
    c.bias_key_ranges.assign(position_bias.key_ranges, position_bias.key_ranges + position_bias.num_key_ranges);
  }
  const auto results = [&] {
    return reference::attention(c, x.q.to_doubles(), x.k.to_doubles(), x.v.to_doubles(), x.dout.to_doubles());
  };
  const reference::OracleResult exact = results();
  c.computes_delta_from_outputs = !mixes_heads;
  c.round = [](double number) {
    T rounded{};
    from_float(static_cast<float>(number), rounded);
    return static_cast<double>(to_float(rounded));
  };
  const reference::OracleResult composed = results();
  const auto check = [&](const char* name, const reference::Doubles& actual, const reference::Doubles& expected,
                         const reference::Doubles& composed_result, const reference::Doubles& magnitudes) {
    RC_ASSERT(actual.size() == expected.size());
    double error = 0, composed_error = 0, magnitude = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
      const auto difference = [&](double result) { return result == expected[i] ? 0 : std::abs(result - expected[i]); };
      error = std::isnan(actual[i]) ? HUGE_VAL : std::max(error, difference(actual[i]));
      composed_error = std::max(composed_error, difference(composed_result[i]));
    }
    for (const double m : magnitudes) magnitude = std::max(magnitude, std::isfinite(m) ? m : 0);
    const double roundoff = std::is_same_v<T, float> ? tolerance::kFp32 : tolerance::kBf16,
                 bound = tolerance::composed_error_bound(composed_error, roundoff, magnitude) +
                         tolerance::logit_error_bound(exact.logit_magnitude, magnitude);
    RC_LOG() << name << ": error " << error << ", bound " << bound << "\n";
    RC_ASSERT((std::isfinite(bound) && error <= bound));
  };
  const auto to_doubles = [](const std::vector<float>& values) {
    return reference::Doubles(values.begin(), values.end());
  };
  check("out", x.out.to_doubles(), exact.out, composed.out, exact.out_magnitude);
  check("lse", to_doubles(x.lse), exact.lse, composed.lse, exact.lse_magnitude);
  check("dq", x.dq.to_doubles(), exact.dq, composed.dq, exact.dq_magnitude);
  check("dk", x.dk.to_doubles(), exact.dk, composed.dk, exact.dk_magnitude);
  check("dv", x.dv.to_doubles(), exact.dv, composed.dv, exact.dv_magnitude);
  if (mixes_heads) check("dm", to_doubles(x.dm), exact.dm, composed.dm, exact.dm_magnitude);
  check("dsinks", to_doubles(x.dsinks), exact.dsinks, composed.dsinks, exact.dsinks_magnitude);
  check("dposition_bias", to_doubles(x.dposition_bias), exact.dposition_bias, composed.dposition_bias,
        exact.dposition_bias_magnitude);
}

// Draws the window and the normaliser.
void draw_options(AttentionParams& params) {
  if (pick(0, 1) == 1) params.window = pick(1, params.keys + 5);
  if (pick(0, 1) == 1) params.normaliser = Normaliser::sigsoftmax;
}

// Computes c = a b, or c += a b if product.add, in naive loops, for bf16 matrices a and b. In b, each pair of rows is
// stored interleaved: b[2i, j] is followed by b[2i + 1, j].
void naive_bf16_product(const Bf16GemmSizes& product, const uint16_t* a, const uint16_t* b, float* c) {
  for (int64_t i = 0; i < product.m; ++i)
    for (int64_t j = 0; j < product.n; ++j) {
      float sum = product.add ? c[i * product.ldc + j] : 0;
      for (int64_t t = 0; t < product.k; ++t)
        sum += to_float(a[i * product.lda + t]) * to_float(b[t / 2 * 2 * product.ldb + 2 * j + t % 2]);
      c[i * product.ldc + j] = sum;
    }
}

// Checks that the forward and the backward pass of attention without head mixing write finite results, and, if
// `compares_with_equations`, that the results match the equations.
template <class T>
void check_plain(AttentionParams params, RelativeBuffers* positions, std::mt19937& random,
                 bool compares_with_equations = false) {
  const Tensor<T> q(1, params.queries, params.key_size, random), k(1, params.keys, params.key_size, random),
      v(1, params.keys, params.key_size, random);
  Tensor<T> out = q, dq = q, dk = k, dv = v;
  std::vector<float> lse = nan_buffer(params.queries);
  Tensor<T> forward_out = out;  // of the pass without a gradient, which may use the decode kernel
  std::vector<float> forward_lse;
  const auto const_view = [](const Tensor<T>& t) {
    return Matrix<const T>{t.const_view().data, t.const_view().row_stride};
  };
  const auto view = [](Tensor<T>& t) { return Matrix<T>{t.view().data, t.view().row_stride}; };
  HeadTensors<T> x{const_view(q), const_view(k), const_view(v), view(out), lse.data(),
                   const_view(q), view(dq),      view(dk),      view(dv)};
  for (const bool gradient : {false, true}) {
    params.has_backward = gradient;
    std::vector<float> scratch = nan_buffer(attention_forward_scratch_floats(params));
    attention_forward(params, x, scratch.data());
    RC_ASSERT(out.all_finite());
    if (!gradient) forward_out = out, forward_lse = lse;
  }
  float dscale = std::numeric_limits<float>::quiet_NaN();
  x.dscale = &dscale;
  std::vector<float> dsink = nan_buffer(params.sinks != nullptr ? 1 : 0),
                     dposition_bias = nan_buffer(params.position_bias.num_distances);
  if (params.sinks != nullptr) x.dsink = dsink.data();
  if (params.has_position_bias()) x.dposition_bias = dposition_bias.data();
  if (positions != nullptr)
    x.du = positions->du.data(), x.dv_bias = positions->dv_bias.data(), x.dr = positions->dr.data();
  std::vector<float> scratch = nan_buffer(attention_backward_scratch_floats(params));
  attention_backward(params, x, scratch.data());
  RC_ASSERT(dq.all_finite() && dk.all_finite() && dv.all_finite() && std::isfinite(dscale));
  RC_ASSERT((positions == nullptr || positions->all_finite()));
  RC_ASSERT(all_finite(dsink) && all_finite(dposition_bias));
  if (!compares_with_equations) return;
  check_equations<T>(params, {q, k, v, q, out, dq, dk, dv, lse, {}, dsink, dposition_bias});
  check_equations<T>(params, {q, k, v, q, forward_out, dq, dk, dv, forward_lse, {}, dsink, dposition_bias});
}

// Calls f(0) … f(count - 1) in `count` threads and waits for their end.
template <class F>
void in_threads(int64_t count, const F& f) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < count; ++i) threads.emplace_back(f, i);
  for (std::thread& thread : threads) thread.join();
}

// Checks that the forward and the backward pass with head mixing write finite results; that the three steps of decoding
// equal the forward pass if is_head_mixing_decode(params); and, if `compares_with_equations`, which requires a matrix
// for each query, that the results match the equations.
template <class T>
void check_head_mixing(AttentionParams params, int64_t num_shares, RelativeBuffers* positions, std::mt19937& random,
                       bool compares_with_equations = false) {
  const Tensor<T> q(params.heads, params.queries, params.key_size, random),
      k(params.heads, params.keys, params.key_size, random),
      v(params.value_heads, params.keys, params.value_size, random),
      dout(params.value_heads, params.queries, params.value_size, random);
  Tensor<T> out = dout, dq = q, dk = k, dv = v;
  const bool has_matrix_per_query = params.matrix_query_stride != 0;
  const int64_t num_packs = params.heads + params.value_heads, matrix_size = int64_t{params.heads} * params.value_heads;
  const std::vector<float> m(static_cast<size_t>((has_matrix_per_query ? params.queries : 1) * matrix_size), 0.5F);
  params.mixing_matrix = m.data();
  std::vector<float> lse = nan_buffer(params.heads * params.queries);
  BatchRowTensors<T> x{q.const_view(), k.const_view(), v.const_view(),    nullptr,
                       out.view(),     lse.data(),     dout.const_view(), dq.view()};
  {
    std::vector<float> packed_kv = nan_buffer(head_mixing_pack_floats(params, false));
    x.packed_kv = packed_kv.data();
    in_threads(num_packs, [&](int64_t i) {
      head_mixing_pack<T>(params, false, i, k.const_view(), v.const_view(), packed_kv.data());
    });
    in_threads(num_shares, [&](int64_t share) {
      std::vector<float> scratch = nan_buffer(head_mixing_forward_scratch_floats(params));
      head_mixing_forward(params, {share, num_shares}, x, scratch.data());
    });
  }
  RC_ASSERT(out.all_finite());
  if (is_head_mixing_decode(params)) {
    Tensor<T> decoding_out = dout;
    std::vector<float> scratch = nan_buffer(head_mixing_decode_scratch_floats(params));
    in_threads(params.heads, [&](int64_t j) {
      head_mixing_decode_logits<T>(params, j, q.const_view(), k.const_view(), scratch.data());
    });
    head_mixing_decode_mix(params, lse.data(), scratch.data());
    in_threads(params.value_heads, [&](int64_t i) {
      head_mixing_decode_values<T>(params, i, v.const_view(), decoding_out.view(), scratch.data());
    });
    RC_ASSERT(decoding_out.equals(out));
  }
  params.has_backward = true;
  std::vector<float> packed_kv = nan_buffer(head_mixing_pack_floats(params, true));
  x.packed_kv = packed_kv.data();
  in_threads(num_packs, [&](int64_t i) {
    head_mixing_pack<T>(params, true, i, k.const_view(), v.const_view(), packed_kv.data());
  });
  const int64_t key_floats = head_mixing_key_floats(params),
                partial_floats = key_floats + head_mixing_value_floats(params);
  std::vector<float> partial_gradients = nan_buffer(num_shares * partial_floats);
  // Each share of the queries writes the gradients of the matrices of its queries or, if all queries share a matrix,
  // one term of the gradient of this matrix.
  std::vector<float> dm = nan_buffer((has_matrix_per_query ? params.queries : num_shares) * matrix_size);
  std::vector<RelativeBuffers> share_positions(positions != nullptr ? static_cast<size_t>(num_shares) : 0,
                                               positions != nullptr ? *positions : RelativeBuffers{});
  const int64_t num_bias_gradients = params.heads * params.position_bias.num_distances,
                num_sink_gradients = params.sinks != nullptr ? params.heads : 0;
  std::vector<std::vector<float>> share_dsinks(static_cast<size_t>(num_shares), nan_buffer(num_sink_gradients)),
      share_dposition_bias(static_cast<size_t>(num_shares), nan_buffer(num_bias_gradients));
  in_threads(num_shares, [&](int64_t share) {
    std::vector<float> scratch = nan_buffer(head_mixing_backward_scratch_floats(params));
    BatchRowTensors<T> share_tensors = x;
    share_tensors.dk = partial_gradients.data() + share * partial_floats,
    share_tensors.dv = share_tensors.dk + key_floats;
    share_tensors.dm = dm.data() + (has_matrix_per_query ? 0 : share * matrix_size);
    if (params.sinks != nullptr) share_tensors.dsinks = share_dsinks[static_cast<size_t>(share)].data();
    if (params.has_position_bias())
      share_tensors.dposition_bias = share_dposition_bias[static_cast<size_t>(share)].data();
    if (positions != nullptr) {
      RelativeBuffers& gradients = share_positions[static_cast<size_t>(share)];
      share_tensors.du = gradients.du.data(), share_tensors.dv_bias = gradients.dv_bias.data(),
      share_tensors.dr = gradients.dr.data();
    }
    head_mixing_backward(params, {share, num_shares}, share_tensors, scratch.data());
  });
  const auto sum_gradients = [&](const float* from, int64_t size, Tensor<T>& to, int64_t i) {
    head_mixing_sum_partials(from, num_shares, partial_floats, params.keys, size,
                             HeadsView<T>{to.view().at(i, 0), 0, size});
  };
  in_threads(params.heads, [&](int64_t i) {
    sum_gradients(partial_gradients.data() + i * (key_floats / params.heads), params.key_size, dk, i);
  });
  in_threads(params.value_heads, [&](int64_t i) {
    sum_gradients(partial_gradients.data() + key_floats + i * ((partial_floats - key_floats) / params.value_heads),
                  params.value_size, dv, i);
  });
  RC_ASSERT(dq.all_finite() && dk.all_finite() && dv.all_finite());
  for (float element : dm) RC_ASSERT(std::isfinite(element));
  for (const RelativeBuffers& gradients : share_positions) RC_ASSERT(gradients.all_finite());
  const auto sum_shares = [](const std::vector<std::vector<float>>& shares) {
    std::vector<float> sums(shares[0].size());
    for (const std::vector<float>& share : shares)
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += share[i];
    return sums;
  };
  const std::vector<float> dsinks = sum_shares(share_dsinks), dposition_bias = sum_shares(share_dposition_bias);
  RC_ASSERT(all_finite(dsinks) && all_finite(dposition_bias));
  if (compares_with_equations)
    check_equations<T>(params, {q, k, v, dout, out, dq, dk, dv, lse, dm, dsinks, dposition_bias});
}

// The results of the forward and backward pass of one head in fp32.
struct HeadResults {
  Tensor<float> out, dq, dk, dv;
  std::vector<float> lse;
  float dm = 0, dscale = 0, dsink = 0;

  HeadResults(int64_t queries, int64_t keys, int64_t size)
      : out(1, queries, size, random), dq(out), dk(1, keys, size, random), dv(dk), lse(nan_buffer(queries)) {}

  static Matrix<const float> const_view(const Tensor<float>& t) { return {t.data.data(), t.size}; }
  static Matrix<float> view(Tensor<float>& t) { return {t.data.data(), t.size}; }

  void run_plain(const AttentionParams& params, const Tensor<float>& q, const Tensor<float>& k, const Tensor<float>& v,
                 const Tensor<float>& dout) {
    std::vector<float> scratch =
        nan_buffer(std::max(attention_forward_scratch_floats(params), attention_backward_scratch_floats(params)));
    HeadTensors<float> x{const_view(q),    const_view(k), const_view(v), view(out), lse.data(),
                         const_view(dout), view(dq),      view(dk),      view(dv)};
    x.dscale = &dscale;
    if (params.sinks != nullptr) x.dsink = &dsink;
    attention_forward(params, x, scratch.data());
    attention_backward(params, x, scratch.data());
  }
  void run_head_mixing(AttentionParams params, const Tensor<float>& q, const Tensor<float>& k, const Tensor<float>& v,
                       const Tensor<float>& dout) {
    const float m = 1;
    params.mixing_matrix = &m;
    std::vector<float> packed_kv = nan_buffer(head_mixing_pack_floats(params, true)),
                       forward_packed = nan_buffer(head_mixing_pack_floats(params, false)),
                       partial_gradients =
                           nan_buffer(head_mixing_key_floats(params) + head_mixing_value_floats(params)),
                       scratch = nan_buffer(std::max(head_mixing_forward_scratch_floats(params),
                                                     head_mixing_backward_scratch_floats(params)));
    for (int64_t i = 0; i < 2; ++i) {
      head_mixing_pack<float>(params, false, i, k.const_view(), v.const_view(), forward_packed.data());
      head_mixing_pack<float>(params, true, i, k.const_view(), v.const_view(), packed_kv.data());
    }
    BatchRowTensors<float> x{q.const_view(), k.const_view(), v.const_view(),    forward_packed.data(),
                             out.view(),     lse.data(),     dout.const_view(), dq.view()};
    head_mixing_forward(params, {}, x, scratch.data());
    x.packed_kv = packed_kv.data(), x.dk = partial_gradients.data(),
    x.dv = partial_gradients.data() + head_mixing_key_floats(params), x.dm = &dm;
    if (params.sinks != nullptr) x.dsinks = &dsink;
    head_mixing_backward(params, {}, x, scratch.data());
    head_mixing_sum_partials<float>(x.dk, 1, 0, params.keys, params.key_size, dk.view());
    head_mixing_sum_partials<float>(x.dv, 1, 0, params.keys, params.value_size, dv.view());
  }

 private:
  static inline std::mt19937 random;
};

}  // namespace

TEST_CASE("CPU head mixing stays within its buffers and writes every element of its results", "[kernels]") {
  CHECK(rc::check([] {
    AttentionParams params{};
    params.queries = pick(1, 80), params.causal = pick(0, 1) == 1;
    params.max_keys = params.causal ? params.queries + pick(0, 200) : pick(1, 300);
    params.keys = params.causal ? params.max_keys : pick(0, params.max_keys);
    params.heads = pick_int(1, 9), params.value_heads = pick_int(1, 9), params.key_size = pick_int(1, 40),
    params.value_size = pick_int(1, 40);
    params.scale = 0.3F, params.matrix_query_stride = pick(0, 1) * params.heads * params.value_heads,
    params.has_backward = pick(0, 1) == 1;
    const DropoutParams dropout{{1, 2}, 3, 4, 1 << 22, 4.0F / 3};
    if (pick(0, 1) == 1) {
      params.dropout = dropout, params.dropout_before_mixing = pick(0, 1) == 1,
      params.dropout_offset = static_cast<uint64_t>(pick(0, 1000));
      params.dropout_row_stride = params.max_keys, params.dropout_head_stride = params.queries * params.max_keys;
    }
    const int64_t num_shares = pick(1, 4);
    params.l2_bytes = int64_t{1} << pick(10, 20);  // often too small for all keys in one span
    draw_options(params);
    const HeadChoices choices(params, params.heads, params.value_heads);
    std::optional<RelativeBuffers> positions;
    if (pick(0, 1) == 1)
      params.relative = positions.emplace(params, params.heads, mh::round_up(params.key_size, 16)).relative;
    std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 20)));
    const LogitTerms terms(params, params.heads, random);
    check_head_mixing<float>(params, num_shares, positions ? &*positions : nullptr, random);
    const Bf16Gemm gemm{naive_bf16_product};
    if (pick(0, 1) == 1) params.bf16_gemm = &gemm;
    check_head_mixing<uint16_t>(params, num_shares, positions ? &*positions : nullptr, random);
  }));
}

TEST_CASE("CPU attention without mixing stays within its buffers and writes every element of its results",
          "[kernels]") {
  CHECK(rc::check([] {
    AttentionParams params{};
    params.queries = pick(1, 80), params.causal = pick(0, 1) == 1;
    const int64_t max_keys = params.causal ? params.queries + pick(0, 200) : pick(1, 300);
    params.keys = params.causal ? max_keys : pick(0, max_keys);
    params.key_size = 16 * pick_int(1, 4), params.scale = 0.3F;
    const DropoutParams dropout{{1, 2}, 3, 4, 1 << 22, 4.0F / 3};
    if (pick(0, 1) == 1) params.dropout = dropout, params.dropout_row_stride = max_keys;
    params.l2_bytes = int64_t{1} << pick(10, 20);  // often too small for all keys in one span
    draw_options(params);
    const HeadChoices choices(params, 1, 1);
    std::optional<RelativeBuffers> positions;
    if (pick(0, 1) == 1) params.relative = positions.emplace(params, 1, params.key_size).relative;
    std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 20)));
    const LogitTerms terms(params, 1, random);
    check_plain<float>(params, positions ? &*positions : nullptr, random);
    const Bf16Gemm gemm{naive_bf16_product};
    if (simd_level() >= SimdLevel::avx512 && pick(0, 1) == 1) params.bf16_gemm = &gemm;
    check_plain<uint16_t>(params, positions ? &*positions : nullptr, random);
  }));
}

TEST_CASE("CPU attention with soft caps, sinks, position biases and windows matches the equations at each SIMD level",
          "[kernels]") {
  struct RestoreLevel {
    ~RestoreLevel() { set_simd_level(best_simd_level()); }
  } restore_level;
  for (const SimdLevel level : {SimdLevel::baseline, SimdLevel::avx2, SimdLevel::avx512})
    for (const bool mixes_heads : {false, true}) {
      if (level > best_simd_level()) continue;
      set_simd_level(level);
      INFO((mixes_heads ? "with" : "without") << " head mixing, SIMD level " << static_cast<int>(level));
      CHECK(rc::check([&] {
        AttentionParams params{};
        params.queries = pick(0, 2) == 0 ? pick(1, 8) : pick(1, 70), params.causal = pick(0, 1) == 1;
        // Without a causal mask, there may be fewer keys than queries, as if the other keys were padding.
        params.keys = params.causal ? params.queries + pick(0, 150) : pick(0, 200);
        params.max_keys = std::max<int64_t>(1, params.keys);
        params.scale = 0.3F, params.has_backward = pick(0, 1) == 1;
        params.l2_bytes = int64_t{1} << pick(10, 20);  // often too small for all keys in one span
        if (mixes_heads)
          params.heads = pick_int(1, 3), params.value_heads = pick_int(1, 3), params.key_size = pick_int(1, 40),
          params.value_size = pick_int(1, 40), params.matrix_query_stride = params.heads * params.value_heads;
        else params.heads = params.value_heads = 3, params.head = pick(0, 2), params.key_size = 16 * pick_int(1, 3);
        draw_options(params);
        std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 20)));
        const LogitTerms terms(params, params.heads, random);
        const int64_t num_shares = pick(1, 3);
        const Bf16Gemm gemm{naive_bf16_product};
        const bool uses_gemm = pick(0, 1) == 1 && (mixes_heads || level >= SimdLevel::avx512);
        if (mixes_heads) check_head_mixing<float>(params, num_shares, nullptr, random, true);
        else check_plain<float>(params, nullptr, random, true);
        if (uses_gemm) params.bf16_gemm = &gemm;
        if (mixes_heads) check_head_mixing<uint16_t>(params, num_shares, nullptr, random, true);
        else check_plain<uint16_t>(params, nullptr, random, true);
      }));
    }
}

TEST_CASE("a sink takes the fraction exp(sink) / (exp(sink) + n) from n keys of logit 0, also in a backward pass",
          "[kernels]") {
  const int64_t queries = 3, keys = 5, size = 16;
  std::mt19937 random(6);
  Tensor<float> q(1, queries, size, random), k(1, keys, size, random), v(1, keys, size, random), dout = q;
  std::fill(q.data.begin(), q.data.end(), 0.0F), std::fill(v.data.begin(), v.data.end(), 1.0F);
  std::fill(dout.data.begin(), dout.data.end(), 1.0F);
  for (const float sink : {0.0F, 2.0F, 200.0F, -200.0F, -std::numeric_limits<float>::infinity()}) {
    INFO("sink " << sink);
    AttentionParams params{};
    params.queries = queries, params.keys = params.max_keys = keys, params.heads = params.value_heads = 1,
    params.key_size = params.value_size = size, params.scale = 1, params.l2_bytes = 1 << 20, params.sinks = &sink;
    HeadResults plain_results(queries, keys, size), mixing_results(queries, keys, size);
    plain_results.run_plain(params, q, k, v, dout);
    mixing_results.run_head_mixing(params, q, k, v, dout);
    const double exp_sink = std::exp(static_cast<double>(sink)), mass = keys / (keys + exp_sink),
                 lse = sink > 100 ? static_cast<double>(sink) : std::log(keys + exp_sink);
    for (const HeadResults* results : {&plain_results, &mixing_results}) {
      for (const float x : results->out.data) CHECK(std::abs(x - mass) <= 8 * tolerance::kFp32);
      for (const float x : results->lse) CHECK(std::abs(x - lse) <= 8 * tolerance::kFp32 * (1 + std::abs(lse)));
      const double dsink = -(1 - mass) * mass * static_cast<double>(queries * size);
      CHECK(std::abs(results->dsink - dsink) <= 16 * tolerance::kFp32 * static_cast<double>(queries * size));
    }
  }
}

TEST_CASE("CPU attention ignores keys with logits of -inf for every division of the keys into spans", "[kernels]") {
  const int64_t queries = 20, keys = 256, size = 16;
  const float huge = 1e20F;
  std::mt19937 random(1);
  // Even queries have logits of -inf for the first 128 keys, odd queries for all keys.
  Tensor<float> q(1, queries, size, random), k(1, keys, size, random), v(1, keys, size, random), dout = q;
  std::fill(q.data.begin(), q.data.end(), 0.0F), std::fill(k.data.begin(), k.data.end(), 0.0F);
  for (int64_t i = 0; i < queries; ++i)
    q.data[static_cast<size_t>(i * size)] = huge, q.data[static_cast<size_t>(i * size + 1)] = i % 2 == 0 ? 0 : huge;
  for (int64_t s = 0; s < keys; ++s) k.data[static_cast<size_t>(s * size + (s < 128 ? 0 : 1))] = -huge;
  for (const Normaliser normaliser : {Normaliser::softmax, Normaliser::sigsoftmax})
    for (const int64_t l2_bytes : {1 << 10, 1 << 20}) {
      INFO("cache " << l2_bytes);
      HeadResults plain_results(queries, keys, size), mixing_results(queries, keys, size);
      AttentionParams plain_params{};
      plain_params.queries = queries, plain_params.keys = keys, plain_params.key_size = size, plain_params.scale = 1,
      plain_params.l2_bytes = l2_bytes, plain_params.normaliser = normaliser;
      plain_results.run_plain(plain_params, q, k, v, dout);
      AttentionParams mixing_params{};
      mixing_params.queries = queries, mixing_params.keys = mixing_params.max_keys = keys,
      mixing_params.heads = mixing_params.value_heads = 1, mixing_params.key_size = mixing_params.value_size = size,
      mixing_params.scale = 1;
      mixing_params.l2_bytes = l2_bytes, mixing_params.normaliser = normaliser;
      mixing_results.run_head_mixing(mixing_params, q, k, v, dout);
      for (const HeadResults* results : {&plain_results, &mixing_results})
        for (int64_t i = 0; i < queries; ++i)
          for (int64_t c = 0; c < size; ++c) {
            double mean = 0, mean_magnitude = 0;
            for (int64_t s = 128; s < keys; ++s) {
              const double term = v.data[static_cast<size_t>(s * size + c)] / 128.0;
              mean += term, mean_magnitude += std::abs(term);
            }
            const double error = results->out.data[static_cast<size_t>(i * size + c)] - (i % 2 == 0 ? mean : 0);
            CHECK(std::abs(error) <= tolerance::sum_error_bound(keys, tolerance::kFp32, mean_magnitude));
            CHECK(std::isfinite(results->dq.data[static_cast<size_t>(i * size + c)]));
            if (i % 2 == 1) CHECK(results->dq.data[static_cast<size_t>(i * size + c)] == 0);
          }
      for (const HeadResults* results : {&plain_results, &mixing_results})
        for (int64_t c = 0; c < size; ++c) {
          double bound = 0;  // keys with logits of -inf have weights of up to e^-87 (exponential in cpu/vector.h)
          for (int64_t t = 0; t < queries; ++t)
            bound += std::exp(-87.0) * std::abs(dout.data[static_cast<size_t>(t * size + c)]);
          for (int64_t s = 0; s < 128; ++s)
            CHECK(std::abs(results->dv.data[static_cast<size_t>(s * size + c)]) <= bound);
        }
    }
}

TEST_CASE("CPU gradients of large logits vanish within rounding if all keys and values are equal", "[kernels]") {
  // With equal keys and values the output does not depend on the logits.
  const int64_t queries = 40, keys = 300, size = 16;
  std::mt19937 random(2);
  Tensor<float> q(1, queries, size, random), k(1, keys, size, random), v = k, dout = q;
  for (auto* t : {&q, &k, &v, &dout}) std::fill(t->data.begin(), t->data.end(), 0.0F);
  for (const float logit : {100.0F, 1e4F, 3e4F})
    for (const int64_t l2_bytes : {1 << 10, 1 << 20}) {
      for (int64_t i = 0; i < queries; ++i)
        q.data[static_cast<size_t>(i * size)] = logit + static_cast<float>(i),
                                       dout.data[static_cast<size_t>(i * size)] = 1;
      for (int64_t s = 0; s < keys; ++s)
        k.data[static_cast<size_t>(s * size)] = v.data[static_cast<size_t>(s * size)] = 1;
      AttentionParams params{};
      params.queries = queries, params.keys = params.max_keys = keys, params.heads = params.value_heads = 1,
      params.key_size = params.value_size = size, params.scale = 1, params.l2_bytes = l2_bytes;
      HeadResults results(queries, keys, size);
      results.run_head_mixing(params, q, k, v, dout);
      // dq = Σ P (dP - Σ P dP) k with dP = k = 1; dk has the same terms, times a query of at most `logit` + 40.
      const double query_error = tolerance::sum_error_bound(keys, 0, 2);
      const double key_error = query_error * queries / keys * static_cast<double>(logit + 40);
      CHECK(std::abs(results.dm - queries) <= tolerance::sum_error_bound(keys + queries, tolerance::kFp32, queries));
      for (const float x : results.dq.data) CHECK(std::abs(x) <= query_error);
      for (const float x : results.dk.data) CHECK(std::abs(x) <= key_error);
    }
}

TEST_CASE("the CPU gradient of a head scale is accurate for 6000 queries and keys", "[kernels]") {
  // The probabilities are uniform, and dP is 1.3 for every query and key.
  const int64_t n = 6000, size = 16;
  std::mt19937 random(3);
  Tensor<float> q(1, n, size, random), k = q, v = q, dout = q;
  for (auto* t : {&q, &k, &v, &dout}) std::fill(t->data.begin(), t->data.end(), 0.0F);
  for (int64_t i = 0; i < n; ++i)
    v.data[static_cast<size_t>(i * size)] = 1, dout.data[static_cast<size_t>(i * size)] = 1.3F;
  AttentionParams params{};
  const float head_scale = 1;
  params.queries = params.keys = n, params.key_size = size, params.scale = 1, params.head_scales = &head_scale;
  HeadResults results(n, n, size);
  results.run_plain(params, q, k, v, dout);
  const double expected = static_cast<double>(1.3F) * static_cast<double>(n);
  CHECK(std::abs(results.dscale - expected) <= tolerance::long_sum_error_bound(2 * n, tolerance::kFp32, expected));
}

TEST_CASE("CPU head mixing over several spans of keys differs from a single span by rounding only", "[kernels]") {
  const int64_t queries = 33, size = 16;
  std::mt19937 random(4);
  for (const bool causal : {false, true}) {
    const int64_t keys = 8500;
    Tensor<float> q(1, queries, size, random), k(1, keys, size, random), v(1, keys, size, random),
        dout(1, queries, size, random);
    AttentionParams params{};
    params.queries = queries, params.keys = params.max_keys = keys, params.heads = params.value_heads = 1,
    params.key_size = params.value_size = size, params.scale = 0.2F;
    params.causal = causal, params.window = causal ? 400 : 0;
    HeadResults one_span_results(queries, keys, size), several_spans_results(queries, keys, size);
    params.l2_bytes = 4 << 20, one_span_results.run_head_mixing(params, q, k, v, dout);
    params.l2_bytes = 128 << 10, several_spans_results.run_head_mixing(params, q, k, v, dout);
    CHECK(head_mixing_tile_rows(params) == 64);
    CHECK(one_span_results.out.data != several_spans_results.out.data);
    reference::OracleCase c;
    c.params = params, c.key_size = c.value_size = size;
    const auto to_doubles = [](const Tensor<float>& t) { return reference::Doubles(t.data.begin(), t.data.end()); };
    const auto exact_results = reference::attention(c, to_doubles(q), to_doubles(k), to_doubles(v), to_doubles(dout));
    const auto largest_of = [](const reference::Doubles& x) { return *std::max_element(x.begin(), x.end()); };
    const auto bound = [&](double one_span_error, double magnitude) {
      return tolerance::composed_error_bound(one_span_error, tolerance::kFp32, magnitude) +
             tolerance::logit_error_bound(exact_results.logit_magnitude, magnitude);
    };
    for (const auto& [baseline, result, expected, magnitudes] :
         {std::tuple(&one_span_results.out, &several_spans_results.out, &exact_results.out,
                     &exact_results.out_magnitude),
          {&one_span_results.dq, &several_spans_results.dq, &exact_results.dq, &exact_results.dq_magnitude},
          {&one_span_results.dk, &several_spans_results.dk, &exact_results.dk, &exact_results.dk_magnitude},
          {&one_span_results.dv, &several_spans_results.dv, &exact_results.dv, &exact_results.dv_magnitude}}) {
      const auto error = [&expected = expected](const Tensor<float>& x) {
        double max_error = 0;
        for (size_t i = 0; i < expected->size(); ++i)
          max_error = std::max(max_error, std::abs(x.data[i] - (*expected)[i]));
        return max_error;
      };
      CHECK(error(*result) <= bound(error(*baseline), largest_of(*magnitudes)));
    }
    const double dm = std::accumulate(exact_results.dm.begin(), exact_results.dm.end(), 0.0),
                 dm_magnitude =
                     std::accumulate(exact_results.dm_magnitude.begin(), exact_results.dm_magnitude.end(), 0.0);
    CHECK(std::abs(several_spans_results.dm - dm) <= bound(std::abs(one_span_results.dm - dm), dm_magnitude));
  }
}

TEST_CASE("CPU head mixing of a single key multiplies the values by the column sums of the matrix", "[kernels]") {
  // With one key every probability is 1, so out_i = (Σ_j m[j, i]) v_i.
  const float q[2] = {3, -1}, k[2] = {0.5F, 2}, v[2] = {10, 100}, m[4] = {0.25F, 1, 0.5F, -3};
  float out[2], lse[2];
  AttentionParams params{};
  params.queries = params.keys = params.max_keys = 1, params.heads = params.value_heads = 2,
  params.key_size = params.value_size = 1;
  params.scale = 1, params.has_backward = false;
  std::vector<float> scratch = nan_buffer(head_mixing_forward_scratch_floats(params));
  params.mixing_matrix = m;
  head_mixing_forward<float>(params, {}, {{q, 1, 1}, {k, 1, 1}, {v, 1, 1}, nullptr, {out, 1, 1}, lse}, scratch.data());
  CHECK(out[0] == 7.5F);
  CHECK(out[1] == -200);
  CHECK(lse[0] == 1.5F);
  CHECK(lse[1] == -2);
}
