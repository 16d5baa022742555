// The GPU kernels that process a tensor row by row (cross-entropy; residual sum, dropout and norm), run in the emulator
// and compared with naive loops in double precision.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "ceil_div.h"
#include "cpu/dropout.h"
#include "cuda/cross_entropy.h"
#include "cuda/sum_norm_rows.h"
#include "emulator/cuda_cases.h"
#include "emulator/host_launcher.h"
#include "fixtures/reduced_cases.h"
#include "oracle/tolerance.h"

using namespace mh::kernels;
using cuda_cases::from_double;
using cuda_cases::kUnitRoundoff;
using cuda_cases::pick;
using cuda_cases::to_double;

namespace {

using Doubles = std::vector<double>;

constexpr double kFp32UnitRoundoff = tolerance::kFp32;  // unit roundoff: all arithmetic is in fp32

// Returns a bound on the error of rounding `value` to T: the unit roundoff times |value|, at least half of the smallest
// subnormal.
template <class T>
double rounding_error_bound(double value) {
  constexpr double kSmallest = std::is_same_v<T, float> ? 0x1p-150 : std::is_same_v<T, Bf16> ? 0x1p-134 : 0x1p-25;
  return std::max(kUnitRoundoff<T> * std::abs(value), kSmallest);
}

template <class T>
std::vector<T> random_values(int64_t count, double stddev = 1) {
  std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 30)));
  std::normal_distribution<double> normal(0, stddev);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& x : values) x = from_double<T>(normal(random));
  return values;
}

// Returns a random row width, often not a multiple of four: up to 300, for a block of one warp, or from 1025 to
// max_width, for a block of 8 warps.
int64_t random_width(int64_t max_width) { return pick(0, 1) == 0 ? pick(1, 300) : pick(1025, max_width); }

// Returns a bound on the number of additions in sequence in the sum of a row: the elements of a lane, the lanes of a
// warp, the warps of a block.
double num_additions(int64_t size) { return static_cast<double>(size) / 32 + 10; }

void expect_near(double actual, double expected, double bound, const char* name) {
  if (std::abs(actual - expected) <= bound) return;
  RC_LOG() << name << ": expected " << expected << " within " << bound << "; found " << actual << "\n";
  RC_FAIL("the error exceeds the bound");
}

