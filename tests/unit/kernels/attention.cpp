// The kernels of attention in memory that is exactly as large as they say, also under the sanitizers: odd sizes, rows
// without keys, tails, few queries, both types, both places of dropout, all that a policy may say. Their numbers are
// checked where there are tensors (fused_policy.cpp); here, that those of extreme and of many logits are right and
// that none is left unwritten. What a caller may do at once is done by threads: under the thread sanitizer nobody
// writes where another one reads.
#include "cpu/attention.h"

#include <rapidcheck.h>

#include <algorithm>
#include <bit>
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

#include "cpu/head_mixing_attention.h"
#include "cpu/level.h"
#include "oracle/policy.h"
#include "oracle/tolerance.h"

using namespace mh::kernels;

namespace {

std::vector<float> unwritten(int64_t floats) {
  return std::vector<float>(static_cast<size_t>(floats), std::numeric_limits<float>::quiet_NaN());
}

template <class T>
struct Tensor {
  int64_t heads, length, size;
  std::vector<T> data;
  Tensor(int64_t h, int64_t n, int64_t d, std::mt19937& random)
      : heads(h), length(n), size(d), data(static_cast<size_t>(h * n * d)) {
    std::uniform_int_distribution<int> number(-2, 2);
    for (T& x : data)
      if constexpr (std::is_same_v<T, float>) x = static_cast<float>(number(random));
      else x = static_cast<uint16_t>(0x3F80 | (random() & 0x8000));  // 1 or -1
  }
  Heads<const T> read() const { return {data.data(), length * size, size}; }
  Heads<T> write() { return {data.data(), length * size, size}; }
  bool same(const Tensor& other) const { return data == other.data; }
  bool finite() const {
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

int small(int low, int high) { return static_cast<int>(pick(low, high)); }

// Relative positions of keys with gaps between them, and where their gradients go.
struct Positions {
  std::vector<float> u, v, rows, transposed, du, dv, dr;
  std::vector<Run> runs;
  RelativeParams relative{};

  Positions() = default;
  Positions(const AttentionParams& h, int64_t heads, int64_t size) {
    int64_t count = 0;
    for (int64_t first = 0; first < h.keys;) {
      const int64_t keys = pick(1, h.keys - first),
                    seen = h.causal ? std::min(keys, h.keys - h.queries - first + 1) : keys;
      runs.push_back({first, keys, count});
      count += std::max<int64_t>(1, h.queries + seen - 1);
      first += keys;
    }
    count += RelativeParams::kPaddingRows;
    for (auto* bias : {&u, &v}) bias->assign(static_cast<size_t>(heads * size), 0.5F);
    for (auto* table : {&rows, &transposed}) table->assign(static_cast<size_t>(heads * count * size), 0.25F);
    du = dv = unwritten(heads * size), dr = unwritten(heads * count * size);
    relative = {.u = u.data(),
                .v = v.data(),
                .rows = rows.data(),
                .head_stride = count * size,
                .row_stride = size,
                .runs = runs.data(),
                .distances = static_cast<int>(count),
                .num_runs = static_cast<int>(runs.size()),
                .transposed = transposed.data()};
  }
  bool finite() const {
    const auto is = [](float x) { return std::isfinite(x); };
    return std::all_of(du.begin(), du.end(), is) && std::all_of(dv.begin(), dv.end(), is) &&
           std::all_of(dr.begin(), dr.end(), is);
  }
};

// Heads that read those of others, some more than once, and scales of so many.
struct OfHeads {
  std::vector<int64_t> keys, values;
  std::vector<float> scales;
  OfHeads(AttentionParams& h, int64_t in, int64_t out) {
    if (pick(0, 1) == 0) return;
    for (int64_t j = 0; j < in; ++j) keys.push_back(pick(0, in - 1));
    for (int64_t i = 0; i < out; ++i)
      values.push_back(pick(0, out - 1)), scales.push_back(0.5F * static_cast<float>(pick(-1, 3)));
    h.key_heads = keys.data(), h.value_heads = values.data(), h.head_scales = scales.data();
  }
};

// What a policy may say besides its sizes, heads and dropout.
void draw(AttentionParams& h) {
  if (h.causal && pick(0, 1) == 1) h.window = pick(1, h.keys + 5);
  if (pick(0, 1) == 1) h.normaliser = Normaliser::sigsoftmax;
}

float to_float(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }

void product_by_loops(const Bf16Product& z, const uint16_t* a, const uint16_t* b, float* c) {
  for (int64_t i = 0; i < z.m; ++i)
    for (int64_t j = 0; j < z.n; ++j) {
      float sum = z.add ? c[i * z.ldc + j] : 0;
      for (int64_t t = 0; t < z.k; ++t)
        sum += to_float(a[i * z.lda + t]) * to_float(b[t / 2 * 2 * z.ldb + 2 * j + t % 2]);
      c[i * z.ldc + j] = sum;
    }
}

template <class T>
void both_passes(AttentionParams h, Positions* positions, std::mt19937& random) {
  const Tensor<T> q(1, h.queries, h.key_size, random), k(1, h.keys, h.key_size, random),
      v(1, h.keys, h.key_size, random);
  Tensor<T> out = q, dq = q, dk = k, dv = v;
  std::vector<float> lse = unwritten(h.queries);
  const auto read = [](const Tensor<T>& t) { return Matrix<const T>{t.read().data, t.read().row_stride}; };
  const auto write = [](Tensor<T>& t) { return Matrix<T>{t.write().data, t.write().row_stride}; };
  HeadTensors<T> x{read(q), read(k), read(v), write(out), lse.data(), read(q), write(dq), write(dk), write(dv)};
  for (const bool gradient : {false, true}) {
    h.gradient = gradient;
    std::vector<float> scratch = unwritten(attention_forward_scratch(h));
    attention_forward(h, x, scratch.data());
    RC_ASSERT(out.finite());
  }
  float dscale = std::numeric_limits<float>::quiet_NaN();
  x.dscale = &dscale;
  if (positions != nullptr) x.du = positions->du.data(), x.dv_bias = positions->dv.data(), x.dr = positions->dr.data();
  std::vector<float> scratch = unwritten(attention_backward_scratch(h));
  attention_backward(h, x, scratch.data());
  RC_ASSERT(dq.finite() && dk.finite() && dv.finite() && std::isfinite(dscale));
  RC_ASSERT((positions == nullptr || positions->finite()));
}

// f(0) … f(count - 1), each in a thread.
template <class F>
void side_by_side(int64_t count, const F& f) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < count; ++i) threads.emplace_back(f, i);
  for (std::thread& thread : threads) thread.join();
}

template <class T>
void mixed_passes(AttentionParams h, int64_t parts, Positions* positions, std::mt19937& random) {
  const Tensor<T> q(h.in_heads, h.queries, h.key_size, random), k(h.in_heads, h.keys, h.key_size, random),
      v(h.out_heads, h.keys, h.value_size, random), given(h.out_heads, h.queries, h.value_size, random);
  Tensor<T> out = given, dq = q, dk = k, dv = v;
  const bool by_query = h.matrix_query_stride != 0;
  const int64_t heads = h.in_heads + h.out_heads, numbers = int64_t{h.in_heads} * h.out_heads;
  const std::vector<float> m(static_cast<size_t>((by_query ? h.queries : 1) * numbers), 0.5F);
  h.matrix = m.data();
  std::vector<float> lse = unwritten(h.in_heads * h.queries);
  RowTensors<T> x{q.read(), k.read(), v.read(), nullptr, out.write(), lse.data(), given.read(), dq.write()};
  {
    std::vector<float> packed = unwritten(head_mixing_pack_floats(h, false));
    x.packed = packed.data();
    side_by_side(heads, [&](int64_t i) { head_mixing_pack<T>(h, false, i, k.read(), v.read(), packed.data()); });
    side_by_side(parts, [&](int64_t part) {
      std::vector<float> scratch = unwritten(head_mixing_forward_scratch(h));
      head_mixing_forward(h, {part, parts}, x, scratch.data());
    });
  }
  RC_ASSERT(out.finite());
  if (head_mixing_decodes(h)) {  // the same in steps, between which other threads may have worked
    Tensor<T> again = given;
    std::vector<float> shared = unwritten(head_mixing_decode_scratch(h));
    side_by_side(h.in_heads, [&](int64_t j) { head_mixing_decode_logits<T>(h, j, q.read(), k.read(), shared.data()); });
    head_mixing_decode_mix(h, lse.data(), shared.data());
    side_by_side(h.out_heads,
                 [&](int64_t i) { head_mixing_decode_values<T>(h, i, v.read(), again.write(), shared.data()); });
    RC_ASSERT(again.same(out));
  }
  h.gradient = true;
  std::vector<float> packed = unwritten(head_mixing_pack_floats(h, true));
  x.packed = packed.data();
  side_by_side(heads, [&](int64_t i) { head_mixing_pack<T>(h, true, i, k.read(), v.read(), packed.data()); });
  const int64_t of_keys = head_mixing_key_floats(h), of_part = of_keys + head_mixing_value_floats(h);
  std::vector<float> sums = unwritten(parts * of_part);
  // Queries with matrices of their own are each of one part; of one matrix every part has a share.
  std::vector<float> dm = unwritten((by_query ? h.queries : parts) * numbers);
  std::vector<Positions> shares(positions != nullptr ? static_cast<size_t>(parts) : 0,
                                positions != nullptr ? *positions : Positions{});
  side_by_side(parts, [&](int64_t part) {
    std::vector<float> scratch = unwritten(head_mixing_backward_scratch(h));
    RowTensors<T> of_one = x;
    of_one.dk = sums.data() + part * of_part, of_one.dv = of_one.dk + of_keys;
    of_one.dm = dm.data() + (by_query ? 0 : part * numbers);
    if (positions != nullptr) {
      Positions& share = shares[static_cast<size_t>(part)];
      of_one.du = share.du.data(), of_one.dv_bias = share.dv.data(), of_one.dr = share.dr.data();
    }
    head_mixing_backward(h, {part, parts}, of_one, scratch.data());
  });
  const auto gather = [&](const float* from, int64_t size, Tensor<T>& to, int64_t i) {
    head_mixing_gather(from, parts, of_part, h.keys, size, Heads<T>{to.write().at(i, 0), 0, size});
  };
  side_by_side(h.in_heads, [&](int64_t i) { gather(sums.data() + i * (of_keys / h.in_heads), h.key_size, dk, i); });
  side_by_side(h.out_heads, [&](int64_t i) {
    gather(sums.data() + of_keys + i * ((of_part - of_keys) / h.out_heads), h.value_size, dv, i);
  });
  RC_ASSERT(dq.finite() && dk.finite() && dv.finite());
  for (float number : dm) RC_ASSERT(std::isfinite(number));
  for (const Positions& share : shares) RC_ASSERT(share.finite());
}

// Both passes of one head, its numbers in fp32.
struct Passes {
  Tensor<float> out, dq, dk, dv;
  std::vector<float> lse;
  float dm = 0, dscale = 0;

