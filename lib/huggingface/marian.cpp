// Marian (Junczys-Dowmunt et al. 2018), the models of OPUS-MT: an encoder-decoder with post-norm, sinusoidal positions,
// a bias of the output layer (final_logits_bias), and the padding token before the first token of a target.
#include "base/error.h"
#include "base/text.h"
#include "huggingface/architecture.h"
#include "huggingface/encoder_decoder.h"
#include "huggingface/vocabulary_files.h"
#include "text/marian_tokenizer.h"

namespace mh::huggingface {

namespace {

// Keys of config.json without effect on the output of the model. vocab_size and decoder_vocab_size follow from the
// tensors, num_hidden_layers repeats encoder_layers, and extra_pos_embeddings and add_bias_logits are of an earlier
// class.
constexpr const char* kIgnoredKeys[] = {
    "vocab_size",           "decoder_vocab_size",     "num_hidden_layers",  "init_std",          "use_cache",
    "classifier_dropout",   "classif_dropout",        "encoder_layerdrop",  "decoder_layerdrop", "add_bias_logits",
    "extra_pos_embeddings", "gradient_checkpointing", "is_encoder_decoder", "is_decoder",        "_num_labels"};
constexpr int64_t kDefaultPaddingToken = 58100;

// Settings of all models; the position of norms and the formula of positions are no settings of this architecture.
const Settings& fixed_settings() {
  static const Settings settings{{"model.backbone", "encoder-decoder"},
                                 {"model.norm", "post"},
                                 {"model.norm_type", "layer"},
                                 {"model.norm_bias", true},
                                 {"model.norm_epsilon", 1e-5},
                                 {"model.positions", "sinusoidal"},
                                 {"model.sinusoids", "standard"},
                                 {"model.gated_ffn", false},
                                 {"model.ffn_bias", true},
                                 {"model.output_bias", true},
                                 {"model.init", "bert"},
                                 {"attention.bias", true},
                                 {"attention.output_bias", "same"}};
  return settings;
}

class Marian : public Architecture {
 public:
  const std::vector<SettingPair>& setting_pairs() const override {
    static const std::vector<SettingPair> pairs{
        {"d_model", 1024, {"model.width"}},
        {"decoder_layers", 12, {"model.layers"}, kMaxStackLayers},
        {"encoder_layers", 12, {kEncoderLayers}, kMaxStackLayers},
        {"decoder_ffn_dim", 4096, {"model.ffn_dim"}},
        {"decoder_attention_heads", 16, {"attention.heads"}},
        {"max_position_embeddings", 1024, {"model.max_positions"}, 1 << 24},
        {"dropout", 0.1, {"model.dropout_embedding", "model.dropout_attention", "model.dropout_ffn"}},
        {"attention_dropout", 0.0, {"attention.dropout"}},
        {"activation_dropout", 0.0, {"model.dropout_activation"}},
        {"scale_embedding", false, {"model.scale_embedding"}},
        {"tie_word_embeddings", true, {"model.tied"}},
        {"share_encoder_decoder_embeddings", true, {kSharedEmbedding}},
    };
    return pairs;
  }

  Settings settings(const JsonConfig& config, const std::set<std::string>&) const override {
    Settings result = fixed_settings();
    read_keys(setting_pairs(), config, result);
    result["model.activation"] = activation_of(config, "activation_function", "gelu");
    const Json encoder_heads = config.value("encoder_attention_heads", 16);
    require_size(encoder_heads, config.path() + ": encoder_attention_heads", SettingPair{}.max_value);
    if (encoder_heads != result["attention.heads"]) result["attention.encoder.self.heads"] = encoder_heads;
    config.require("encoder_ffn_dim", 4096, {result["model.ffn_dim"]},
                   "use a model whose encoder and decoder have feed-forward sublayers of one width");
    const std::string advice = "use a model in the form of OPUS-MT, with norms after the residual sums alone";
    for (const char* key : {"normalize_before", "normalize_embedding", "add_final_layer_norm"})
      config.require(key, false, {false}, advice);
    config.require("static_position_embeddings", true, {true}, "use a model with sinusoidal positions");
    config.require("tie_encoder_decoder", false, {false}, "use a model whose encoder and decoder have own parameters");
    result[kStartToken] = read_start_token(config, kDefaultPaddingToken);
    ignore_generation_keys(config);
    for (const char* key : kIgnoredKeys) config.value(key, nullptr);
    return result;
  }

  text::Tokenizers tokenizers(const std::string& folder) const override { return text::read_marian_folder(folder); }

