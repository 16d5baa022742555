// Falcon (Almazrouei et al. 2023): a decoder with layer norms, rotary positions, and by default parallel sublayers.
// Falcon 7B has one norm and one key/value head; Falcon 40B and 180B (new_decoder_architecture) have a norm for each
// sublayer and groups of heads. One tensor has the queries, keys and values: group by group, the queries of the group,
// its key head and its value head.
#include <algorithm>
#include <optional>

#include "base/error.h"
#include "huggingface/decoder.h"
#include "huggingface/layer_settings.h"
#include "huggingface/rope.h"

namespace mh::huggingface {

namespace {

// Keys of config.json without effect on the output of the model; vocab_size follows from the tensors.
constexpr const char* kIgnoredKeys[] = {"initializer_range", "use_cache", "vocab_size",
                                        "apply_residual_connection_post_layernorm"};
constexpr const char* kCopyConfig = "copy config.json from the source of the model";  // advice in errors
constexpr RopeFormat kRope{};

// Returns the number of key/value heads, which is the number of groups of heads.
int64_t kv_heads_of(const Settings& settings) {
  const auto kv_heads = setting_or(settings, "attention.key_value_heads", 0).get<int64_t>();
  return std::max<int64_t>(1, kv_heads > 0 ? kv_heads : settings.at("attention.heads").get<int64_t>());
}

class Falcon : public Decoder {
 public:
  const std::vector<SettingPair>& setting_pairs() const override {
    static const std::vector<SettingPair> pairs{
        {"hidden_size", 4544, {"model.width"}},
        {"num_hidden_layers", 32, {"model.layers"}, kMaxLayers},
        {"num_attention_heads", 71, {"attention.heads"}},
        {"max_position_embeddings", 2048, {"model.max_positions"}, 1 << 24},
        {"layer_norm_epsilon", 1e-5, {"model.norm_epsilon"}},
        {"hidden_dropout", 0.0, {"model.dropout_attention", "model.dropout_ffn"}},
        {"attention_dropout", 0.0, {"attention.dropout"}},
        {"tie_word_embeddings", true, {"model.tied"}},
        {"bias", false, {"attention.bias", "model.ffn_bias"}},
    };
    return pairs;
  }

  Settings settings(const JsonConfig& config, const std::set<std::string>&) const override {
    config.require("alibi", false, {false},
                   "use a Falcon model with rotary positions: transformers rounds the ALiBi biases of Falcon to bf16");
    Settings result{{"model.backbone", backbone()}, {"model.norm_type", "layer"},
                    {"model.norm_bias", true},      {"model.norm", "pre"},
                    {"model.final_norm", true},     {"model.positions", "none"},
                    {"model.gated_ffn", false},     {"model.scale_embedding", false},
                    {"model.init", "bert"},         {"attention.output_bias", "same"}};
    read_keys(setting_pairs(), config, result);
    const auto width = result["model.width"].get<int64_t>(), heads = result["attention.heads"].get<int64_t>();
    const auto ffn = config.nullable<int64_t>("ffn_hidden_size", std::nullopt);
    if (ffn) require_size(*ffn, config.path() + ": ffn_hidden_size", SettingPair{}.max_value);
    result["model.ffn_dim"] = ffn.value_or(4 * width);
    result["model.activation"] = activation_of(config, "activation", "gelu");

    const bool has_new_architecture = config.value("new_decoder_architecture", false),
               has_one_kv_head = config.value("multi_query", true), is_parallel = config.value("parallel_attn", true);
    const auto num_norms = config.nullable<int64_t>("num_ln_in_parallel_attn", std::nullopt);
    if (num_norms && *num_norms != 1 && (*num_norms != 2 || !has_new_architecture))
      refuse_input(config.path() + ": num_ln_in_parallel_attn",
                   has_new_architecture ? "null, 1 or 2" : "null or 1 without new_decoder_architecture",
                   str(*num_norms), kCopyConfig);
    if (has_new_architecture && !is_parallel)
      refuse_input(config.path() + ": parallel_attn", "true with new_decoder_architecture", "false", kCopyConfig);
    const bool has_two_norms = has_new_architecture && num_norms != 1;
    result["model.residual"] = !is_parallel ? "sequential" : has_two_norms ? "parallel" : "parallel-shared";
    const auto configured_kv_heads = config.nullable<int64_t>("num_kv_heads", std::nullopt);
    const int64_t kv_heads = has_new_architecture ? configured_kv_heads.value_or(heads) : has_one_kv_head ? 1 : heads;
    if (kv_heads < 1 || heads % kv_heads != 0)
      refuse_input(config.path() + ": num_kv_heads", str("a divisor of num_attention_heads, ", heads), str(kv_heads),
                   kCopyConfig);
    result["attention.key_value_heads"] = kv_heads == heads ? 0 : kv_heads;

    Settings layer{{"transform", Json::array({"rotary"})}};
    layer.merge(read_rope(config, kRope, rope_sizes(result)));
    for (const auto& [key, value] : layer) result["attention." + key] = value;
    for (const char* key : kIgnoredKeys) config.value(key, nullptr);
    return result;
  }