  Passes(int64_t queries, int64_t keys, int64_t size)
      : out(1, queries, size, none), dq(out), dk(1, keys, size, none), dv(dk), lse(unwritten(queries)) {}

  static Matrix<const float> read(const Tensor<float>& t) { return {t.data.data(), t.size}; }
  static Matrix<float> write(Tensor<float>& t) { return {t.data.data(), t.size}; }

  void run(const AttentionParams& h, const Tensor<float>& q, const Tensor<float>& k, const Tensor<float>& v,
           const Tensor<float>& given) {
    std::vector<float> scratch = unwritten(std::max(attention_forward_scratch(h), attention_backward_scratch(h)));
    HeadTensors<float> x{read(q),     read(k),   read(v),   write(out), lse.data(),
                         read(given), write(dq), write(dk), write(dv)};
    x.dscale = &dscale;
    attention_forward(h, x, scratch.data());
    attention_backward(h, x, scratch.data());
  }
  void run_mixed(AttentionParams h, const Tensor<float>& q, const Tensor<float>& k, const Tensor<float>& v,
                 const Tensor<float>& given) {
    const float m = 1;
    h.matrix = &m;
    std::vector<float> packed = unwritten(head_mixing_pack_floats(h, true)),
                       of_forward = unwritten(head_mixing_pack_floats(h, false)),
                       sums = unwritten(head_mixing_key_floats(h) + head_mixing_value_floats(h)),
                       scratch = unwritten(std::max(head_mixing_forward_scratch(h), head_mixing_backward_scratch(h)));
    for (int64_t i = 0; i < 2; ++i) {
      head_mixing_pack<float>(h, false, i, k.read(), v.read(), of_forward.data());
      head_mixing_pack<float>(h, true, i, k.read(), v.read(), packed.data());
    }
    RowTensors<float> x{q.read(),    k.read(),   v.read(),     of_forward.data(),
                        out.write(), lse.data(), given.read(), dq.write()};
    head_mixing_forward(h, {}, x, scratch.data());
    x.packed = packed.data(), x.dk = sums.data(), x.dv = sums.data() + head_mixing_key_floats(h), x.dm = &dm;
    head_mixing_backward(h, {}, x, scratch.data());
    head_mixing_gather<float>(x.dk, 1, 0, h.keys, h.key_size, dk.write());
    head_mixing_gather<float>(x.dv, 1, 0, h.keys, h.value_size, dv.write());
  }

