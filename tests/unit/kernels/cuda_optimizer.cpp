// The GPU's optimiser kernels over many tensors, thread by thread on the CPU, against loops in double.
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
using cuda_cases::to_double;

namespace {

std::vector<float> normal(int64_t count) {
  std::mt19937 random(static_cast<uint32_t>(pick(0, 1 << 30)));
  std::normal_distribution<float> draw(0, 1);
  std::vector<float> all(static_cast<size_t>(count));
  for (float& x : all) x = draw(random);
  return all;
}

// Most are small, so that there may be more than a launch takes; one may have several chunks.
int64_t drawn_count() { return pick(0, 30) == 0 ? pick(kUpdateChunk - 5, 2 * kUpdateChunk) : pick(0, 50); }

struct Tensor {
  std::vector<float> p, g, first, second;
  std::vector<uint16_t> copy;
};

float drawn() { return static_cast<float>(pick(1, 99)) / 100; }
AdamPlan plan(AdamPlan) { return {drawn(), drawn(), drawn(), 1e-3F, drawn(), drawn(), drawn(), drawn()}; }
MomentumPlan plan(MomentumPlan) { return {drawn(), drawn(), drawn(), drawn()}; }
NagPlan plan(NagPlan) { return {drawn(), drawn(), drawn(), drawn(), drawn()}; }

// The rules' formulas once more.
struct Number {
  double p, g, first, second;
};
Number after(const AdamPlan& a, const Number& x) {
  const double g = a.scale * x.g, m = a.beta1 * x.first + (1.0 - a.beta1) * g,
               v = a.beta2 * x.second + (1.0 - a.beta2) * g * g;
  return {x.p - a.decay * x.p - a.lr / a.correction1 * m / (std::sqrt(v) / std::sqrt(a.correction2) + a.epsilon), x.g,
          m, v};
}
Number after(const MomentumPlan& a, const Number& x) {
  const double buffer = a.momentum * x.first + a.scale * x.g + a.decay * x.p;
  return {x.p - a.lr * buffer, x.g, buffer, x.second};
}
Number after(const NagPlan& a, const Number& x) {
  const double step = static_cast<double>(a.lr) * a.scale * x.g, m = a.momentum, c = a.correction;
  return {x.p * (1.0 - a.decay) + m * m * c * x.first - (1 + m) * step, x.g, m * c * x.first - step, x.second};
}

// The numbers after a step if all terms of a sum had one sign; coefficients of the plans are positive.
Number sizes(const AdamPlan& a, const Number& x) {
  const Number all = after(a, {0, std::abs(x.g), std::abs(x.first), x.second});
  return {std::abs(x.p) * (1.0 + a.decay) - all.p, 0, all.first, all.second};
}
Number sizes(const MomentumPlan& a, const Number& x) {
  const double buffer = after(a, {std::abs(x.p), std::abs(x.g), std::abs(x.first), 0}).first;
  return {std::abs(x.p) + a.lr * buffer, 0, buffer, x.second};
}
Number sizes(const NagPlan& a, const Number& x) {
  const Number all = after(a, {0, -std::abs(x.g), std::abs(x.first), 0});
  return {std::abs(x.p) * (1.0 + a.decay) + all.p, 0, all.first, x.second};
}

// Each number is at most 20 roundings away from those before the step.
void near(float found, double wanted, double size) {
  RC_LOG() << found << " for " << wanted << "\n";
  RC_ASSERT(std::abs(static_cast<double>(found) - wanted) <= tolerance::of_sum(20, 0, size));
}

template <class Plan>
void update_case() {
  const auto count = static_cast<size_t>(pick(0, 100));
  std::vector<Tensor> tensors;
  std::vector<Update<Plan>> updates;
  for (size_t i = 0; i < count; ++i) {
    const int64_t n = drawn_count();
    Tensor t{normal(n), normal(n), normal(n), normal(n), {}};
    for (float& x : t.second) x *= x;  // Adam's: of squares
    if (pick(0, 1) == 1) t.copy.resize(t.p.size());
    tensors.push_back(std::move(t));
  }
  const std::vector<Tensor> before = tensors;
  for (Tensor& t : tensors)
    updates.push_back({plan(Plan{}), static_cast<int64_t>(t.p.size()), t.p.data(), t.g.data(), t.first.data(),
                       UpdateRule<Plan>::kHasSecond ? t.second.data() : nullptr,
                       t.copy.empty() ? nullptr : t.copy.data()});
  host::Device device(static_cast<uint32_t>(pick(0, 9)));
  RC_ASSERT(update(host::Launcher{device}, updates.data(), static_cast<int64_t>(count)) == nullptr);
  for (size_t i = 0; i < count; ++i)
    for (size_t k = 0; k < tensors[i].p.size(); ++k) {
      const Tensor &was = before[i], &is = tensors[i];
      const Number start{was.p[k], was.g[k], was.first[k], was.second[k]};
      const Number wanted = after(updates[i].plan, start), size = sizes(updates[i].plan, start);
      near(is.p[k], wanted.p, size.p);
      near(is.first[k], wanted.first, size.first);
      near(is.second[k], wanted.second, size.second);
      RC_ASSERT(is.g[k] == was.g[k]);
      if (!is.copy.empty()) RC_ASSERT(is.copy[k] == host::narrow(is.p[k], Bf16{}));
    }
}

}  // namespace

TEMPLATE_TEST_CASE("optimisers on a GPU step all tensors at once", "[cuda]", AdamPlan, MomentumPlan, NagPlan) {
  CHECK(check_few("over random tensors", [] { update_case<TestType>(); }));
}

TEST_CASE("sums of squares on a GPU", "[cuda]") {
  CHECK(check_few("over random tensors", [] {
    std::vector<std::vector<float>> tensors;
    std::vector<FloatSpan> numbers;
    std::vector<double> wanted;
    for (int64_t i = pick(0, 100); i > 0; --i) tensors.push_back(normal(drawn_count()));
    for (const auto& t : tensors) {
      numbers.push_back({static_cast<int64_t>(t.size()), t.data()});
      for (size_t first = 0; first < t.size(); first += kUpdateChunk) {
        double sum = 0;
        for (size_t k = first; k < std::min(t.size(), first + kUpdateChunk); ++k)
          sum += static_cast<double>(t[k]) * static_cast<double>(t[k]);
        wanted.push_back(sum);
      }
    }
    std::vector<double> sums(wanted.size(), NAN);
    host::Device device(static_cast<uint32_t>(pick(0, 9)));
    RC_ASSERT(squares(host::Launcher{device}, numbers.data(), static_cast<int64_t>(numbers.size()), sums.data()) ==
              nullptr);
    // Two sums of the same squares, both in double.
    const double bound = 2.0 * static_cast<double>(kUpdateChunk) * 0x1p-53;
    for (size_t i = 0; i < sums.size(); ++i) RC_ASSERT(std::abs(sums[i] - wanted[i]) <= bound * wanted[i]);
  }));
}
