// BERT (Devlin et al. 2019) with the output heads of pre-training and fine-tuning.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "huggingface/architecture.h"
#include "huggingface/vocabulary_files.h"
#include "text/folder_tokenizer.h"

namespace mh::huggingface {

namespace {

// Keys of config.json without effect on the output of the model; vocab_size follows from the tensors.
constexpr const char* kIgnoredKeys[] = {"chunk_size_feed_forward", "initializer_range", "use_cache", "vocab_size",
                                        "pad_token_id"};

// A model class of transformers that has an output head.
struct ModelClass {
  const char* name;
  const char* required_setting = nullptr;  // key of a flag that is true in models of this class; null: all models
};

// A linear layer or layer norm of a head; both have a weight and a bias.
struct OutputHeadLayer {
  const char* huggingface_name;
  const char* multihead_name;
  const char* component;                   // TensorPair::component of the weight and of the bias
  const char* required_setting = nullptr;  // key of a flag that is true in models with the layer; null: all models
};

// An output head in transformers: its model classes, tensors and settings.
struct OutputHeadFormat {
  const char* head;                       // value of model.bert.head
  std::vector<ModelClass> model_classes;  // a written config.json names the first class whose flag is true
  const char* tensor_prefix;              // prefix of all tensors of the head except the pooler
  std::vector<OutputHeadLayer> layers;
  // Tensor that identifies the head in a folder whose config.json names no model class; null: none.
  const char* identifying_tensor = nullptr;
  // Value of problem_type in config.json if the head is a classifier with labels and dropout; null: no classifier.
  const char* problem_type = nullptr;
  size_t num_labels = 0;  // number of labels of the classifier; 0: any number, stored in model.bert.classes
  // Derives further settings from the names of the tensors in the file; null: none.
  void (*read_settings)(const std::set<std::string>& tensor_names, Settings& settings) = nullptr;
  // Adds the names of further tensors; null: none.
  void (*add_tensors)(const Settings& settings, TensorNames& tensor_names) = nullptr;
};

// Returns whether the flag with the key `setting` is true; true for null.
bool is_true_or_null(const char* setting, const Settings& settings) {
  return setting == nullptr || settings.at(setting) == true;
}

constexpr const char* kNextSentence = "model.bert.next_sentence";
constexpr const char* kPooler = "pooler.dense";
constexpr const char* kPoolerComponent = "the pooler (pooler.dense)";
constexpr const char* kWordsComponent = "the masked-word head (cls.predictions)";

void read_next_sentence(const std::set<std::string>& tensor_names, Settings& settings) {
  settings[kNextSentence] = tensor_names.count(str(kPooler, ".weight")) > 0;
}

// Adds the weight and the bias of the output layer for masked words.
void add_word_outputs(const Settings& settings, TensorNames& tensor_names) {
  const std::string huggingface_prefix = "cls.predictions.";
  const bool is_tied = settings.at("model.tied") == true;
  // In transformers 5, models with tied weights also tie `decoder.bias` to `bias`; other models use `decoder.bias`.
  const std::string bias_name = huggingface_prefix + "bias", decoder_bias_name = huggingface_prefix + "decoder.bias";
  tensor_names.pairs.push_back({is_tied ? bias_name : decoder_bias_name, {"head.words.bias"}, false, kWordsComponent});
  tensor_names.aliases[is_tied ? decoder_bias_name : bias_name] = is_tied ? bias_name : decoder_bias_name;
  if (!is_tied) tensor_names.ignored_aliases.insert(bias_name);
  if (is_tied) tensor_names.aliases[huggingface_prefix + "decoder.weight"] = "embeddings.word_embeddings.weight";
  else
    tensor_names.pairs.push_back(
        {huggingface_prefix + "decoder.weight", {"head.words.weight"}, false, kWordsComponent});
}

// Returns the table of heads, with a row for each value of model.bert.head. The first row is the default of a folder
// whose config.json names no model class and whose tensors identify no head. Among rows with the same model class, rows
// that set `num_labels` precede the others.
const std::vector<OutputHeadFormat>& head_formats() {
  static const std::vector<OutputHeadFormat> formats{
      {.head = "words",
       .model_classes = {{"BertForPreTraining", kNextSentence},
                         {"BertForMaskedLM"},
                         {"BertModel"},
                         {"BertForNextSentencePrediction"}},
       .tensor_prefix = "cls.",
       .layers = {{kPooler, "pooler", kPoolerComponent, kNextSentence},
                  {"cls.seq_relationship", "head.next", "the next-sentence head (cls.seq_relationship)", kNextSentence},
                  {"cls.predictions.transform.dense", "head.words.transform", kWordsComponent},
                  {"cls.predictions.transform.LayerNorm", "head.words.norm", kWordsComponent}},
       .read_settings = read_next_sentence,
       .add_tensors = add_word_outputs},
      {.head = "number",
       .model_classes = {{"BertForSequenceClassification"}},
       .tensor_prefix = "classifier.",
       .layers = {{kPooler, "pooler", kPoolerComponent},
                  {"classifier", "head.number", "the regression head (classifier)"}},
       .identifying_tensor = "classifier.weight",
       .problem_type = "regression",
       .num_labels = 1},
      {.head = "classes",
       .model_classes = {{"BertForSequenceClassification"}},
       .tensor_prefix = "classifier.",
       .layers = {{kPooler, "pooler", kPoolerComponent},
                  {"classifier", "head.classes", "the classification head (classifier)"}},
       .identifying_tensor = "classifier.weight",
       .problem_type = "single_label_classification"},
      {.head = "span",
       .model_classes = {{"BertForQuestionAnswering"}},
       .tensor_prefix = "qa_outputs.",
       .layers = {{"qa_outputs", "head.span", "the span head (qa_outputs)"}},
       .identifying_tensor = "qa_outputs.weight"},
  };
  return formats;
}

// Returns the names that transformers gives to labels by default.
std::vector<std::string> default_labels(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(str("LABEL_", i));
  return names;
}

std::vector<std::string> labels_of(const JsonConfig& config) {
  const Json id2label = config.value("id2label", Json{{"0", "LABEL_0"}, {"1", "LABEL_1"}});
  std::vector<std::string> labels;
  for (size_t i = 0; i < id2label.size(); ++i) {
    const auto label = id2label.find(std::to_string(i));
    if (label == id2label.end() || !label->is_string() || std::ranges::count(labels, label->get<std::string>()) > 0)
      refuse_input(config.path() + ": id2label", "a unique label for each class number, counted from 0",
                   io::json_excerpt(id2label), "correct the labels in id2label");
    labels.push_back(*label);
  }
  return labels;
}

// Returns the format of the head in a folder with this config.json and these tensors. Throws Error(input) for an
// unknown model class.
const OutputHeadFormat& format_in_folder(const JsonConfig& config, const std::set<std::string>& tensor_names) {
  const Json class_names = config.value("architectures", Json::array());
  std::vector<std::string> known_classes;
  for (const OutputHeadFormat& format : head_formats()) {
    bool has_head = class_names.empty() && format.identifying_tensor != nullptr &&
                    tensor_names.count(format.identifying_tensor) > 0;
    for (const ModelClass& model_class : format.model_classes) {
      has_head |= !class_names.empty() && class_names[0] == model_class.name;
      if (std::ranges::count(known_classes, model_class.name) == 0) known_classes.emplace_back(model_class.name);
    }
    if (has_head && (format.num_labels == 0 || format.num_labels == labels_of(config).size())) return format;
  }
  if (class_names.empty()) return head_formats().front();
  refuse_input(config.path() + ": architectures", "one of " + join(known_classes, ", "),
               io::json_excerpt(class_names[0]),
               "use a model of one of these classes, the only ones that multihead supports");
}

// Returns the format of the head of a model with these settings. Throws Error(input) for a head without a format.
const OutputHeadFormat& format_of(const Settings& settings) {
  const Json& head = settings.at("model.bert.head");
  std::vector<std::string> known_heads;
  for (const OutputHeadFormat& format : head_formats()) {
    if (head == format.head) return format;
    known_heads.emplace_back(format.head);
  }
  refuse_input("model.bert.head", "a head that transformers supports: " + join(known_heads, ", "), head.dump(),
               "keep the model as a multihead checkpoint");
}

// Reads labels, problem type and dropout of a classifier from config.json.
void read_classifier(const OutputHeadFormat& format, const JsonConfig& config, Settings& settings) {
  const std::vector<std::string> labels = labels_of(config);
  if (format.num_labels == 0) {
    settings["model.bert.classes"] = labels.size();
    if (labels != default_labels(labels.size())) settings["model.bert.labels"] = labels;
  }
  config.require("problem_type", format.problem_type, {format.problem_type},
                 str("correct problem_type: the classifier has ", labels.size(), " outputs"));
  const Json dropout = config.value("classifier_dropout", nullptr);
  settings["model.dropout_output"] = dropout.is_null() ? settings["model.dropout_embedding"] : dropout;
}

// Writes labels, problem type and dropout of a classifier to config.json.
void write_classifier(const OutputHeadFormat& format, const Settings& settings, Json& config) {
  // In all versions of transformers, classifier_dropout = null means the value of hidden_dropout_prob.
  const Json& dropout = settings.at("model.dropout_output");
  if (dropout != settings.at("model.dropout_embedding")) config["classifier_dropout"] = dropout;
  std::vector<std::string> labels;
  if (const auto id2label = settings.find("model.bert.labels"); id2label != settings.end()) labels = id2label->second;
  if (labels.empty())
    labels =
        default_labels(format.num_labels > 0 ? format.num_labels : settings.at("model.bert.classes").get<size_t>());
  for (size_t i = 0; i < labels.size(); ++i) {
    config["id2label"][std::to_string(i)] = labels[i];
    config["label2id"][labels[i]] = i;
  }
  config["problem_type"] = format.problem_type;
}

class Bert : public Architecture {
 public:
  const std::vector<SettingPair>& setting_pairs() const override {
    static const std::vector<SettingPair> pairs{
        {"hidden_size", 768, {"model.width"}},
        {"num_hidden_layers", 12, {"model.layers"}, kMaxLayers},
        {"num_attention_heads", 12, {"attention.heads"}},
        {"intermediate_size", 3072, {"model.ffn"}},
        {"max_position_embeddings", 512, {"model.max_positions"}},
        {"type_vocab_size", 2, {"model.bert.segments"}},
        {"layer_norm_eps", 1e-12, {"model.norm_epsilon"}},
        {"hidden_dropout_prob", 0.1, {"model.dropout_embedding", "model.dropout_attention", "model.dropout_ffn"}},
        {"attention_probs_dropout_prob", 0.1, {"attention.dropout"}},
        {"tie_word_embeddings", true, {"model.tied"}},
    };
    return pairs;
  }

