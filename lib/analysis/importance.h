// The importance of each head of a model. Measures are registered by name, one family per file:
//
//   measure_distance.cpp    avg-l2, avg-l2-outputs: distance to the layer's other heads
//   measure_confidence.cpp  confidence, received: largest probabilities
//   measure_entropy.cpp     entropy: negative entropy of attention rows
//   measure_gate.cpp        gate: weight of the head in the combiner
//   measure_taylor.cpp      taylor: first-order effect on the loss
//   measure_weights.cpp     alpha, weight-norm: norms of parameters
//   measure_ablation.cpp    ablation: loss without the head; random: a control
//
// In every measure a higher score means a more important head. Scores are comparable within a layer. Scores of
// different layers are comparable only if the measure has the same scale in all layers; scores of `taylor` are
// comparable after normalise_by_layer().
//
// In layers with separate score, value or output heads, AnalysisInput::side selects the head side that is measured.
// With `whole`, taylor, ablation, alpha and weight-norm cover all sides of a head, and the measures that have an
// observer (make_observer()) cover only the value side.
#pragma once

#include <array>

#include "analysis/measure.h"
#include "base/registry.h"

namespace mh::analysis {

class ImportanceMeasure {
 public:
  virtual ~ImportanceMeasure() = default;
  // Creates an observer that computes the scores from forward passes without gradients, for example during validation;
  // returns null if such passes are not sufficient (taylor, ablation) or not used (alpha, weight-norm, random).
  virtual std::unique_ptr<MeasureObserver> make_observer(SideSelection) const { return nullptr; }
  // Returns why the measure is undefined for heads of this side in the layer; "" if it is defined. The layer must have
  // heads on this side.
  virtual std::string why_undefined(model::LanguageModel&, const attention::AttentionLayer&, SideSelection) const {
    return "";
  }
  // Returns whether compute_scores() reads the masters of parameters, which a model that was loaded for evaluation in
  // bf16 lacks (model::Masters::absent).
  virtual bool reads_masters() const { return false; }
  // Returns whether compute_scores() reads AnalysisInput::corpus. If not, importance_without_data() computes the same
  // scores.
  virtual bool reads_data() const { return true; }
  // Returns whether compute_scores() draws random numbers from the seed of the sample, AnalysisInput::scoring_options.
  virtual bool uses_seed() const { return false; }
  // Returns the scores of all heads. The default runs the model over the text with the observer of make_observer().
  virtual std::map<AttentionKind, LayerScores> compute_scores(const AnalysisInput& input) const;

  template <class MeasureType>
  class Adapter;
};

// The registry entry of a measure whose scores come from an observer of forward passes. `MeasureType`: the class of the
// observer, whose constructor takes a SideSelection.
template <class MeasureType>
class ImportanceMeasure::Adapter : public ImportanceMeasure {
 public:
  std::unique_ptr<MeasureObserver> make_observer(SideSelection side) const override {
    return std::make_unique<MeasureType>(side);
  }
  std::string why_undefined(model::LanguageModel&, const attention::AttentionLayer& layer,
                            SideSelection side) const override {
    return MeasureType(side).why_undefined(layer);
  }
};

// Returns the registry of all measures.
Registry<ImportanceMeasure>& importance_measures();
// Returns the names of the measures whose make_observer() returns an observer. Head rotation during training supports
// only these measures.
std::vector<std::string> observer_measure_names();

// Throws Error(usage) that names the option `where` if there is no measure of this name, if a layer of `kinds` has no
// heads on this side, if `side` is `whole` and a layer has different numbers of score, value and output heads, or if
// the measure is undefined for these heads. Layers whose heads are all pruned are skipped. Does not run the model.
void check_importance(const std::string& name, const std::string& where, model::LanguageModel& model,
                      SideSelection side, const Kinds& kinds = {});

// Returns the scores of all heads by the measure `name`, [layer][head], with an entry for every layer of the kinds in
// AnalysisInput::kinds. Throws like check_importance() and require_finite(). If a signal asks the process to stop,
// returns early with the scores so far.
std::map<AttentionKind, LayerScores> importance_of(const std::string& name, const AnalysisInput& input);

// Returns the result of importance_of() for a measure that reads no data (ImportanceMeasure::reads_data()). `seed`:
// seed of a measure that draws random numbers. Throws like importance_of(), and std::logic_error if the measure reads
// data.
std::map<AttentionKind, LayerScores> importance_without_data(const std::string& name, model::LanguageModel& model,
                                                             SideSelection side, const Kinds& kinds, int64_t seed);

// Divides the scores of each layer by their ℓ₂ norm (Michel et al. 2019, after Molchanov et al. 2017). Layers whose
// scores are all 0 are unchanged.
void normalise_by_layer(LayerScores& scores);

struct RankedHead {
  AttentionKind kind = AttentionKind::decoder_self;
  Head head;
  double score = 0;
  int64_t rank = 0;  // 1: the least important head
};
// Returns the heads in ascending order of importance; heads with equal scores are ordered by kind, layer and head.
// `per_layer`: the heads are ordered layer by layer, and ranks begin at 1 in each layer. Layers without scores are left
// out.
std::vector<RankedHead> rank_heads(const std::map<AttentionKind, LayerScores>& scores, bool per_layer);

struct SideName {
  SideSelection side;
  const char* name;
  const char* meaning;  // tensors that the side contains, for the help of mh-prune --side
};
inline constexpr std::array kSideNames{SideName{SideSelection::whole, "whole", "all sides"},
                                       SideName{SideSelection::score, "score", "queries and keys"},
                                       SideName{SideSelection::value, "value", "values"},
                                       SideName{SideSelection::output, "output", "block of the output projection"}};
const char* name_of(SideSelection side);
SideSelection side_named(const std::string& name);  // returns `whole` for unknown names
const char* name_of(attention::HeadSide side);
// Returns the head sides of the layer (AttentionLayer::has_separate_heads) that `side` selects: all of them if `side`
// is `whole`, none if the layer does not have `side`.
std::vector<attention::HeadSide> sides_in(const attention::AttentionLayer& layer, SideSelection side);

}  // namespace mh::analysis
