// The input of every analysis that runs a model: the model, the corpus, and options.
#pragma once

#include <functional>
#include <set>

#include "model/language_model.h"
#include "task/token_score.h"

namespace mh::analysis {

// The side of heads that an analysis addresses (attention::HeadSide); whole: all sides of a head together.
enum class Side { whole, score, value, output };

struct AnalysisInput {
  model::LanguageModel& model;
  const data::Corpus& text;
  data::ScoringOptions how;  // resolved; its sample selects the blocks
  Side side = Side::whole;
  std::function<void(int64_t done, int64_t all)> progress = {};  // in rows
  std::set<attention::AttentionKind> kinds = {};                 // kinds of attention to analyse; empty: all
};

// Runs the model over the subject's text with an observer, without gradients.
void observe(const AnalysisInput& input, attention::Observer& observer);

}  // namespace mh::analysis
