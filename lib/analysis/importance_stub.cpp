#include "analysis/importance_stub.h"

#include <c10/core/GradMode.h>

#include <cmath>

namespace mh::analysis {

using attention::HeadSide;

namespace {
template <int i>
struct Watching : Importance {
  std::map<Kind, LayerScores> of(const Subject& s) const override {
    const char* names[] = {"avg-l2", "avg-l2-outputs", "confidence"};
    auto measure = measures().make(names[i], "--by");
    c10::NoGradGuard no_gradient;
    task::Walk walk;
    walk.observer = measure.get();
    walk.visit = [](const task::Pass&) {};
    walk.progress = s.progress;
    task::walk_text(s.model, s.text, s.how, walk);
    return measure->scores();
  }
};
const Registered<Importance, Watching<0>> a(importances(), "avg-l2", "distance of attention to that of other heads");
const Registered<Importance, Watching<1>> b(importances(), "avg-l2-outputs", "distance of outputs to those of others");
const Registered<Importance, Watching<2>> c(importances(), "confidence", "mean of the largest probability");
}  // namespace

Registry<Importance>& importances() {
  static Registry<Importance> registry("measure");
  return registry;
}

void check_importance(const std::string& name, const std::string& where, model::LanguageModel& model, Side side) {
  importances().find(name, where);
  for (const auto* layer : model.attention_layers())
    if (sides_in(*layer, side).empty())
      throw Error(Exit::usage, Problem{"--side", str("a layer that has ", name_of(side), " heads of their own"),
                                       str(layer->shape().name, ", which mixes none"), "use --side whole"});
}

std::map<Kind, LayerScores> importance_of(const std::string& name, const Subject& subject) {
  check_importance(name, "--by", subject.model, subject.side);
  return importances().make(name, "--by")->of(subject);
}

void normalise_by_layer(LayerScores& scores) {
  for (auto& layer : scores) {
    double sum = 0;
    for (double s : layer) sum += s * s;
    if (sum > 0)
      for (double& s : layer) s /= std::sqrt(sum);
  }
}

const char* name_of(Side side) {
  return side == Side::whole ? "whole" : side == Side::score ? "score" : side == Side::value ? "value" : "output";
}

std::vector<HeadSide> sides_in(const attention::AttentionLayer& layer, Side side) {
  std::vector<HeadSide> sides;
  for (HeadSide s : {HeadSide::score, HeadSide::value, HeadSide::output})
    if (layer.has_side(s) && (side == Side::whole || static_cast<int>(side) == static_cast<int>(s) + 1))
      sides.push_back(s);
  return sides;
}

}  // namespace mh::analysis
