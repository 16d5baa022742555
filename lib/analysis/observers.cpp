#include "analysis/observers.h"

namespace mh::analysis {

void Observers::begin(const at::Tensor& lengths) {
  for (auto* part : parts_) part->begin(lengths);
}

void Observers::probabilities(const attention::Shape& shape, const at::Tensor& p) {
  for (auto* part : parts_) part->probabilities(shape, p);
}

at::Tensor Observers::head_outputs(const attention::Shape& shape, const at::Tensor& z) {
  at::Tensor result = z;
  for (auto* part : parts_) result = part->head_outputs(shape, result);
  return result;
}

void Observers::mixing(const attention::Shape& shape, const at::Tensor& m) {
  for (auto* part : parts_) part->mixing(shape, m);
}

void Observers::gates(const attention::Shape& shape, const at::Tensor& g) {
  for (auto* part : parts_) part->gates(shape, g);
}

void Observers::routing(const attention::Shape& shape, const at::Tensor& probabilities, const at::Tensor& chosen) {
  for (auto* part : parts_) part->routing(shape, probabilities, chosen);
}

}  // namespace mh::analysis
