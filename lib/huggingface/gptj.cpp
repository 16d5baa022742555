// GPT-J (Wang & Komatsuzaki 2021): a decoder with one layer norm for both sublayers of a layer, which are parallel, and
// rotary positions in the first elements of each head, in pairs of adjacent elements.
#include "base/error.h"
#include "huggingface/decoder.h"

namespace mh::huggingface {

namespace {

// Keys of config.json without effect on the output of the model; vocab_size follows from the tensors.
constexpr const char* kIgnoredKeys[] = {"initializer_range",  "use_cache",       "vocab_size",
                                        "scale_attn_weights", "tokenizer_class", "rotary"};
constexpr double kBase = 10000;             // base of rotary positions
constexpr int64_t kDefaultRotarySize = 64;  // default of rotary_dim

// Returns the number of elements of a head that rotate.
int64_t rotary_size_of(const Settings& settings) {
  const auto size = setting_or(settings, "attention.rotary.size", 0).get<int64_t>();
  return size > 0 ? size : head_size_of(settings);
}

class GptJ : public Decoder {
 public:
  const std::vector<SettingPair>& setting_pairs() const override {
    static const std::vector<SettingPair> pairs{
        {"n_embd", 4096, {"model.width"}},
        {"n_layer", 28, {"model.layers"}, kMaxLayers},
        {"n_head", 16, {"attention.heads"}},
        {"n_positions", 2048, {"model.max_positions"}, 1 << 24},
        {"layer_norm_epsilon", 1e-5, {"model.norm_epsilon"}},
        {"embd_pdrop", 0.0, {"model.dropout_embedding"}},
        {"resid_pdrop", 0.0, {"model.dropout_attention", "model.dropout_ffn"}},
        {"attn_pdrop", 0.0, {"attention.dropout"}},
        {"tie_word_embeddings", false, {"model.tied"}},
    };
    return pairs;
  }

  Settings settings(const JsonConfig& config, const std::set<std::string>&) const override {
    Settings result{{"model.backbone", backbone()},
                    {"model.norm_type", "layer"},
                    {"model.norm_bias", true},
                    {"model.norm", "pre"},
                    {"model.final_norm", true},
                    {"model.positions", "none"},
                    {"model.residual", "parallel-shared"},
                    {"model.gated_ffn", false},
                    {"model.ffn_bias", true},
                    {"model.output_bias", true},
                    {"model.scale_embedding", false},
                    {"model.init", "bert"},
                    {"attention.bias", false},
                    {"attention.output_bias", "same"},
                    {"attention.transform", Json::array({"rotary"})},
                    {"attention.rotary.base", kBase},
                    {"attention.rotary.scaling", "none"}};
    read_keys(setting_pairs(), config, result);
    const auto ffn = config.nullable<int64_t>("n_inner", std::nullopt);
    if (ffn) require_size(*ffn, config.path() + ": n_inner", SettingPair{}.max_value);
    result["model.ffn_dim"] = ffn.value_or(4 * result["model.width"].get<int64_t>());
    result["model.activation"] = activation_of(config, "activation_function", "gelu_new");
    const int64_t head_size = head_size_of(result);
    const auto rotary_size = config.nullable<int64_t>("rotary_dim", kDefaultRotarySize).value_or(0);
    if (rotary_size < 2 || rotary_size % 2 != 0 || rotary_size > head_size)
      refuse_input(config.path() + ": rotary_dim", str("an even number from 2 to ", head_size, ", the size of a head"),
                   rotary_size == 0 ? "null or 0" : str(rotary_size), "copy config.json from the source of the model");
    result["attention.rotary.size"] = rotary_size == head_size ? 0 : rotary_size;
    for (const char* key : kIgnoredKeys) config.value(key, nullptr);
    return result;
  }

  TensorNames tensor_names(const Settings& settings) const override {
    TensorNames tensor_names{{{"wte.weight", {"decoder.embedding.weight"}}}, {}};
    const auto add = [&](const std::string& huggingface_name, const std::string& multihead_name, bool has_bias) {
      add_tensors(tensor_names, huggingface_name, {multihead_name}, has_bias);
    };
    for (int64_t i = 0; i < settings.at("model.layers").get<int64_t>(); ++i) {
      const std::string layer = str("h.", i, "."), self = str("decoder.layers.", i, ".self."),
                        ffn = str("decoder.layers.", i, ".ffn.");
      add(layer + "ln_1", self + "norm", true);
      for (const auto& [name, multihead_name] : {std::pair{"attn.q_proj", "query"}, {"attn.k_proj", "key"}}) {
        add(layer + name, self + multihead_name, false);
        tensor_names.pairs.back().num_interleaved_rows = rotary_size_of(settings);
        tensor_names.pairs.back().head_rows = head_size_of(settings);
      }
      add(layer + "attn.v_proj", self + "value", false);
      add(layer + "attn.out_proj", self + "output", false);
      add(layer + "mlp.fc_in", ffn + "up", true);
      add(layer + "mlp.fc_out", ffn + "down", true);
    }
    add("ln_f", "decoder.norm", true);
    tensor_names.pairs.push_back({"lm_head.bias", {"decoder.output.bias"}});
    add_output_layer(tensor_names, settings);
    return tensor_names;
  }

  std::string tensor_prefix() const override { return "transformer."; }
  bool is_buffer(const std::string& tensor_name) const override {
    const std::string name = name_in_layer(tensor_name, "h.");
    return name == "attn.bias" || name == "attn.masked_bias";
  }

  Json config(const Settings& settings) const override {
    Json config{{"architectures", {"GPTJForCausalLM"}}, {"model_type", "gptj"}};
    set_keys(setting_pairs(), settings, config);
    config.update({{"n_inner", settings.at("model.ffn_dim")},
                   {"activation_function", huggingface_activation(settings.at("model.activation"))},
                   {"rotary_dim", rotary_size_of(settings)}});
    add_common_keys(config);
    return config;
  }
};

const Registration<GptJ> gptj_entry(
    architectures(), "gptj",
    "GPT-J: a decoder with one layer norm for both sublayers, which are parallel, rotary positions in a part of each "
    "head, and a bias of the output layer.");

}  // namespace

}  // namespace mh::huggingface