 private:
  static inline std::mt19937 none;
};

}  // namespace

TEST_CASE("attention with mixed heads stays within the memory that it says, and writes all of its results",
          "[kernels]") {
  CHECK(rc::check([] {
    AttentionParams h{};
    h.queries = pick(1, 80), h.causal = pick(0, 1) == 1;
    h.max_keys = h.causal ? h.queries + pick(0, 200) : pick(1, 300);
    h.keys = h.causal ? h.max_keys : pick(0, h.max_keys);
    h.in_heads = small(1, 9), h.out_heads = small(1, 9), h.key_size = small(1, 40), h.value_size = small(1, 40);
    h.scale = 0.3F, h.matrix_query_stride = pick(0, 1) * h.in_heads * h.out_heads, h.gradient = pick(0, 1) == 1;
    const Dropout dropout{{1, 2}, 3, 4, 1 << 22, 4.0F / 3};
    if (pick(0, 1) == 1) {
      h.dropout = dropout, h.dropout_before_mixing = pick(0, 1) == 1,
      h.dropout_first = static_cast<uint64_t>(pick(0, 1000));
      h.dropout_row = h.max_keys;
    }
    const int64_t parts = pick(1, 4);
    h.l2_bytes = int64_t{1} << pick(10, 20);  // keys are cut, or not
    draw(h);
    const OfHeads of_heads(h, h.in_heads, h.out_heads);
    std::optional<Positions> positions;
    if (pick(0, 1) == 1) h.relative = positions.emplace(h, h.in_heads, (h.key_size + 15) / 16 * 16).relative;
    std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 20)));
    mixed_passes<float>(h, parts, positions ? &*positions : nullptr, random);
    const Bf16Gemm engine{product_by_loops};
    if (pick(0, 1) == 1) h.bf16 = &engine;
    mixed_passes<uint16_t>(h, parts, positions ? &*positions : nullptr, random);
  }));
}

