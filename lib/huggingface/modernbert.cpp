// ModernBERT (Warner et al. 2024): an encoder with pre-norm, a norm of the embeddings in place of the first norm, gated
// feed-forward sublayers, no biases, rotary positions, and a window of keys on both sides in most layers.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "huggingface/encoder_heads.h"
#include "huggingface/llama_form.h"
#include "huggingface/vocabulary_files.h"
#include "text/encoder_vocabulary.h"
#include "text/folder_tokenizer.h"

namespace mh::huggingface {

namespace {

// Keys of config.json without effect on the output of the model, and keys of models with another head; vocab_size
// follows from the tensors.
constexpr const char* kIgnoredKeys[] = {"initializer_range",
                                        "initializer_cutoff_factor",
                                        "vocab_size",
                                        "pad_token_id",
                                        "cls_token_id",
                                        "deterministic_flash_attn",
                                        "reference_compile",
                                        "repad_logits_with_grad",
                                        "sparse_prediction",
                                        "sparse_pred_ignore_index",
                                        "position_embedding_type",
                                        "layer_norm_eps",
                                        "classifier_pooling",
                                        "decoder_bias"};
constexpr const char* kKind = "encoder.self";
constexpr const char* kPatternKey = "global_attn_every_n_layers";
constexpr int64_t kDefaultPattern = 3;
constexpr const char* kWindowKey = "local_attention";
constexpr int64_t kDefaultWindowSize = 128;
constexpr const char* kTransformBias = "model.bert.transform_bias";
constexpr const char* kNormBias = "model.norm_bias";
constexpr const char* kTransformComponent = "the dense layer and norm of the output head (head)";

const RopeOfTypesFormat kRope{.full = {.default_base = 160000, .base_key = "global_rope_theta"},
                              .sliding_base_key = "local_rope_theta",
                              .default_sliding_base = 10000,
                              .scales_sliding = true};

void require_decoder_bias(const JsonConfig& config, const std::set<std::string>&, Settings&) {
  config.require("decoder_bias", true, {true},
                 "use a model with a bias of the output layer, which multihead requires for masked words");
}

void read_pooler(const JsonConfig& config, const std::set<std::string>&, Settings& settings) {
  config.require("classifier_pooling", "cls", {"cls"},
                 "use a classifier of the first token (cls): multihead does not support mean pooling");
  settings["model.bert.pooler"] = "transform";
}

// Adds the weight and the bias of the output layer for masked words.
void add_modernbert_word_outputs(const Settings& settings, TensorNames& tensor_names) {
  const char* component = "the output layer for masked words (decoder)";
  tensor_names.pairs.push_back({"decoder.bias", {"head.words.bias"}, false, component});
  if (settings.at("model.tied") == true)
    tensor_names.aliases["decoder.weight"] = tensor_names.pairs.front().huggingface_name;
  else tensor_names.pairs.push_back({"decoder.weight", {"head.words.weight"}, false, component});
}

const OutputHeads& output_heads() {
  // Returns the layers of a head that makes one prediction for a text.
  const auto pooled_layers = [](const char* multihead_name, const char* component) {
    return std::vector<OutputHeadLayer>{{"head.dense", "pooler", kTransformComponent, nullptr, kTransformBias},
                                        {"head.norm", "pooler.norm", kTransformComponent, nullptr, kNormBias},
                                        {"classifier", multihead_name, component}};
  };
  static const OutputHeads table{
      "ModernBert",
      {{.head = "words",
        .model_classes = {{"ForMaskedLM"}, {"Model"}},
        .tensor_prefixes = {"head.", "decoder."},
        .layers = {{"head.dense", "head.words.transform", kTransformComponent, nullptr, kTransformBias},
                   {"head.norm", "head.words.norm", kTransformComponent, nullptr, kNormBias}},
        .read_settings = require_decoder_bias,
        .add_tensors = add_modernbert_word_outputs},
       {.head = "number",
        .model_classes = {{"ForSequenceClassification"}},
        .tensor_prefixes = {"classifier."},
        .layers = pooled_layers("head.number", "the regression head (classifier)"),
        .identifying_tensor = "classifier.weight",
        .problem_type = "regression",
        .num_labels = 1,
        .read_settings = read_pooler},
       {.head = "classes",
        .model_classes = {{"ForSequenceClassification"}},
        .tensor_prefixes = {"classifier."},
        .layers = pooled_layers("head.classes", "the classification head (classifier)"),
        .identifying_tensor = "classifier.weight",
        .problem_type = "single_label_classification",
        .read_settings = read_pooler}}};
  return table;
}

// Returns the number of keys that a query sees on each side, itself included, for local_attention of config.json.
int64_t window_of_size(int64_t size) { return size / 2 + 1; }

// Returns n if layers 0, n, 2n, … and no others are without a window. Throws Error(input) if there is no such n.
int64_t pattern_of(const LayerSettings& layers) {
  const Json types = layer_types_of(layers);
  const auto num_layers = static_cast<int64_t>(types.size());
  for (int64_t pattern = 1; pattern <= num_layers; ++pattern) {
    bool fits = true;
    for (int64_t i = 0; i < num_layers; ++i)
      fits &= (types[static_cast<size_t>(i)] == kFullAttention) == (i % pattern == 0);
    if (fits) return pattern;
  }
  refuse_input("attention.window", "a window in all layers except every n-th layer from layer 0 on", types.dump(),
               "keep the model as a multihead checkpoint");
}

class ModernBert : public Architecture {
 public:
  const std::vector<SettingPair>& setting_pairs() const override {
    static const std::vector<SettingPair> pairs{
        {"hidden_size", 768, {"model.width"}},
        {"num_hidden_layers", 22, {"model.layers"}, kMaxLayers},
        {"num_attention_heads", 12, {"attention.heads"}},
        {"intermediate_size", 1152, {"model.ffn_dim"}},
        {"max_position_embeddings", 8192, {"model.max_positions"}, 1 << 24},
        {"norm_eps", 1e-5, {"model.norm_epsilon"}},
        {"norm_bias", false, {kNormBias}},
        {"attention_bias", false, {"attention.bias"}},
        {"mlp_bias", false, {"model.ffn_bias"}},
        {"classifier_bias", false, {kTransformBias}},
        {"embedding_dropout", 0.0, {"model.dropout_embedding"}},
        {"attention_dropout", 0.0, {"attention.dropout", "model.dropout_attention"}},
        {"mlp_dropout", 0.0, {"model.dropout_activation"}},
        {"tie_word_embeddings", true, {"model.tied"}},
    };
    return pairs;
  }

