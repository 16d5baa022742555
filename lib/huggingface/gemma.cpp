// Gemma 1 and 2 (Gemma team 2024), and the text models of Gemma 3 (Gemma team 2025). Norms multiply by 1 + weight,
// embeddings are multiplied by the square root of the width, and the activation is gelu-tanh. Gemma 2 and 3 have norms
// around the sublayers, soft caps of logits, and a window in some layers. Gemma 3 also has norms of queries and keys,
// and a base of rotary positions of its own in the layers with a window.
#include <cmath>
#include <optional>

#include "base/error.h"
#include "huggingface/llama_form.h"

namespace mh::huggingface {

namespace {

const LlamaFamily kGemma{.model_type = "gemma",
                         .model_class = "GemmaForCausalLM",
                         .width = 3072,
                         .ffn_dim = 24576,
                         .layers = 28,
                         .heads = 16,
                         .kv_heads = 16,
                         .head_size = 256,
                         .max_positions = 8192,
                         .is_tied = true,
                         .activation = "gelu_pytorch_tanh",
                         .gelu_means_tanh = true,
                         .attention_bias = AttentionBias::attention_bias,
                         .norm_addend = 1,
                         .scales_embedding = true,
                         .ignored_keys = {"hidden_activation"}};

const LlamaFamily kGemma2{.model_type = "gemma2",
                          .model_class = "Gemma2ForCausalLM",
                          .width = 2304,
                          .ffn_dim = 9216,
                          .layers = 26,
                          .heads = 8,
                          .kv_heads = 4,
                          .head_size = 256,
                          .max_positions = 8192,
                          .is_tied = true,
                          .activation_key = "hidden_activation",
                          .activation = "gelu_pytorch_tanh",
                          .attention_bias = AttentionBias::attention_bias,
                          .norm = "around",
                          .norm_addend = 1,
                          .scales_embedding = true,
                          .ignored_keys = {"hidden_act", "cache_implementation"}};

const LlamaFamily kGemma3{.model_type = "gemma3_text",
                          .model_class = "Gemma3ForCausalLM",
                          .width = 2304,
                          .ffn_dim = 9216,
                          .layers = 26,
                          .heads = 8,
                          .kv_heads = 4,
                          .head_size = 256,
                          .max_positions = 131072,
                          .is_tied = true,
                          .activation_key = "hidden_activation",
                          .activation = "gelu_pytorch_tanh",
                          .attention_bias = AttentionBias::attention_bias,
                          .norm = "around",
                          .qk_norm_scope = "head",
                          .norm_addend = 1,
                          .scales_embedding = true,
                          .rope = {.default_base = 1000000},
                          .ignored_keys = {"_sliding_window_pattern", "cache_implementation"}};
const RopeOfTypesFormat kGemma3Rope{.full = kGemma3.rope,
                                    .sliding_base_key = "rope_local_base_freq",
                                    .default_sliding_base = 10000,
                                    .scales_sliding = false};
constexpr const char* kAttentionCapKey = "attn_logit_softcapping";
constexpr const char* kOutputCapKey = "final_logit_softcapping";
constexpr int64_t kDefaultWindow = 4096;
constexpr int64_t kGemma2Pattern = 2;   // without layer_types, every second layer is without a window
constexpr int64_t kDefaultPattern = 6;  // default of sliding_window_pattern: every sixth layer is without a window
constexpr double kDefaultScalar = 256;  // default of query_pre_attn_scalar, whose inverse root scales the logits

// Returns the bound c of the soft cap c tanh(x / c) that config.json has under `key`; 0, no cap, for null. `if_absent`:
// default of the class.
double soft_cap(const JsonConfig& config, const char* key, std::optional<double> if_absent) {
  const auto cap = config.nullable<double>(key, if_absent);
  if (cap && !(*cap > 0))
    refuse_input(config.path() + ": " + key, "null or a number greater than 0", Json(*cap).dump(),
                 "copy config.json from the source of the model");
  return cap.value_or(0.0);
}

// Returns a soft cap, 0 for none, as a value of config.json: null for none.
Json soft_cap_of(const Json& cap) { return cap == 0 ? Json() : cap; }

// Returns the type of each layer. Without layer_types, every layer whose number, from 1, is a multiple of `pattern` is
// without a window.
std::vector<std::string> gemma_layer_types(const JsonConfig& config, size_t num_layers, int64_t pattern) {
  return layer_types_or(config, num_layers, [&](int64_t i) { return (i + 1) % pattern != 0; });
}

void refuse_both_directions(const JsonConfig& config) {
  config.require("use_bidirectional_attention", false, {false},
                 "use a decoder: multihead has no mask of both directions for this architecture");
}

class Gemma : public LlamaForm {
 public:
  Gemma() : LlamaForm(kGemma) {}

  Settings settings(const JsonConfig& config, const std::set<std::string>& tensor_names) const override {
    refuse_both_directions(config);
    return LlamaForm::settings(config, tensor_names);
  }
};

// Settings that Gemma 2 and 3 share: soft caps, and a scale of the logits of attention that does not depend on the head
// size.
class CappedGemma : public LlamaForm {
 public:
  // Default caps of the class in transformers.
  struct SoftCaps {
    std::optional<double> attention, output;
  };
  CappedGemma(const LlamaFamily& family, const SoftCaps& default_caps)
      : LlamaForm(family), default_caps_(default_caps) {}

