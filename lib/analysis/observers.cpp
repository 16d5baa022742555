// Forwards each call to all observers.
#include "analysis/observers.h"

#include <algorithm>

namespace mh::analysis {

void Observers::begin_batch(const attention::Lengths& lengths) {
  for (auto* observer : observers_) observer->begin_batch(lengths);
}

bool Observers::wants_scores() const {
  return std::any_of(observers_.begin(), observers_.end(),
                     [](const auto* observer) { return observer->wants_scores(); });
}

void Observers::observe_scores(const attention::LayerSpec& layer_spec, const at::Tensor& x) {
  for (auto* observer : observers_) observer->observe_scores(layer_spec, x);
}

void Observers::observe_probabilities(const attention::LayerSpec& layer_spec, const at::Tensor& p) {
  for (auto* observer : observers_) observer->observe_probabilities(layer_spec, p);
}

at::Tensor Observers::intercept_heads(attention::HeadSide side, const attention::LayerSpec& layer_spec,
                                      const at::Tensor& x) {
  at::Tensor result = x;
  for (auto* observer : observers_) result = observer->intercept_heads(side, layer_spec, result);
  return result;
}

const char* Observers::why_composed() const {
  for (const auto* observer : observers_)
    if (const char* reason = observer->why_composed()) return reason;
  return nullptr;
}

void Observers::for_each_observer(const std::function<void(attention::Observer&)>& visit) {
  for (auto* observer : observers_) observer->for_each_observer(visit);
}

}  // namespace mh::analysis
