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

Side side_named(const std::string& name) {
  return name == "whole" ? Side::whole : name == "score" ? Side::score : name == "value" ? Side::value : Side::output;
}

std::map<Kind, std::set<Head>> parse_heads(const std::vector<std::string>& texts, const std::vector<Kind>& kinds,
                                           const std::string& where) {
  std::map<Kind, std::set<Head>> heads;
  for (const std::string& text : texts) {
    auto parts = split(text, ':');
    Kind kind = kinds.at(0);
    if (parts.size() == 3) kind = kind_named(parts[0], where), parts.erase(parts.begin());
    const auto digits = [](const std::string& s) {
      return !s.empty() && s.size() < 10 && s.find_first_not_of("0123456789") == std::string::npos;
    };
    if (parts.size() != 2 || !digits(parts[0]) || !digits(parts[1]))
      throw Error(Exit::usage, Problem{where, "layer:head, such as 0:1", text, ""});
    heads[kind].insert({std::stoll(parts[0]), std::stoll(parts[1])});
  }
  return heads;
}

double parse_fraction(const std::string& text, const std::string& where) {
  char* end = nullptr;
  const double x = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || std::string(end) != "%" || !(x >= 0 && x <= 100))
    throw Error(Exit::usage, Problem{where, "0% to 100%", text, ""});
  return x / 100;
}

std::vector<HeadSide> sides_in(const attention::AttentionLayer& layer, Side side) {
  std::vector<HeadSide> sides;
  for (HeadSide s : {HeadSide::score, HeadSide::value, HeadSide::output})
    if (layer.has_side(s) && (side == Side::whole || static_cast<int>(side) == static_cast<int>(s) + 1))
      sides.push_back(s);
  return sides;
}

}  // namespace mh::analysis
