// The GPU kernels that update many parameters by the rule of an optimiser, and that sum the squares of many tensors,
// run in the emulator and compared with naive loops in double precision.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "cuda/optimizer_updates.h"
#include "emulator/cuda_cases.h"
#include "emulator/host_launcher.h"
#include "fixtures/reduced_cases.h"
#include "oracle/tolerance.h"

using namespace mh::kernels;
using cuda_cases::pick;

namespace {

std::vector<float> random_values(int64_t count) {
  std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 30)));
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = normal(random);
  return values;
}

// Returns a random number of elements of a tensor: sometimes up to two chunks (kUpdateChunkSize), usually at most 50,
// so that cases of up to 100 tensors run fast; one launch processes at most 40 tensors.
int64_t random_count() { return pick(0, 30) == 0 ? pick(kUpdateChunkSize - 5, 2 * kUpdateChunkSize) : pick(0, 50); }

struct Tensor {
  std::vector<float> p, g, first_moment, second_moment;
  std::vector<uint16_t> bf16_copy;
};

float random_fraction() { return static_cast<float>(pick(1, 99)) / 100; }
AdamParams random_params(AdamParams) {
  return {random_fraction(), random_fraction(), random_fraction(), 1e-3F,
          random_fraction(), random_fraction(), random_fraction(), random_fraction()};
}
MomentumParams random_params(MomentumParams) {
  return {random_fraction(), random_fraction(), random_fraction(), random_fraction()};
}
NagParams random_params(NagParams) {
  return {random_fraction(), random_fraction(), random_fraction(), random_fraction(), random_fraction()};
}

// The state of one element. step_element() returns the state after one step of the optimiser, by the formulas of the
// update rule.
struct Element {
  double p, g, first_moment, second_moment;
};
Element step_element(const AdamParams& params, const Element& x) {
  const double g = params.gradient_scale * x.g, m = params.beta1 * x.first_moment + (1.0 - params.beta1) * g,
               v = params.beta2 * x.second_moment + (1.0 - params.beta2) * g * g;
  return {x.p - params.lr_weight_decay * x.p -
              params.lr / params.bias_correction1 * m /
                  (std::sqrt(v) / std::sqrt(params.bias_correction2) + params.epsilon),
          x.g, m, v};
}
Element step_element(const MomentumParams& params, const Element& x) {
  const double buffer = params.momentum * x.first_moment + params.gradient_scale * x.g + params.weight_decay * x.p;
  return {x.p - params.lr * buffer, x.g, buffer, x.second_moment};
}
Element step_element(const NagParams& params, const Element& x) {
  const double step = static_cast<double>(params.lr) * params.gradient_scale * x.g, m = params.momentum,
               c = params.lr_ratio;
  return {x.p * (1.0 - params.lr_weight_decay) + m * m * c * x.first_moment - (1 + m) * step, x.g,
          m * c * x.first_moment - step, x.second_moment};
}

// Returns, for each value of an element after the step, the sum of the absolute values of its terms; 0 for the
// gradient, which is not updated. The coefficients in `params` must be positive.
Element magnitudes(const AdamParams& params, const Element& x) {
  const Element sums = step_element(params, {0, std::abs(x.g), std::abs(x.first_moment), x.second_moment});
  return {std::abs(x.p) * (1.0 + params.lr_weight_decay) - sums.p, 0, sums.first_moment, sums.second_moment};
}
Element magnitudes(const MomentumParams& params, const Element& x) {
  const double buffer = step_element(params, {std::abs(x.p), std::abs(x.g), std::abs(x.first_moment), 0}).first_moment;
  return {std::abs(x.p) + params.lr * buffer, 0, buffer, x.second_moment};
}
Element magnitudes(const NagParams& params, const Element& x) {
  const Element sums = step_element(params, {0, -std::abs(x.g), std::abs(x.first_moment), 0});
  return {std::abs(x.p) * (1.0 + params.lr_weight_decay) + sums.p, 0, sums.first_moment, x.second_moment};
}

// Checks a value after a step of the optimiser, which computes each value with at most 20 roundings.
void expect_near(float actual, double expected, double magnitude) {
  RC_LOG() << "expected " << expected << "; found " << actual << "\n";
  RC_ASSERT(std::abs(static_cast<double>(actual) - expected) <= tolerance::sum_error_bound(20, 0, magnitude));
}