  Settings settings(const JsonConfig& config, const std::set<std::string>& tensor_names) const override {
    Settings result{{"model.backbone", backbone()},
                    {"model.norm", "pre"},
                    {"model.norm_type", "layer"},
                    {"model.first_norm", false},
                    {"model.final_norm", true},
                    {"model.positions", "none"},
                    {"model.gated_ffn", true},
                    {"model.scale_embedding", false},
                    {"model.init", "bert"},
                    {"model.bert.segments", 0},
                    {"model.bert.embedding_norm", true},
                    {"attention.output_bias", "same"}};
    read_keys(setting_pairs(), config, result);
    result["model.activation"] = activation_of(config, "hidden_activation", "gelu");
    if (activation_of(config, "classifier_activation", "gelu") != result["model.activation"])
      refuse_input(config.path() + ": classifier_activation",
                   "the value of hidden_activation, since multihead has one activation for layers and head",
                   config.value("classifier_activation", "gelu").dump(), "use a model with one activation");
    config.require("is_decoder", false, {false}, "use an encoder, which has no causal mask");
    set_layers(read_layers(config, result), result, kKind);
    for (const char* key : kIgnoredKeys) config.value(key, nullptr);
    output_heads().read(config, tensor_names, result);
    if (output_heads().is_classifier(result)) result["model.dropout_output"] = config.value("classifier_dropout", 0.0);
    return result;
  }

  text::Tokenizers tokenizers(const std::string& folder) const override {
    auto tokenizer = text::read_tokenizer_folder(folder);
    text::encoder_tokens(*tokenizer, folder);  // throws for the vocabulary of another model than an encoder
    return {std::move(tokenizer), nullptr};
  }

  TensorNames tensor_names(const Settings& settings) const override {
    TensorNames tensor_names{{{"embeddings.tok_embeddings.weight", {"encoder.embedding.weight"}}}, {}};
    const auto add = [&](const std::string& huggingface_name, const std::vector<std::string>& multihead_names,
                         bool has_bias) {
      for (const std::string suffix : {".weight", ".bias"}) {
        if (suffix == ".bias" && !has_bias) continue;
        TensorPair pair{huggingface_name + suffix, {}};
        for (const std::string& name : multihead_names) pair.multihead_names.push_back(name + suffix);
        tensor_names.pairs.push_back(std::move(pair));
      }
    };
    const bool has_norm_bias = settings.at(kNormBias) == true,
               has_attention_bias = settings.at("attention.bias") == true,
               has_ffn_bias = settings.at("model.ffn_bias") == true;
    add("embeddings.norm", {"encoder.embedding_norm"}, has_norm_bias);
    for (size_t i = 0; i < num_layers_of(settings); ++i) {
      const std::string layer = str("layers.", i, "."), multihead_layer = str("encoder.layers.", i, "."),
                        self = multihead_layer + "self.", ffn = multihead_layer + "ffn.";
      if (i > 0) add(layer + "attn_norm", {self + "norm"}, has_norm_bias);
      add(layer + "attn.Wqkv", {self + "query", self + "key", self + "value"}, has_attention_bias);
      add(layer + "attn.Wo", {self + "output"}, has_attention_bias);
      add(layer + "mlp_norm", {ffn + "norm"}, has_norm_bias);
      add(layer + "mlp.Wi", {ffn + "gate", ffn + "up"}, has_ffn_bias);
      add(layer + "mlp.Wo", {ffn + "down"}, has_ffn_bias);
    }
    add("final_norm", {"encoder.norm"}, has_norm_bias);
    output_heads().add_tensors(settings, tensor_names);
    return tensor_names;
  }

