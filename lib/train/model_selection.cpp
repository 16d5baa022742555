#include "train/model_selection.h"

#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"

namespace mh::train {

bool ModelSelection::record(const Validation& result) {
  const double score = validator_.selection_score(result);
  const bool is_best = score < state_.best_score;
  if (is_best) state_.best_score = score, state_.best_update = update_;
  // An improvement is measured from the score of the last validation that counted as an improvement, so that small
  // improvements add up.
  const double min_improvement = options_.validation.min_improvement;
  const double improvement = validator_.improvement(state_.reference_score, score);
  if (is_best && (min_improvement == 0 || !(improvement < min_improvement))) {
    state_.reference_score = score;
    state_.stale_validations = 0;
  } else {
    ++state_.stale_validations;
  }
  nlohmann::ordered_json log_fields{{"update", update_}};
  log_fields.update(validator_.log_fields(result));
  log_fields["best"] = is_best;
  folder_.log(log_fields);
  summary_ = validator_.summary(result);
  log_info(
      str("update ", with_commas(update_), ": ", validator_.log_message(result), is_best ? ", the best so far" : ""));
  if (is_best) checkpointer_.save_weights(folder_.file("best.safetensors"));
  return is_best;
}

bool ModelSelection::retain(const Validation& result) {
  auto& retained_scores = state_.retained_scores;
  retained_scores[update_] = validator_.selection_score(result);
  while (static_cast<int64_t>(retained_scores.size()) > options_.checkpoint.retain) {
    // Of several models with the worst score, the newest is removed. Between equal scores the older model is preferred,
    // for best.safetensors as well.
    auto worst_entry = retained_scores.begin();
    for (auto it = retained_scores.begin(); it != retained_scores.end(); ++it)
      if (!(it->second < worst_entry->second)) worst_entry = it;
    retained_scores.erase(worst_entry);
  }
  if (retained_scores.count(update_) == 0) return false;
  checkpointer_.save_weights(folder_.checkpoint_path(update_));
  return true;
}

void ModelSelection::reset_patience() {
  state_.reference_score = state_.best_score;
  state_.stale_validations = 0;
}

std::string ModelSelection::best_weights_path() const {
  std::string path = folder_.file("best.safetensors");
  if (!std::isfinite(state_.best_score))
    throw Error(Exit::failed, Problem{path, "weights of a validation with a finite score", "no such validation",
                                      "start a new run with a lower train.lr"});
  return path;
}

}  // namespace mh::train
