// Importance of heads by name.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "analysis/importance.h"
#include "analysis/subject.h"
#include "attention/layer.h"

namespace mh::analysis {

class Importance {
 public:
  virtual ~Importance() = default;
  virtual std::string none_because(model::LanguageModel&, const attention::AttentionLayer&, Side) const { return ""; }
  virtual std::map<Kind, LayerScores> of(const Subject& subject) const = 0;
};
Registry<Importance>& importances();
void check_importance(const std::string& name, const std::string& where, model::LanguageModel& model, Side side);
std::map<Kind, LayerScores> importance_of(const std::string& name, const Subject& subject);
void normalise_by_layer(LayerScores& scores);
const char* name_of(Side side);
Side side_named(const std::string& name);
std::map<Kind, std::set<Head>> parse_heads(const std::vector<std::string>& texts, const std::vector<Kind>& kinds,
                                           const std::string& where);
double parse_fraction(const std::string& text, const std::string& where);
std::vector<attention::HeadSide> sides_in(const attention::AttentionLayer& layer, Side side);

}  // namespace mh::analysis
