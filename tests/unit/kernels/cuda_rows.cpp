// The GPU's kernels of rows (cross-entropy; sum, dropout and layer norm), thread by thread on the CPU, against loops in
// double.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

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

constexpr double kUnit = tolerance::kFp32;  // all arithmetic is in fp32

// Half of the distance from `value` to its neighbours, which of subnormal numbers is that of the smallest one.
template <class T>
double rounding_at(double value) {
  constexpr double kSmallest = std::is_same_v<T, float> ? 0x1p-150 : std::is_same_v<T, Bf16> ? 0x1p-134 : 0x1p-25;
  return std::max(kUnitRoundoff<T> * std::abs(value), kSmallest);
}

template <class T>
std::vector<T> normal(int64_t count, double deviation = 1) {
  std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 30)));
  std::normal_distribution<double> draw(0, deviation);
  std::vector<T> all(static_cast<size_t>(count));
  for (T& x : all) x = from_double<T>(draw(random));
  return all;
}

// A width of a warp's or of a block's, often not a multiple of four.
int64_t drawn_width(int64_t most) { return pick(0, 1) == 0 ? pick(1, 300) : pick(1025, most); }

// The additions that a term of a row's sum goes through: a lane's share of the row, lanes of a warp, warps of a block.
double additions(int64_t size) { return static_cast<double>(size) / 32 + 10; }

void near(double found, double wanted, double bound, const char* what) {
  if (std::abs(found - wanted) <= bound) return;
  RC_LOG() << what << ": " << found << " for " << wanted << ", bound " << bound << "\n";
  RC_FAIL("too far away");
}

template <class T>
void cross_entropy_case() {
  const int64_t rows = pick(1, 3), n = drawn_width(3000);
  const CrossEntropy how{n, pick(0, 1) == 0 ? 0.0F : 0.1F, pick(0, 2) > 0};
  std::vector<T> logits = normal<T>(rows * n, static_cast<double>(pick(1, 8)));
  if (n > 1 && pick(0, 3) == 0) logits[static_cast<size_t>(pick(0, rows * n - 1))] = from_double<T>(-INFINITY);
  const std::vector<T> given = logits;
  std::vector<int64_t> targets;
  for (int64_t r = 0; r < rows; ++r) targets.push_back(pick(0, 3) == 0 ? -1 - pick(0, 100) : pick(0, n - 1));
  std::vector<CrossEntropyRow> losses(static_cast<size_t>(rows), {NAN, NAN});
  host::Device device(static_cast<uint32_t>(pick(0, 9)));
  RC_ASSERT(cross_entropy<T>(host::Launcher{device}, how, rows, logits.data(), targets.data(), losses.data()) ==
            nullptr);

  const double e = static_cast<double>(how.smoothing), count = static_cast<double>(n);
  for (int64_t r = 0; r < rows; ++r) {
    const T *x = given.data() + r * n, *found = logits.data() + r * n;
    const int64_t target = targets[static_cast<size_t>(r)];
    const CrossEntropyRow& loss = losses[static_cast<size_t>(r)];
    double top = -INFINITY, sum = 0, total = 0, total_size = 0, spread = 0;
    for (int64_t i = 0; i < n; ++i) top = std::max(top, static_cast<double>(to_double(x[i])));
    for (int64_t i = 0; i < n; ++i) {
      const double logit = to_double(x[i]), p = std::exp(logit - top);
      sum += p, total += logit, total_size += std::abs(logit), spread += p > 0 ? p * (top - logit) : 0;
    }
    const double log_sum = top + std::log(sum);
    // Errors of the first order: of x - top, exp and the sum; of the logarithm, and of its sum with top.
    const double log_error = kUnit * (spread / sum + 4 + additions(n) + 2 * std::abs(top) + 2 * std::abs(log_sum));
    for (int64_t i = 0; i < n; ++i) {
      const double p = std::exp(to_double(x[i]) - log_sum), now = to_double(found[i]);
      const double wanted = target < 0 ? 0 : p - e / count - (i == target ? 1 - e : 0);
      const double terms = p + e / count + (i == target ? 1 - e : 0);
      const double p_error = p == 0 ? 0 : p * (log_error + kUnit * (std::abs(to_double(x[i]) - log_sum) + 4));
      if (how.gradient) near(now, wanted, rounding_at<T>(wanted) + p_error + 3 * kUnit * terms, "gradient");
      else RC_ASSERT(to_double(found[i]) == to_double(x[i]));
    }
    const double nll = target < 0 ? 0 : log_sum - to_double(x[target]);
    const double smoothed = target < 0 || e == 0 ? nll : (1 - e) * nll + e * (log_sum - total / count);
    const double nll_error = log_error + kUnit * std::abs(nll);
    const double smoothed_error = target < 0 || e == 0
                                      ? nll_error
                                      : nll_error + kUnit * (3 * (std::abs(nll) + std::abs(log_sum)) +
                                                             (additions(n) + 3) * e * total_size / count);
    if (std::isfinite(nll)) near(loss.nll, nll, nll_error, "nll");
    else RC_ASSERT(loss.nll == nll);
    if (std::isfinite(smoothed)) near(loss.smoothed, smoothed, smoothed_error, "smoothed");
    else RC_ASSERT(loss.smoothed == smoothed);
  }
}