TEST_CASE("plain attention stays within the memory that it says, and writes all of its results", "[kernels]") {
  CHECK(rc::check([] {
    AttentionParams h{};
    h.queries = pick(1, 80), h.causal = pick(0, 1) == 1;
    const int64_t most = h.causal ? h.queries + pick(0, 200) : pick(1, 300);
    h.keys = h.causal ? most : pick(0, most);
    h.key_size = 16 * small(1, 4), h.scale = 0.3F;
    const Dropout dropout{{1, 2}, 3, 4, 1 << 22, 4.0F / 3};
    if (pick(0, 1) == 1) h.dropout = dropout, h.dropout_row = most;
    h.l2_bytes = int64_t{1} << pick(10, 20);  // keys are cut, or not
    draw(h);
    const OfHeads of_heads(h, 1, 1);
    std::optional<Positions> positions;
    if (pick(0, 1) == 1) h.relative = positions.emplace(h, 1, h.key_size).relative;
    std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 20)));
    both_passes<float>(h, positions ? &*positions : nullptr, random);
    const Bf16Gemm engine{product_by_loops};
    if (level() >= Level::avx512 && pick(0, 1) == 1) h.bf16 = &engine;
    both_passes<uint16_t>(h, positions ? &*positions : nullptr, random);
  }));
}

