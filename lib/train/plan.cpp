#include "train/plan.h"

#include <algorithm>

namespace mh::train {

Plan plan_of(const RunConfig& run, const Batches& batches, bool validates, const TrainState& state) {
  Plan plan;
  plan.seed = static_cast<uint64_t>(run.train.seed);
  plan.end = batches.to_updates(run.train.length);
  plan.updates = [&batches](const Length& length) { return batches.to_updates(length); };
  plan.validates = validates;
  plan.has_best = std::isfinite(state.selection.best);
  if (validates) {
    const Length& every = run.train.validation.every;
    const int64_t interval = std::max<int64_t>(1, batches.to_updates(every));
    const int64_t last_complete_update = state.is_complete ? state.update : state.update - 1;
    plan.next_validation =
        every.count > 0 ? std::min(plan.end, (last_complete_update / interval + 1) * interval) : plan.end;
    plan.validates_epochs = every.count > 0 && batches.updates_per_epoch() % interval == 0;
  }
  for (const auto& entry : run.procedures.entries())
    plan.moves_weights = plan.moves_weights || entry.plugin->moves_weights();
  plan.update_rule_of = [&run](const std::string& parameter) {
    const GroupOptions* group = run.groups.group_of(parameter);
    return group != nullptr && !group->rule.empty() ? group->rule : run.train.optimizer.rule;
  };
  return plan;
}

}  // namespace mh::train
