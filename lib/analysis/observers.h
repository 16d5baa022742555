// An observer that passes the tensors of a forward pass on to several observers.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "attention/observer.h"

namespace mh::analysis {

// Forwards the tensors of each forward pass to all its observers, which must outlive this object. A tensor that
// observers may replace passes through the observers in order: each observer receives the result of the previous one.
class Observers : public attention::Observer {
 public:
  explicit Observers(std::vector<attention::Observer*> observers = {}) : observers_(std::move(observers)) {}
  bool empty() const { return observers_.empty(); }
  void begin_batch(const attention::Lengths& lengths) override;
  bool wants_scores() const override;
  void observe_scores(const attention::LayerSpec& layer_spec, const at::Tensor& x) override;
  void observe_probabilities(const attention::LayerSpec& layer_spec, const at::Tensor& p) override;
  at::Tensor intercept_heads(attention::HeadSide side, const attention::LayerSpec& layer_spec,
                             const at::Tensor& x) override;
  const char* why_composed() const override;
  void for_each_observer(const std::function<void(attention::Observer&)>& visit) override;

 private:
  std::vector<attention::Observer*> observers_;
};

}  // namespace mh::analysis
