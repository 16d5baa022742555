#include "train/pass_planner.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "train/optimizer_shards.h"
#include "train/run_batches.h"
#include "train/trainable_filter.h"

namespace mh::train {

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();  // freeze_until_ of parameters that are always frozen

}  // namespace

PassPlanner::PassPlanner(const RunConfig& run, nn::ParameterList& parameters, const Batches* batches)
    : run_(run), batches_(batches) {
  const TrainableFilter trainable(run.train.trainable, parameters);
  for (nn::Parameter& p : parameters.all()) {
    const ParameterGroupOptions* group = run.groups.group_of(p.name());
    parameters_.push_back(&p);
    is_selected_.push_back(trainable(p));
    freeze_until_.push_back(group == nullptr     ? 0
                            : group->is_frozen   ? kNever
                            : batches == nullptr ? 0
                                                 : batches->to_updates(group->freeze_until));
  }
}

std::vector<TrainingPass> PassPlanner::requested_passes(const TrainProgress& progress) const {
  std::vector<TrainingPass> passes;
  std::string requesting_procedure;  // empty: no procedure has requested passes yet
  for (const auto& entry : run_.procedures.entries()) {
    std::vector<TrainingPass> procedure_passes = entry.plugin->passes(progress);
    if (procedure_passes.empty()) continue;
    if (!requesting_procedure.empty())
      refuse_usage("train.procedures", "at most one procedure that sets the passes of an update",
                   str(requesting_procedure, " and ", entry.name),
                   str("remove train.procedures.", requesting_procedure, " or train.procedures.", entry.name));
    passes = std::move(procedure_passes), requesting_procedure = entry.name;
  }
  return passes;
}

bool PassPlanner::trains_any_parameter(const TrainingPass& pass) const {
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (const nn::Parameter& p = *parameters_[i];
        p.traits().trainable && is_selected_[i] && (!pass.trains_parameter || pass.trains_parameter(p)))
      return true;
  return false;
}

std::vector<TrainingPass> PassPlanner::passes(const TrainProgress& progress) const {
  std::vector<TrainingPass> passes = requested_passes(progress);
  if (!run_.train.trainable.empty())
    std::erase_if(passes, [&](const TrainingPass& pass) { return !trains_any_parameter(pass); });
  if (passes.empty()) passes.emplace_back();
  for (TrainingPass& pass : passes)
    for (const auto& entry : run_.procedures.entries()) entry.plugin->modify_pass(pass, progress);
  return passes;
}

bool PassPlanner::trains(size_t parameter_index, const TrainingPass& pass, const TrainProgress& progress) const {
  const nn::Parameter& p = *parameters_[parameter_index];
  return p.traits().trainable && is_selected_[parameter_index] && progress.update >= freeze_until_[parameter_index] &&
         !run_.regularisers.freezes(p, progress) && (!pass.trains_parameter || pass.trains_parameter(p));
}

void PassPlanner::apply(const TrainingPass& pass, const TrainProgress& progress) {
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->set_trained(trains(i, pass, progress));
}

bool PassPlanner::is_trained(size_t parameter_index) const {
  return parameters_[parameter_index]->traits().trainable && is_selected_[parameter_index] &&
         freeze_until_[parameter_index] != kNever;
}

int64_t PassPlanner::num_trained_divisible_parameters() const {
  int64_t count = 0;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (is_trained(i) && has_divisible_master(parameters_[i]->traits()))
      count += parameters_[i]->gradient_leaf().numel();
  return count;
}

int64_t PassPlanner::num_trained_parameters() const {
  int64_t count = 0;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (is_trained(i)) count += parameters_[i]->gradient_leaf().numel();
  return count;
}

bool PassPlanner::skips_passes() const {
  if (run_.train.trainable.empty()) return false;
  const auto change_points = pass_change_points();
  return std::any_of(change_points.begin(), change_points.end(), [&](const TrainProgress& progress) {
    const auto passes = requested_passes(progress);
    return std::any_of(passes.begin(), passes.end(),
                       [&](const TrainingPass& pass) { return !trains_any_parameter(pass); });
  });
}

std::vector<TrainProgress> PassPlanner::pass_change_points() const {
  std::vector<TrainProgress> change_points;
  std::vector<int64_t> epochs{0};
  for (const auto& entry : run_.procedures.entries())
    for (int64_t epoch : entry.plugin->first_epochs_of_passes()) epochs.push_back(epoch);
  const TrainOptions& o = run_.train;
  const auto to_updates = [&](const Length& length) { return length_to_updates(length, run_, batches_); };
  const int64_t end = to_updates(o.length), updates_per_epoch = to_updates({1, Length::Unit::epochs});
  for (int64_t epoch : epochs) {
    int64_t update;
    if (__builtin_mul_overflow(epoch, updates_per_epoch, &update) || (end > 0 && update >= end)) continue;
    change_points.push_back({update, epoch, o.schedule.length.count > 0 ? to_updates(o.schedule.length) : end});
  }
  return change_points;
}

void PassPlanner::check() const {
  for (const TrainProgress& progress : pass_change_points()) {
    const auto update_passes = passes(progress);
    for (size_t pass_index = 0; pass_index < update_passes.size(); ++pass_index) {
      bool has_trainable = false;
      for (size_t i = 0; i < parameters_.size() && !has_trainable; ++i)
        has_trainable = trains(i, update_passes[pass_index], progress);
      if (has_trainable) continue;
      const std::string where = str("epoch ", progress.epoch, " (counted from 0)");
      if (update_passes.size() == 1)
        refuse_usage(where, "a trainable parameter", "only frozen parameters",
                     "unfreeze parameters in train.trainable or train.groups, or remove the procedure or regulariser "
                     "that freezes parameters");
      refuse_usage(
          where, "a trainable parameter in each of the passes into which train.procedures divides an update",
          str("only frozen parameters in pass ", pass_index + 1, " (counted from 1) of ", update_passes.size()),
          "unfreeze parameters that this pass trains, with train.trainable or train.groups, or remove the "
          "procedure that divides updates");
    }
  }
}

}  // namespace mh::train
