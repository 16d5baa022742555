// BERT (Devlin et al. 2019) with the output heads of pre-training and fine-tuning.
#include "base/error.h"
#include "huggingface/bert_form.h"
#include "huggingface/vocabulary_files.h"
#include "text/folder_tokenizer.h"

namespace mh::huggingface {

namespace {

constexpr const char* kPoolerComponent = "the pooler (pooler.dense)";
constexpr const char* kWordsComponent = "the masked-word head (cls.predictions)";

void read_next_sentence(const JsonConfig&, const std::set<std::string>& tensor_names, Settings& settings) {
  settings[kNextSentence] = tensor_names.count(str(kPooler, ".weight")) > 0;
}

void add_bert_word_outputs(const Settings& settings, TensorNames& tensor_names) {
  add_word_outputs("cls.predictions.", kWordsComponent, settings, tensor_names);
}

BertFamily bert_family() {
  return {
      .model_type = "bert",
      .tensor_prefix = "bert.",
      .heads = {"Bert",
                {{.head = "words",
                  .model_classes =
                      {{"ForPreTraining", kNextSentence}, {"ForMaskedLM"}, {"Model"}, {"ForNextSentencePrediction"}},
                  .tensor_prefixes = {"cls."},
                  .layers = {{kPooler, "pooler", kPoolerComponent, kNextSentence},
                             {"cls.seq_relationship", "head.next", "the next-sentence head (cls.seq_relationship)",
                              kNextSentence},
                             {"cls.predictions.transform.dense", "head.words.transform", kWordsComponent},
                             {"cls.predictions.transform.LayerNorm", "head.words.norm", kWordsComponent}},
                  .read_settings = read_next_sentence,
                  .add_tensors = add_bert_word_outputs},
                 {.head = "number",
                  .model_classes = {{"ForSequenceClassification"}},
                  .tensor_prefixes = {"classifier."},
                  .layers = {{kPooler, "pooler", kPoolerComponent},
                             {"classifier", "head.number", "the regression head (classifier)"}},
                  .identifying_tensor = "classifier.weight",
                  .problem_type = "regression",
                  .num_labels = 1},
                 {.head = "classes",
                  .model_classes = {{"ForSequenceClassification"}},
                  .tensor_prefixes = {"classifier."},
                  .layers = {{kPooler, "pooler", kPoolerComponent},
                             {"classifier", "head.classes", "the classification head (classifier)"}},
                  .identifying_tensor = "classifier.weight",
                  .problem_type = "single_label_classification"},
                 {.head = "span",
                  .model_classes = {{"ForQuestionAnswering"}},
                  .tensor_prefixes = {"qa_outputs."},
                  .layers = {{"qa_outputs", "head.span", "the span head (qa_outputs)"}},
                  .identifying_tensor = "qa_outputs.weight"}}}};
}

class Bert : public BertForm {
 public:
  Bert() : BertForm(bert_family()) {}

  text::Tokenizers tokenizers(const std::string& folder) const override {
    return {text::read_wordpiece_folder(folder), nullptr};
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