TEST_CASE("logits of -inf weigh nothing, wherever keys are cut", "[kernels]") {
  const int64_t queries = 20, keys = 256, size = 16;
  const float huge = 1e20F;
  std::mt19937 random(1);
  // Of the even queries the first 128 keys have logits of -inf, of the odd ones all have.
  Tensor<float> q(1, queries, size, random), k(1, keys, size, random), v(1, keys, size, random), given = q;
  std::fill(q.data.begin(), q.data.end(), 0.0F), std::fill(k.data.begin(), k.data.end(), 0.0F);
  for (int64_t i = 0; i < queries; ++i)
    q.data[static_cast<size_t>(i * size)] = huge, q.data[static_cast<size_t>(i * size + 1)] = i % 2 == 0 ? 0 : huge;
  for (int64_t s = 0; s < keys; ++s) k.data[static_cast<size_t>(s * size + (s < 128 ? 0 : 1))] = -huge;
  for (const Normaliser normaliser : {Normaliser::softmax, Normaliser::sigsoftmax})
    for (const int64_t cache : {1 << 10, 1 << 20}) {
      INFO("cache " << cache);
      Passes plain(queries, keys, size), mixed(queries, keys, size);
      AttentionParams a{};
      a.queries = queries, a.keys = keys, a.key_size = size, a.scale = 1, a.l2_bytes = cache, a.normaliser = normaliser;
      plain.run(a, q, k, v, given);
      AttentionParams h{};
      h.queries = queries, h.keys = h.max_keys = keys, h.in_heads = h.out_heads = 1, h.key_size = h.value_size = size,
      h.scale = 1;
      h.l2_bytes = cache, h.normaliser = normaliser;
      mixed.run_mixed(h, q, k, v, given);
      for (const Passes* passes : {&plain, &mixed})
        for (int64_t i = 0; i < queries; ++i)
          for (int64_t c = 0; c < size; ++c) {
            double mean = 0, mean_size = 0;
            for (int64_t s = 128; s < keys; ++s) {
              const double share = v.data[static_cast<size_t>(s * size + c)] / 128.0;
              mean += share, mean_size += std::abs(share);
            }
            const double error = passes->out.data[static_cast<size_t>(i * size + c)] - (i % 2 == 0 ? mean : 0);
            CHECK(std::abs(error) <= tolerance::of_sum(keys, tolerance::kFp32, mean_size));
            CHECK(std::isfinite(passes->dq.data[static_cast<size_t>(i * size + c)]));
            if (i % 2 == 1) CHECK(passes->dq.data[static_cast<size_t>(i * size + c)] == 0);
          }
      for (const Passes* passes : {&plain, &mixed})
        for (int64_t c = 0; c < size; ++c) {
          double most = 0;  // the exponential function ends at e^-87 (cpu/vector.h)
          for (int64_t t = 0; t < queries; ++t)
            most += std::exp(-87.0) * std::abs(given.data[static_cast<size_t>(t * size + c)]);
          for (int64_t s = 0; s < 128; ++s) CHECK(std::abs(passes->dv.data[static_cast<size_t>(s * size + c)]) <= most);
        }
    }
}

TEST_CASE("gradients of large logits add up to nothing", "[kernels]") {
  // All keys and values are the same: whatever the logits, the output does not change with them.
  const int64_t queries = 40, keys = 300, size = 16;
  std::mt19937 random(2);
  Tensor<float> q(1, queries, size, random), k(1, keys, size, random), v = k, given = q;
  for (auto* t : {&q, &k, &v, &given}) std::fill(t->data.begin(), t->data.end(), 0.0F);
  for (const float logit : {100.0F, 1e4F, 3e4F})
    for (const int64_t cache : {1 << 10, 1 << 20}) {
      for (int64_t i = 0; i < queries; ++i)
        q.data[static_cast<size_t>(i * size)] = logit + static_cast<float>(i),
                                       given.data[static_cast<size_t>(i * size)] = 1;
      for (int64_t s = 0; s < keys; ++s)
        k.data[static_cast<size_t>(s * size)] = v.data[static_cast<size_t>(s * size)] = 1;
      AttentionParams h{};
      h.queries = queries, h.keys = h.max_keys = keys, h.in_heads = h.out_heads = 1, h.key_size = h.value_size = size,
      h.scale = 1, h.l2_bytes = cache;
      Passes passes(queries, keys, size);
      passes.run_mixed(h, q, k, v, given);
      // Of a query Σ P (dP - Σ P dP) k, where all dP and k are 1; of a key the same times queries of up to logit + 40.
      const double query_error = tolerance::of_sum(keys, 0, 2);
      const double key_error = query_error * queries / keys * static_cast<double>(logit + 40);
      CHECK(std::abs(passes.dm - queries) <= tolerance::of_sum(keys + queries, tolerance::kFp32, queries));
      for (const float x : passes.dq.data) CHECK(std::abs(x) <= query_error);
      for (const float x : passes.dk.data) CHECK(std::abs(x) <= key_error);
    }
}