  Settings settings(const JsonConfig& config, const std::set<std::string>& tensor_names) const override {
    Settings result{{"model.backbone", backbone()},   {"model.norm", "post"},
                    {"model.positions", "learned"},   {"model.bert.embedding_norm", true},
                    {"model.scale_embedding", false}, {"model.init", "bert"},
                    {"attention.bias", true}};
    read_keys(setting_pairs(), config, result);
    result["model.activation"] = activation_of(config, "hidden_act", "gelu");
    config.require("position_embedding_type", "absolute", {"absolute"},
                   "use a model with absolute position embeddings, the only kind that multihead supports for BERT");
    config.require("is_decoder", false, {false}, "use a BERT model without a causal mask");
    config.require("add_cross_attention", false, {false}, "use a BERT model without cross-attention");
    config.require("pruned_heads", Json::object(), {Json::object()},
                   "use the model before pruning: multihead does not read pruned heads of BERT");
    for (const char* key : kIgnoredKeys) config.value(key, nullptr);
    const OutputHeadFormat& format = format_in_folder(config, tensor_names);
    result["model.bert.head"] = format.head;
    if (format.read_settings != nullptr) format.read_settings(tensor_names, result);
    if (format.problem_type != nullptr) read_classifier(format, config, result);
    return result;
  }

