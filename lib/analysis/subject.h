// A model, and the text or pairs it is asked about: what every analysis that runs a model is given.
#pragma once

#include <functional>
#include <set>

#include "model/language_model.h"
#include "task/token_score.h"

namespace mh::analysis {

// What of a head is meant where its sides are things of their own (attention::HeadSide): all of it, or one.
enum class Side { whole, score, value, output };

struct Subject {
  model::LanguageModel& model;
  const data::Corpus& text;
  data::ScoringOptions how;  // resolved; its sample says which blocks
  Side side = Side::whole;
  std::function<void(int64_t done, int64_t all)> progress = {};  // in rows
  std::set<attention::Kind> kinds = {};                          // whose heads are asked about; none: all
};

// Shows an observer the forward passes over the subject's text, without gradients.
void observe(const Subject& subject, attention::Observer& observer);

}  // namespace mh::analysis
