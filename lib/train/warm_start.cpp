#include "train/warm_start.h"

#include "base/log.h"
#include "base/text.h"
#include "model/partial_load.h"
#include "train/trainable_filter.h"

namespace mh::train {

namespace {

// Returns the names of those trainable parameters in `added_names` that train.trainable does not select.
std::vector<std::string> find_untrained_names(const std::vector<std::string>& added_names,
                                              nn::ParameterList& parameters, const TrainOptions& options) {
  const TrainableFilter trainable(options.trainable, parameters);
  std::vector<std::string> names;
  for (const std::string& name : added_names)
    if (const nn::Parameter* p = parameters.find(name); p->traits().trainable && !trainable(*p)) names.push_back(name);
  return names;
}

void load_partially(const io::Checkpoint& checkpoint, model::LanguageModel& model, const TrainOptions& options) {
  const model::PartialLoad load_plan =
      model::compare_with_checkpoint(checkpoint, model.parameters(), checkpoint.name());
  model::load_matching_parameters(checkpoint, model.parameters());
  for (const auto& [names, description] :
       {std::pair(&load_plan.added_parameters, " not in the checkpoint, initialised from the seed: "),
        {&load_plan.ignored_tensors, " of the checkpoint left out, since the model has no such parameter: "}})
    if (!names->empty()) log_info(str(count_of(names->size(), "tensor"), description, join(*names, ", ")));
  if (load_plan.added_parameters.empty()) return;
  if (const auto untrained_names = find_untrained_names(load_plan.added_parameters, model.parameters(), options);
      !untrained_names.empty())
    log_warning(str(
        "new parameters that train.trainable excludes keep their random initial values: ", join(untrained_names, ", "),
        model::is_task_head_parameter(untrained_names.back()) ? "; to train the output head, add head to --train-only"
                                                              : ""));
  const double hidden_difference = model::max_hidden_difference(checkpoint, model);
  if (hidden_difference == 0) log_info("the new parameters do not change the hidden states yet");
  else
    log_warning(str("the new parameters change the hidden states by up to ", hidden_difference,
                    " on a few random tokens, so the model computes another function than ", checkpoint.name(),
                    " at the start"));
}

}  // namespace

void initialise(model::LanguageModel& model, const TrainOptions& options, const WarmStart& warm_start) {
  if (warm_start.checkpoint == nullptr || warm_start.is_partial)
    model.parameters().initialise(static_cast<uint64_t>(options.seed));
  if (warm_start.checkpoint == nullptr) return;
  if (warm_start.is_partial) load_partially(*warm_start.checkpoint, model, options);
  else model::load_parameters(*warm_start.checkpoint, model.parameters());
}

}  // namespace mh::train
