#include "model/stage_list.h"

#include <utility>

#include "attention/layer.h"
#include "attention/stage.h"
#include "base/config.h"
#include "base/error.h"
#include "model/language_model.h"
#include "model/model_config.h"

namespace mh::model {

namespace {

// Sets the properties of `listed_stage` that follow from a layer with this stage in a decoder with default options.
void set_layer_properties(ListedStage& listed_stage) {
  Config config;
  config.set("model.layers=1");
  config.set(attention::stage_assignment(listed_stage.stage, listed_stage.name));
  const auto model = build_language_model(ModelConfig::read(config), {1}, at::Device(at::kMeta));
  const attention::AttentionLayer& layer = *model->attention_layers().front();
  listed_stage.mixes_heads =
      layer.has_separate_heads(attention::HeadSide::score) || layer.has_separate_heads(attention::HeadSide::output);
  listed_stage.is_foldable = layer.as_linear_map().defined();
}

template <class S>
void append_stages(const char* stage, const Registry<S>& registry, std::vector<ListedStage>& result) {
  for (const std::string& name : registry.names()) {
    ListedStage listed_stage{stage, name, registry.find(name, stage).help, {}};
    if (const auto stage_options = registry.make(name, stage)->options()) {
      FieldLister lister;
      lister.section("", *stage_options);
      for (const auto& field : lister.descriptions()) listed_stage.options.push_back(str(field.key, "=", field.value));
    }
    set_layer_properties(listed_stage);
    result.push_back(std::move(listed_stage));
  }
}

}  // namespace

std::vector<ListedStage> list_stages() {
  std::vector<ListedStage> result;
  append_stages("transform", attention::transforms(), result);
  append_stages("pairing", attention::pairings(), result);
  append_stages("score", attention::scores(), result);
  append_stages("position_bias", attention::position_biases(), result);
  append_stages("normaliser", attention::normalisers(), result);
  append_stages("mixer", attention::mixers(), result);
  append_stages("combiner", attention::combiners(), result);
  return result;
}

}  // namespace mh::model
