#include "huggingface/llama_form.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace mh::huggingface {

namespace {

// Keys of config.json without effect on the output of the model; vocab_size follows from the tensors.
constexpr const char* kIgnoredKeys[] = {"initializer_range", "use_cache", "vocab_size", "pad_token_id",
                                        "pretraining_tp"};

// Returns the settings with the settings of the first layer in place of the attention settings of all layers, which
// overrides of all layers may replace.
Settings with_first_layer(Settings settings, const LayerSettings& layers) {
  if (layers.kind_of_layer.empty()) return settings;
  for (const auto& [key, value] : layers.of_layer(0)) settings["attention." + key] = value;
  return settings;
}

// Returns whether the output projections have biases.
bool has_output_bias(const Settings& settings) {
  const Json output_bias = setting_or(settings, "attention.output_bias", "same");
  return output_bias == "same" ? settings.at("attention.bias") == true : output_bias == "true";
}

}  // namespace

LlamaForm::LlamaForm(const LlamaFamily& family) : family_(family) {
  pairs_ = {{"hidden_size", family.width, {"model.width"}},
            {"intermediate_size", family.ffn_dim, {"model.ffn_dim"}},
            {"num_hidden_layers", family.layers, {"model.layers"}, kMaxLayers},
            {"num_attention_heads", family.heads, {"attention.heads"}},
            {"max_position_embeddings", family.max_positions, {"model.max_positions"}, 1 << 24},
            {"attention_dropout", 0.0, {"attention.dropout"}},
            {"tie_word_embeddings", family.is_tied, {"model.tied"}}};
  std::vector<const char*> epsilon_keys{"model.norm_epsilon"};
  if (family.qk_norm_scope != nullptr) epsilon_keys.push_back("attention.qk-norm.epsilon");
  pairs_.push_back({"rms_norm_eps", family.norm_epsilon, epsilon_keys});
  if (family.has_dropouts) {
    pairs_.push_back({"resid_pdrop", 0.0, {"model.dropout_attention", "model.dropout_ffn"}});
    pairs_.push_back({"embd_pdrop", 0.0, {"model.dropout_embedding"}});
  }
}

Settings LlamaForm::settings(const JsonConfig& config, const std::set<std::string>&) const {
  Settings result{{"model.backbone", backbone()},
                  {"model.norm_type", "rms"},
                  {"model.norm", family_.norm},
                  {"model.final_norm", true},
                  {"model.positions", "none"},
                  {"model.gated_ffn", true},
                  {"model.ffn_bias", family_.has_mlp_bias ? config.value("mlp_bias", false) : Json(false)},
                  {"model.scale_embedding", family_.scales_embedding},
                  {"model.init", "bert"},
                  {"attention.output_bias", "same"}};
  read_keys(setting_pairs(), config, result);
  result["model.activation"] = activation_of(config, family_.activation_key, family_.activation);
  if (family_.gelu_means_tanh && result["model.activation"] == "gelu") result["model.activation"] = "gelu-tanh";
  result["attention.bias"] = family_.attention_bias == AttentionBias::attention_bias
                                 ? config.value("attention_bias", false)
                                 : Json(family_.attention_bias == AttentionBias::queries_keys_values);
  if (family_.attention_bias == AttentionBias::queries_keys_values) result["attention.output_bias"] = "false";

  const auto width = result["model.width"].get<int64_t>(), heads = result["attention.heads"].get<int64_t>();
  const auto head_size =
      config.nullable<int64_t>("head_dim", family_.head_size > 0 ? std::optional(family_.head_size) : std::nullopt);
  if (head_size) require_size(*head_size, config.path() + ": head_dim", 1 << 16);
  result["attention.head_size"] = head_size && *head_size * heads != width ? *head_size : 0;
  const int64_t kv_heads = config
                               .nullable<int64_t>("num_key_value_heads",
                                                  family_.kv_heads > 0 ? std::optional(family_.kv_heads) : std::nullopt)
                               .value_or(heads);
  if (kv_heads < 1 || heads % kv_heads != 0)
    refuse_input(config.path() + ": num_key_value_heads", str("a divisor of num_attention_heads, ", heads),
                 str(kv_heads), "copy config.json from the source of the model");
  result["attention.key_value_heads"] = kv_heads == heads ? 0 : kv_heads;

  Json transform = Json::array({"rotary"});
  if (family_.qk_norm_scope != nullptr) {
    result["attention.qk-norm.scope"] = family_.qk_norm_scope;
    transform = Json::array({"qk-norm", "rotary"});
  }
  set_layers(read_layers(config, {{"transform", transform}}, rope_sizes(result), num_layers_of(result)), result);
  for (const char* key : kIgnoredKeys) config.value(key, nullptr);
  for (const char* key : family_.ignored_keys) config.value(key, nullptr);
  return result;
}

