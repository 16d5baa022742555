#include "train/warm_start.h"

#include "base/log.h"
#include "base/text.h"
#include "model/partial_load.h"
#include "train/trainable_filter.h"

namespace mh::train {

namespace {

// Returns the names of those parameters in `added` that train.trainable does not select.
std::vector<std::string> never_trained(const std::vector<std::string>& added, nn::ParameterList& parameters,
                                       const TrainOptions& options) {
  const TrainableFilter trainable(options.trainable, parameters);
  std::vector<std::string> names;
  for (const std::string& name : added)
    if (const nn::Parameter* p = parameters.find(name); p->traits().trainable && !trainable(*p)) names.push_back(name);
  return names;
}

void load_partially(const io::Checkpoint& from, model::LanguageModel& model, const TrainOptions& options) {
  const model::PartialLoad load_plan = model::compare_with_checkpoint(from, model.parameters(), from.name());
  model::load_matching_parameters(from, model.parameters());
  for (const auto& [names, what] : {std::pair(&load_plan.added, " not in the checkpoint, initialised from the seed: "),
                                    {&load_plan.ignored, " of the checkpoint are left out: "}})
    if (!names->empty())
      log_info(str(names->size(), names->size() == 1 ? " tensor" : " tensors", what, join(*names, ", ")));
  if (load_plan.added.empty()) return;
  if (const auto untrained = never_trained(load_plan.added, model.parameters(), options); !untrained.empty())
    log_warning(str(
        "new parameters that train.trainable excludes keep their random initial values: ", join(untrained, ", "),
        model::is_task_head_parameter(untrained.back()) ? "; to train the output head, add head to --train-only" : ""));
  const double change = model::max_hidden_difference(from, model);
  if (change == 0) log_info("the new parameters do not change the hidden states yet");
  else
    log_warning(str("the new parameters change the hidden states by up to ", change,
                    " on a few random tokens, so the model computes another function than ", from.name(),
                    " at the start"));
}

}  // namespace

void initialise(model::LanguageModel& model, const TrainOptions& options, const WarmStart& start) {
  if (start.checkpoint == nullptr || start.partial) model.parameters().initialise(static_cast<uint64_t>(options.seed));
  if (start.checkpoint == nullptr) return;
  if (start.partial) load_partially(*start.checkpoint, model, options);
  else model::load_parameters(*start.checkpoint, model.parameters());
}

}  // namespace mh::train
