// Warm start: compares the parameters of a model with a checkpoint, loads the matching parameters, and measures how
// much the added stages change the model's hidden states.
#include "model/partial_load.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "attention/layer.h"
#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "nn/aten.h"

namespace mh::model {

bool is_task_head_parameter(const std::string& name) {
  return name.rfind("head.", 0) == 0 || name.rfind("pooler.", 0) == 0;
}

namespace {

bool may_be_added(const nn::Parameter& p) {
  const nn::HeadRole role = p.traits().role;
  return is_task_head_parameter(p.name()) || role == nn::HeadRole::gate || role == nn::HeadRole::mixing ||
         role == nn::HeadRole::stage;
}

bool is_added(const io::Checkpoint& checkpoint, const nn::Parameter& p) {
  const io::TensorInfo* info = checkpoint.find(p.name());
  return info == nullptr || (is_task_head_parameter(p.name()) && info->shape != p.master().sizes().vec());
}

}  // namespace

PartialLoad compare_with_checkpoint(const io::Checkpoint& checkpoint, const nn::ParameterList& parameters,
                                    const std::string& option_name) {
  const char* advice = "set only keys that add attention stages or change the task head";
  PartialLoad result;
  std::vector<std::string> parameter_names;
  for (const nn::Parameter& p : parameters.all()) {
    parameter_names.push_back(p.name());
    if (is_added(checkpoint, p)) {
      if (!may_be_added(p))
        refuse_usage(option_name, "only parameters that the checkpoint contains",
                     str("the new parameter ", p.name(), " with the shape ", shape_text(p.master().sizes())), advice);
      result.added_parameters.push_back(p.name());
    } else if (const auto& shape = checkpoint.find(p.name())->shape; shape != p.master().sizes().vec()) {
      refuse_usage(option_name, str("the parameter ", p.name(), " with the checkpoint's shape, ", shape_text(shape)),
                   str("the shape ", shape_text(p.master().sizes()), " in the configured model"),
                   "set only keys that keep the names and shapes of all parameters");
    }
  }
  for (const io::TensorInfo& info : checkpoint.tensors()) {
    if (std::find(parameter_names.begin(), parameter_names.end(), info.name) != parameter_names.end() ||
        is_training_state(info.name))
      continue;
    if (!is_task_head_parameter(info.name))
      refuse_usage(option_name,
                   str("the checkpoint's parameter ", info.name, " with the shape ", shape_text(info.shape)),
                   "no parameter of this name in the configured model",
                   "set only keys that keep the names and shapes of all parameters");
    result.ignored_tensors.push_back(info.name);
  }
  return result;
}

void require_same_heads(LanguageModel& old_model, LanguageModel& new_model, const std::string& option_name) {
  const auto old_layers = old_model.attention_layers(), new_layers = new_model.attention_layers();
  for (size_t i = 0; i < std::min(old_layers.size(), new_layers.size()); ++i) {
    const attention::LayerSpec &old_spec = old_layers[i]->layer_spec(), &new_spec = new_layers[i]->layer_spec();
    for (const nn::HeadSide side :
         {nn::HeadSide::score, nn::HeadSide::value, nn::HeadSide::output, nn::HeadSide::key_value})
      if (old_spec.num_heads_of(side) != new_spec.num_heads_of(side))
        refuse_usage(
            option_name,
            str(count_of(old_spec.num_heads_of(side), "head"), " in layer ", old_spec.layer, ", as in the checkpoint"),
            count_of(new_spec.num_heads_of(side), "head"),
            "keep the checkpoint's head counts, since other counts assign the columns of "
            "the projections to other heads");
  }
}

void load_matching_parameters(const io::Checkpoint& checkpoint, nn::ParameterList& parameters) {
  for (nn::Parameter& p : parameters.all())
    if (!is_added(checkpoint, p)) load_parameter(checkpoint, p);
  parameters.refresh_bf16_copies();
}

double max_hidden_difference(const io::Checkpoint& checkpoint, LanguageModel& model) {
  c10::NoGradGuard no_gradient;
  constexpr int64_t kRows = 2, kLength = 12;
  const at::Device device = model.parameters().device();
  const LoadedModel original_model = load_model(checkpoint, device);
  const int64_t model_max_length = model.max_length(),
                length = model_max_length > 0 ? std::min(model_max_length, kLength) : kLength;
  const auto random_tokens = [&](int64_t vocabulary_size, uint32_t site) {
    RandomSequence random(RandomStream(1, "adoption"), site);
    at::Tensor result = at::empty({kRows, length}, at::kLong);
    auto* values = result.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < result.numel(); ++i)
      values[i] = static_cast<int64_t>(random.uniform_below(static_cast<uint64_t>(vocabulary_size)));
    return result;
  };
  const VocabularySizes sizes = model.vocabulary_sizes();
  Input input{random_tokens(sizes.target, 0)};
  if (model.has_encoder()) input.source = random_tokens(sizes.source > 0 ? sizes.source : sizes.target, 1);
  const auto hidden_states = [&](LanguageModel& m) {
    m.set_path(attention::Path::composed);
    return m.hidden(input.to(device), {});
  };
  return (hidden_states(model) - hidden_states(*original_model.model)).abs().max().item<double>();
}

}  // namespace mh::model