  TensorNames tensor_names(const Settings& settings) const override {
    TensorNames tensor_names;
    const auto add = [&](const std::string& huggingface_name, const std::string& multihead_name) {
      for (const char* suffix : {".weight", ".bias"})
        tensor_names.pairs.push_back(
            {.huggingface_name = huggingface_name + suffix, .multihead_names = {multihead_name + suffix}});
    };
    const bool is_shared = setting_or(settings, kSharedEmbedding, true) == true;
    const std::string table = is_shared ? "shared.weight" : "decoder.embed_tokens.weight";
    tensor_names.pairs.push_back({.huggingface_name = table, .multihead_names = {"decoder.embedding.weight"}});
    if (is_shared)
      for (const char* alias : {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"})
        tensor_names.aliases[alias] = table;
    else
      tensor_names.pairs.push_back(
          {.huggingface_name = "encoder.embed_tokens.weight", .multihead_names = {kSourceTable}});
    if (settings.at("model.tied") == true) tensor_names.aliases["lm_head.weight"] = table;
    else
      tensor_names.pairs.push_back({.huggingface_name = "lm_head.weight",
                                    .multihead_names = {"decoder.output.weight"},
                                    .missing_advice = kUntiedAdvice});
    tensor_names.pairs.push_back({.huggingface_name = "final_logits_bias",
                                  .multihead_names = {"decoder.output.bias"},
                                  .has_leading_axis = true});
    for (const bool is_decoder : {false, true}) {
      const int64_t num_layers = is_decoder ? settings.at("model.layers").get<int64_t>() : num_encoder_layers(settings);
      for (int64_t i = 0; i < num_layers; ++i) {
        const std::string layer = str(is_decoder ? "decoder" : "encoder", ".layers.", i, ".");
        const auto add_attention = [&](const char* huggingface_name, const char* multihead_name) {
          const std::string from = layer + huggingface_name, to = layer + multihead_name;
          add(from + ".q_proj", to + ".query");
          add(from + ".k_proj", to + ".key");
          add(from + ".v_proj", to + ".value");
          add(from + ".out_proj", to + ".output");
          add(from + "_layer_norm", to + ".norm");
        };
        add_attention("self_attn", "self");
        if (is_decoder) add_attention("encoder_attn", "cross");
        add(layer + "fc1", layer + "ffn.up");
        add(layer + "fc2", layer + "ffn.down");
        add(layer + "final_layer_norm", layer + "ffn.norm");
      }
    }
    return tensor_names;
  }

  std::string tensor_prefix() const override { return "model."; }
  bool belongs_to_output_head(const std::string& tensor_name) const override {
    return tensor_name.starts_with("lm_head.") || tensor_name == "final_logits_bias";
  }
  std::string backbone() const override { return "encoder-decoder"; }
  bool is_buffer(const std::string& tensor_name) const override {
    return tensor_name == "encoder.embed_positions.weight" || tensor_name == "decoder.embed_positions.weight" ||
           tensor_name == "encoder.version" || tensor_name == "decoder.version";
  }
  bool is_unused(const std::string&, const Settings&) const override { return false; }

  Json config(const Settings& settings) const override {
    Json config{{"architectures", {"MarianMTModel"}}, {"model_type", "marian"}};
    set_keys(setting_pairs(), settings, config);
    for (const char* key : {"encoder_layers", "num_hidden_layers"}) config[key] = num_encoder_layers(settings);
    config["encoder_ffn_dim"] = settings.at("model.ffn_dim");
    config["encoder_attention_heads"] = attention_setting(settings, "encoder.self", "heads", 16);
    config["decoder_attention_heads"] = attention_setting(settings, "decoder.self", "heads", 16);
    config["activation_function"] = huggingface_activation(settings.at("model.activation"));
    write_start_token(settings, config);
    if (const Json start_token = config["decoder_start_token_id"]; !start_token.is_null())
      config["bad_words_ids"] = Json::array({Json::array({start_token})});
    config.update({{"is_encoder_decoder", true},
                   {"normalize_before", false},
                   {"normalize_embedding", false},
                   {"add_final_layer_norm", false},
                   {"static_position_embeddings", true},
                   {"encoder_layerdrop", 0.0},
                   {"decoder_layerdrop", 0.0},
                   {"init_std", 0.02},
                   {"use_cache", true},
                   {"dtype", "float32"}});
    return config;
  }

  void set_vocabulary_sizes(Json& config, int64_t num_rows, int64_t num_source_rows) const override {
    config["vocab_size"] = num_source_rows > 0 ? num_source_rows : num_rows;
    config["decoder_vocab_size"] = num_rows;
  }

  Json token_ids(const text::Tokenizers& tokenizers) const override {
    const int32_t end_id = tokenizers.target->end_of_line_id();
    return Json{{"eos_token_id", end_id}, {"forced_eos_token_id", end_id}};
  }

  std::map<std::string, std::string> vocabulary_files(const text::Tokenizers& tokenizers, const Settings& settings,
                                                      const std::string& name) const override {
    const auto marian_tokenizer_of = [&](const text::Tokenizer& tokenizer) -> const text::MarianTokenizer& {
      const auto* marian_tokenizer = dynamic_cast<const text::MarianTokenizer*>(&tokenizer);
      if (marian_tokenizer == nullptr) refuse_vocabulary(tokenizer, name, text::MarianTokenizer::kType);
      return *marian_tokenizer;
    };
    const text::MarianTokenizer &source = marian_tokenizer_of(tokenizers.source_or_target()),
                                &target = marian_tokenizer_of(*tokenizers.target);
    const std::string source_table = source.table_json(), target_table = target.table_json();
    const bool is_separate = source_table != target_table;
    Json config{{"tokenizer_class", "MarianTokenizer"},
                {"separate_vocabs", is_separate},
                {"model_max_length", settings.at("model.max_positions")},
                {"eos_token", target.piece(target.end_of_line_id())},
                {"unk_token", target.piece(target.unknown_id())}};
    if (const auto start_token = setting_or(settings, kStartToken, -1).get<int32_t>(); start_token >= 0)
      config["pad_token"] = target.piece(start_token);
    std::map<std::string, std::string> files{{"source.spm", source.model()},
                                             {"target.spm", target.model()},
                                             {"vocab.json", source_table},
                                             {"tokenizer_config.json", config.dump(2) + "\n"}};
    if (is_separate) files["target_vocab.json"] = target_table;
    return files;
  }
};

const Registration<Marian> marian_entry(
    architectures(), "marian",
    "Marian and OPUS-MT: an encoder-decoder with post-norm, sinusoidal positions of the standard formula, a bias of "
    "the "
    "output layer, and the padding token before the first token of a target. The vocabularies, from source.spm, "
    "target.spm and vocab.json, have the type marian.");

}  // namespace

}  // namespace mh::huggingface
