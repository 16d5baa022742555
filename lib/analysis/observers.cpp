// Forwards each call to all observers.
#include "analysis/observers.h"

#include <algorithm>

namespace mh::analysis {

void Observers::begin(const attention::Lengths& lengths) {
  for (auto* part : parts_) part->begin(lengths);
}

bool Observers::wants_scores() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const auto* part) { return part->wants_scores(); });
}

void Observers::scores(const attention::LayerSpec& layer_spec, const at::Tensor& x) {
  for (auto* part : parts_) part->scores(layer_spec, x);
}

void Observers::probabilities(const attention::LayerSpec& layer_spec, const at::Tensor& p) {
  for (auto* part : parts_) part->probabilities(layer_spec, p);
}

at::Tensor Observers::heads(attention::HeadSide side, const attention::LayerSpec& layer_spec, const at::Tensor& x) {
  at::Tensor result = x;
  for (auto* part : parts_) result = part->heads(side, layer_spec, result);
  return result;
}

const char* Observers::needs_composed() const {
  for (const auto* part : parts_)
    if (const char* reason = part->needs_composed()) return reason;
  return nullptr;
}

void Observers::each(const std::function<void(attention::Observer&)>& visit) {
  for (auto* part : parts_) part->each(visit);
}

}  // namespace mh::analysis