// What becomes of y is y by this factor: 0, or 1 / (1 - p).
Doubles kept(const Dropout* how, uint64_t first, int64_t count) {
  std::vector<float> ones(static_cast<size_t>(count), 1), some = ones;
  if (how != nullptr) dropout(*how, first, ones.data(), some.data(), count);
  return {some.begin(), some.end()};
}

double at(const std::vector<float>& x, int64_t i) { return static_cast<double>(x[static_cast<size_t>(i)]); }

template <class Y>
void sum_norm_case() {
  const int64_t rows = pick(1, 5), size = drawn_width(1300), piece = pick(1, 3), all = rows * size;
  const uint32_t key[2] = {1, 2};
  const Dropout drops = make_dropout(key, 3, 4, 0.3);
  const auto x = normal<float>(all), weight = normal<float>(size), bias = normal<float>(size);
  const auto y = normal<Y>(all);
  SumNorm how{size, weight.data(), bias.data(), 1e-3F, nullptr, 0};
  if (pick(0, 1) == 1) how.dropout = &drops, how.dropout_first = static_cast<uint64_t>(pick(0, 9));
  const Doubles keeps = kept(how.dropout, how.dropout_first, all);
  const bool norms = pick(0, 3) > 0, sums = !norms || pick(0, 1) == 1;
  std::vector<float> sum(x.size(), NAN), norm(x.size(), NAN), mean(static_cast<size_t>(rows), NAN), factor = mean;
  SumNormTensors t;
  t.rows = rows, t.x = x.data(), t.y = y.data(), t.piece = piece;
  if (sums) t.sum = sum.data();
  if (norms) t.norm = norm.data();
  if (norms && sums) t.mean = mean.data(), t.factor = factor.data();
  host::Device device(static_cast<uint32_t>(pick(0, 9)));
  const host::Launcher launcher{device};
  RC_ASSERT(sum_norm<Y>(launcher, how, t) == nullptr);

  Doubles s(x.size()), normed(x.size()), by(static_cast<size_t>(rows));
  Doubles normed_error(x.size()), by_error(by);  // of the first order, as all bounds below
  const auto place = [&](int64_t r, int64_t i) { return static_cast<size_t>(r * size + i); };
  const double count = static_cast<double>(size);
  for (int64_t r = 0; r < rows; ++r) {
    double middle = 0, middle_size = 0, middle_error = 0, square = 0, square_error = 0;
    Doubles sum_error;
    for (int64_t i = 0; i < size; ++i) {
      const size_t k = place(r, i);
      const double first = static_cast<double>(x[k]), second = keeps[k] * to_double(y[k]);
      s[k] = first + second;
      sum_error.push_back(2 * kUnit * (std::abs(first) + std::abs(second)));
      middle += s[k] / count, middle_size += std::abs(s[k]) / count, middle_error += sum_error.back() / count;
    }
    middle_error += kUnit * (additions(size) + 2) * middle_size;
    for (int64_t i = 0; i < size; ++i) {
      const double distance = std::abs(s[place(r, i)] - middle);
      square += distance * distance / count;
      square_error += 2 * distance * (sum_error[static_cast<size_t>(i)] + middle_error + 2 * kUnit * distance) / count;
    }
    square_error += kUnit * (additions(size) + 2) * square;
    const double f = by[static_cast<size_t>(r)] = 1 / std::sqrt(square + 1e-3);
    const double f_error = by_error[static_cast<size_t>(r)] = f * f * f * square_error / 2 + 4 * kUnit * f;
    for (int64_t i = 0; i < size; ++i) {
      const size_t k = place(r, i);
      const double distance = std::abs(s[k] - middle), error = sum_error[static_cast<size_t>(i)];
      normed[k] = (s[k] - middle) * f;
      normed_error[k] = f * (error + middle_error + 2 * kUnit * distance) + distance * f_error;
      const double w = at(weight, i), b = at(bias, i);
      if (sums) near(at(sum, r * size + i), s[k], error, "sum");
      if (norms)
        near(at(norm, r * size + i), normed[k] * w + b,
             std::abs(w) * normed_error[k] + 2 * kUnit * (std::abs(normed[k] * w) + std::abs(b)), "norm");
    }
    if (t.mean == nullptr) continue;
    near(at(mean, r), middle, middle_error, "mean");
    near(at(factor, r), f, f_error, "factor");
  }

  if (!sums) return;
  const bool of_norm = norms && pick(0, 3) > 0, of_sum = !of_norm || pick(0, 1) == 1;
  const auto dnorm = normal<float>(all), dsum = normal<float>(all);
  const bool one = std::is_same_v<Y, float> && how.dropout == nullptr && pick(0, 1) == 1;
  const int64_t pieces = (rows + piece - 1) / piece;
  std::vector<float> dx(x.size(), NAN), dweight(static_cast<size_t>(pieces * size), NAN), dbias = dweight;
  std::vector<Y> dy(y.size(), from_double<Y>(NAN));
  if (of_norm) t.dnorm = dnorm.data();
  if (of_sum) t.dsum = dsum.data();
  t.dx = dx.data(), t.dy = one ? nullptr : dy.data(), t.dweight = dweight.data(), t.dbias = dbias.data();
  RC_ASSERT(sum_norm_backward<Y>(launcher, how, t) == nullptr);

  Doubles of_weight(dweight.size()), of_bias(dbias.size()), weight_error(of_weight), bias_error(of_bias);
  for (int64_t r = 0; r < rows; ++r) {
    double g = 0, gs = 0, g_error = 0, gs_error = 0;
    for (int64_t i = 0; of_norm && i < size; ++i) {
      const size_t k = place(r, i), c = static_cast<size_t>(r / piece * size + i);
      const double d = static_cast<double>(dnorm[k]), dw = d * at(weight, i);
      const double rounding = kUnit * (additions(size) + 3) * std::abs(dw) / count;
      g += dw / count, gs += dw * normed[k] / count;
      g_error += rounding, gs_error += rounding * std::abs(normed[k]) + std::abs(dw) * normed_error[k] / count;
      of_weight[c] += d * normed[k], of_bias[c] += d;
      const double row_rounding = kUnit * static_cast<double>(piece + 1) * std::abs(d);
      weight_error[c] += row_rounding * std::abs(normed[k]) + std::abs(d) * normed_error[k];
      bias_error[c] += row_rounding;
    }
    for (int64_t i = 0; i < size; ++i) {
      const size_t k = place(r, i);
      double d = of_sum ? static_cast<double>(dsum[k]) : 0, error = 2 * kUnit * std::abs(d);
      const double f = by[static_cast<size_t>(r)], f_error = by_error[static_cast<size_t>(r)];
      if (of_norm) {
        const double dw = static_cast<double>(dnorm[k]) * at(weight, i), inner = dw - g - normed[k] * gs;
        const double terms = std::abs(dw) + std::abs(g) + std::abs(normed[k] * gs);
        error += f * (5 * kUnit * terms + g_error + std::abs(normed[k]) * gs_error + std::abs(gs) * normed_error[k]) +
                 std::abs(inner) * f_error;
        d += inner * f;
      }
      near(static_cast<double>(dx[k]), d, error, "dx");
      if (!one)
        near(to_double(dy[k]), keeps[k] * d,
             keeps[k] * error + kUnit * std::abs(keeps[k] * d) + rounding_at<Y>(keeps[k] * d), "dy");
    }
  }
  if (!of_norm) return;
  for (size_t c = 0; c < of_weight.size(); ++c) {
    near(static_cast<double>(dweight[c]), of_weight[c], weight_error[c], "weight's gradient");
    near(static_cast<double>(dbias[c]), of_bias[c], bias_error[c], "bias's gradient");
  }
}