// Checks cross-entropy losses and gradients of random rows.
template <class T>
void check_cross_entropy() {
  const int64_t num_rows = pick(1, 3), n = random_width(3000);
  const CrossEntropyParams params{n, pick(0, 1) == 0 ? 0.0F : 0.1F, pick(0, 2) > 0};
  std::vector<T> logits = random_values<T>(num_rows * n, static_cast<double>(pick(1, 8)));
  if (n > 1 && pick(0, 3) == 0) logits[static_cast<size_t>(pick(0, num_rows * n - 1))] = from_double<T>(-INFINITY);
  const std::vector<T> initial_logits = logits;
  std::vector<int64_t> targets;
  for (int64_t r = 0; r < num_rows; ++r) targets.push_back(pick(0, 3) == 0 ? -1 - pick(0, 100) : pick(0, n - 1));
  std::vector<CrossEntropyLoss> losses(static_cast<size_t>(num_rows), {NAN, NAN});
  host::EmulatedGpu device(static_cast<uint32_t>(pick(0, 9)));
  RC_ASSERT(cross_entropy<T>(host::Launcher{device}, params, num_rows, logits.data(), targets.data(), losses.data()) ==
            nullptr);

  const double smoothing = static_cast<double>(params.label_smoothing), count = static_cast<double>(n);
  for (int64_t r = 0; r < num_rows; ++r) {
    const T *x = initial_logits.data() + r * n, *result = logits.data() + r * n;
    const int64_t target = targets[static_cast<size_t>(r)];
    const CrossEntropyLoss& loss = losses[static_cast<size_t>(r)];
    double max_logit = -INFINITY, sum = 0, logit_sum = 0, logit_magnitude = 0, spread = 0;
    for (int64_t i = 0; i < n; ++i) max_logit = std::max(max_logit, static_cast<double>(to_double(x[i])));
    for (int64_t i = 0; i < n; ++i) {
      const double logit = to_double(x[i]), p = std::exp(logit - max_logit);
      sum += p, logit_sum += logit, logit_magnitude += std::abs(logit), spread += p > 0 ? p * (max_logit - logit) : 0;
    }
    const double lse = max_logit + std::log(sum);
    // First-order errors of x - `max_logit`, of its exponential and of the sum, then of the logarithm and of adding
    // `max_logit`.
    const double lse_error =
        kFp32UnitRoundoff * (spread / sum + 4 + num_additions(n) + 2 * std::abs(max_logit) + 2 * std::abs(lse));
    for (int64_t i = 0; i < n; ++i) {
      const double p = std::exp(to_double(x[i]) - lse), actual = to_double(result[i]);
      const double expected = target < 0 ? 0 : p - smoothing / count - (i == target ? 1 - smoothing : 0);
      const double term_magnitude = p + smoothing / count + (i == target ? 1 - smoothing : 0);
      const double p_error = p == 0 ? 0 : p * (lse_error + kFp32UnitRoundoff * (std::abs(to_double(x[i]) - lse) + 4));
      if (params.needs_gradient)
        expect_near(actual, expected,
                    rounding_error_bound<T>(expected) + p_error + 3 * kFp32UnitRoundoff * term_magnitude, "gradient");
      else RC_ASSERT(to_double(result[i]) == to_double(x[i]));
    }
    const double nll = target < 0 ? 0 : lse - to_double(x[target]);
    const double smoothed =
        target < 0 || smoothing == 0 ? nll : (1 - smoothing) * nll + smoothing * (lse - logit_sum / count);
    const double nll_error = lse_error + kFp32UnitRoundoff * std::abs(nll);
    const double smoothed_error =
        target < 0 || smoothing == 0
            ? nll_error
            : nll_error + kFp32UnitRoundoff * (3 * (std::abs(nll) + std::abs(lse)) +
                                               (num_additions(n) + 3) * smoothing * logit_magnitude / count);
    if (std::isfinite(nll)) expect_near(loss.nll, nll, nll_error, "nll");
    else RC_ASSERT(loss.nll == nll);
    if (std::isfinite(smoothed)) expect_near(loss.smoothed_loss, smoothed, smoothed_error, "smoothed");
    else RC_ASSERT(loss.smoothed_loss == smoothed);
  }
}

// Returns the dropout factors of `count` elements from index `first` of the stream: 0 or 1 / (1 - p); 1 if `params` is
// null.
Doubles dropout_factors(const DropoutParams* params, uint64_t first, int64_t count) {
  std::vector<float> ones(static_cast<size_t>(count), 1), factors = ones;
  if (params != nullptr) dropout(*params, first, ones.data(), factors.data(), count);
  return {factors.begin(), factors.end()};
}

double at(const std::vector<float>& x, int64_t i) { return static_cast<double>(x[static_cast<size_t>(i)]); }

