#include "cpu/cross_entropy.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/target.h"

namespace mh::kernels {

namespace {

// e^x for x <= 0, to about 1 unit in the last place; below -87 it is 0. Cody–Waite reduction and a polynomial, so that
// compilers make vectors of it.
inline __attribute__((always_inline)) float exp_negative(float x) {
  float clamped = x < -87.0F ? -87.0F : x;
  float n = std::floor(clamped * 1.44269504F + 0.5F);
  float r = clamped - n * 0.693359375F;
  r -= n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return x < -87.0F ? 0.0F : p * power;
}

constexpr int kLanes = 32;  // independent sums, added up in a fixed order: the same bits on every processor

}  // namespace

MH_VECTOR_LOOP
static float largest(const float* x, int64_t n) {
  float lane[kLanes];
  for (float& l : lane) l = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
  for (; i < n; ++i) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
  float m = lane[0];
  for (float l : lane) m = l > m ? l : m;
  return m;
}

MH_VECTOR_LOOP
static void sums(const float* x, int64_t n, float largest_value, double* exponentials, double* plain) {
  double e_total = 0, x_total = 0;
  int64_t i = 0;
  while (i + kLanes <= n) {
    // Short runs in fp32, joined in fp64, so that long rows lose nothing.
    float e[kLanes] = {}, s[kLanes] = {};
    for (int step = 0; step < 16 && i + kLanes <= n; ++step, i += kLanes)
      for (int k = 0; k < kLanes; ++k) {
        float v = x[i + k];
        e[k] += exp_negative(v - largest_value);
        s[k] += v;
      }
    for (int k = 0; k < kLanes; ++k) {
      e_total += static_cast<double>(e[k]);
      x_total += static_cast<double>(s[k]);
    }
  }
  for (; i < n; ++i) {
    e_total += static_cast<double>(exp_negative(x[i] - largest_value));
    x_total += static_cast<double>(x[i]);
  }
  *exponentials = e_total;
  *plain = x_total;
}

MH_VECTOR_LOOP
static void write_gradient(float* x, int64_t n, float largest_value, float inverse_sum, float shift) {
  for (int64_t i = 0; i < n; ++i) x[i] = exp_negative(x[i] - largest_value) * inverse_sum - shift;
}

void cross_entropy_rows(const CrossEntropyPlan& plan, int64_t rows, const int64_t* target, float* logits, float* nll,
                        float* mean, bool gradient) {
  for (int64_t r = 0; r < rows; ++r) {
    float* x = logits + r * plan.stride;
    if (target[r] < 0) {
      nll[r] = mean[r] = 0;
      if (gradient) std::memset(x, 0, sizeof(float) * static_cast<size_t>(plan.stride));
      continue;
    }
    const int64_t n = plan.columns;
    float m = largest(x, n);
    double exponentials = 0, plain = 0;
    sums(x, n, m, &exponentials, &plain);
    double log_sum = static_cast<double>(m) + std::log(exponentials);
    nll[r] = static_cast<float>(log_sum - static_cast<double>(x[target[r]]));
    mean[r] = static_cast<float>(log_sum - plain / static_cast<double>(n));
    if (!gradient) continue;
    write_gradient(x, n, m, static_cast<float>(1 / exponentials), plan.smoothing / static_cast<float>(n));
    x[target[r]] -= 1 - plan.smoothing;
    for (int64_t i = n; i < plan.stride; ++i) x[i] = 0;
  }
}

}  // namespace mh::kernels
