// T5 (Raffel et al. 2020), its form 1.1 (Flan-T5), and mT5 (Xue et al. 2021): an encoder-decoder with pre-norm, RMS
// norms, no biases, logits that are not scaled, learned biases of distances that the layers of a stack share, and the
// padding token before the first token of a target. mT5 has the form of T5 1.1 with other defaults.
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "huggingface/architecture.h"
#include "huggingface/encoder_decoder.h"
#include "huggingface/vocabulary_files.h"
#include "text/folder_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"

namespace mh::huggingface {

namespace {

// Keys of config.json without effect on the output of the model. vocab_size follows from the tensors; dense_act_fn and
// is_gated_act repeat feed_forward_proj.
constexpr const char* kIgnoredKeys[] = {
    "vocab_size",  "initializer_factor", "use_cache",  "classifier_dropout", "dense_act_fn",          "is_gated_act",
    "output_past", "is_encoder_decoder", "is_decoder", "tokenizer_class",    "gradient_checkpointing"};
// Kinds of attention with a position bias.
constexpr const char* kBiasedKinds[] = {"encoder.self", "decoder.self"};

// The differences between T5 and mT5: the defaults of the classes of transformers.
struct T5Family {
  const char* model_type;
  const char* model_class;
  int64_t ffn_dim;
  int64_t layers;
  int64_t heads;
  const char* feed_forward_proj;
  bool is_tied;
};

const Settings& fixed_settings() {
  static const Settings settings{{"model.backbone", "encoder-decoder"},
                                 {"model.norm", "pre"},
                                 {"model.norm_type", "rms"},
                                 {"model.final_norm", true},
                                 {"model.positions", "none"},
                                 {"model.ffn_bias", false},
                                 {"model.scale_embedding", false},
                                 {"model.output_bias", false},
                                 {"model.init", "bert"},
                                 {kSharedEmbedding, true},
                                 {"attention.bias", false},
                                 {"attention.output_bias", "same"},
                                 {"attention.scale", 1.0},
                                 {"attention.encoder.self.position_bias", "t5"},
                                 {"attention.decoder.self.position_bias", "t5"}};
  return settings;
}

class T5 : public Architecture {
 public:
  explicit T5(const T5Family& family) : family_(family) {
    pairs_ = {{"d_model", 512, {"model.width"}},
              {"d_ff", family.ffn_dim, {"model.ffn_dim"}},
              {"num_layers", family.layers, {kEncoderLayers}, kMaxStackLayers},
              {"num_heads", family.heads, {"attention.heads"}},
              {"n_positions", 512, {"model.max_positions"}, 1 << 24},
              {"layer_norm_epsilon", 1e-6, {"model.norm_epsilon"}},
              {"dropout_rate",
               0.1,
               {"model.dropout_embedding", "model.dropout_attention", "model.dropout_activation", "model.dropout_ffn",
                "model.dropout_output", "attention.dropout"}},
              {"tie_word_embeddings", family.is_tied, {"model.tied"}}};
  }

  const std::vector<SettingPair>& setting_pairs() const override { return pairs_; }

  Settings settings(const JsonConfig& config, const std::set<std::string>& tensor_names) const override {
    Settings result = fixed_settings();
    read_keys(setting_pairs(), config, result);
    result["model.layers"] = config.value("num_decoder_layers", result[kEncoderLayers]);
    require_size(result["model.layers"], config.path() + ": num_decoder_layers", kMaxStackLayers);
    const Json head_size = config.value("d_kv", 64);
    require_size(head_size, config.path() + ": d_kv", 1 << 16);
    const auto width = result["model.width"].get<int64_t>();
    result["attention.head_size"] =
        head_size.get<int64_t>() * result["attention.heads"].get<int64_t>() != width ? head_size : Json(0);
    read_feed_forward_proj(config, result);
    // The tied output layer of T5 reads the hidden states times width^(-1/2); the output layer of T5 1.1 is not tied.
    // transformers 5 writes tie_word_embeddings = true for both, and the difference as a key of its own.
    bool scales_output = config.value("scale_decoder_outputs", result["model.tied"]);
    if (std::string(family_.model_type) == "mt5" && result["model.tied"] == true) {
      // transformers 5 writes tie_word_embeddings = true for mT5, whose output layer is not tied if the file has it.
      if (!tensor_names.contains("lm_head.weight"))
        refuse_input(config.path() + ": tie_word_embeddings",
                     "false, or true with the tensor lm_head.weight, since only transformers 4 scales the output of a "
                     "tied mT5",
                     "true", "set model_type = t5, of which both versions scale the output");
      scales_output = false;
    }
    if (!scales_output && tensor_names.contains("lm_head.weight")) result["model.tied"] = false;
    result["model.output_scale"] = scales_output ? 1 / std::sqrt(static_cast<double>(width)) : 1.0;
    for (const char* kind : kBiasedKinds) {
      const std::string prefix = str("attention.", kind, ".t5.");
      result[prefix + "buckets"] = config.value("relative_attention_num_buckets", 32);
      result[prefix + "max_distance"] = config.value("relative_attention_max_distance", 128);
      result[prefix + "shared"] = true;
    }
    config.require("tie_encoder_decoder", false, {false}, "use a model whose encoder and decoder have own parameters");
    result[kStartToken] = read_start_token(config, 0);
    ignore_generation_keys(config);
    for (const char* key : kIgnoredKeys) config.value(key, nullptr);
    return result;
  }

