// GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023): a decoder with layer norms, biases, rotary positions
// in a part of each head, and by default parallel sublayers: x + attention(norm1 x) + ffn(norm2 x).
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "huggingface/decoder.h"
#include "huggingface/layer_settings.h"
#include "huggingface/rope.h"

namespace mh::huggingface {

namespace {

// Keys of config.json without effect on the output of the model. vocab_size follows from the tensors; transformers 4
// also writes the values of rotary_emb_base and rotary_pct under the names of other architectures.
constexpr const char* kIgnoredKeys[] = {"initializer_range",     "use_cache",  "vocab_size", "classifier_dropout",
                                        "partial_rotary_factor", "rope_theta", "is_decoder"};

constexpr RopeFormat kRope{
    .base_key = "rotary_emb_base", .rotary_fraction_key = "rotary_pct", .default_rotary_fraction = 0.25};

class GptNeoX : public Decoder {
 public:
  const std::vector<SettingPair>& setting_pairs() const override {
    static const std::vector<SettingPair> pairs{
        {"hidden_size", 6144, {"model.width"}},
        {"num_hidden_layers", 44, {"model.layers"}, kMaxLayers},
        {"num_attention_heads", 64, {"attention.heads"}},
        {"intermediate_size", 24576, {"model.ffn_dim"}},
        {"max_position_embeddings", 2048, {"model.max_positions"}, 1 << 24},
        {"layer_norm_eps", 1e-5, {"model.norm_epsilon"}},
        {"hidden_dropout", 0.0, {"model.dropout_embedding", "model.dropout_attention", "model.dropout_ffn"}},
        {"attention_dropout", 0.0, {"attention.dropout"}},
        {"tie_word_embeddings", false, {"model.tied"}},
        {"attention_bias", true, {"attention.bias"}},
    };
    return pairs;
  }

  Settings settings(const JsonConfig& config, const std::set<std::string>&) const override {
    Settings result{{"model.backbone", backbone()}, {"model.norm_type", "layer"},     {"model.norm_bias", true},
                    {"model.norm", "pre"},          {"model.final_norm", true},       {"model.positions", "none"},
                    {"model.gated_ffn", false},     {"model.ffn_bias", true},         {"model.scale_embedding", false},
                    {"model.init", "bert"},         {"attention.output_bias", "same"}};
    read_keys(setting_pairs(), config, result);
    result["model.residual"] = config.value("use_parallel_residual", true) ? "parallel" : "sequential";
    result["model.activation"] = activation_of(config, "hidden_act", "gelu");
    Settings layer{{"transform", Json::array({"rotary"})}};
    layer.merge(read_rope(config, kRope, rope_sizes(result)));
    for (const auto& [key, value] : layer) result["attention." + key] = value;
    for (const char* key : kIgnoredKeys) config.value(key, nullptr);
    return result;
  }

  TensorNames tensor_names(const Settings& settings) const override {
    TensorNames tensor_names{{{"embed_in.weight", {"decoder.embedding.weight"}}}, {}};
    const auto add = [&](const std::string& huggingface_name, const std::vector<std::string>& multihead_names,
                         bool has_bias = true, int64_t num_groups = 1) {
      add_tensors(tensor_names, huggingface_name, multihead_names, has_bias, num_groups);
    };
    const auto heads = std::max<int64_t>(1, settings.at("attention.heads").get<int64_t>());
    const bool has_attention_bias = settings.at("attention.bias") == true;
    for (int64_t i = 0; i < settings.at("model.layers").get<int64_t>(); ++i) {
      const std::string layer = str("layers.", i, "."), multihead_layer = str("decoder.layers.", i, "."),
                        self = multihead_layer + "self.", ffn = multihead_layer + "ffn.";
      add(layer + "input_layernorm", {self + "norm"});
      add(layer + "attention.query_key_value", {self + "query", self + "key", self + "value"}, has_attention_bias,
          heads);
      add(layer + "attention.dense", {self + "output"}, has_attention_bias);
      add(layer + "post_attention_layernorm", {ffn + "norm"});
      add(layer + "mlp.dense_h_to_4h", {ffn + "up"});
      add(layer + "mlp.dense_4h_to_h", {ffn + "down"});
    }
    add("final_layer_norm", {"decoder.norm"});
    // transformers 5 names the output layer lm_head in memory, and embed_out in files.
    if (settings.at("model.tied") == true) {
      for (const char* name : {"embed_out.weight", "lm_head.weight"}) tensor_names.aliases[name] = "embed_in.weight";
    } else {
      tensor_names.aliases["lm_head.weight"] = "embed_out.weight";
      tensor_names.pairs.push_back({.huggingface_name = "embed_out.weight",
                                    .multihead_names = {"decoder.output.weight"},
                                    .missing_advice = kUntiedAdvice});
    }
    return tensor_names;
  }

  std::string tensor_prefix() const override { return "gpt_neox."; }
  bool belongs_to_output_head(const std::string& tensor_name) const override {
    return tensor_name.starts_with("embed_out.") || tensor_name.starts_with("lm_head.");
  }
  bool is_buffer(const std::string& tensor_name) const override {
    const std::string name = name_in_layer(tensor_name, "layers.");
    return name == "attention.bias" || name == "attention.masked_bias" || name == "attention.rotary_emb.inv_freq" ||
           tensor_name == "rotary_emb.inv_freq";
  }

  Json config(const Settings& settings) const override {
    const LayerSettings layers = layers_of(settings, num_layers_of(settings));
    Json config{{"architectures", {"GPTNeoXForCausalLM"}}, {"model_type", "gpt_neox"}};
    set_keys(setting_pairs(), settings, config);
    config["use_parallel_residual"] = setting_or(settings, "model.residual", "sequential") == "parallel";
    config["hidden_act"] = huggingface_activation(settings.at("model.activation"));
    write_rope(layers.of_layer(0), kRope, rope_sizes(settings), config);
    config["classifier_dropout"] = 0.1;
    add_common_keys(config);
    return config;
  }
};

const Registration<GptNeoX> gpt_neox_entry(
    architectures(), "gpt_neox",
    "GPT-NeoX and Pythia: a decoder with layer norms, biases, rotary positions in "
    "a part of each head, and parallel or sequential sublayers.");

}  // namespace

}  // namespace mh::huggingface