  TensorNames tensor_names(const Settings& settings) const override {
    TensorNames tensor_names{{{"word_embeddings.weight", {"decoder.embedding.weight"}}}, {}};
    const auto add = [&](const std::string& huggingface_name, const std::vector<std::string>& multihead_names,
                         bool has_bias, int64_t num_groups = 1) {
      add_tensors(tensor_names, huggingface_name, multihead_names, has_bias, num_groups);
    };
    const Json residual = setting_or(settings, "model.residual", "sequential");
    const bool has_attention_bias = settings.at("attention.bias") == true,
               has_ffn_bias = setting_or(settings, "model.ffn_bias", true) == true;
    for (int64_t i = 0; i < settings.at("model.layers").get<int64_t>(); ++i) {
      const std::string layer = str("h.", i, "."), multihead_layer = str("decoder.layers.", i, "."),
                        self = multihead_layer + "self.", ffn = multihead_layer + "ffn.";
      add(layer + (residual == "parallel" ? "ln_attn" : "input_layernorm"), {self + "norm"}, true);
      add(layer + "self_attention.query_key_value", {self + "query", self + "key", self + "value"}, has_attention_bias,
          kv_heads_of(settings));
      add(layer + "self_attention.dense", {self + "output"}, has_attention_bias);
      if (residual == "parallel") add(layer + "ln_mlp", {ffn + "norm"}, true);
      if (residual == "sequential") add(layer + "post_attention_layernorm", {ffn + "norm"}, true);
      add(layer + "mlp.dense_h_to_4h", {ffn + "up"}, has_ffn_bias);
      add(layer + "mlp.dense_4h_to_h", {ffn + "down"}, has_ffn_bias);
    }
    add("ln_f", {"decoder.norm"}, true);
    add_output_layer(tensor_names, settings);
    return tensor_names;
  }

  std::string tensor_prefix() const override { return "transformer."; }
  bool is_buffer(const std::string& tensor_name) const override {
    const std::string name = name_in_layer(tensor_name, "h.");
    return name == "self_attention.rotary_emb.inv_freq" || name == "self_attention.maybe_rotary.inv_freq" ||
           tensor_name == "rotary_emb.inv_freq";
  }

  Json config(const Settings& settings) const override {
    const LayerSettings layers = layers_of(settings, num_layers_of(settings));
    const Json residual = setting_or(settings, "model.residual", "sequential");
    const int64_t kv_heads = kv_heads_of(settings);
    const bool has_new_architecture =
        residual == "parallel" || (kv_heads != 1 && kv_heads != settings.at("attention.heads"));
    Json config{{"architectures", {"FalconForCausalLM"}}, {"model_type", "falcon"}};
    set_keys(setting_pairs(), settings, config);
    config.update({{"ffn_hidden_size", settings.at("model.ffn_dim")},
                   {"activation", huggingface_activation(settings.at("model.activation"))},
                   {"alibi", false},
                   {"new_decoder_architecture", has_new_architecture},
                   {"multi_query", has_new_architecture || kv_heads == 1},
                   {"num_kv_heads", has_new_architecture ? Json(kv_heads) : settings.at("attention.heads")},
                   {"parallel_attn", residual != "sequential"},
                   {"num_ln_in_parallel_attn", nullptr}});
    if (has_new_architecture) config["num_ln_in_parallel_attn"] = residual == "parallel" ? 2 : 1;
    write_rope(layers.of_layer(0), kRope, rope_sizes(settings), config);
    add_common_keys(config);
    return config;
  }
};

const Registration<Falcon> falcon_entry(
    architectures(), "falcon",
    "Falcon with rotary positions: a decoder with layer norms, one key/value head or groups of heads, and parallel "
    "sublayers with one norm (7B) or two (40B and 180B).");

}  // namespace

}  // namespace mh::huggingface