  text::Tokenizers tokenizers(const std::string& folder) const override {
    return {text::read_tokenizer_folder(folder), nullptr};
  }

  TensorNames tensor_names(const Settings& settings) const override {
    TensorNames tensor_names{{{"shared.weight", {"decoder.embedding.weight"}}}, {}};
    for (const char* alias : {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"})
      tensor_names.aliases[alias] = "shared.weight";
    const auto add = [&](const std::string& huggingface_name, const std::string& multihead_name) {
      tensor_names.pairs.push_back(
          {.huggingface_name = huggingface_name + ".weight", .multihead_names = {multihead_name + ".weight"}});
    };
    const bool has_gate = settings.at("model.gated_ffn") == true;
    for (const std::string stack : {"encoder", "decoder"}) {
      const bool is_decoder = stack == "decoder";
      const int64_t num_layers = is_decoder ? settings.at("model.layers").get<int64_t>() : num_encoder_layers(settings);
      add(stack + ".block.0.layer.0.SelfAttention.relative_attention_bias", stack + ".position_bias");
      for (int64_t i = 0; i < num_layers; ++i) {
        const std::string block = str(stack, ".block.", i, ".layer."), layer = str(stack, ".layers.", i, ".");
        int sublayer = 0;
        const auto add_attention = [&](const char* huggingface_name, const std::string& multihead_name) {
          const std::string from = str(block, sublayer, "."), attention = from + huggingface_name,
                            to = layer + multihead_name;
          add(attention + ".q", to + ".query");
          add(attention + ".k", to + ".key");
          add(attention + ".v", to + ".value");
          add(attention + ".o", to + ".output");
          add(from + "layer_norm", to + ".norm");
          ++sublayer;
        };
        add_attention("SelfAttention", "self");
        if (is_decoder) add_attention("EncDecAttention", "cross");
        const std::string from = str(block, sublayer, "."), ffn = from + "DenseReluDense.", to = layer + "ffn.";
        if (has_gate) {
          add(ffn + "wi_0", to + "gate");
          add(ffn + "wi_1", to + "up");
        } else {
          add(ffn + "wi", to + "up");
        }
        add(ffn + "wo", to + "down");
        add(from + "layer_norm", to + "norm");
      }
      add(stack + ".final_layer_norm", stack + ".norm");
    }
    if (settings.at("model.tied") == true) tensor_names.aliases["lm_head.weight"] = "shared.weight";
    else
      tensor_names.pairs.push_back({.huggingface_name = "lm_head.weight",
                                    .multihead_names = {"decoder.output.weight"},
                                    .missing_advice = kUntiedAdvice});
    return tensor_names;
  }

  std::string tensor_prefix() const override { return ""; }
  bool belongs_to_output_head(const std::string& tensor_name) const override {
    return tensor_name.starts_with("lm_head.");
  }
  std::string backbone() const override { return "encoder-decoder"; }
  // The first files of T5 have a table of distances in cross-attention, which the model does not use.
  bool is_buffer(const std::string& tensor_name) const override {
    return tensor_name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
  }
  bool is_unused(const std::string&, const Settings&) const override { return false; }

  Json config(const Settings& settings) const override {
    Json config{{"architectures", {family_.model_class}}, {"model_type", family_.model_type}};
    set_keys(setting_pairs(), settings, config);
    config["num_layers"] = num_encoder_layers(settings);
    config["num_decoder_layers"] = settings.at("model.layers");
    config["d_kv"] = head_size_of(settings);
    config["feed_forward_proj"] = feed_forward_proj_of(settings);
    config["relative_attention_num_buckets"] = attention_setting(settings, kBiasedKinds[0], "t5.buckets", 32);
    config["relative_attention_max_distance"] = attention_setting(settings, kBiasedKinds[0], "t5.max_distance", 128);
    write_start_token(settings, config);
    config.update(
        {{"is_encoder_decoder", true}, {"initializer_factor", 1.0}, {"use_cache", true}, {"dtype", "float32"}});
    return config;
  }

  Json token_ids(const text::Tokenizers& tokenizers) const override {
    Json ids = Json::object();
    ids["eos_token_id"] = tokenizers.target->end_of_line_id();
    return ids;
  }

  std::map<std::string, std::string> vocabulary_files(const text::Tokenizers& tokenizers, const Settings& settings,
                                                      const std::string& name) const override {
    const text::Tokenizer& tokenizer = *tokenizers.target;
    const auto max_length = settings.at("model.max_positions").get<int64_t>();
    if (const auto* sentencepiece = dynamic_cast<const text::SentencePieceTokenizer*>(&tokenizer)) {
      const Json config{{"tokenizer_class", "T5Tokenizer"}, {"model_max_length", max_length}};
      return {{"spiece.model", sentencepiece->model()}, {"tokenizer_config.json", config.dump(2) + "\n"}};
    }
    std::map<std::string, std::string> files = huggingface::vocabulary_files(tokenizer, max_length, name);
    if (const auto start_token = setting_or(settings, kStartToken, -1).get<int32_t>();
        start_token >= 0 && start_token < tokenizer.size())
      for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"})
        if (const auto it = files.find(file); it != files.end()) {
          Json content = Json::parse(it->second);
          content["pad_token"] = tokenizer.piece(start_token);
          it->second = content.dump(2) + "\n";
        }
    return files;
  }

  bool is_default_for_writing() const override { return std::string(family_.model_type) == "t5"; }

 private:
  // Reads the form of the feed-forward sublayers: an activation, or "gated-" and an activation.
  void read_feed_forward_proj(const JsonConfig& config, Settings& settings) const {
    const std::string form = config.value("feed_forward_proj", family_.feed_forward_proj), prefix = "gated-";
    const bool is_gated = form.starts_with(prefix);
    const std::string activation = is_gated ? form.substr(prefix.size()) : form;
    // "gated-gelu" is the activation gelu_new in all versions of transformers.
    settings["model.activation"] = multihead_activation(form == "gated-gelu" ? "gelu_new" : activation);
    settings["model.gated_ffn"] = is_gated;
    if (settings["model.activation"].is_null())
      refuse_input(config.path() + ": feed_forward_proj", "relu, gelu, gelu_new or silu, or one of these after gated-",
                   Json(form).dump(),
                   "use a model with one of these activations, the only ones that multihead supports");
  }

  static std::string feed_forward_proj_of(const Settings& settings) {
    const std::string activation = huggingface_activation(settings.at("model.activation"));
    if (settings.at("model.gated_ffn") != true) return activation;
    return "gated-" + (activation == "gelu_new" ? "gelu" : activation);
  }

  T5Family family_;
  std::vector<SettingPair> pairs_;
};

class T5Base : public T5 {
 public:
  T5Base() : T5({"t5", "T5ForConditionalGeneration", 2048, 6, 8, "relu", true}) {}
};
class MultilingualT5 : public T5 {
 public:
  MultilingualT5() : T5({"mt5", "MT5ForConditionalGeneration", 1024, 8, 6, "gated-gelu", false}) {}
};

const Registration<T5Base> t5_entry(architectures(), "t5",
                                    "T5, T5 1.1 and Flan-T5: an encoder-decoder with pre-norm, RMS norms, no biases, "
                                    "shared biases of distances, and the "
                                    "padding token before the first token of a target. The vocabulary, from "
                                    "tokenizer.json or spiece.model, has the type "
                                    "tokenizer-json or sentencepiece.");
const Registration<MultilingualT5> mt5_entry(architectures(), "mt5", "mT5, in the form of T5 1.1.");

}  // namespace

}  // namespace mh::huggingface