// Checks outputs and gradients of residual sum, dropout and norm for random rows.
template <class Y>
void check_sum_norm() {
  const int64_t num_rows = pick(1, 5), size = random_width(1300), chunk_rows = pick(1, 3),
                num_elements = num_rows * size;
  const uint32_t key[2] = {1, 2};
  const DropoutParams dropout_params = make_dropout(key, 3, 4, 0.3);
  const auto x = random_values<float>(num_elements), weight = random_values<float>(size),
             bias = random_values<float>(size);
  const auto y = random_values<Y>(num_elements);
  SumNormParams params{size, weight.data(), bias.data(), 1e-3F};
  const bool is_rms = pick(0, 2) == 0, has_bias = !is_rms && pick(0, 1) == 1;
  if (is_rms) params.type = NormType::rms;
  if (!has_bias) params.bias = nullptr;
  if (pick(0, 1) == 1) params.dropout = &dropout_params, params.dropout_offset = static_cast<uint64_t>(pick(0, 9));
  params.batch_row_size = pick(1, 3);
  params.dropout_batch_stride = params.batch_row_size * size + (pick(0, 1) == 1 ? int64_t{1} << pick(0, 40) : 0);
  Doubles factors;
  for (int64_t r = 0; r < num_rows; ++r) {
    const Doubles row_factors = dropout_factors(
        params.dropout,
        params.dropout_offset + static_cast<uint64_t>(r / params.batch_row_size * params.dropout_batch_stride +
                                                      r % params.batch_row_size * size),
        size);
    factors.insert(factors.end(), row_factors.begin(), row_factors.end());
  }
  const bool has_norm = pick(0, 3) > 0, has_sum = !has_norm || pick(0, 1) == 1;
  std::vector<float> sum(x.size(), NAN), norm(x.size(), NAN), mean(static_cast<size_t>(num_rows), NAN), rstd = mean;
  SumNormTensors t;
  t.rows = num_rows, t.x = x.data(), t.y = y.data(), t.chunk_rows = chunk_rows;
  if (has_sum) t.sum = sum.data();
  if (has_norm) t.norm = norm.data();
  if (has_norm && has_sum) t.mean = is_rms ? nullptr : mean.data(), t.rstd = rstd.data();
  host::EmulatedGpu device(static_cast<uint32_t>(pick(0, 9)));
  const host::Launcher launcher{device};
  RC_ASSERT(sum_norm<Y>(launcher, params, t) == nullptr);

  Doubles exact_sum(x.size()), normalised(x.size()), rstd_exact(static_cast<size_t>(num_rows));
  Doubles normalised_error(x.size()), rstd_error(rstd_exact);  // first-order bounds, like all bounds below
  const auto index = [&](int64_t r, int64_t i) { return static_cast<size_t>(r * size + i); };
  const double count = static_cast<double>(size);
  for (int64_t r = 0; r < num_rows; ++r) {
    double mean_exact = 0, mean_magnitude = 0, mean_error = 0, variance = 0, variance_error = 0;
    Doubles sum_error;
    for (int64_t i = 0; i < size; ++i) {
      const size_t k = index(r, i);
      const double first = static_cast<double>(x[k]), second = factors[k] * to_double(y[k]);
      exact_sum[k] = first + second;
      sum_error.push_back(2 * kFp32UnitRoundoff * (std::abs(first) + std::abs(second)));
      if (is_rms) continue;
      mean_exact += exact_sum[k] / count, mean_magnitude += std::abs(exact_sum[k]) / count,
          mean_error += sum_error.back() / count;
    }
    mean_error += kFp32UnitRoundoff * (num_additions(size) + 2) * mean_magnitude;
    for (int64_t i = 0; i < size; ++i) {
      const double distance = std::abs(exact_sum[index(r, i)] - mean_exact);
      variance += distance * distance / count;
      variance_error +=
          2 * distance * (sum_error[static_cast<size_t>(i)] + mean_error + 2 * kFp32UnitRoundoff * distance) / count;
    }
    variance_error += kFp32UnitRoundoff * (num_additions(size) + 2) * variance;
    const double f = rstd_exact[static_cast<size_t>(r)] = 1 / std::sqrt(variance + 1e-3);
    const double f_error = rstd_error[static_cast<size_t>(r)] =
        f * f * f * variance_error / 2 + 4 * kFp32UnitRoundoff * f;
    for (int64_t i = 0; i < size; ++i) {
      const size_t k = index(r, i);
      const double distance = std::abs(exact_sum[k] - mean_exact), error = sum_error[static_cast<size_t>(i)];
      normalised[k] = (exact_sum[k] - mean_exact) * f;
      normalised_error[k] = f * (error + mean_error + 2 * kFp32UnitRoundoff * distance) + distance * f_error;
      const double w = at(weight, i), b = has_bias ? at(bias, i) : 0;
      if (has_sum) expect_near(at(sum, r * size + i), exact_sum[k], error, "sum");
      if (has_norm)
        expect_near(
            at(norm, r * size + i), normalised[k] * w + b,
            std::abs(w) * normalised_error[k] + 2 * kFp32UnitRoundoff * (std::abs(normalised[k] * w) + std::abs(b)),
            "norm");
    }
    if (t.rstd == nullptr) continue;
    if (!is_rms) expect_near(at(mean, r), mean_exact, mean_error, "mean");
    expect_near(at(rstd, r), f, f_error, "rstd");
  }

  if (!has_sum) return;
  const bool has_dnorm = has_norm && pick(0, 3) > 0, has_dsum = !has_dnorm || pick(0, 1) == 1;
  const auto dnorm = random_values<float>(num_elements), dsum = random_values<float>(num_elements);
  const bool shares_gradient = std::is_same_v<Y, float> && params.dropout == nullptr && pick(0, 1) == 1;
  const int64_t num_chunks = mh::ceil_div(num_rows, chunk_rows);
  std::vector<float> dx(x.size(), NAN), dweight(static_cast<size_t>(num_chunks * size), NAN), dbias = dweight;
  std::vector<Y> dy(y.size(), from_double<Y>(NAN));
  if (has_dnorm) t.dnorm = dnorm.data();
  if (has_dsum) t.dsum = dsum.data();
  t.dx = dx.data(), t.dy = shares_gradient ? nullptr : dy.data(), t.dweight = dweight.data();
  if (has_bias) t.dbias = dbias.data();
  RC_ASSERT(sum_norm_backward<Y>(launcher, params, t) == nullptr);

  Doubles dweight_exact(dweight.size()), dbias_exact(dbias.size()), dweight_error(dweight_exact),
      dbias_error(dbias_exact);
  for (int64_t r = 0; r < num_rows; ++r) {
    // Means over the row of dw = dnorm ∘ weight (g) and of dw ∘ normalised (gs), and the bounds on their errors.
    double g = 0, gs = 0, g_error = 0, gs_error = 0;
    for (int64_t i = 0; has_dnorm && i < size; ++i) {
      const size_t k = index(r, i), c = static_cast<size_t>(r / chunk_rows * size + i);
      const double d = static_cast<double>(dnorm[k]), dw = d * at(weight, i);
      const double rounding = kFp32UnitRoundoff * (num_additions(size) + 3) * std::abs(dw) / count;
      if (!is_rms) g += dw / count, g_error += rounding;
      gs += dw * normalised[k] / count;
      gs_error += rounding * std::abs(normalised[k]) + std::abs(dw) * normalised_error[k] / count;
      dweight_exact[c] += d * normalised[k], dbias_exact[c] += d;
      const double row_rounding = kFp32UnitRoundoff * static_cast<double>(chunk_rows + 1) * std::abs(d);
      dweight_error[c] += row_rounding * std::abs(normalised[k]) + std::abs(d) * normalised_error[k];
      dbias_error[c] += row_rounding;
    }
    for (int64_t i = 0; i < size; ++i) {
      const size_t k = index(r, i);
      double d = has_dsum ? static_cast<double>(dsum[k]) : 0, error = 2 * kFp32UnitRoundoff * std::abs(d);
      const double f = rstd_exact[static_cast<size_t>(r)], f_error = rstd_error[static_cast<size_t>(r)];
      if (has_dnorm) {
        const double dw = static_cast<double>(dnorm[k]) * at(weight, i), inner = dw - g - normalised[k] * gs;
        const double term_magnitude = std::abs(dw) + std::abs(g) + std::abs(normalised[k] * gs);
        error += f * (5 * kFp32UnitRoundoff * term_magnitude + g_error + std::abs(normalised[k]) * gs_error +
                      std::abs(gs) * normalised_error[k]) +
                 std::abs(inner) * f_error;
        d += inner * f;
      }
      expect_near(static_cast<double>(dx[k]), d, error, "dx");
      if (!shares_gradient)
        expect_near(
            to_double(dy[k]), factors[k] * d,
            factors[k] * error + kFp32UnitRoundoff * std::abs(factors[k] * d) + rounding_error_bound<Y>(factors[k] * d),
            "dy");
    }
  }
  if (!has_dnorm) return;
  for (size_t c = 0; c < dweight_exact.size(); ++c) {
    expect_near(static_cast<double>(dweight[c]), dweight_exact[c], dweight_error[c], "weight's gradient");
    if (has_bias) expect_near(static_cast<double>(dbias[c]), dbias_exact[c], dbias_error[c], "bias's gradient");
  }
}