LayerSettings LlamaForm::read_layers(const JsonConfig& config, const Settings& layer, const RopeSizes& sizes,
                                     size_t num_layers) const {
  Settings settings = layer;
  settings.merge(read_rope(config, family_.rope, sizes));
  LayerSettings layers;
  layers.kinds = {settings};
  layers.kind_of_layer.resize(num_layers);
  return layers;
}

void LlamaForm::write_layers(const LayerSettings& layers, const RopeSizes& sizes, Json& config) const {
  write_rope(layers.of_layer(0), family_.rope, sizes, config);
}

TensorNames LlamaForm::tensor_names(const Settings& settings) const {
  TensorNames tensor_names{{{"embed_tokens.weight", {"decoder.embedding.weight"}}}, {}};
  const auto add = [&](const std::string& huggingface_name, const std::vector<std::string>& multihead_names,
                       bool has_bias) { add_tensors(tensor_names, huggingface_name, multihead_names, has_bias); };
  const auto add_norm = [&](const std::string& huggingface_name, const std::string& multihead_name) {
    tensor_names.pairs.push_back({.huggingface_name = huggingface_name + ".weight",
                                  .multihead_names = {multihead_name + ".weight"},
                                  .addend = family_.norm_addend});
  };
  const bool has_attention_bias = settings.at("attention.bias") == true,
             has_ffn_bias = setting_or(settings, "model.ffn_bias", false) == true;
  const std::string norm = family_.norm;
  for (size_t i = 0; i < num_layers_of(settings); ++i) {
    const std::string layer = str("layers.", i, "."), attention = layer + "self_attn.", mlp = layer + "mlp.",
                      multihead_layer = str("decoder.layers.", i, "."), self = multihead_layer + "self.",
                      ffn = multihead_layer + "ffn.";
    if (norm != "output") add_norm(layer + "input_layernorm", self + "norm");
    if (family_.has_fused_projections) {
      add(attention + "qkv_proj", {self + "query", self + "key", self + "value"}, has_attention_bias);
    } else {
      add(attention + "q_proj", {self + "query"}, has_attention_bias);
      add(attention + "k_proj", {self + "key"}, has_attention_bias);
      add(attention + "v_proj", {self + "value"}, has_attention_bias);
    }
    if (family_.qk_norm_scope != nullptr) {
      add_norm(attention + "q_norm", self + "query_norm");
      add_norm(attention + "k_norm", self + "key_norm");
    }
    add(attention + "o_proj", {self + "output"}, has_output_bias(settings));
    // post_attention_layernorm normalises the output of attention if a family has such a norm, and otherwise the input
    // of the feed-forward sublayer.
    if (norm == "pre") {
      add_norm(layer + "post_attention_layernorm", ffn + "norm");
    } else {
      add_norm(layer + "post_attention_layernorm", self + "output_norm");
      if (norm == "around") add_norm(layer + "pre_feedforward_layernorm", ffn + "norm");
      add_norm(layer + "post_feedforward_layernorm", ffn + "output_norm");
    }
    if (family_.has_fused_projections) {
      add(mlp + "gate_up_proj", {ffn + "gate", ffn + "up"}, has_ffn_bias);
    } else {
      add(mlp + "gate_proj", {ffn + "gate"}, has_ffn_bias);
      add(mlp + "up_proj", {ffn + "up"}, has_ffn_bias);
    }
    add(mlp + "down_proj", {ffn + "down"}, has_ffn_bias);
  }
  add_norm("norm", "decoder.norm");
  add_output_layer(tensor_names, settings);
  return tensor_names;
}

bool LlamaForm::is_buffer(const std::string& tensor_name) const {
  return name_in_layer(tensor_name, "layers.") == "self_attn.rotary_emb.inv_freq" ||
         tensor_name == "rotary_emb.inv_freq";
}

