// The view of an analysis on a forward pass, layer by layer and head by head.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <type_traits>
#include <utility>

#include "attention/interceptor.h"

namespace mh::attention {

// Receives the observations of type T that stages show. A stage declares the type beside itself and shows it by
// Observer::show(); an observer that wants it derives from Subscriber<T> too. A subscriber may change the members of an
// observation that the stage reads back.
template <class T>
class Subscriber {
 public:
  virtual ~Subscriber() = default;
  virtual void receive(const Shape& shape, T& observation) = 0;
};

// Takes the composed path, which forms the probabilities (an error under Path::fused). Tensors are part of the graph.
class Observer : public Interceptor {
 public:
  // From whoever runs a model, before a pass: how many positions of each row are real. Where nobody says it, all are.
  virtual void begin(const Lengths& /*lengths*/) {}
  // Whether scores() is wanted: the score stage then gives whole logits, with the logits that a causal mask hides.
  virtual bool wants_scores() const { return false; }
  // Logits (B, h, Tq, Tk) as the score stage gives them, scaled, before any mixer and mask.
  virtual void scores(const Shape&, const at::Tensor&) {}
  // (B, h, Tq, Tk), after the mixer and before dropout; rows sum to 1 without a mixer.
  virtual void probabilities(const Shape&, const at::Tensor&) {}

  const char* needs_composed() const override {
    return "an observer reads the probabilities, which the fused path never forms";
  }

  // Calls `visit` with this observer, or with the observers that it combines, in order.
  virtual void each(const std::function<void(Observer&)>& visit) { visit(*this); }

  // Shows an observation to its subscribers, each of which is given what the one before left.
  template <class T>
  void show(const Shape& shape, T&& observation) {
    using Shown = std::remove_reference_t<T>;
    each([&](Observer& observer) {
      if (auto* subscriber = dynamic_cast<Subscriber<Shown>*>(&observer)) subscriber->receive(shape, observation);
    });
  }
};

}  // namespace mh::attention