template <class T>
void dropout_case() {
  const int64_t count = pick(0, 5000), skip = pick(0, 3);
  const uint32_t key[2] = {5, 6};
  const Dropout how = make_dropout(key, 7, 8, 0.4);
  const auto first = static_cast<uint64_t>(pick(0, 1 << 20));
  const auto x = normal<T>(count + skip);
  std::vector<T> y(static_cast<size_t>(count), from_double<T>(NAN));
  host::Device device;
  RC_ASSERT(dropout<T>(host::Launcher{device}, how, first, x.data() + skip, y.data(), count) == nullptr);
  const Doubles keeps = kept(&how, first, count);
  for (int64_t i = 0; i < count; ++i) {
    const double wanted = keeps[static_cast<size_t>(i)] * to_double(x[static_cast<size_t>(i + skip)]);
    near(to_double(y[static_cast<size_t>(i)]), wanted, rounding_at<T>(wanted), "element");
  }
}

}  // namespace

TEMPLATE_TEST_CASE("cross-entropy of rows on a GPU", "[cuda]", float, Bf16, Fp16) {
  CHECK(check_few("over random rows", [] { cross_entropy_case<TestType>(); }));
}

TEMPLATE_TEST_CASE("sum, dropout and layer norm of rows on a GPU", "[cuda]", float, Bf16, Fp16) {
  CHECK(check_few("over random rows", [] { sum_norm_case<TestType>(); }));
}

TEMPLATE_TEST_CASE("dropout on a GPU takes the decisions of the CPU's", "[cuda]", float, Bf16, Fp16) {
  CHECK(check_few("over random places", [] { dropout_case<TestType>(); }));
}

TEST_CASE("the widest rows of sums and norms fit what every GPU gives a block", "[cuda]") {
  CHECK(SumNormRows<float>::bytes(kMaxSumNormWidth) <= 48 << 10);
}
