// Tensors of normal numbers, and how far results are from what they should be.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

namespace numbers {

using Vector = std::vector<double>;

inline Vector doubles(const at::Tensor& t) {
  at::Tensor d = t.detach().to(at::kDouble).contiguous();
  return {d.const_data_ptr<double>(), d.const_data_ptr<double>() + d.numel()};
}

inline at::Tensor normal(std::vector<int64_t> shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::TensorOptions().dtype(at::kFloat));
}

// The largest difference of tensors of one size, and the largest number; 0 of none.
inline double error(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes().equals(b.sizes()));
  return a.numel() == 0 ? 0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}
inline double size_of(const at::Tensor& a) { return a.numel() == 0 ? 0 : a.to(at::kDouble).abs().max().item<double>(); }

// Largest difference, relative to the largest number wanted, or to 1 where that is smaller; infinite where a number
// that is none is among them.
inline double worst(const Vector& found, const Vector& wanted) {
  REQUIRE(found.size() == wanted.size());
  double difference = 0, size = 1;
  for (size_t i = 0; i < found.size(); ++i) {
    const double here = std::abs(found[i] - wanted[i]);
    difference = std::isnan(here) ? HUGE_VAL : std::max(difference, here);
    size = std::max(size, std::abs(wanted[i]));
  }
  return difference / size;
}

inline bool close(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-5) {
  return at::allclose(a, b, 10 * tolerance, tolerance);
}

}  // namespace numbers