// Checks dropout of one or several runs of a stream at a random alignment.
template <class T>
void check_dropout() {
  const uint32_t key[2] = {5, 6};
  DropoutRange range;
  range.params = make_dropout(key, 7, 8, 0.4), range.stream_offset = static_cast<uint64_t>(pick(0, 1 << 20));
  const bool has_runs = pick(0, 1) == 1;
  range.run_size = has_runs ? pick(1, 40) : pick(0, 5000);
  if (has_runs) range.runs_per_head = pick(1, 5), range.num_heads = pick(1, 4);
  range.run_stride = range.run_size + pick(0, 100),
  range.head_stride = range.runs_per_head * range.run_stride + pick(0, 100);
  range.batch_stride = range.num_heads * range.head_stride + (int64_t{1} << pick(0, 40));
  const int64_t num_runs = has_runs ? pick(0, 3) * range.num_heads * range.runs_per_head : 1,
                count = num_runs * range.run_size, offset = pick(0, 3);
  const auto x = random_values<T>(count + offset);
  std::vector<T> y(static_cast<size_t>(count), from_double<T>(NAN));
  host::EmulatedGpu device;
  RC_ASSERT(dropout<T>(host::Launcher{device}, range, x.data() + offset, y.data(), count) == nullptr);
  for (int64_t run = 0; run < num_runs; ++run) {
    const int64_t t = run % range.runs_per_head, h = run / range.runs_per_head % range.num_heads,
                  b = run / range.runs_per_head / range.num_heads;
    const Doubles factors = dropout_factors(
        &range.params,
        range.stream_offset +
            static_cast<uint64_t>(b * range.batch_stride + h * range.head_stride + t * range.run_stride),
        range.run_size);
    for (int64_t i = 0; i < range.run_size; ++i) {
      const int64_t element = run * range.run_size + i;
      const double expected = factors[static_cast<size_t>(i)] * to_double(x[static_cast<size_t>(element + offset)]);
      expect_near(to_double(y[static_cast<size_t>(element)]), expected, rounding_error_bound<T>(expected), "element");
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("emulated GPU cross-entropy matches the reference equations over random rows", "[cuda]", float, Bf16,
                   Fp16) {
  CHECK(check_reduced("over random rows", [] { check_cross_entropy<TestType>(); }));
}

TEMPLATE_TEST_CASE("emulated GPU residual sum, dropout and norm match the reference equations", "[cuda]", float, Bf16,
                   Fp16) {
  CHECK(check_reduced("over random rows", [] { check_sum_norm<TestType>(); }));
}

TEMPLATE_TEST_CASE("emulated GPU dropout drops the same elements as the CPU", "[cuda]", float, Bf16, Fp16) {
  CHECK(check_reduced("over random ranges", [] { check_dropout<TestType>(); }));
}

TEST_CASE("the widest row of a norm fits into the 48 KiB of shared memory that every GPU has", "[cuda]") {
  CHECK(SumNormRows<float>::shared_bytes(kMaxSumNormWidth) <= 48 << 10);
}