  text::Tokenizers tokenizers(const std::string& folder) const override {
    return {text::read_wordpiece_folder(folder), nullptr};
  }

  TensorNames tensor_names(const Settings& settings) const override {
    TensorNames tensor_names{{{"embeddings.word_embeddings.weight", {"encoder.embedding.weight"}},
                              {"embeddings.position_embeddings.weight", {"encoder.positions.weight"}},
                              {"embeddings.token_type_embeddings.weight", {"encoder.segments.weight"}}},
                             {}};
    const auto add = [&](const std::string& huggingface_name, const std::string& multihead_name,
                         const std::string& component = "") {
      for (const char* suffix : {".weight", ".bias"})
        tensor_names.pairs.push_back({huggingface_name + suffix, {multihead_name + suffix}, false, component});
    };
    add("embeddings.LayerNorm", "encoder.embedding_norm");
    for (int64_t i = 0; i < settings.at("model.layers").get<int64_t>(); ++i) {
      const std::string huggingface_prefix = str("encoder.layer.", i, "."),
                        multihead_prefix = str("encoder.layers.", i, ".");
      for (const char* projection : {"query", "key", "value"})
        add(huggingface_prefix + "attention.self." + projection, multihead_prefix + "self." + projection);
      add(huggingface_prefix + "attention.output.dense", multihead_prefix + "self.output");
      add(huggingface_prefix + "attention.output.LayerNorm", multihead_prefix + "self.norm");
      add(huggingface_prefix + "intermediate.dense", multihead_prefix + "ffn.up");
      add(huggingface_prefix + "output.dense", multihead_prefix + "ffn.down");
      add(huggingface_prefix + "output.LayerNorm", multihead_prefix + "ffn.norm");
    }
    const OutputHeadFormat& format = format_of(settings);
    for (const OutputHeadLayer& layer : format.layers)
      if (is_true_or_null(layer.required_setting, settings))
        add(layer.huggingface_name, layer.multihead_name, layer.component);
    if (format.add_tensors != nullptr) format.add_tensors(settings, tensor_names);
    return tensor_names;
  }

