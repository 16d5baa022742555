// How important each head of a model is. Measures are registered by name, one family a file:
//
//   measure_distance.cpp    avg-l2, avg-l2-outputs: distance to the layer's other heads
//   measure_confidence.cpp  confidence, received: largest probabilities
//   measure_entropy.cpp     entropy: how focused attention is
//   measure_gate.cpp        gate: what weighs the head
//   measure_taylor.cpp      taylor: first-order effect on the loss
//   measure_weights.cpp     alpha, weight-norm: sizes of parameters
//
// A higher score is a more important head, whatever the measure. Scores of one layer compare with each other; those of
// different layers do where the measure has one unit in all of them (normalise_by_layer() for taylor).
//
// Where heads are mixed, Subject::side says which heads are meant. `whole` is a head with all the sides it has.
#pragma once

#include "analysis/measure.h"
#include "base/registry.h"

namespace mh::analysis {

class Importance {
 public:
  virtual ~Importance() = default;
  // An observer that makes the scores from forward passes without gradients, such as those of a validation; null where
  // it takes more than these.
  virtual std::unique_ptr<Measure> watch(Side) const { return nullptr; }
  // Why a layer's heads of this side, which it has, have no such score; "" where they have one.
  virtual std::string none_because(model::LanguageModel&, const attention::AttentionLayer&, Side) const { return ""; }
  // The default walks the text with watch().
  virtual std::map<Kind, LayerScores> of(const Subject& subject) const;

  template <class Watching>
  class Of;
};

// The entry of a measure that only watches (Registry::add): made by Watching(Side).
template <class Watching>
class Importance::Of : public Importance {
 public:
  std::unique_ptr<Measure> watch(Side side) const override { return std::make_unique<Watching>(side); }
  std::string none_because(model::LanguageModel&, const attention::AttentionLayer& layer, Side side) const override {
    return Watching(side).none_because(layer);
  }
};

Registry<Importance>& importances();
// Those of them that only watch, for the rotation of heads.
std::vector<std::string> watching_importances();

// Error(usage), about the option `where`, where there is no such measure, or a layer has no heads of this side or no
// such score of them; only layers of these kinds are asked about. Layers without heads have nothing to measure. Cheap:
// nothing is run.
void check_importance(const std::string& name, const std::string& where, model::LanguageModel& model, Side side,
                      const Kinds& kinds = {});

// Checked as above, and by require_finite(). Every layer of every kind that is asked about has its row. Ends early,
// with what it has, where a signal asks to stop.
std::map<Kind, LayerScores> importance_of(const std::string& name, const Subject& subject);

// Divides each layer's scores by their ℓ₂ norm (Michel et al. 2019, after Molchanov et al. 2017); zeros stay.
void normalise_by_layer(LayerScores& scores);

struct RankedHead {
  Kind kind = Kind::decoder_self;
  Head head;
  double score = 0;
  int64_t rank = 0;  // from 1, the least important
};
// The least important first; of equal scores the lower kind, then layer, then head. `per_layer`: layer by layer, with
// ranks of their own. Layers without scores are left out.
std::vector<RankedHead> ranked(const std::map<Kind, LayerScores>& scores, bool per_layer);

const char* name_of(Side side);
Side side_named(const std::string& name);  // the side of that name; whole for any other
const char* name_of(attention::HeadSide side);
// The sides that are meant in a layer: of `whole` all that it has. One of a layer's sides that it lacks is none.
std::vector<attention::HeadSide> sides_in(const attention::AttentionLayer& layer, Side side);

}  // namespace mh::analysis
