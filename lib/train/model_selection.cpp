#include "train/model_selection.h"

#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"

namespace mh::train {

bool ModelSelection::record(const Validation& result) {
  const double value = validator_.selection_score(result);
  const bool better = value < state_.best;
  if (better) state_.best = value, state_.best_update = update_;
  // The improvement is measured from the last validation that reset the patience, so that small improvements add up.
  const double least = options_.validation.min_improvement;
  const double improved = validator_.improvement(state_.reference_best, value);
  if (better && (least == 0 || !(improved < least))) {
    state_.reference_best = value;
    state_.stale_validations = 0;
  } else {
    ++state_.stale_validations;
  }
  nlohmann::ordered_json line{{"update", update_}};
  line.update(validator_.line(result));
  line["best"] = better;
  folder_.log(line);
  summary_ = validator_.summary(result);
  log_info(str("update ", with_commas(update_), ": ", validator_.text(result), better ? ", the best so far" : ""));
  if (better) checkpointer_.save_weights(folder_.file("best.safetensors"));
  return better;
}

bool ModelSelection::retain(const Validation& result) {
  auto& kept = state_.kept;
  kept[update_] = validator_.selection_score(result);
  while (static_cast<int64_t>(kept.size()) > options_.checkpoint.retain) {
    auto worst = kept.begin();  // among equal scores the newest, since best.safetensors is the oldest
    for (auto it = kept.begin(); it != kept.end(); ++it)
      if (!(it->second < worst->second)) worst = it;
    kept.erase(worst);
  }
  if (kept.count(update_) == 0) return false;
  checkpointer_.save_weights(folder_.checkpoint(update_));
  return true;
}

void ModelSelection::restart() {
  state_.reference_best = state_.best;
  state_.stale_validations = 0;
}

std::string ModelSelection::best_weights() const {
  std::string best = folder_.file("best.safetensors");
  if (!std::isfinite(state_.best))
    throw Error(Exit::failed, Problem{best, "weights of a validation with a finite score", "no such validation", ""});
  return best;
}

}  // namespace mh::train
