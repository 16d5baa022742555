// GPT-2 (Radford et al. 2019): a decoder with pre-norm, learned positions and, by default, tied embeddings.
#include "base/error.h"
#include "base/text.h"
#include "huggingface/architecture.h"
#include "huggingface/vocabulary_files.h"
#include "text/folder_tokenizer.h"

namespace mh::huggingface {

namespace {

// Keys of config.json without effect on the output of the model; vocab_size and n_ctx follow from the tensors.
constexpr const char* kIgnoredKeys[] = {"n_ctx", "reorder_and_upcast_attn", "use_cache", "vocab_size"};

class Gpt2 : public Architecture {
 public:
  const std::vector<SettingPair>& setting_pairs() const override {
    static const std::vector<SettingPair> pairs{
        {"n_embd", 768, {"model.width"}},
        {"n_layer", 12, {"model.layers"}, kMaxLayers},
        {"n_head", 12, {"attention.heads"}},
        {"n_positions", 1024, {"model.max_positions"}},
        {"layer_norm_epsilon", 1e-5, {"model.norm_epsilon"}},
        {"embd_pdrop", 0.1, {"model.dropout_embedding"}},
        {"resid_pdrop", 0.1, {"model.dropout_attention", "model.dropout_ffn"}},
        {"attn_pdrop", 0.1, {"attention.dropout"}},
        {"tie_word_embeddings", true, {"model.tied"}},
    };
    return pairs;
  }

  Settings settings(const JsonConfig& config, const std::set<std::string>&) const override {
    Settings result{{"model.backbone", backbone()},  {"model.norm", "pre"},  {"model.final_norm", true},
                    {"model.positions", "learned"},  {"model.init", "bert"}, {"attention.bias", true},
                    {"model.scale_embedding", false}};
    read_keys(setting_pairs(), config, result);
    const Json inner_width = config.value("n_inner", nullptr);
    result["model.ffn_dim"] =
        inner_width.is_null() ? Json(4 * result["model.width"].get<int64_t>()) : config.value("n_inner", 0);
    require_size(result["model.ffn_dim"], config.path() + ": n_inner", SettingPair{}.max_value);
    result["model.activation"] = activation_of(config, "activation_function", "gelu_new");
    const std::string advice = "use a model whose attention scores are scaled by 1/sqrt(head size) alone";
    config.require("scale_attn_weights", true, {true}, advice);
    config.require("scale_attn_by_inverse_layer_idx", false, {false}, advice);
    config.require("add_cross_attention", false, {false}, "use a GPT-2 model without cross-attention");
    for (const char* key : kIgnoredKeys) config.value(key, nullptr);
    return result;
  }

  text::Tokenizers tokenizers(const std::string& folder) const override {
    return {text::read_byte_bpe_folder(folder), nullptr};
  }

  TensorNames tensor_names(const Settings& settings) const override {
    TensorNames tensor_names{
        {{"wte.weight", {"decoder.embedding.weight"}}, {"wpe.weight", {"decoder.positions.weight"}}}, {}};
    const auto add = [&](const std::string& huggingface_name, const std::vector<std::string>& multihead_names,
                         bool is_conv1d) {
      for (const char* suffix : {".weight", ".bias"}) {
        TensorPair pair{huggingface_name + suffix, {}, is_conv1d && std::string(suffix) == ".weight", ""};
        for (const std::string& multihead_name : multihead_names)
          pair.multihead_names.push_back(multihead_name + suffix);
        tensor_names.pairs.push_back(std::move(pair));
      }
    };
    for (int64_t i = 0; i < settings.at("model.layers").get<int64_t>(); ++i) {
      const std::string huggingface_prefix = str("h.", i, "."), multihead_prefix = str("decoder.layers.", i, ".");
      add(huggingface_prefix + "ln_1", {multihead_prefix + "self.norm"}, false);
      add(huggingface_prefix + "attn.c_attn",
          {multihead_prefix + "self.query", multihead_prefix + "self.key", multihead_prefix + "self.value"}, true);
      add(huggingface_prefix + "attn.c_proj", {multihead_prefix + "self.output"}, true);
      add(huggingface_prefix + "ln_2", {multihead_prefix + "ffn.norm"}, false);
      add(huggingface_prefix + "mlp.c_fc", {multihead_prefix + "ffn.up"}, true);
      add(huggingface_prefix + "mlp.c_proj", {multihead_prefix + "ffn.down"}, true);
    }
    add("ln_f", {"decoder.norm"}, false);
    if (settings.at("model.tied") == true) tensor_names.aliases["lm_head.weight"] = "wte.weight";
    else
      tensor_names.pairs.push_back({"lm_head.weight", {"decoder.output.weight"}, false, "the output layer (lm_head)"});
    return tensor_names;
  }

  std::string tensor_prefix() const override { return "transformer."; }
  bool belongs_to_output_head(const std::string& tensor_name) const override {
    return tensor_name.starts_with("lm_head.");
  }
  std::string backbone() const override { return "decoder"; }
  bool is_buffer(const std::string& tensor_name) const override {
    const std::string name = name_in_layer(tensor_name, "h.");
    return name == "attn.bias" || name == "attn.masked_bias";
  }
  bool is_unused(const std::string&, const Settings&) const override { return false; }

  Json config(const Settings& settings) const override {
    Json config{{"architectures", {"GPT2LMHeadModel"}}, {"model_type", "gpt2"}};
    set_keys(setting_pairs(), settings, config);
    // In all versions of transformers, n_inner = null means four times the width.
    const Json& inner_width = settings.at("model.ffn_dim");
    config["n_inner"] = inner_width == 4 * settings.at("model.width").get<int64_t>() ? Json() : inner_width;
    config["activation_function"] = huggingface_activation(settings.at("model.activation"));
    config.update({{"initializer_range", 0.02},
                   {"scale_attn_weights", true},
                   {"scale_attn_by_inverse_layer_idx", false},
                   {"reorder_and_upcast_attn", false},
                   {"add_cross_attention", false},
                   {"use_cache", true},
                   {"dtype", "float32"}});
    return config;
  }

  Json token_ids(const text::Tokenizers& tokenizers) const override {
    const auto* tokenizer = dynamic_cast<const text::ByteBpeTokenizer*>(tokenizers.target.get());
    if (tokenizer == nullptr) return Json::object();
    return huggingface::token_ids(tokenizer->added_tokens(), {"bos_token", "eos_token", "pad_token"});
  }

  std::map<std::string, std::string> vocabulary_files(const text::Tokenizers& tokenizers, const Settings& settings,
                                                      const std::string& name) const override {
    const auto* tokenizer = dynamic_cast<const text::ByteBpeTokenizer*>(tokenizers.target.get());
    if (tokenizer == nullptr) refuse_vocabulary(*tokenizers.target, name, text::ByteBpeTokenizer::kType);
    return byte_bpe_files(*tokenizer, settings.at("model.max_positions").get<int64_t>());
  }
};

const Registration<Gpt2> gpt2_entry(architectures(), "gpt2",
                                    "A model with model.backbone = decoder, pre-norm, learned positions and the "
                                    "activation gelu-tanh, gelu or relu. The vocabulary, from "
                                    "tokenizer.json or from vocab.json and merges.txt, has the type byte-bpe.");

}  // namespace

}  // namespace mh::huggingface
