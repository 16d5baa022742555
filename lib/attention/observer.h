// The observer interface, by which an analysis reads a forward pass layer by layer and head by head.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <type_traits>
#include <utility>

#include "attention/interceptor.h"

namespace mh::attention {

// Receives the observations of type T that stages show. The header of the stage declares T, the stage calls
// Observer::show(), and an observer that wants T also derives from Subscriber<T>. A subscriber may change the members
// of an observation that the stage reads back.
template <class T>
class Subscriber {
 public:
  virtual ~Subscriber() = default;
  virtual void receive(const LayerSpec& layer_spec, T& observation) = 0;
};

// Base class of observers. By default an observed pass takes the composed path, the only one that forms probabilities;
// under Path::fused that is an error. The tensors are part of the autograd graph.
class Observer : public Interceptor {
 public:
  // Receives the number of real (not padding) positions of each row, from the caller of the model before a pass.
  // Without this call all positions are real.
  virtual void begin(const Lengths& /*lengths*/) {}
  // Returns whether scores() is to be called. The score stage then computes all logits, also those that a causal mask
  // hides.
  virtual bool wants_scores() const { return false; }
  // Receives the scaled logits (B, h, Tq, Tk) of the score stage, before mixer and mask.
  virtual void scores(const LayerSpec&, const at::Tensor&) {}
  // Receives the probabilities (B, h, Tq, Tk) after the mixer and before dropout. Without a mixer rows sum to 1.
  virtual void probabilities(const LayerSpec&, const at::Tensor&) {}

  const char* needs_composed() const override {
    return "an observer reads the probabilities, which the fused path does not store";
  }

  // Calls `visit` with this observer, or with the observers that it combines, in order.
  virtual void each(const std::function<void(Observer&)>& visit) { visit(*this); }

  // Passes an observation to its subscribers in order; each receives the changes of the previous one.
  template <class T>
  void show(const LayerSpec& layer_spec, T&& observation) {
    using Shown = std::remove_reference_t<T>;
    each([&](Observer& observer) {
      if (auto* subscriber = dynamic_cast<Subscriber<Shown>*>(&observer)) subscriber->receive(layer_spec, observation);
    });
  }
};

}  // namespace mh::attention