TEST_CASE("the gradient of a head's scale is that of many queries and keys", "[kernels]") {
  // Even probabilities, and dP is 1.3 everywhere.
  const int64_t n = 6000, size = 16;
  std::mt19937 random(3);
  Tensor<float> q(1, n, size, random), k = q, v = q, given = q;
  for (auto* t : {&q, &k, &v, &given}) std::fill(t->data.begin(), t->data.end(), 0.0F);
  for (int64_t i = 0; i < n; ++i)
    v.data[static_cast<size_t>(i * size)] = 1, given.data[static_cast<size_t>(i * size)] = 1.3F;
  AttentionParams a{};
  const float one = 1;
  a.queries = a.keys = n, a.key_size = size, a.scale = 1, a.head_scales = &one;
  Passes passes(n, n, size);
  passes.run(a, q, k, v, given);
  const double wanted = static_cast<double>(1.3F) * static_cast<double>(n);
  CHECK(std::abs(passes.dscale - wanted) <= tolerance::of_long_sum(2 * n, tolerance::kFp32, wanted));
}

TEST_CASE("keys are cut into spans of several chunks, and nothing changes but the rounding", "[kernels]") {
  const int64_t queries = 33, size = 16;
  std::mt19937 random(4);
  for (const bool causal : {false, true}) {
    const int64_t keys = 8500;
    Tensor<float> q(1, queries, size, random), k(1, keys, size, random), v(1, keys, size, random),
        given(1, queries, size, random);
    AttentionParams h{};
    h.queries = queries, h.keys = h.max_keys = keys, h.in_heads = h.out_heads = 1, h.key_size = h.value_size = size,
    h.scale = 0.2F;
    h.causal = causal, h.window = causal ? 400 : 0;
    Passes whole(queries, keys, size), cut(queries, keys, size);
    h.l2_bytes = 4 << 20, whole.run_mixed(h, q, k, v, given);
    h.l2_bytes = 128 << 10, cut.run_mixed(h, q, k, v, given);
    CHECK(head_mixing_rows(h) == 64);
    CHECK(whole.out.data != cut.out.data);
    reference::PolicyCase c;
    c.policy = h, c.key_size = c.value_size = size;
    const auto wide = [](const Tensor<float>& t) { return reference::Doubles(t.data.begin(), t.data.end()); };
    const auto exact = reference::attention(c, wide(q), wide(k), wide(v), wide(given));
    const auto largest = [](const reference::Doubles& x) { return *std::max_element(x.begin(), x.end()); };
    const auto bound = [&](double of_whole, double size_of_terms) {
      return tolerance::beside_composed(of_whole, tolerance::kFp32, size_of_terms) +
             tolerance::of_logits(exact.logit_size, size_of_terms);
    };
    for (const auto& [a, b, wanted, sizes] : {std::tuple(&whole.out, &cut.out, &exact.out, &exact.out_size),
                                              {&whole.dq, &cut.dq, &exact.dq, &exact.dq_size},
                                              {&whole.dk, &cut.dk, &exact.dk, &exact.dk_size},
                                              {&whole.dv, &cut.dv, &exact.dv, &exact.dv_size}}) {
      const auto error = [&wanted = wanted](const Tensor<float>& x) {
        double worst = 0;
        for (size_t i = 0; i < wanted->size(); ++i) worst = std::max(worst, std::abs(x.data[i] - (*wanted)[i]));
        return worst;
      };
      CHECK(error(*b) <= bound(error(*a), largest(*sizes)));
    }
    const double dm = std::accumulate(exact.dm.begin(), exact.dm.end(), 0.0),
                 dm_size = std::accumulate(exact.dm_size.begin(), exact.dm_size.end(), 0.0);
    CHECK(std::abs(cut.dm - dm) <= bound(std::abs(whole.dm - dm), dm_size));
  }
}

TEST_CASE("two heads of one key each are mixed as the matrix says", "[kernels]") {
  // One key: every probability is 1, so out_i = (Σ_j m[j, i]) v_i.
  const float q[2] = {3, -1}, k[2] = {0.5F, 2}, v[2] = {10, 100}, m[4] = {0.25F, 1, 0.5F, -3};
  float out[2], lse[2];
  AttentionParams h{};
  h.queries = h.keys = h.max_keys = 1, h.in_heads = h.out_heads = 2, h.key_size = h.value_size = 1;
  h.scale = 1, h.gradient = false;
  std::vector<float> scratch = unwritten(head_mixing_forward_scratch(h));
  h.matrix = m;
  head_mixing_forward<float>(h, {}, {{q, 1, 1}, {k, 1, 1}, {v, 1, 1}, nullptr, {out, 1, 1}, lse}, scratch.data());
  CHECK(out[0] == 7.5F);
  CHECK(out[1] == -200);
  CHECK(lse[0] == 1.5F);
  CHECK(lse[1] == -2);
}
