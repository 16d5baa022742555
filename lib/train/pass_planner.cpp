#include "train/pass_planner.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "train/trainable_filter.h"

namespace mh::train {

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();  // update of unfreezing for parameters frozen forever

}  // namespace

PassPlanner::PassPlanner(const RunConfig& run, nn::ParameterList& parameters, const Batches* batches)
    : run_(run), batches_(batches) {
  const TrainableFilter trainable(run.train.trainable, parameters);
  for (nn::Parameter& p : parameters.all()) {
    const GroupOptions* group = run.groups.of(p.name());
    parameters_.push_back(&p);
    is_selected_.push_back(trainable(p));
    freeze_until_.push_back(group == nullptr     ? 0
                            : group->frozen      ? kNever
                            : batches == nullptr ? 0
                                                 : batches->updates(group->freeze_until));
  }
}

std::vector<Pass> PassPlanner::requested_passes(const TrainProgress& progress) const {
  std::vector<Pass> passes;
  std::string requesting;  // name of the procedure that requested passes
  for (const auto& entry : run_.procedures.entries()) {
    std::vector<Pass> requested = entry.plugin->passes(progress);
    if (requested.empty()) continue;
    if (!requesting.empty())
      throw Error(Exit::usage, Problem{"train.procedures", "at most one procedure that sets the passes of an update",
                                       str(requesting, " and ", entry.name), "remove one of the two procedures"});
    passes = std::move(requested), requesting = entry.name;
  }
  return passes;
}

bool PassPlanner::trains_parameter(const Pass& pass) const {
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (const nn::Parameter& p = *parameters_[i];
        p.traits().trainable && is_selected_[i] && (!pass.trains_parameter || pass.trains_parameter(p)))
      return true;
  return false;
}

std::vector<Pass> PassPlanner::passes(const TrainProgress& progress) const {
  std::vector<Pass> passes = requested_passes(progress);
  if (!run_.train.trainable.empty()) std::erase_if(passes, [&](const Pass& pass) { return !trains_parameter(pass); });
  if (passes.empty()) passes.emplace_back();
  for (Pass& pass : passes)
    for (const auto& entry : run_.procedures.entries()) entry.plugin->change(pass, progress);
  return passes;
}

bool PassPlanner::trains(size_t parameter, const Pass& pass, const TrainProgress& progress) const {
  const nn::Parameter& p = *parameters_[parameter];
  return p.traits().trainable && is_selected_[parameter] && progress.update >= freeze_until_[parameter] &&
         !run_.regularisers.freezes(p, progress) && (!pass.trains_parameter || pass.trains_parameter(p));
}

void PassPlanner::apply(const Pass& pass, const TrainProgress& progress) {
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->set_trained(trains(i, pass, progress));
}

int64_t PassPlanner::trained() const {
  int64_t numbers = 0;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i]->traits().trainable && is_selected_[i] && freeze_until_[i] != kNever)
      numbers += parameters_[i]->master().numel();
  return numbers;
}

bool PassPlanner::skips_passes() const {
  if (run_.train.trainable.empty()) return false;
  const auto points = change_points();
  return std::any_of(points.begin(), points.end(), [&](const TrainProgress& progress) {
    const auto passes = requested_passes(progress);
    return std::any_of(passes.begin(), passes.end(), [&](const Pass& pass) { return !trains_parameter(pass); });
  });
}

std::vector<TrainProgress> PassPlanner::change_points() const {
  std::vector<TrainProgress> points;
  std::vector<int64_t> epochs{0};
  for (const auto& entry : run_.procedures.entries())
    for (int64_t epoch : entry.plugin->first_epochs()) epochs.push_back(epoch);
  const TrainOptions& o = run_.train;
  const auto updates = [&](const Length& length) { return updates_in(length, o.batch, batches_); };
  const int64_t end = updates(o.length), per_epoch = updates({1, Length::Unit::epochs});
  for (int64_t epoch : epochs) {
    int64_t update;
    if (__builtin_mul_overflow(epoch, per_epoch, &update) || (end > 0 && update >= end)) continue;
    points.push_back({update, epoch, o.schedule.length.count > 0 ? updates(o.schedule.length) : end});
  }
  return points;
}

void PassPlanner::check() const {
  for (const TrainProgress& progress : change_points()) {
    const auto all = passes(progress);
    for (size_t pass = 0; pass < all.size(); ++pass) {
      bool any = false;
      for (size_t i = 0; i < parameters_.size() && !any; ++i) any = trains(i, all[pass], progress);
      if (any) continue;
      const std::string pass_text = all.size() > 1 ? str("pass ", pass + 1, " of an update") : "an update";
      throw Error(Exit::usage,
                  Problem{str("epoch ", progress.epoch, " (from 0)"), "a trainable parameter in " + pass_text,
                          "only frozen parameters", "change train.trainable, train.groups or train.procedures"});
    }
  }
}

}  // namespace mh::train
