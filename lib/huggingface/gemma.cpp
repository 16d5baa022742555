// Gemma (Gemma team 2024) and the text models of Gemma 3 (Gemma team 2025). Norms multiply by 1 + weight, embeddings
// are multiplied by the square root of the width, and the activation is gelu-tanh. Gemma 3 has norms around the
// sublayers, norms of queries and keys, and two kinds of layers: most have a window and a base of rotary positions of
// their own.
#include <cmath>

#include "base/error.h"
#include "huggingface/llama_form.h"

namespace mh::huggingface {

namespace {

const LlamaFamily kGemma{.model_type = "gemma",
                         .model_class = "GemmaForCausalLM",
                         .width = 3072,
                         .ffn = 24576,
                         .layers = 28,
                         .heads = 16,
                         .key_value_heads = 16,
                         .head_size = 256,
                         .max_positions = 8192,
                         .is_tied = true,
                         .activation = "gelu_pytorch_tanh",
                         .gelu_means_tanh = true,
                         .attention_bias = AttentionBias::attention_bias,
                         .norm_addend = 1,
                         .scales_embedding = true,
                         .ignored_keys = {"hidden_activation"}};

const LlamaFamily kGemma3{.model_type = "gemma3_text",
                          .model_class = "Gemma3ForCausalLM",
                          .width = 2304,
                          .ffn = 9216,
                          .layers = 26,
                          .heads = 8,
                          .key_value_heads = 4,
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
                          .has_output_soft_cap = true,
                          .rope = {.default_base = 1000000},
                          .ignored_keys = {"_sliding_window_pattern"}};
const RopeOfTypesFormat kGemma3Rope{.full = kGemma3.rope,
                                    .sliding_base_key = "rope_local_base_freq",
                                    .default_sliding_base = 10000,
                                    .scales_sliding = false};
constexpr int64_t kDefaultWindow = 4096;
constexpr int64_t kDefaultPattern = 6;  // default of sliding_window_pattern: every sixth layer is without a window
constexpr double kDefaultScalar = 256;  // default of query_pre_attn_scalar, whose inverse root scales the logits

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

class Gemma3 : public LlamaForm {
 public:
  Gemma3() : LlamaForm(kGemma3) {}

  Settings settings(const JsonConfig& config, const std::set<std::string>& tensor_names) const override {
    refuse_both_directions(config);
    config.require("attn_logit_softcapping", nullptr, {nullptr},
                   "use a model without a soft cap of attention logits: multihead has none");
    Settings result = LlamaForm::settings(config, tensor_names);
    const double scalar = config.value("query_pre_attn_scalar", kDefaultScalar);
    if (!(scalar > 0))
      refuse_input(config.path() + ": query_pre_attn_scalar", "a number greater than 0", Json(scalar).dump(),
                   "copy config.json from the source of the model");
    result["attention.scale"] = scalar == default_scalar(result) ? 0.0 : 1 / std::sqrt(scalar);
    return result;
  }

  Json config(const Settings& settings) const override {
    Json config = LlamaForm::config(settings);
    const auto scale = setting_or(settings, "attention.scale", 0.0).get<double>();
    double scalar = scale == 0 ? config.at("head_dim").get<double>() : 1 / (scale * scale);
    // The scale of a whole number is written as this number.
    if (scale != 0 && 1 / std::sqrt(std::round(scalar)) == scale) scalar = std::round(scalar);
    if (scalar == std::round(scalar)) config["query_pre_attn_scalar"] = static_cast<int64_t>(scalar);
    else config["query_pre_attn_scalar"] = scalar;
    config.update({{"attn_logit_softcapping", nullptr}, {"use_bidirectional_attention", false}});
    return config;
  }

 protected:
  LayerSettings read_layers(const JsonConfig& config, const Settings& layer, const RopeSizes& sizes,
                            size_t num_layers) const override {
    std::vector<std::string> types = layer_types(config, num_layers);
    const auto pattern = config.value("sliding_window_pattern", kDefaultPattern).get<int64_t>();
    require_size(pattern, config.path() + ": sliding_window_pattern", kMaxLayers);
    if (types.empty())
      for (size_t i = 0; i < num_layers; ++i)
        types.emplace_back((static_cast<int64_t>(i) + 1) % pattern == 0 ? kFullAttention : kSlidingAttention);
    const RopeOfTypes rope = read_rope_of_types(config, kGemma3Rope, sizes);
    Settings full = layer, sliding = layer;
    full["window"] = 0;
    sliding["window"] = sliding_window(config, kDefaultWindow);
    full.insert(rope.full.begin(), rope.full.end());
    sliding.insert(rope.sliding.begin(), rope.sliding.end());
    LayerSettings layers;
    for (const std::string& type : types) layers.add(type == kFullAttention ? full : sliding);
    return layers;
  }

  void write_layers(const LayerSettings& layers, const RopeSizes& sizes, Json& config) const override {
    // A model without one of both kinds of layers gets the defaults of this kind, which have no effect.
    RopeOfTypes rope{{}, {{"rotary.base", kGemma3Rope.default_sliding_base}}};
    for (const Settings& kind : layers.kinds) (window_of(kind).is_null() ? rope.full : rope.sliding) = kind;
    const Json window = largest_window(layers);
    config["sliding_window"] = window.is_null() ? Json(kDefaultWindow) : window;
    config["layer_types"] = layer_types_of(layers);
    write_rope_of_types(rope, kGemma3Rope, sizes, config);
  }

 private:
  // Returns the value of query_pre_attn_scalar for the scale 1/sqrt(head size).
  static double default_scalar(const Settings& settings) {
    const auto head_size = settings.at("attention.head_size").get<int64_t>();
    return static_cast<double>(head_size > 0 ? head_size
                                             : settings.at("model.width").get<int64_t>() /
                                                   settings.at("attention.heads").get<int64_t>());
  }
};

const Registration<Gemma> gemma_entry(
    architectures(), "gemma",
    "Gemma 1: the form of llama with scaled embeddings, the activation gelu-tanh, and "
    "norms whose weights are stored minus 1.");
const Registration<Gemma3> gemma3_entry(
    architectures(), "gemma3_text",
    "The text models of Gemma 3 (270M and 1B): gemma with norms around the sublayers, norms of the queries and keys of "
    "each head, and a window and other rotary positions in five of six layers.");

}  // namespace

}  // namespace mh::huggingface
