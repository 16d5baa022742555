// Cuts heads out of a model for good: the parts of parameters that belong to a head on a side go (nn::HeadAxis), and
// the layer's configuration says how many heads are left, so that the model that is left is smaller and computes what
// the whole one does with those heads masked (attention::HeadScales of zeros), but for rounding.
//
// No method is known by name. What a stage keeps besides parameters it changes itself (attention::Stage::keep). Where a
// layer no longer shares a parameter with the others, it gets a copy of its own.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "analysis/heads.h"
#include "analysis/importance.h"
#include "analysis/subject.h"
#include "model/model_config.h"

namespace mh::analysis {

// How many heads: a count, or where that is 0 a fraction, rounded down.
struct Share {
  int64_t count = 0;
  double fraction = 0;
};
// The heads with the lowest scores: of all together, or so many of each layer that has any. Of equal ones the lower
// layer goes first, then the lower head. Error(usage), about the option `where`, for none, and for more than there are.
HeadSet least_important(const std::map<Kind, LayerScores>& scores, const Share& share, bool per_layer,
                        const std::string& where);

// Refuses what least_important() would refuse of these kinds, before anything is measured.
void check_share(model::LanguageModel& model, Side side, const Kinds& kinds, const Share& share, bool per_layer,
                 const std::string& where);

// The side whose heads are counted; of whole heads the values'.
attention::HeadSide head_side(Side side);

// Of each layer that loses heads: those that stay.
using Kept = std::map<Kind, std::map<int64_t, attention::KeptHeads>>;

// What stays where these heads lose this side, and with it those that are one thing with it. Error(usage), about the
// option `where`, for a head that the model has not, for none at all, and for sides that the layer has not: the whole
// of a head that has other numbers of sides, or a side that nothing parts from the values.
Kept kept_without(model::LanguageModel& model, const HeadSet& cut, Side side, const std::string& where);

struct CutModel {
  model::ModelConfig config;
  std::unique_ptr<model::LanguageModel> model;
};

// The model that is left. Error(usage) where a stage cannot lose these heads.
CutModel cut_heads(const model::ModelConfig& config, model::LanguageModel& model, const Kept& kept);

// Fills every parameter of `to`, whose layers have the heads `kept` of those of `from`.
void copy_kept(nn::ParameterList& from, const Kept& kept, nn::ParameterList& to);

}  // namespace mh::analysis
