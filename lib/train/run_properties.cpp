#include "train/run_properties.h"

#include <algorithm>

namespace mh::train {

RunProperties run_properties_of(const RunConfig& run, const Batches& batches, bool has_validation_set,
                                const TrainState& state) {
  RunProperties properties;
  properties.seed = static_cast<uint64_t>(run.train.seed);
  properties.num_updates = batches.to_updates(run.train.length);
  properties.to_updates = [&batches](const Length& length) { return batches.to_updates(length); };
  properties.has_validation_set = has_validation_set;
  properties.has_best_weights = std::isfinite(state.selection.best_score);
  if (has_validation_set) {
    const Length& interval = run.train.validation.every;
    const int64_t num_interval_updates = std::max<int64_t>(1, batches.to_updates(interval));
    const int64_t last_complete_update = state.is_complete ? state.update : state.update - 1;
    properties.next_validation_update =
        interval.count > 0
            ? std::min(properties.num_updates, (last_complete_update / num_interval_updates + 1) * num_interval_updates)
            : properties.num_updates;
    properties.validates_each_epoch = interval.count > 0 && batches.updates_per_epoch() % num_interval_updates == 0;
  }
  for (const auto& entry : run.procedures.entries())
    if (entry.plugin->moves_weights()) properties.weight_moving_procedure = entry.name;
  properties.update_rule_of = [&run](const std::string& parameter) {
    const ParameterGroupOptions* group = run.groups.group_of(parameter);
    return group != nullptr && !group->rule.empty() ? group->rule : run.train.optimizer.rule;
  };
  return properties;
}

}  // namespace mh::train