Json LlamaForm::config(const Settings& settings) const {
  const LayerSettings layers = layers_of(settings, num_layers_of(settings));
  const Settings layer_settings = with_first_layer(settings, layers);
  const RopeSizes sizes = rope_sizes(layer_settings);
  Json config{{"architectures", {family_.model_class}}, {"model_type", family_.model_type}};
  set_keys(setting_pairs(), layer_settings, config);
  const Json kv_heads = setting_or(layer_settings, "attention.key_value_heads", 0);
  config["num_key_value_heads"] = kv_heads == 0 ? layer_settings.at("attention.heads") : kv_heads;
  config["head_dim"] = sizes.head_size;
  const Json& activation = layer_settings.at("model.activation");
  config[family_.activation_key] =
      multihead_activation(family_.activation) == activation ? family_.activation : huggingface_activation(activation);
  if (family_.attention_bias == AttentionBias::attention_bias)
    config["attention_bias"] = layer_settings.at("attention.bias");
  if (family_.has_mlp_bias) config["mlp_bias"] = setting_or(layer_settings, "model.ffn_bias", false);
  write_layers(layers, sizes, config);
  add_common_keys(config);
  return config;
}

void require_attention_layers(const JsonConfig& config) {
  for (const std::string& type : config.texts("layer_types").value_or(std::vector<std::string>()))
    if (type != kFullAttention && type != kSlidingAttention)
      refuse_input(config.path() + ": layer_types", str(kFullAttention, " or ", kSlidingAttention), type,
                   "use a model with only these types of layers, which multihead supports");
}

std::vector<std::string> layer_types(const JsonConfig& config, size_t num_layers) {
  require_attention_layers(config);
  const auto types = config.texts("layer_types");
  if (!types) return {};
  if (types->size() != num_layers)
    refuse_input(config.path() + ": layer_types", str("a type for each of the ", count_of(num_layers, "layer")),
                 count_of(types->size(), "type"), "copy config.json from the source of the model");
  return *types;
}

std::vector<std::string> layer_types_or(const JsonConfig& config, size_t num_layers,
                                        const std::function<bool(int64_t)>& has_window) {
  std::vector<std::string> types = layer_types(config, num_layers);
  if (types.empty())
    for (size_t i = 0; i < num_layers; ++i)
      types.emplace_back(has_window(static_cast<int64_t>(i)) ? kSlidingAttention : kFullAttention);
  return types;
}

LayerSettings layers_of_types(const std::vector<std::string>& types, const Settings& layer, int64_t window,
                              const RopeOfTypes& rope) {
  Settings full = layer, sliding = layer;
  full["window"] = 0;
  full.insert(rope.full.begin(), rope.full.end());
  sliding["window"] = window;
  sliding.insert(rope.sliding.begin(), rope.sliding.end());
  LayerSettings layers;
  for (const std::string& type : types) layers.add(type == kFullAttention ? full : sliding);
  return layers;
}

int64_t sliding_window(const JsonConfig& config, std::optional<int64_t> if_absent) {
  const auto window = config.nullable<int64_t>("sliding_window", if_absent);
  if (window) require_size(*window, config.path() + ": sliding_window", 1 << 30);
  return window.value_or(0);
}

int64_t enabled_window(const JsonConfig& config, std::optional<int64_t> if_absent) {
  const int64_t window = sliding_window(config, if_absent);
  return config.value("use_sliding_window", false) ? window : 0;
}

void write_windows(const LayerSettings& layers, Json& config) {
  const Json window = largest_window(layers);
  config["use_sliding_window"] = !window.is_null();
  config["sliding_window"] = window;
  config["layer_types"] = layer_types_of(layers);
}

Json window_of(const Settings& layer) {
  const Json window = setting_or(layer, "window", 0);
  return window == 0 ? Json() : window;
}

Json largest_window(const LayerSettings& layers) {
  Json largest;
  for (const Settings& kind : layers.kinds)
    if (const Json window = window_of(kind); !window.is_null() && (largest.is_null() || window > largest))
      largest = window;
  return largest;
}

Json layer_types_of(const LayerSettings& layers) {
  Json types = Json::array();
  for (size_t layer = 0; layer < layers.kind_of_layer.size(); ++layer)
    types.push_back(window_of(layers.of_layer(layer)).is_null() ? kFullAttention : kSlidingAttention);
  return types;
}

}  // namespace mh::huggingface
