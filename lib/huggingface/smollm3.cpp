// SmolLM3 (Bakouch et al. 2025): Llama without rotary positions in every fourth layer (NoPE). Layers without positions
// may have a window.
#include "base/error.h"
#include "base/text.h"
#include "huggingface/llama_form.h"

namespace mh::huggingface {

namespace {

const LlamaFamily kSmolLm3{.model_type = "smollm3",
                           .model_class = "SmolLM3ForCausalLM",
                           .width = 2048,
                           .layers = 36,
                           .heads = 16,
                           .kv_heads = 4,
                           .max_positions = 32768,
                           .is_tied = true,
                           .attention_bias = AttentionBias::attention_bias,
                           .has_mlp_bias = true,
                           .rope = {.default_base = 2000000}};
constexpr int64_t kDefaultInterval = 4;  // default of no_rope_layer_interval

// Returns whether each layer has rotary positions.
std::vector<bool> rotating_layers(const JsonConfig& config, size_t num_layers) {
  const std::string where = config.path() + ": no_rope_layers";
  const auto interval = config.value("no_rope_layer_interval", kDefaultInterval).get<int64_t>();
  const auto flags = config.numbers("no_rope_layers");
  std::vector<bool> rotates(num_layers);
  if (!flags) {
    require_size(interval, config.path() + ": no_rope_layer_interval", kMaxLayers);
    for (size_t i = 0; i < num_layers; ++i) rotates[i] = (static_cast<int64_t>(i) + 1) % interval != 0;
    return rotates;
  }
  if (flags->size() != num_layers)
    refuse_input(where, str("a number for each of the ", count_of(num_layers, "layer")),
                 count_of(flags->size(), "number"), "copy config.json from the source of the model");
  for (size_t i = 0; i < num_layers; ++i) {
    if ((*flags)[i] != 0 && (*flags)[i] != 1)
      refuse_input(where, "1 for a layer with rotary positions, 0 for a layer without", str((*flags)[i]),
                   "copy config.json from the source of the model");
    rotates[i] = (*flags)[i] == 1;
  }
  return rotates;
}

class SmolLm3 : public LlamaForm {
 public:
  SmolLm3() : LlamaForm(kSmolLm3) {}

 protected:
  LayerSettings read_layers(const JsonConfig& config, const Settings& layer, const RopeSizes& sizes,
                            size_t num_layers) const override {
    const std::vector<bool> rotates = rotating_layers(config, num_layers);
    const int64_t window = enabled_window(config, std::nullopt);
    const std::vector<std::string> types =
        layer_types_or(config, num_layers, [&](int64_t i) { return !rotates[static_cast<size_t>(i)]; });
    Settings rotating_layer = LlamaForm::read_layers(config, layer, sizes, 1).of_layer(0);
    Settings plain_layer{{"transform", Json::array()}};
    LayerSettings layers;
    for (size_t i = 0; i < num_layers; ++i) {
      Settings& settings = rotates[i] ? rotating_layer : plain_layer;
      settings["window"] = types[i] == kSlidingAttention ? window : 0;
      layers.add(settings);
    }
    return layers;
  }

  void write_layers(const LayerSettings& layers, const RopeSizes& sizes, Json& config) const override {
    Json flags = Json::array();
    const Settings* rotating_layer = &layers.of_layer(0);
    for (size_t i = 0; i < layers.kind_of_layer.size(); ++i) {
      const bool rotates = !setting_or(layers.of_layer(i), "transform", Json::array()).empty();
      if (rotates) rotating_layer = &layers.of_layer(i);
      flags.push_back(rotates ? 1 : 0);
    }
    write_rope(*rotating_layer, family().rope, sizes, config);
    write_windows(layers, config);
    config["no_rope_layers"] = flags;
    config["no_rope_layer_interval"] = kDefaultInterval;
  }
};

const Registration<SmolLm3> smollm3_entry(architectures(), "smollm3",
                                          "The form of llama without rotary positions in some layers, by default every "
                                          "fourth.");

}  // namespace

}  // namespace mh::huggingface