  std::string tensor_prefix() const override { return "model."; }
  bool belongs_to_output_head(const std::string& tensor_name) const override {
    return output_heads().contains(tensor_name);
  }
  std::string backbone() const override { return "bert"; }
  bool is_buffer(const std::string& tensor_name) const override {
    return name_in_layer(tensor_name, "layers.") == "attn.rotary_emb.inv_freq";
  }
  bool is_unused(const std::string&, const Settings&) const override { return false; }

  Json config(const Settings& settings) const override {
    Json config{{"model_type", "modernbert"}};
    set_keys(setting_pairs(), settings, config);
    config["hidden_activation"] = huggingface_activation(settings.at("model.activation"));
    config["classifier_activation"] = config["hidden_activation"];
    const LayerSettings layers = layers_of(settings, num_layers_of(settings), kKind);
    // If no layer has a window, config.json gets the defaults of such layers, which have no effect.
    RopeOfTypes rope{{}, {{"rotary.base", kRope.default_sliding_base}}};
    for (const Settings& kind : layers.kinds) (window_of(kind).is_null() ? rope.full : rope.sliding) = kind;
    write_rope_of_types(rope, kRope, rope_sizes(settings), config);
    const Json window = largest_window(layers);
    config[kWindowKey] = window.is_null() ? kDefaultWindowSize : std::max<int64_t>(1, 2 * (window.get<int64_t>() - 1));
    config["layer_types"] = layer_types_of(layers);
    config[kPatternKey] = pattern_of(layers);
    output_heads().write(settings, config);
    config["classifier_dropout"] =
        output_heads().is_classifier(settings) ? settings.at("model.dropout_output") : Json(0.0);
    config.update({{"decoder_bias", true},
                   {"classifier_pooling", "cls"},
                   {"initializer_range", 0.02},
                   {"initializer_cutoff_factor", 2.0},
                   {"sparse_prediction", false},
                   {"deterministic_flash_attn", false},
                   {"bos_token_id", nullptr},
                   {"eos_token_id", nullptr},
                   {"pad_token_id", nullptr},
                   {"cls_token_id", nullptr},
                   {"sep_token_id", nullptr},
                   {"dtype", "float32"}});
    return config;
  }

  Json token_ids(const text::Tokenizers& tokenizers) const override {
    Json ids = encoder_token_ids(*tokenizers.target);
    if (ids.empty()) return ids;
    ids["cls_token_id"] = ids["bos_token_id"];
    ids["sep_token_id"] = ids["eos_token_id"];
    return ids;
  }
  std::map<std::string, std::string> vocabulary_files(const text::Tokenizers& tokenizers, const Settings& settings,
                                                      const std::string& name) const override {
    return encoder_vocabulary_files(*tokenizers.target, settings.at("model.max_positions").get<int64_t>(), name);
  }

 private:
  static LayerSettings read_layers(const JsonConfig& config, const Settings& settings) {
    const size_t num_layers = num_layers_of(settings);
    const int64_t pattern = config.value(kPatternKey, kDefaultPattern),
                  size = config.value(kWindowKey, kDefaultWindowSize);
    require_size(pattern, config.path() + ": " + kPatternKey, kMaxLayers);
    require_size(size, config.path() + ": " + kWindowKey, 1 << 30);
    return layers_of_types(layer_types_or(config, num_layers, [&](int64_t i) { return i % pattern != 0; }),
                           {{"transform", Json::array({"rotary"})}}, window_of_size(size),
                           read_rope_of_types(config, kRope, rope_sizes(settings)));
  }
};

const Registration<ModernBert> modernbert_entry(
    architectures(), "modernbert",
    "ModernBERT: an encoder with pre-norm, a norm of the embeddings in place of the first norm, gated feed-forward "
    "sublayers, rotary positions, and a window on both sides of a query in layers of the type sliding_attention. "
    "ModernBertForMaskedLM and ModernBertModel get the head for masked words; ModernBertForSequenceClassification with "
    "classifier_pooling cls gets the head for classes or a number with model.bert.pooler=transform. The vocabulary is "
    "tokenizer.json.");

}  // namespace

}  // namespace mh::huggingface
