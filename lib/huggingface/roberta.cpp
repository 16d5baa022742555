// RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020) and CamemBERT (Martin et al. 2020): BERT with positions
// that count from the padding token's id plus 1, one segment, no next-sentence prediction, and vocabularies of the type
// tokenizer-json.
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "huggingface/bert_form.h"
#include "huggingface/vocabulary_files.h"
#include "text/encoder_vocabulary.h"
#include "text/folder_tokenizer.h"

namespace mh::huggingface {

namespace {

// Id of the padding token, from which transformers counts positions; all published models have this id.
constexpr int64_t kPaddingId = 1;

constexpr const char* kWordsComponent = "the masked-word head (lm_head)";
constexpr const char* kClassifierComponent = "the dense layer of the classifier (classifier.dense)";

// The head for masked words of transformers has gelu, whatever the activation of the layers.
void require_gelu(const JsonConfig& config, const std::set<std::string>&, Settings&) {
  config.require("hidden_act", "gelu", {"gelu"},
                 "use a model with this activation: the head for masked words always has gelu, and multihead has one "
                 "activation for layers and head");
}

void add_roberta_word_outputs(const Settings& settings, TensorNames& tensor_names) {
  add_word_outputs("lm_head.", kWordsComponent, settings, tensor_names);
}

BertFamily roberta_family(const char* model_type, const char* class_prefix) {
  return {
      .model_type = model_type,
      .tensor_prefix = "roberta.",
      .heads = {class_prefix,
                {{.head = "words",
                  .model_classes = {{"ForMaskedLM"}, {"Model"}},
                  .tensor_prefixes = {"lm_head."},
                  .layers = {{"lm_head.dense", "head.words.transform", kWordsComponent},
                             {"lm_head.layer_norm", "head.words.norm", kWordsComponent}},
                  .read_settings = require_gelu,
                  .add_tensors = add_roberta_word_outputs},
                 {.head = "number",
                  .model_classes = {{"ForSequenceClassification"}},
                  .tensor_prefixes = {"classifier."},
                  .layers = {{"classifier.dense", "pooler", kClassifierComponent},
                             {"classifier.out_proj", "head.number", "the regression head (classifier.out_proj)"}},
                  .identifying_tensor = "classifier.out_proj.weight",
                  .problem_type = "regression",
                  .num_labels = 1},
                 {.head = "classes",
                  .model_classes = {{"ForSequenceClassification"}},
                  .tensor_prefixes = {"classifier."},
                  .layers = {{"classifier.dense", "pooler", kClassifierComponent},
                             {"classifier.out_proj", "head.classes", "the classification head (classifier.out_proj)"}},
                  .identifying_tensor = "classifier.out_proj.weight",
                  .problem_type = "single_label_classification"},
                 {.head = "span",
                  .model_classes = {{"ForQuestionAnswering"}},
                  .tensor_prefixes = {"qa_outputs."},
                  .layers = {{"qa_outputs", "head.span", "the span head (qa_outputs)"}},
                  .identifying_tensor = "qa_outputs.weight"}}},
      .num_unused_positions = kPaddingId + 1};
}

class RobertaForm : public BertForm {
 public:
  RobertaForm(const char* model_type, const char* class_prefix) : BertForm(roberta_family(model_type, class_prefix)) {}

  Settings settings(const JsonConfig& config, const std::set<std::string>& tensor_names) const override {
    config.require("pad_token_id", kPaddingId, {kPaddingId},
                   "use a model with this id of the padding token, from which transformers counts the positions");
    return BertForm::settings(config, tensor_names);
  }

  text::Tokenizers tokenizers(const std::string& folder) const override {
    if (!std::filesystem::exists(folder + "/tokenizer.json"))
      refuse_input(
          folder, "a folder with tokenizer.json", "no tokenizer.json",
          "load the tokenizer with AutoTokenizer of transformers in Python, and save it with save_pretrained()");
    auto tokenizer = text::read_tokenizer_folder(folder);
    text::encoder_tokens(*tokenizer, folder);  // throws for the vocabulary of another model than an encoder
    return {std::move(tokenizer), nullptr};
  }

  Json config(const Settings& settings) const override {
    Json config = BertForm::config(settings);
    config.update({{"bos_token_id", nullptr}, {"eos_token_id", nullptr}, {"pad_token_id", kPaddingId}});
    return config;
  }

  Json token_ids(const text::Tokenizers& tokenizers) const override { return encoder_token_ids(*tokenizers.target); }
  std::map<std::string, std::string> vocabulary_files(const text::Tokenizers& tokenizers, const Settings& settings,
                                                      const std::string& name) const override {
    return encoder_vocabulary_files(*tokenizers.target, settings.at("model.max_positions").get<int64_t>(), name);
  }
};

class Roberta : public RobertaForm {
 public:
  Roberta() : RobertaForm("roberta", "Roberta") {}
};
class XlmRoberta : public RobertaForm {
 public:
  XlmRoberta() : RobertaForm("xlm-roberta", "XLMRoberta") {}
};
class Camembert : public RobertaForm {
 public:
  Camembert() : RobertaForm("camembert", "Camembert") {}
};

const Registration<Roberta> roberta_entry(
    architectures(), "roberta",
    "RoBERTa: bert whose first position is row 2 of the position table, with the heads of "
    "RobertaForMaskedLM, RobertaForSequenceClassification, whose layer classifier.dense is the pooler, and "
    "RobertaForQuestionAnswering; RobertaModel gets a new head for masked words. pad_token_id must be 1. The "
    "vocabulary "
    "is tokenizer.json, whose post-processor puts tokens around a text.");
const Registration<XlmRoberta> xlm_roberta_entry(
    architectures(), "xlm-roberta",
    "XLM-RoBERTa: the form of roberta with a vocabulary of many languages, tokenizer.json with the model Unigram.");
const Registration<Camembert> camembert_entry(architectures(), "camembert",
                                              "CamemBERT: the form of roberta for French, with the model Unigram.");

}  // namespace

}  // namespace mh::huggingface