  Settings settings(const JsonConfig& config, const std::set<std::string>& tensor_names) const override {
    refuse_both_directions(config);
    Settings result = LlamaForm::settings(config, tensor_names);
    result["attention.soft_cap"] = soft_cap(config, kAttentionCapKey, default_caps_.attention);
    result["model.output_soft_cap"] = soft_cap(config, kOutputCapKey, default_caps_.output);
    const double scalar = config.value("query_pre_attn_scalar", kDefaultScalar);
    if (!(scalar > 0))
      refuse_input(config.path() + ": query_pre_attn_scalar", "a number greater than 0", Json(scalar).dump(),
                   "copy config.json from the source of the model");
    result["attention.scale"] = scalar == static_cast<double>(head_size_of(result)) ? 0.0 : 1 / std::sqrt(scalar);
    return result;
  }

  Json config(const Settings& settings) const override {
    Json config = LlamaForm::config(settings);
    const LayerSettings layers = layers_of(settings, num_layers_of(settings));
    const Settings& layer = layers.of_layer(0);
    config[kAttentionCapKey] = soft_cap_of(setting_or(layer, "soft_cap", 0.0));
    config[kOutputCapKey] = soft_cap_of(setting_or(settings, "model.output_soft_cap", 0.0));
    const auto scale = setting_or(layer, "scale", 0.0).get<double>();
    double scalar = scale == 0 ? config.at("head_dim").get<double>() : 1 / (scale * scale);
    // The scale of a whole number is written as this number.
    if (scale != 0 && 1 / std::sqrt(std::round(scalar)) == scale) scalar = std::round(scalar);
    if (scalar == std::round(scalar)) config["query_pre_attn_scalar"] = static_cast<int64_t>(scalar);
    else config["query_pre_attn_scalar"] = scalar;
    config["use_bidirectional_attention"] = false;
    return config;
  }

 private:
  SoftCaps default_caps_;
};

class Gemma2 : public CappedGemma {
 public:
  Gemma2() : CappedGemma(kGemma2, {.attention = 50, .output = 30}) {}

 protected:
  LayerSettings read_layers(const JsonConfig& config, const Settings& layer, const RopeSizes& sizes,
                            size_t num_layers) const override {
    return layers_of_types(gemma_layer_types(config, num_layers, kGemma2Pattern),
                           LlamaForm::read_layers(config, layer, sizes, 1).of_layer(0),
                           sliding_window(config, kDefaultWindow));
  }

  void write_layers(const LayerSettings& layers, const RopeSizes& sizes, Json& config) const override {
    LlamaForm::write_layers(layers, sizes, config);
    const Json window = largest_window(layers);
    config["sliding_window"] = window.is_null() ? Json(kDefaultWindow) : window;
    config["layer_types"] = layer_types_of(layers);
  }
};

class Gemma3 : public CappedGemma {
 public:
  Gemma3() : CappedGemma(kGemma3, {}) {}

 protected:
  LayerSettings read_layers(const JsonConfig& config, const Settings& layer, const RopeSizes& sizes,
                            size_t num_layers) const override {
    const auto pattern = config.value("sliding_window_pattern", kDefaultPattern).get<int64_t>();
    require_size(pattern, config.path() + ": sliding_window_pattern", kMaxLayers);
    return layers_of_types(gemma_layer_types(config, num_layers, pattern), layer,
                           sliding_window(config, kDefaultWindow), read_rope_of_types(config, kGemma3Rope, sizes));
  }

  void write_layers(const LayerSettings& layers, const RopeSizes& sizes, Json& config) const override {
    // For a kind of layers that the model lacks, config.json gets the defaults, which have no effect.
    RopeOfTypes rope{{}, {{"rotary.base", kGemma3Rope.default_sliding_base}}};
    for (const Settings& kind : layers.kinds) (is_sliding(layers, kind) ? rope.sliding : rope.full) = kind;
    const Json window = largest_window(layers);
    config["sliding_window"] = window.is_null() && layers.kinds.size() == 1 ? Json(kDefaultWindow) : window;
    config["layer_types"] = Json::array();
    for (size_t i = 0; i < layers.kind_of_layer.size(); ++i)
      config["layer_types"].push_back(is_sliding(layers, layers.of_layer(i)) ? kSlidingAttention : kFullAttention);
    write_rope_of_types(rope, kGemma3Rope, sizes, config);
  }

 private:
  // Returns whether layers of this kind have the type sliding_attention. If sliding_window is null, no layer has a
  // window, and the types differ only in their rotary positions, which do not scale in layers of the type
  // sliding_attention; by default the first layer has this type.
  static bool is_sliding(const LayerSettings& layers, const Settings& kind) {
    if (!largest_window(layers).is_null()) return !window_of(kind).is_null();
    const Settings& first = layers.of_layer(0);
    const bool is_first_scaled = setting_or(first, "rotary.scaling", "none") != "none";
    return layers.kinds.size() > 1 && (kind == first) != is_first_scaled;
  }
};

const Registration<Gemma> gemma_entry(
    architectures(), "gemma",
    "Gemma 1: the form of llama with scaled embeddings, the activation gelu-tanh, and "
    "norms whose weights are stored minus 1.");
const Registration<Gemma2> gemma2_entry(
    architectures(), "gemma2",
    "Gemma 2: gemma with norms around the sublayers, soft caps of the logits of attention and of the output, and a "
    "window in every second layer.");
const Registration<Gemma3> gemma3_entry(
    architectures(), "gemma3_text",
    "The text models of Gemma 3 (270M and 1B): gemma with norms around the sublayers, norms of the queries and keys of "
    "each head, and a window and other rotary positions in five of six layers.");

}  // namespace

}  // namespace mh::huggingface
