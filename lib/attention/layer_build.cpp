// Builds a layer from its options, combines the properties of its stages, and returns the options of a pruned layer.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "attention/layer.h"
#include "base/error.h"
#include "base/text.h"

namespace mh::attention {

Stages make_stages(const AttentionOptions& options, const LayerSpec& layer_spec) {
  const auto make = [&](auto& registry, const char* key, const std::string& name) {
    const auto it = options.stages.find(name);
    return registry.make(name, key)->make(it != options.stages.end() ? it->second.get() : nullptr, layer_spec);
  };
  Stages stages;
  for (const std::string& name : options.transform)
    stages.transforms.push_back(make(transforms(), "attention.transform", name));
  stages.pairing = make(pairings(), "attention.pairing", options.pairing);
  stages.score = make(scores(), "attention.score", options.score);
  stages.position_bias = make(position_biases(), "attention.position_bias", options.position_bias);
  stages.normaliser = make(normalisers(), "attention.normaliser", options.normaliser);
  stages.mixer = make(mixers(), "attention.mixer", options.mixer);
  for (const std::string& name : options.combiner)
    stages.combiners.push_back(make(combiners(), "attention.combiner", name));
  return stages;
}

AttentionLayer::AttentionLayer(nn::ParameterList& parameters, const AttentionOptions& options,
                               const LayerSpec& layer_spec, const Inits& inits)
    : layer_spec_(layer_spec), options_(options) {
  using nn::HeadRole;
  auto add_weight = [&](const char* suffix, int64_t num_outputs, int64_t num_inputs, const nn::Init& init,
                        HeadRole role, HeadSide side) {
    nn::ParameterTraits traits{
        init, true, true, {{role == HeadRole::output ? 1 : 0, layer_spec.num_heads_of(side), side}}};
    traits.role = role;
    return &parameters.add(layer_spec.name + suffix, {num_outputs, num_inputs}, traits);
  };
  auto add_output_bias = [&] {
    if (!options.has_output_bias()) return;
    nn::ParameterTraits traits{nn::Init::constant(0), false};
    traits.role = HeadRole::output;
    output_bias_ = &parameters.add(layer_spec.name + ".output.bias", {layer_spec.width}, traits);
  };
  if (layer_spec.heads == 0) {
    add_output_bias();
    return;
  }
  stages_ = make_stages(options_, layer_spec_);
  check_combiners();
  check_heads();
  check_key_options();
  auto add_projection = [&](const std::string& suffix, int64_t size, HeadSide side, nn::Parameter*& bias) {
    size *= layer_spec.num_heads_of(side);
    nn::Parameter* matrix = add_weight((suffix + ".weight").c_str(), size, layer_spec.width, inits.query_key_value,
                                       HeadRole::projection, side);
    if (!options.bias) return matrix;
    nn::ParameterTraits traits{inits.query_key_value_bias, false, false, {{0, layer_spec.num_heads_of(side), side}}};
    traits.role = HeadRole::projection;
    bias = &parameters.add(layer_spec.name + suffix + ".bias", {size}, traits);
    return matrix;
  };
  const bool is_grouped = layer_spec.is_grouped();
  query_weight_ = add_projection(".query", layer_spec.key_size, HeadSide::score, query_bias_);
  if (stages_.score->uses_keys())
    key_weight_ =
        add_projection(".key", layer_spec.key_size, is_grouped ? HeadSide::key_value : HeadSide::score, key_bias_);
  value_weight_ =
      add_projection(".value", layer_spec.value_size, is_grouped ? HeadSide::key_value : HeadSide::value, value_bias_);
  // The initial sinks have the standard deviation that weights have in the initialisation schemes bert and
  // transformer-xl.
  if (options.sink == Sink::learned)
    sinks_ = &parameters.add(
        layer_spec.name + ".sinks", {layer_spec.heads},
        {nn::Init::normal(0.02), false, false, {{0, layer_spec.heads, HeadSide::score}}, true, HeadRole::stage});
  stages_.for_each_stage(options_, [&](Stage& stage, const char* stage_type, const std::string& name) {
    const Capabilities stage_capabilities = stage.capabilities();
    const bool is_cross = layer_spec.kind == AttentionKind::decoder_cross,
               is_causal = layer_spec.kind == AttentionKind::decoder_self;
    const char* missing_capability = is_cross && !stage_capabilities.supports_cross_attention     ? "cross-attention"
                                     : is_causal && !stage_capabilities.supports_causal_attention ? "a causal model"
                                     : !is_cross && !stage_capabilities.supports_self_attention   ? "self-attention"
                                                                                                  : nullptr;
    if (missing_capability != nullptr)
      refuse_usage(str(layer_spec.name, ", ", stage_type, " '", name, "'"),
                   str("a stage that supports ", missing_capability), "a stage without this support",
                   str("set attention.", name_of(layer_spec.kind), ".", stage_type, " to a stage with this support"));
    parameters.set_role(role_of(stage));
    stage.add_parameters(parameters, layer_spec_);
    parameters.set_role(HeadRole::none);
  });
  output_weight_ = add_weight(".output.weight", layer_spec.width, layer_spec.output_heads * layer_spec.value_size,
                              inits.output, HeadRole::output, HeadSide::output);
  add_output_bias();
  dispatcher_ = Dispatcher(view());
}

// Throws Error(usage) if the numbers of score and value heads differ without a mixer that changes the number of heads,
// or if the numbers of value and output heads differ without a combiner that mixes heads.
void AttentionLayer::check_heads() const {
  auto refuse = [&](const char* key, const char* heads_noun, const char* required_stage, int64_t expected_count,
                    int64_t actual_count) {
    refuse_usage(str(layer_spec_.name, ", attention.", key), str(expected_count, ", the number of ", heads_noun),
                 str(actual_count), str("set attention.", key, "=", expected_count, ", or choose a ", required_stage));
  };
  if (layer_spec_.value_heads != layer_spec_.heads && !stages_.mixer->can_change_head_count())
    refuse("value_heads", "score heads", "mixer that changes the number of heads", layer_spec_.heads,
           layer_spec_.value_heads);
  if (layer_spec_.output_heads != layer_spec_.value_heads && !stages_.mixes_head_outputs())
    refuse("output_heads", "value heads", "combiner that mixes heads", layer_spec_.value_heads,
           layer_spec_.output_heads);
}

// Throws Error(usage) if the layer has a combiner twice, if a combiner before the last one mixes heads, or if the
// default combiner, which is the empty list, is one of several.
void AttentionLayer::check_combiners() const {
  const std::vector<std::string>& names = options_.combiner;
  const auto refuse = [&](const std::string& expected, const std::string& advice) {
    refuse_usage(str(layer_spec_.name, ", attention.combiner"), expected, str('"', join(names, "\", \""), '"'), advice);
  };
  if (std::set<std::string>(names.begin(), names.end()).size() != names.size())
    refuse("each combiner once", "leave the repeated combiner out");
  const std::string default_name = AttentionOptions().combiner.front();
  if (names.size() > 1 && std::find(names.begin(), names.end(), default_name) != names.end())
    refuse(str("'", default_name, "' alone, since it is the list without combiners"),
           str("leave '", default_name, "' out of the list"));
  for (size_t i = 0; i + 1 < names.size(); ++i)
    if (stages_.combiners[i]->mixes_heads())
      refuse(str("no combiner after '", names[i], "', which mixes heads"), str("move '", names[i], "' to the end"));
}

// Throws Error(usage) if the layer has a window in cross-attention, a transform twice, options of the keys that its
// score does not read, or sinks with a mixer of logits.
void AttentionLayer::check_key_options() const {
  const std::string prefix = str("attention.", name_of(layer_spec_.kind), ".");
  if (options_.window > 0 && layer_spec_.kind == AttentionKind::decoder_cross)
    refuse_usage(str(layer_spec_.name, ", attention.window"),
                 str("0 in ", name_of(layer_spec_.kind), ", since only self-attention has a window"),
                 str(options_.window), str("set ", prefix, "window=0"));
  // After the mixing of logits, the heads of the softmax are not the score heads.
  if (options_.sink != Sink::none && stages_.mixer->mixer_input() == MixerInput::logits)
    refuse_usage(str(layer_spec_.name, ", attention.sink"),
                 str("\"none\", since mixer '", options_.mixer, "' mixes logits"), "sinks",
                 str("set ", prefix, "sink=none, or choose a mixer of probabilities"));
  const std::set<std::string> names(options_.transform.begin(), options_.transform.end());
  if (names.size() != options_.transform.size())
    refuse_usage(str(layer_spec_.name, ", attention.transform"), "each transform once",
                 str('"', join(options_.transform, "\", \""), '"'), "leave the repeated transform out");
  const auto refuse_with_score = [&](const char* key, const std::string& expected, const std::string& found) {
    refuse_usage(str(layer_spec_.name, ", attention.", key),
                 str(expected, ", since attention.score is '", options_.score, "'"), found,
                 str("leave attention.", key, " out, or set attention.score=", AttentionOptions().score));
  };
  const std::string transform_names = str('[', join(options_.transform, ", "), ']');
  if (!stages_.score->uses_keys()) {
    if (options_.scale > 0) refuse_with_score("scale", "0", str(options_.scale));
    if (!options_.transform.empty()) refuse_with_score("transform", "[]", transform_names);
  }
  if (!stages_.score->has_relative_positions()) return;
  if (layer_spec_.is_grouped()) refuse_with_score("key_value_heads", "0", str(layer_spec_.kv_heads));
  for (const auto& transform : stages_.transforms)
    if (transform->adds_positions())
      refuse_with_score("transform", "no transform that adds positions", transform_names);
}

nn::HeadRole AttentionLayer::role_of(const Stage& stage) const {
  using nn::HeadRole;
  if (&stage == stages_.mixer.get())
    return stages_.mixer->mixer_input() == MixerInput::nothing ? HeadRole::stage : HeadRole::mixing;
  for (const auto& combiner : stages_.combiners)
    if (&stage == combiner.get())
      return combiner->mixes_heads() ? HeadRole::mixing : combiner->has_head_gates() ? HeadRole::gate : HeadRole::stage;
  return HeadRole::stage;
}

bool AttentionLayer::has_head_gates() const {
  return std::any_of(stages_.combiners.begin(), stages_.combiners.end(),
                     [](const auto& combiner) { return combiner->has_head_gates(); });
}

// Returns the number of combiners up to the last combiner without a matrix.
size_t AttentionLayer::num_unfolded_combiners() const {
  size_t count = stages_.combiners.size();
  while (count > 0 && stages_.combiners[count - 1]->as_linear_map().defined()) --count;
  return count;
}

at::Tensor AttentionLayer::as_linear_map() const {
  at::Tensor product;
  for (size_t i = num_unfolded_combiners(); i < stages_.combiners.size(); ++i) {
    const at::Tensor matrix = stages_.combiners[i]->as_linear_map();
    product = product.defined() ? at::matmul(product.to(at::kDouble), matrix.to(at::kDouble)) : matrix;
  }
  return product;
}

AttentionOptions AttentionLayer::options_after_folding() const {
  AttentionOptions new_options = options_;
  new_options.combiner.resize(num_unfolded_combiners());
  if (new_options.combiner.empty()) new_options.combiner = AttentionOptions().combiner;
  new_options.output_heads = 0;
  return new_options;
}

AttentionOptions AttentionLayer::options_after_padding(int64_t head_size) const {
  AttentionOptions new_options = options_;
  if (layer_spec_.heads == 0) return new_options;
  new_options.head_size = head_size;
  new_options.value_size = 0;
  if (stages_.score->uses_keys()) new_options.scale = layer_spec_.scale();
  stages_.for_each_stage(options_, [&](Stage& stage, const char* /*stage_type*/, const std::string& name) {
    if (auto stage_options = stage.options_after_padding(layer_spec_))
      new_options.stages[name] = std::move(stage_options);
  });
  return new_options;
}

bool AttentionLayer::can_prune_separately(HeadSide side) const {
  if (layer_spec_.heads == 0) return false;
  return side == HeadSide::value ||
         (side == HeadSide::score ? stages_.mixer->can_change_head_count() : stages_.mixes_head_outputs());
}

AttentionOptions AttentionLayer::options_after_pruning(const RemainingHeads& remaining_heads) const {
  if (remaining_heads.score != remaining_heads.value && !can_prune_separately(HeadSide::score))
    refuse_usage(layer_spec_.name,
                 str("the same pruned heads on the score and value sides, for mixer '", options_.mixer, "'"),
                 "different heads", "prune the same heads on both sides");
  const std::string& last_combiner = options_.combiner.back();
  if (remaining_heads.output != remaining_heads.value && !can_prune_separately(HeadSide::output))
    refuse_usage(layer_spec_.name,
                 str("the same pruned heads on the output and value sides, for combiner '", last_combiner, "'"),
                 "different heads", "prune the same heads on both sides");
  AttentionOptions new_options = options_;
  if (remaining_heads.value.empty() || remaining_heads.output.empty() ||
      (remaining_heads.score.empty() && stages_.mixer->mixer_input() == MixerInput::probabilities)) {
    new_options.heads = new_options.value_heads = new_options.output_heads = new_options.kv_heads = 0;
    new_options.group_sizes.clear();
    return new_options;
  }
  if (remaining_heads.score.empty())
    refuse_usage(layer_spec_.name,
                 str("at least one remaining score head, since mixer '", options_.mixer, "' mixes logits"), "none",
                 "keep a score head, or prune the value and output heads, too");
  new_options.heads = static_cast<int64_t>(remaining_heads.score.size());
  const auto num_value_heads = static_cast<int64_t>(remaining_heads.value.size()),
             num_output_heads = static_cast<int64_t>(remaining_heads.output.size());
  new_options.value_heads = num_value_heads == new_options.heads ? 0 : num_value_heads;
  new_options.output_heads = num_output_heads == num_value_heads ? 0 : num_output_heads;
  set_groups_after_pruning(remaining_heads, new_options);
  new_options.head_size = layer_spec_.key_size;
  new_options.value_size = layer_spec_.value_size == layer_spec_.key_size ? 0 : layer_spec_.value_size;
  stages_.for_each_stage(options_, [&](const Stage& stage, const char*, const std::string& name) {
    if (auto stage_options = stage.options_after_pruning(remaining_heads, layer_spec_))
      new_options.stages[name] = std::move(stage_options);
  });
  return new_options;
}

// Sets the number of key/value heads and, if they differ, the group sizes of a layer after pruning.
void AttentionLayer::set_groups_after_pruning(const RemainingHeads& remaining_heads,
                                              AttentionOptions& new_options) const {
  new_options.kv_heads = 0;
  new_options.group_sizes.clear();
  if (!layer_spec_.is_grouped()) return;
  if (remaining_heads.score != remaining_heads.value)
    refuse_usage(layer_spec_.name, "the same pruned heads on the score and value sides, since the heads are grouped",
                 "different heads", "prune the same heads on both sides");
  std::map<int64_t, int64_t> sizes;  // number of remaining query heads of each key/value head
  for (const int64_t head : remaining_heads.score) ++sizes[layer_spec_.kv_head_of[static_cast<size_t>(head)]];
  new_options.kv_heads = static_cast<int64_t>(sizes.size());
  for (const auto& [kv_head, size] : sizes) new_options.group_sizes.push_back(size);
  if (std::set<int64_t>(new_options.group_sizes.begin(), new_options.group_sizes.end()).size() == 1)
    new_options.group_sizes.clear();
}

std::vector<std::string> AttentionLayer::differing_head_options(const AttentionLayer& other) const {
  const auto options_of_heads = [](const AttentionLayer& layer) {
    AttentionOptions options = layer.options_;
    options.heads = options.value_heads = options.output_heads = options.kv_heads = 0;
    options.group_sizes.clear();
    options.head_size = options.value_size = 0;
    options.bias = true;
    options.output_bias = OutputBias::same;
    options.scale = layer.layer_spec_.heads > 0 ? layer.layer_spec_.scale() : 0;
    return options;
  };
  std::vector<std::string> keys = differing_keys(options_of_heads(*this), options_of_heads(other));
  for (std::string& key : keys) key.insert(0, "attention.");
  return keys;
}

bool AttentionLayer::is_per_query() const {
  bool all_per_query = true;
  stages_.for_each_stage(options_, [&](const Stage& stage, const char*, const std::string&) {
    all_per_query = all_per_query && stage.is_per_query();
  });
  return all_per_query;
}

Capabilities AttentionLayer::capabilities() const {
  Capabilities result;
  stages_.for_each_stage(options_, [&](const Stage& stage, const char*, const std::string&) {
    const Capabilities stage_capabilities = stage.capabilities();
    result = {result.supports_self_attention && stage_capabilities.supports_self_attention,
              result.supports_causal_attention && stage_capabilities.supports_causal_attention,
              result.supports_cross_attention && stage_capabilities.supports_cross_attention,
              result.supports_memory && stage_capabilities.supports_memory,
              result.supports_incremental_decoding && stage_capabilities.supports_incremental_decoding};
  });
  return result;
}

std::string AttentionLayer::stage_sampling_on_host() const {
  std::string description;
  stages_.for_each_stage(options_, [&](const Stage& stage, const char* stage_type, const std::string& name) {
    if (stage.samples_on_host()) description = str(stage_type, " '", name, "'");
  });
  return description;
}

std::pair<int64_t, std::string> AttentionLayer::max_length_and_key() const {
  std::pair<int64_t, std::string> minimum;
  stages_.for_each_stage(options_, [&](const Stage& stage, const char*, const std::string& name) {
    if (const int64_t length = stage.max_length(); length > 0 && (minimum.first == 0 || length < minimum.first))
      minimum = {length, str("attention.", name, ".length")};
  });
  return minimum;
}

bool AttentionLayer::has_separate_heads(HeadSide side) const {
  if (layer_spec_.heads == 0) return false;
  return side == HeadSide::value ||
         (side == HeadSide::score ? stages_.mixer->mixer_input() != MixerInput::nothing : stages_.mixes_head_outputs());
}

}  // namespace mh::attention
