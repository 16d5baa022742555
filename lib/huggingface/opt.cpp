// OPT (Zhang et al. 2022): a decoder with layer norms, learned positions and relu. The rows of the positions begin at
// the third row of their table. The model of 350M parameters, which has norms after the sublayers and embeddings that
// are narrower than the layers, is refused.
#include "base/error.h"
#include "huggingface/decoder.h"

namespace mh::huggingface {

namespace {

// Keys of config.json without effect on the output of the model; vocab_size follows from the tensors.
constexpr const char* kIgnoredKeys[] = {"init_std",  "initializer_range", "layerdrop",
                                        "use_cache", "vocab_size",        "prefix"};
constexpr double kEpsilon = 1e-5;           // of all norms
constexpr int64_t kNumUnusedPositions = 2;  // rows in front of the table of positions

class Opt : public Decoder {
 public:
  const std::vector<SettingPair>& setting_pairs() const override {
    static const std::vector<SettingPair> pairs{
        {"hidden_size", 768, {"model.width"}},
        {"num_hidden_layers", 12, {"model.layers"}, kMaxLayers},
        {"num_attention_heads", 12, {"attention.heads"}},
        {"ffn_dim", 3072, {"model.ffn_dim"}},
        {"max_position_embeddings", 2048, {"model.max_positions"}, 1 << 24},
        {"dropout", 0.1, {"model.dropout_attention", "model.dropout_ffn"}},
        {"attention_dropout", 0.0, {"attention.dropout"}},
        {"enable_bias", true, {"attention.bias", "model.ffn_bias"}},
        {"tie_word_embeddings", true, {"model.tied"}},
    };
    return pairs;
  }

  Settings settings(const JsonConfig& config, const std::set<std::string>&) const override {
    Settings result{
        {"model.backbone", backbone()},   {"model.norm_type", "layer"},   {"model.norm_bias", true},
        {"model.norm_epsilon", kEpsilon}, {"model.positions", "learned"}, {"model.gated_ffn", false},
        {"model.scale_embedding", false}, {"model.init", "bert"},         {"attention.output_bias", "same"}};
    read_keys(setting_pairs(), config, result);
    config.require("layer_norm_elementwise_affine", true, {true}, "use a model whose norms have weights");
    const Json& width = result["model.width"];
    config.require("word_embed_proj_dim", width, {width}, "use a model whose embeddings have the width of its layers");
    const bool is_pre_norm = config.value("do_layer_norm_before", true);
    result["model.norm"] = is_pre_norm ? "pre" : "post";
    // Without effect in post-norm.
    const bool lacks_final_norm = config.value("_remove_final_layer_norm", false);
    result["model.final_norm"] = !is_pre_norm || !lacks_final_norm;
    result["model.activation"] = activation_of(config, "activation_function", "relu");
    for (const char* key : kIgnoredKeys) config.value(key, nullptr);
    return result;
  }

  TensorNames tensor_names(const Settings& settings) const override {
    TensorNames tensor_names{{{"decoder.embed_tokens.weight", {"decoder.embedding.weight"}},
                              {.huggingface_name = "decoder.embed_positions.weight",
                               .multihead_names = {"decoder.positions.weight"},
                               .num_unused_rows = kNumUnusedPositions}},
                             {}};
    const auto add = [&](const std::string& huggingface_name, const std::string& multihead_name, bool has_bias) {
      add_tensors(tensor_names, huggingface_name, {multihead_name}, has_bias);
    };
    const bool has_attention_bias = settings.at("attention.bias") == true,
               has_ffn_bias = setting_or(settings, "model.ffn_bias", true) == true;
    for (int64_t i = 0; i < settings.at("model.layers").get<int64_t>(); ++i) {
      const std::string layer = str("decoder.layers.", i, "."), self = layer + "self.", ffn = layer + "ffn.";
      add(layer + "self_attn.q_proj", self + "query", has_attention_bias);
      add(layer + "self_attn.k_proj", self + "key", has_attention_bias);
      add(layer + "self_attn.v_proj", self + "value", has_attention_bias);
      add(layer + "self_attn.out_proj", self + "output", has_attention_bias);
      add(layer + "self_attn_layer_norm", self + "norm", true);
      add(layer + "fc1", ffn + "up", has_ffn_bias);
      add(layer + "fc2", ffn + "down", has_ffn_bias);
      add(layer + "final_layer_norm", ffn + "norm", true);
    }
    if (settings.at("model.norm") != "post" && setting_or(settings, "model.final_norm", true) == true)
      add("decoder.final_layer_norm", "decoder.norm", true);
    add_output_layer(tensor_names, settings);
    return tensor_names;
  }

  std::string tensor_prefix() const override { return "model."; }
  bool is_buffer(const std::string& tensor_name) const override { return tensor_name == "decoder.version"; }

  Json config(const Settings& settings) const override {
    Json config{{"architectures", {"OPTForCausalLM"}}, {"model_type", "opt"}};
    set_keys(setting_pairs(), settings, config);
    const bool is_pre_norm = settings.at("model.norm") == "pre";
    add_common_keys(config);
    config.erase("initializer_range");
    config.update(
        {{"init_std", 0.02},
         {"layerdrop", 0.0},
         {"activation_function", huggingface_activation(settings.at("model.activation"))},
         {"layer_norm_elementwise_affine", true},
         {"word_embed_proj_dim", settings.at("model.width")},
         {"do_layer_norm_before", is_pre_norm},
         {"_remove_final_layer_norm", is_pre_norm && setting_or(settings, "model.final_norm", true) == false}});
    return config;
  }
};

const Registration<Opt> opt_entry(architectures(), "opt",
                                  "OPT, except its model of 350M parameters: a decoder with layer norms, learned "
                                  "positions, biases and relu.");

}  // namespace

}  // namespace mh::huggingface
