// Kernels compiled without fused multiply-add (kernels/meson.build) give the same bits with every instruction set, and
// the vectors of cpu/registers.h act on each element as scalars do.
#pragma GCC diagnostic ignored "-Wpsabi"  // no vector is passed by value to another object file
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "cpu/best_entries_loops.h"
#include "cpu/cross_entropy.h"
#include "cpu/dropout.h"
#include "cpu/gated_activation.h"
#include "cpu/optimizer.h"
#include "cpu/rms_norm.h"
#include "cpu/rotation.h"
#include "cpu/softmax.h"
#include "cpu/sum_norm.h"
#include "cpu/vector.h"

using namespace mh::kernels;

namespace {

const int64_t sizes[] = {1, 15, 16, 17, 48, 100, 257};
const float infinity = std::numeric_limits<float>::infinity();

// Returns `count` numbers, reproducible, of the magnitude of logits.
template <class T>
std::vector<T> random_numbers(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<T> numbers(static_cast<size_t>(count));
  for (T& number : numbers) from_float(normal(generator), number);
  return numbers;
}

// Runs compute(), which returns a vector of numbers, with each instruction set of the processor, and requires the
// same bits as at the baseline.
template <class Compute>
void require_equal_bits(const Compute& compute) {
  struct RestoreLevel {
    ~RestoreLevel() { set_simd_level(best_simd_level()); }
  } restore_level;
  set_simd_level(SimdLevel::baseline);
  const auto expected = compute();
  for (const SimdLevel level : {SimdLevel::avx2, SimdLevel::avx512}) {
    if (level > best_simd_level()) {
      WARN("this processor lacks level " << static_cast<int>(level));
      continue;
    }
    set_simd_level(level);
    const auto found = compute();
    INFO("level " << static_cast<int>(level));
    REQUIRE(found.size() == expected.size());
    REQUIRE(std::memcmp(found.data(), expected.data(), expected.size() * sizeof expected[0]) == 0);
  }
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

DropoutParams test_dropout() {
  const uint32_t key[2] = {7, 11};
  return make_dropout(key, 3, 2, 0.3);
}

}  // namespace

TEST_CASE("softmax gives the same bits with every instruction set", "[kernels]") {
  for (const int64_t n : sizes)
    for (const SoftmaxKind kind : {SoftmaxKind::softmax, SoftmaxKind::sigsoftmax})
      for (const bool has_mask : {false, true}) {
        INFO("n " << n << ", mask " << has_mask);
        std::vector<float> a = random_numbers<float>(n, 1);
        if (n > 3) a[2] = -infinity;
        const std::vector<float> dp = random_numbers<float>(n, 2);
        const auto is_allowed = std::make_unique<bool[]>(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; ++i) is_allowed[static_cast<size_t>(i)] = i % 3 != 1 && i != n - 1;
        require_equal_bits([&] {
          std::vector<float> p(a.size()), da(a.size());
          softmax_row(kind, a.data(), has_mask ? is_allowed.get() : nullptr, p.data(), n);
          softmax_row_backward(kind, a.data(), p.data(), dp.data(), da.data(), n);
          append(p, da);
          return p;
        });
      }
}

TEMPLATE_TEST_CASE("rows of norms, activations, rotations and dropout give the same bits with every instruction set",
                   "[kernels]", float, uint16_t) {
  using T = TestType;
  const DropoutParams dropout_params = test_dropout();
  for (const int64_t n : sizes) {
    INFO("n " << n);
    const std::vector<T> x = random_numbers<T>(n, 1), up = random_numbers<T>(n, 2), dy = random_numbers<T>(n, 3);
    const std::vector<float> weight = random_numbers<float>(n, 4), bias = random_numbers<float>(n, 5),
                             residual = random_numbers<float>(n, 6), dnorm = random_numbers<float>(n, 7);
    for (const Activation kind :
         {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu})
      require_equal_bits([&] {
        std::vector<T> y(x.size()), dgate(x.size()), dup(x.size());
        gated_activation(kind, x.data(), up.data(), y.data(), n);
        gated_activation_backward(kind, x.data(), up.data(), dy.data(), dgate.data(), dup.data(), n);
        append(y, dgate), append(y, dup);
        return y;
      });
    require_equal_bits([&] {
      std::vector<T> y(x.size());
      dropout(dropout_params, (uint64_t{1} << 34) - 9, x.data(), y.data(), n);  // counters below and above 2^32
      return y;
    });
    require_equal_bits([&] {
      const RmsNormParams params{n, weight.data(), 1e-5F};
      std::vector<T> y(x.size()), dx(x.size());
      std::vector<float> dweight = bias;
      float rstd = 0;
      rms_norm(params, x.data(), y.data(), &rstd, 1);
      rms_norm_backward(params, x.data(), &rstd, dy.data(), dx.data(), dweight.data(), 1);
      append(y, dx);
      std::vector<float> results(y.size());
      for (size_t i = 0; i < y.size(); ++i) results[i] = to_float(y[i]);
      append(results, dweight), results.push_back(rstd);
      return results;
    });
    for (const NormType type : {NormType::layer, NormType::rms})
      require_equal_bits([&] {
        SumNormParams params;
        params.size = n, params.weight = weight.data(), params.epsilon = 1e-5F, params.type = type;
        params.dropout = &dropout_params;
        if (type == NormType::layer) params.bias = bias.data();
        std::vector<float> sum(x.size()), norm(x.size()), dx(x.size()), dweight(x.size()), dbias(x.size()),
            scratch(static_cast<size_t>(sum_norm_scratch_floats(params)));
        std::vector<T> dy_result(x.size());
        float mean = 0, rstd = 0;
        SumNormTensors tensors;
        tensors.rows = 1, tensors.x = residual.data(), tensors.y = x.data(), tensors.sum = sum.data(),
        tensors.norm = norm.data(), tensors.rstd = &rstd, tensors.dsum = residual.data(), tensors.dnorm = dnorm.data(),
        tensors.dx = dx.data(), tensors.dy = dy_result.data(), tensors.dweight = dweight.data(), tensors.chunk_rows = 1;
        if (type == NormType::layer) tensors.mean = &mean, tensors.dbias = dbias.data();
        sum_norm<T>(params, tensors, 0, 1, scratch.data());
        sum_norm_backward<T>(params, tensors, 0, 1, scratch.data());
        std::vector<float> results{mean, rstd};
        for (const std::vector<float>& values : {sum, norm, dx, dweight, dbias}) append(results, values);
        for (const T& value : dy_result) results.push_back(to_float(value));
        return results;
      });
    if (n % 2 == 0)
      require_equal_bits([&] {
        RotationParams params;
        params.positions = 1, params.heads = 1, params.head_size = n, params.size = n - n % 4;
        params.x_position_stride = params.x_head_stride = params.y_position_stride = params.y_head_stride = n;
        std::vector<T> y(x.size());
        rotate(params, weight.data(), bias.data(), x.data(), y.data());
        return y;
      });
    for (const float label_smoothing : {0.0F, 0.1F})
      require_equal_bits([&] {
        std::vector<T> logits = x;
        const CrossEntropyLoss loss = cross_entropy_row({n, label_smoothing, true}, logits.data(), n / 2);
        std::vector<double> results{loss.nll, loss.smoothed_loss};
        for (const T& logit : logits) results.push_back(static_cast<double>(to_float(logit)));
        return results;
      });
  }
}

TEST_CASE("optimisers and best entries give the same bits with every instruction set", "[kernels]") {
  for (const int64_t n : sizes) {
    INFO("n " << n);
    const std::vector<float> parameters = random_numbers<float>(n, 1), g = random_numbers<float>(n, 2);
    require_equal_bits([&] {
      std::vector<float> p = parameters, m(p.size(), 0.1F), v(p.size(), 0.2F), buffer(p.size(), 0.3F);
      adam({0.01F, 0.9F, 0.98F, 1e-8F, 0.5F, 0.7F, 1e-3F, 0.25F}, 0, n, p.data(), g.data(), m.data(), v.data());
      sgd({0.01F, 0.9F, 1e-3F, 0.25F}, 0, n, p.data(), g.data(), buffer.data());
      nag({0.01F, 0.9F, 0.5F, 1e-3F, 0.25F}, 0, n, p.data(), g.data(), buffer.data());
      append(p, m), append(p, v), append(p, buffer);
      p.push_back(static_cast<float>(sum_of_squares(g.data(), 0, n)));
      return p;
    });
  }
  const int64_t num_blocks = 40;
  const std::vector<float> x = random_numbers<float>(num_blocks * 4 * lanes, 3);
  require_equal_bits([&] {
    std::vector<float> maxima(static_cast<size_t>(num_blocks));
    double sum = 0;
    dispatch_simd_level([&](auto level) {
      BestEntriesLoops<level>::block_maxima(x.data(), num_blocks, maxima.data());
      sum = BestEntriesLoops<level>::exponential_sum(x.data(), num_blocks, 12);
    });
    std::vector<double> results(maxima.begin(), maxima.end());
    results.push_back(sum);
    return results;
  });
}

// Vectors of 16 numbers in one register, in two and in four, whatever the registers of this build.
using Floats8 = float __attribute__((vector_size(32)));
using Floats4 = float __attribute__((vector_size(16)));
using Ints16 = int32_t __attribute__((vector_size(64)));
using Ints8 = int32_t __attribute__((vector_size(32)));
using Ints4 = int32_t __attribute__((vector_size(16)));
template <class F, class I>
struct Types {
  using Floats = F;
  using Ints = I;
};
using OneRegister = Types<float __attribute__((vector_size(64))), Ints16>;
using TwoRegisters = Types<Pair<Floats8>, Pair<Ints8>>;
using FourRegisters = Types<Pair<Pair<Floats4>>, Pair<Pair<Ints4>>>;

TEMPLATE_TEST_CASE("vectors act on each element as scalars do", "[kernels]", OneRegister, TwoRegisters, FourRegisters) {
  using V = typename TestType::Floats;
  using I = typename TestType::Ints;
  std::vector<float> a = random_numbers<float>(lanes, 1), b = random_numbers<float>(lanes, 2);
  a[3] = std::nanf(""), b[5] = std::nanf(""), a[7] = 0.0F, b[7] = -0.0F;
  const auto same = [](float x, float y) { return std::memcmp(&x, &y, sizeof x) == 0; };
  V x, y;
  load_vector(a.data(), x), load_vector(b.data(), y);
  float result[lanes], low[lanes], high[lanes];
  store_vector(select(x < y, x * 2.0F - y, 1.0F / y), result);
  for (size_t i = 0; i < lanes; ++i)
    if (i != 3 && i != 5) CHECK(same(result[i], a[i] < b[i] ? a[i] * 2.0F - b[i] : 1.0F / b[i]));
  CHECK((std::isnan(result[5]) && same(result[3], 1.0F / b[3])));  // a comparison with NaN is false
  store_vector(select(x > y, x, y), result);
  for (size_t i = 0; i < lanes; ++i) CHECK(same(result[i], a[i] > b[i] ? a[i] : b[i]));
  store_vector(interleave_low(x, y), low), store_vector(interleave_high(x, y), high);
  for (size_t i = 0; i < lanes; ++i) {
    const std::vector<float>& from = i % 2 == 0 ? a : b;
    CHECK(same(low[i], from[i / 2]));
    CHECK(same(high[i], from[lanes / 2 + i / 2]));
  }
  store_vector(interleave_pairs_low(x, y), low), store_vector(interleave_pairs_high(x, y), high);
  for (size_t i = 0; i < lanes; ++i) {
    const std::vector<float>& from = i % 4 < 2 ? a : b;
    CHECK(same(low[i], from[i / 4 * 2 + i % 2]));
    CHECK(same(high[i], from[lanes / 2 + i / 4 * 2 + i % 2]));
  }
  I bits;
  copy_bits(x, bits);
  int32_t words[lanes];
  store_vector((bits >> 3) ^ ~(bits & 0xFF), words);
  for (size_t i = 0; i < lanes; ++i) {
    int32_t word;
    std::memcpy(&word, &a[i], sizeof word);
    CHECK(words[i] == ((word >> 3) ^ ~(word & 0xFF)));
  }
  a[3] = 2, b[5] = 4;
  load_vector(a.data(), x);
  I integers;
  convert(x, integers);
  store_vector(integers, words);
  for (size_t i = 0; i < lanes; ++i) CHECK(words[i] == static_cast<int32_t>(a[i]));
  CHECK(reduce(x, Maximum()) == *std::max_element(a.begin(), a.end()));
  // The sum adds halves: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
  std::vector<float> sums = a;
  for (size_t half = lanes / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  CHECK(same(reduce(x, Sum()), sums[0]));
}

TEST_CASE("replace_tail sets the lanes from a count on", "[kernels]") {
  const std::vector<float> a = random_numbers<float>(lanes, 1);
  for (const int64_t count : {-40, -1, 0, 1, 7, 15, 16, 17, 40}) {
    Floats tail;
    load(a.data(), tail);
    replace_tail(count, 5, tail);
    float result[lanes];
    store(tail, result);
    for (int64_t i = 0; i < lanes; ++i) CHECK(result[i] == (i < count ? a[static_cast<size_t>(i)] : 5.0F));
  }
}