// Checks the updates of a random number of tensors.
template <class Params>
void check_updates() {
  const auto num_tensors = static_cast<size_t>(pick(0, 100));
  std::vector<Tensor> tensors;
  std::vector<Update<Params>> updates;
  for (size_t i = 0; i < num_tensors; ++i) {
    const int64_t n = random_count();
    Tensor t{random_values(n), random_values(n), random_values(n), random_values(n), {}};
    for (float& x : t.second_moment) x *= x;  // Adam's second moment is not negative
    if (pick(0, 1) == 1) t.bf16_copy.resize(t.p.size());
    tensors.push_back(std::move(t));
  }
  const std::vector<Tensor> initial_tensors = tensors;
  for (Tensor& t : tensors)
    updates.push_back({random_params(Params{}), static_cast<int64_t>(t.p.size()), t.p.data(), t.g.data(),
                       t.first_moment.data(), UpdateRule<Params>::kHasSecondMoment ? t.second_moment.data() : nullptr,
                       t.bf16_copy.empty() ? nullptr : t.bf16_copy.data()});
  host::EmulatedGpu device(static_cast<uint32_t>(pick(0, 9)));
  RC_ASSERT(update(host::Launcher{device}, updates.data(), static_cast<int64_t>(num_tensors)) == nullptr);
  for (size_t i = 0; i < num_tensors; ++i)
    for (size_t k = 0; k < tensors[i].p.size(); ++k) {
      const Tensor &old_tensor = initial_tensors[i], &new_tensor = tensors[i];
      const Element element{old_tensor.p[k], old_tensor.g[k], old_tensor.first_moment[k], old_tensor.second_moment[k]};
      const Element expected = step_element(updates[i].params, element),
                    magnitude = magnitudes(updates[i].params, element);
      expect_near(new_tensor.p[k], expected.p, magnitude.p);
      expect_near(new_tensor.first_moment[k], expected.first_moment, magnitude.first_moment);
      expect_near(new_tensor.second_moment[k], expected.second_moment, magnitude.second_moment);
      RC_ASSERT(new_tensor.g[k] == old_tensor.g[k]);
      if (!new_tensor.bf16_copy.empty()) RC_ASSERT(new_tensor.bf16_copy[k] == host::narrow(new_tensor.p[k], Bf16{}));
    }
}

}  // namespace

TEMPLATE_TEST_CASE("emulated GPU optimisers update every tensor by the formulas of the update rule", "[cuda]",
                   AdamParams, MomentumParams, NagParams) {
  CHECK(check_reduced("over random tensors", [] { check_updates<TestType>(); }));
}

TEST_CASE("emulated GPU sums of squares equal sums in double precision", "[cuda]") {
  CHECK(check_reduced("over random tensors", [] {
    std::vector<std::vector<float>> tensors;
    std::vector<FloatSpan> spans;
    std::vector<double> expected;
    for (int64_t i = pick(0, 100); i > 0; --i) tensors.push_back(random_values(random_count()));
    for (const auto& t : tensors) {
      spans.push_back({static_cast<int64_t>(t.size()), t.data()});
      for (size_t first = 0; first < t.size(); first += kUpdateChunkSize) {
        double sum = 0;
        for (size_t k = first; k < std::min(t.size(), first + kUpdateChunkSize); ++k)
          sum += static_cast<double>(t[k]) * static_cast<double>(t[k]);
        expected.push_back(sum);
      }
    }
    std::vector<double> sums(expected.size(), NAN);
    host::EmulatedGpu device(static_cast<uint32_t>(pick(0, 9)));
    RC_ASSERT(sum_of_squares(host::Launcher{device}, spans.data(), static_cast<int64_t>(spans.size()), sums.data()) ==
              nullptr);
    // Bound on the relative difference of two sums of the same squares in double precision.
    const double bound = 2.0 * static_cast<double>(kUpdateChunkSize) * 0x1p-53;
    for (size_t i = 0; i < sums.size(); ++i) RC_ASSERT(std::abs(sums[i] - expected[i]) <= bound * expected[i]);
  }));
}
