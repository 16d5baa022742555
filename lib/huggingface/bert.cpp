// BERT (Devlin et al. 2019) with the output heads of pre-training and fine-tuning.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "huggingface/architecture.h"
#include "huggingface/vocabulary_files.h"
#include "text/folder_tokenizer.h"

namespace mh::huggingface {

namespace {

const std::vector<SettingPair>& setting_pairs() {
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

// Keys of config.json without effect on the output of the model; vocab_size follows from the tensors.
constexpr const char* kIgnoredKeys[] = {"chunk_size_feed_forward", "initializer_range", "use_cache", "vocab_size",
                                        "pad_token_id"};

// A model class of transformers, and its value of model.bert.head; "classes" becomes "number" if there is one label.
struct ModelClass {
  const char* name;
  const char* head;
};
constexpr ModelClass kModelClasses[] = {{"BertForPreTraining", "words"},
                                        {"BertForMaskedLM", "words"},
                                        {"BertModel", "words"},
                                        {"BertForNextSentencePrediction", "words"},
                                        {"BertForSequenceClassification", "classes"},
                                        {"BertForQuestionAnswering", "span"}};

std::string head_of(const ConfigFile& config, const std::set<std::string>& tensor_names) {
  const Json class_names = config.value("architectures", Json::array());
  if (!class_names.empty()) {
    std::vector<std::string> known_classes;
    for (const ModelClass& model_class : kModelClasses) {
      if (class_names[0] == model_class.name) return model_class.head;
      known_classes.emplace_back(model_class.name);
    }
    throw Error(Exit::input, Problem{config.path() + ": architectures", "one of " + join(known_classes, ", "),
                                     class_names[0].dump(), "other heads are not supported"});
  }
  if (tensor_names.count("classifier.weight") > 0) return "classes";
  return tensor_names.count("qa_outputs.weight") > 0 ? "span" : "words";
}

// Returns the names that transformers gives to labels by default.
std::vector<std::string> default_labels(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(str("LABEL_", i));
  return names;
}

std::vector<std::string> labels_of(const ConfigFile& config) {
  const Json id2label = config.value("id2label", Json{{"0", "LABEL_0"}, {"1", "LABEL_1"}});
  std::vector<std::string> labels;
  for (size_t i = 0; i < id2label.size(); ++i) {
    const auto label = id2label.find(std::to_string(i));
    if (label == id2label.end() || !label->is_string() || std::ranges::count(labels, label->get<std::string>()) > 0)
      throw Error(Exit::input, Problem{config.path() + ": id2label",
                                       "a unique label for each class number, counted from 0", id2label.dump(), ""});
    labels.push_back(*label);
  }
  return labels;
}

const char* problem_type_of(bool is_regression) { return is_regression ? "regression" : "single_label_classification"; }

constexpr const char* kPoolerWeight = "pooler.dense.weight";

class Bert : public Architecture {
 public:
  Settings settings(const ConfigFile& config, const std::set<std::string>& tensor_names) const override {
    Settings result{{"model.backbone", backbone()},   {"model.norm", "post"},
                    {"model.positions", "learned"},   {"model.bert.embedding_norm", true},
                    {"model.scale_embedding", false}, {"model.init", "bert"},
                    {"attention.bias", true}};
    read_keys(setting_pairs(), config, result);
    result["model.activation"] = activation_of(config, "hidden_act", "gelu");
    config.require("position_embedding_type", "absolute", {"absolute"}, "other position embeddings are not supported");
    config.require("is_decoder", false, {false}, "causal masks are not supported for BERT");
    config.require("add_cross_attention", false, {false}, "cross-attention is not supported for BERT");
    config.require("pruned_heads", Json::object(), {Json::object()}, "pruned heads are not supported");
    for (const char* key : kIgnoredKeys) config.value(key, nullptr);
    result["model.bert.head"] = head_of(config, tensor_names);
    if (result["model.bert.head"] == "words") {
      result["model.bert.next_sentence"] = tensor_names.count(kPoolerWeight) > 0;
    } else if (result["model.bert.head"] == "classes") {
      const std::vector<std::string> labels = labels_of(config);
      const bool is_regression = labels.size() == 1;
      if (is_regression) result["model.bert.head"] = "number";
      else result["model.bert.classes"] = labels.size();
      if (!is_regression && labels != default_labels(labels.size())) result["model.bert.labels"] = labels;
      const char* problem = problem_type_of(is_regression);
      config.require("problem_type", problem, {problem}, "the classifier has " + str(labels.size(), " outputs"));
      const Json dropout = config.value("classifier_dropout", nullptr);
      result["model.dropout_output"] = dropout.is_null() ? result["model.dropout_embedding"] : dropout;
    }
    return result;
  }

  text::Tokenizers tokenizers(const std::string& folder) const override {
    return {text::read_wordpiece_folder(folder), nullptr};
  }

  TensorNames names(const Settings& settings) const override {
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
    const Json& head = settings.at("model.bert.head");
    const bool has_next_sentence = head == "words" && settings.at("model.bert.next_sentence") == true;
    if (head == "classes" || head == "number" || has_next_sentence)
      add("pooler.dense", "pooler", "the pooler (pooler.dense)");
    if (head == "classes") add("classifier", "head.classes", "the classification head (classifier)");
    if (head == "number") add("classifier", "head.number", "the regression head (classifier)");
    if (head == "span") add("qa_outputs", "head.span", "the span head (qa_outputs)");
    if (has_next_sentence) add("cls.seq_relationship", "head.next", "the next-sentence head (cls.seq_relationship)");
    if (head != "words") return tensor_names;
    const std::string component = "the masked-word head (cls.predictions)", huggingface_prefix = "cls.predictions.";
    add(huggingface_prefix + "transform.dense", "head.words.transform", component);
    add(huggingface_prefix + "transform.LayerNorm", "head.words.norm", component);
    const bool is_tied = settings.at("model.tied") == true;
    // transformers 5 ties the two biases if it ties the weights; otherwise it uses decoder.bias.
    const std::string bias_name = huggingface_prefix + "bias", decoder_bias_name = huggingface_prefix + "decoder.bias";
    tensor_names.pairs.push_back({is_tied ? bias_name : decoder_bias_name, {"head.words.bias"}, false, component});
    tensor_names.aliases[is_tied ? decoder_bias_name : bias_name] = is_tied ? bias_name : decoder_bias_name;
    if (!is_tied) tensor_names.ignored_aliases.insert(bias_name);
    if (is_tied) tensor_names.aliases[huggingface_prefix + "decoder.weight"] = "embeddings.word_embeddings.weight";
    else tensor_names.pairs.push_back({huggingface_prefix + "decoder.weight", {"head.words.weight"}, false, component});
    return tensor_names;
  }

  std::string prefix() const override { return "bert."; }
  bool belongs_to_head(const std::string& tensor_name) const override {
    return tensor_name.starts_with("cls.") || tensor_name.starts_with("classifier.") ||
           tensor_name.starts_with("qa_outputs.");
  }
  std::string backbone() const override { return "bert"; }
  bool is_buffer(const std::string& tensor_name) const override {
    return tensor_name == "embeddings.position_ids" || tensor_name == "embeddings.token_type_ids";
  }
  bool is_unused(const std::string& tensor_name, const Settings& settings) const override {
    return tensor_name.starts_with("pooler.") && settings.at("model.bert.head") == "span";
  }

  Json config(const Settings& settings) const override {
    const Json& head = settings.at("model.bert.head");
    const bool has_next_sentence = settings.at("model.bert.next_sentence") == true;
    const char* model_class = head == "words"  ? (has_next_sentence ? "BertForPreTraining" : "BertForMaskedLM")
                              : head == "span" ? "BertForQuestionAnswering"
                                               : "BertForSequenceClassification";
    Json config{{"architectures", {model_class}}, {"model_type", "bert"}};
    set_keys(setting_pairs(), settings, config);
    config["hidden_act"] = huggingface_activation(settings.at("model.activation"));
    config.update({{"is_decoder", false},
                   {"add_cross_attention", false},
                   {"initializer_range", 0.02},
                   {"use_cache", true},
                   {"classifier_dropout", nullptr},
                   {"dtype", "float32"}});
    if (head != "classes" && head != "number") return config;
    // In all versions of transformers, a classifier_dropout of null means the value of hidden_dropout_prob.
    const Json& dropout = settings.at("model.dropout_output");
    if (dropout != settings.at("model.dropout_embedding")) config["classifier_dropout"] = dropout;
    std::vector<std::string> labels;
    if (const auto id2label = settings.find("model.bert.labels"); id2label != settings.end()) labels = id2label->second;
    if (labels.empty()) labels = default_labels(head == "number" ? 1 : settings.at("model.bert.classes").get<size_t>());
    for (size_t i = 0; i < labels.size(); ++i) {
      config["id2label"][std::to_string(i)] = labels[i];
      config["label2id"][labels[i]] = i;
    }
    config["problem_type"] = problem_type_of(head == "number");
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
    "classes, or the head for a number if it has one label; BertForQuestionAnswering gets the head for spans.");

}  // namespace

}  // namespace mh::huggingface
