// The observer interface, by which an analysis reads a forward pass layer by layer and head by head.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <type_traits>
#include <utility>

#include "attention/interceptor.h"

namespace mh::attention {

// Base class of observers that receive observations of type T from stages. The header of the stage declares T, the
// stage calls Observer::notify_subscribers(), and the observer derives from Subscriber<T> in addition to Observer. A
// subscriber may change the members of an observation that the stage reads back.
template <class T>
class Subscriber {
 public:
  virtual ~Subscriber() = default;
  virtual void receive(const LayerSpec& layer_spec, T& observation) = 0;
};

// Base class of observers. Unless the observer overrides why_composed(), an observed forward pass takes the composed
// path, the only path that stores probabilities, and is an error under Path::fused. An observer that only subscribes
// to the weights and gates of combiners, which every path computes, returns null. The tensors that an observer
// receives are part of the autograd graph.
class Observer : public Interceptor {
 public:
  // Receives the sequence lengths of the batch, which exclude padding. The caller of the model calls begin_batch()
  // before a forward pass; without this call no position is padding.
  virtual void begin_batch(const Lengths& /*lengths*/) {}
  // Returns whether the observer needs observe_scores(). If it does, the score stage also computes the logits that a
  // causal mask hides.
  virtual bool wants_scores() const { return false; }
  // Receives the logits (B, h, Tq, Tk) as the mixer gets them, or the normaliser without a mixer of logits: scaled,
  // with soft cap and position bias, before the mask.
  virtual void observe_scores(const LayerSpec&, const at::Tensor&) {}
  // Receives the probabilities (B, hv, Tq, Tk) after the mixer. Dropout is not applied yet, unless dropout precedes
  // mixing (Mixer::dropout_before_mixing). If the mixer mixes no heads, a row sums to 1, with a sink to less than 1,
  // and a fully masked row to 0.
  virtual void observe_probabilities(const LayerSpec&, const at::Tensor&) {}

  const char* why_composed() const override {
    return "an observer reads the probabilities, which the fused path does not store";
  }

  // Calls visit(*this). An observer that combines several observers calls visit(observer) for each of these observers
  // in order.
  virtual void for_each_observer(const std::function<void(Observer&)>& visit) { visit(*this); }

  // Passes an observation to the subscribers of its type in order. Each subscriber receives the observation with the
  // changes of previous subscribers.
  template <class T>
  void notify_subscribers(const LayerSpec& layer_spec, T&& observation) {
    using Observation = std::remove_reference_t<T>;
    for_each_observer([&](Observer& observer) {
      if (auto* subscriber = dynamic_cast<Subscriber<Observation>*>(&observer))
        subscriber->receive(layer_spec, observation);
    });
  }
};

}  // namespace mh::attention