  std::string tensor_prefix() const override { return "bert."; }
  bool belongs_to_output_head(const std::string& tensor_name) const override {
    return std::ranges::any_of(
        head_formats(), [&](const OutputHeadFormat& format) { return tensor_name.starts_with(format.tensor_prefix); });
  }
  std::string backbone() const override { return "bert"; }
  bool is_buffer(const std::string& tensor_name) const override {
    return tensor_name == "embeddings.position_ids" || tensor_name == "embeddings.token_type_ids";
  }
  bool is_unused(const std::string& tensor_name, const Settings& settings) const override {
    return tensor_name.starts_with("pooler.") &&
           std::ranges::none_of(format_of(settings).layers, [](const OutputHeadLayer& layer) {
             return layer.huggingface_name == std::string_view(kPooler);
           });
  }

  Json config(const Settings& settings) const override {
    const OutputHeadFormat& format = format_of(settings);
    const auto model_class = std::ranges::find_if(format.model_classes, [&](const ModelClass& candidate) {
      return is_true_or_null(candidate.required_setting, settings);
    });
    Json config{{"architectures", {model_class->name}}, {"model_type", "bert"}};
    set_keys(setting_pairs(), settings, config);
    config["hidden_act"] = huggingface_activation(settings.at("model.activation"));
    config.update({{"is_decoder", false},
                   {"add_cross_attention", false},
                   {"initializer_range", 0.02},
                   {"use_cache", true},
                   {"classifier_dropout", nullptr},
                   {"dtype", "float32"}});
    if (format.problem_type != nullptr) write_classifier(format, settings, config);
    return config;
  }

  Json token_ids(const text::Tokenizers& tokenizers) const override {
    const auto* tokenizer = dynamic_cast<const text::WordPieceTokenizer*>(tokenizers.target.get());
    if (tokenizer == nullptr) return Json::object();
    return huggingface::token_ids(tokenizer->added_tokens(), {"pad_token", "bos_token", "eos_token"});
  }

  std::map<std::string, std::string> vocabulary_files(const text::Tokenizers& tokenizers, const Settings& settings,
                                                      const std::string& name) const override {
    const auto* tokenizer = dynamic_cast<const text::WordPieceTokenizer*>(tokenizers.target.get());
    if (tokenizer == nullptr) refuse_vocabulary(*tokenizers.target, name, text::WordPieceTokenizer::kType);
    const text::BertNormalisation& normalisation = tokenizer->normalisation();
    Json config{{"tokenizer_class", "BertTokenizer"},
                {"do_lower_case", normalisation.lowercase},
                {"strip_accents", normalisation.strip_accents},
                {"tokenize_chinese_chars", true},
                {"model_max_length", settings.at("model.max_positions")}};
    const text::AddedTokens tokens = tokenizer->added_tokens();
    add_special_tokens(tokens, tokenizer->pieces(), config);
    // The id of a token is its line number in vocab.txt, counted from 0, so only added tokens at the end of the
    // vocabulary can be stored in tokenizer_config.json instead.
    std::vector<text::Piece> pieces = tokenizer->pieces();
    while (!pieces.empty()) {
      const auto token = tokens.find(static_cast<int64_t>(pieces.size()) - 1);
      if (token == tokens.end() || token->second.count(text::kAppended) == 0) break;
      pieces.pop_back();
    }
    return {{"vocab.txt", text::serialize_wordpieces(pieces)}, {"tokenizer_config.json", config.dump(2) + "\n"}};
  }
};

const Registration<Bert> bert_entry(
    architectures(), "bert",
    "A model with model.backbone = bert, post-norm, learned positions and segments. The vocabulary, from "
    "tokenizer.json or "
    "vocab.txt, has the type wordpiece; tokenizer.json, or else tokenizer_config.json, states whether case and accents "
    "are kept. BertForPreTraining, BertForMaskedLM, BertForNextSentencePrediction and BertModel get the head for "
    "masked "
    "words, and the head for next sentences if they have a pooler; BertForSequenceClassification gets the head for "
    "classes, or the head for a number (regression) if it has one label; BertForQuestionAnswering gets the head for "
    "spans.");

}  // namespace

}  // namespace mh::huggingface
