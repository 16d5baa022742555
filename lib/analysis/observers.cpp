#include "analysis/observers.h"

#include <algorithm>

namespace mh::analysis {

void Observers::begin(const attention::Lengths& lengths) {
  for (auto* part : parts_) part->begin(lengths);
}

bool Observers::wants_scores() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const auto* part) { return part->wants_scores(); });
}

void Observers::scores(const attention::Shape& shape, const at::Tensor& x) {
  for (auto* part : parts_) part->scores(shape, x);
}

at::Tensor Observers::mixer_inputs(const attention::Shape& shape, const at::Tensor& x) {
  at::Tensor result = x;
  for (auto* part : parts_) result = part->mixer_inputs(shape, result);
  return result;
}

void Observers::probabilities(const attention::Shape& shape, const at::Tensor& p) {
  for (auto* part : parts_) part->probabilities(shape, p);
}

at::Tensor Observers::head_outputs(const attention::Shape& shape, const at::Tensor& z) {
  at::Tensor result = z;
  for (auto* part : parts_) result = part->head_outputs(shape, result);
  return result;
}

at::Tensor Observers::combined(const attention::Shape& shape, const at::Tensor& z) {
  at::Tensor result = z;
  for (auto* part : parts_) result = part->combined(shape, result);
  return result;
}

void Observers::mixing(const attention::Shape& shape, const at::Tensor& m) {
  for (auto* part : parts_) part->mixing(shape, m);
}

at::Tensor Observers::gates(const attention::Shape& shape, const at::Tensor& g) {
  at::Tensor result = g;
  for (auto* part : parts_) result = part->gates(shape, result);
  return result;
}

void Observers::weights(const attention::Shape& shape, const at::Tensor& w) {
  for (auto* part : parts_) part->weights(shape, w);
}

void Observers::routing(const attention::Shape& shape, const at::Tensor& probabilities, const at::Tensor& chosen) {
  for (auto* part : parts_) part->routing(shape, probabilities, chosen);
}

}  // namespace mh::analysis
