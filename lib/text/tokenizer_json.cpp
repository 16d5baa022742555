#include "text/tokenizer_json.h"

#include "base/error.h"
#include "base/json.h"
#include "base/json_types.h"
#include "base/text.h"
#include "text/byte_bpe.h"
#include "text/json_node.h"
#include "text/wordpiece.h"

namespace mh::text {

namespace {

using Json = nlohmann::json;  // not ordered_json, whose look-ups among 100,000 keys are slow

constexpr const char* kUseGpt2Settings =
    "use a tokenizer with the settings of GPT-2, the only ones that multihead supports for byte-level BPE";
constexpr const char* kUseBertSettings =
    "use a tokenizer with the settings of BERT, the only ones that multihead supports for WordPiece";

// Returns the special tokens that a template adds to a single text.
std::vector<std::string> template_tokens(const JsonNode& processor) {
  const JsonNode single_template = processor.at("single");
  if (!single_template.value->is_array()) single_template.refuse("a list", abbreviate(*single_template.value));
  std::vector<std::string> tokens;
  for (const Json& piece : *single_template.value)
    if (const Json& token = *JsonNode{&piece, ""}.at("SpecialToken").at("id").value; token.is_string())
      tokens.push_back(token);
  return tokens;
}

class TokenizerJsonParser {
 public:
  TokenizerJsonParser(const std::string& text, const std::string& path) {
    document_ = parse_tokenizer_json(text, path);
    root_ = {&document_, path + ": "};
    read_added_tokens();
  }

  TokenizerJson read_byte_bpe() {
    const JsonNode model = root_.at("model");
    // Files of old versions of Hugging Face tokenizers lack the entry model.type.
    if (!model.at("type").empty() || model.at("merges").empty())
      model.require_type({"BPE"}, "use a byte-level BPE tokenizer, as in GPT-2");
    for (const JsonNode& stage : root_.at("normalizer").stages("normalizers"))
      stage.refuse("no normalizer", stage.type(), kUseGpt2Settings);
    const auto pre_tokenizers = root_.at("pre_tokenizer").stages("pretokenizers");
    for (const JsonNode& stage : pre_tokenizers) {
      stage.require_type({"ByteLevel"}, kUseGpt2Settings);
      stage.require("add_prefix_space", {false}, kUseGpt2Settings);
      stage.require("use_regex", {true, nullptr}, kUseGpt2Settings);
    }
    if (pre_tokenizers.size() != 1)
      root_.at("pre_tokenizer").refuse("ByteLevel", pre_tokenizers.empty() ? "none" : "several", kUseGpt2Settings);
    for (const JsonNode& stage : root_.at("post_processor").stages("processors")) {
      stage.require_type({"ByteLevel", "TemplateProcessing"}, kUseGpt2Settings);
      if (stage.type() != "TemplateProcessing") continue;
      for (const std::string& token : template_tokens(stage))
        if (token != kEndOfText) stage.refuse(str("no special token except ", kEndOfText), token, kUseGpt2Settings);
    }
    for (const JsonNode& stage : root_.at("decoder").stages("decoders"))
      stage.require_type({"ByteLevel"}, kUseGpt2Settings);
    model.require("dropout", {nullptr, 0}, "set dropout to null, since dropout makes tokens random");
    model.require("continuing_subword_prefix", {nullptr, ""}, kUseGpt2Settings);
    model.require("end_of_word_suffix", {nullptr, ""}, kUseGpt2Settings);
    model.require("ignore_merges", {nullptr, false}, kUseGpt2Settings);
    read_pieces(model);
    read_merges(model.at("merges"));
    return std::move(result_);
  }

  TokenizerJson read_wordpiece() {
    const JsonNode model = root_.at("model");
    model.require_type({"WordPiece"}, "use a WordPiece tokenizer, as in BERT");
    model.require("unk_token", {"[UNK]"}, kUseBertSettings);
    model.require("continuing_subword_prefix", {std::string(kContinuationPrefix)}, kUseBertSettings);
    model.require("max_input_chars_per_word", {100, nullptr}, kUseBertSettings);
    const auto normalizers = root_.at("normalizer").stages("normalizers");
    for (const JsonNode& stage : normalizers) {
      stage.require_type({"BertNormalizer"}, kUseBertSettings);
      stage.require("clean_text", {true}, kUseBertSettings);
      stage.require("handle_chinese_chars", {true}, kUseBertSettings);
      stage.require("lowercase", {true, false}, "copy the folder again");
      stage.require("strip_accents", {true, false, nullptr}, "copy the folder again");
      result_.normalisation.lowercase = stage.at("lowercase").value->get<bool>();
      const Json& accents = *stage.at("strip_accents").value;
      result_.normalisation.strip_accents = accents.is_null() ? result_.normalisation.lowercase : accents.get<bool>();
    }
    if (normalizers.size() != 1)
      root_.at("normalizer").refuse("BertNormalizer", normalizers.empty() ? "none" : "several", kUseBertSettings);
    const auto pre_tokenizers = root_.at("pre_tokenizer").stages("pretokenizers");
    for (const JsonNode& stage : pre_tokenizers) stage.require_type({"BertPreTokenizer"}, kUseBertSettings);
    if (pre_tokenizers.size() != 1)
      root_.at("pre_tokenizer")
          .refuse("BertPreTokenizer", pre_tokenizers.empty() ? "none" : "several", kUseBertSettings);
    for (const JsonNode& stage : root_.at("post_processor").stages("processors")) {
      stage.require_type({"TemplateProcessing", "BertProcessing"}, kUseBertSettings);
      if (stage.type() != "TemplateProcessing") continue;
      const std::vector<std::string> tokens = template_tokens(stage);
      if (tokens != std::vector<std::string>{"[CLS]", "[SEP]"})
        stage.refuse("[CLS], the text and [SEP]", tokens.empty() ? "no special tokens" : join(tokens, " "),
                     kUseBertSettings);
    }
    for (const JsonNode& stage : root_.at("decoder").stages("decoders"))
      stage.require_type({"WordPiece"}, kUseBertSettings);
    read_pieces(model);
    return std::move(result_);
  }

 private:
  void read_pieces(const JsonNode& model) {
    const JsonNode pieces = model.at("vocab");
    result_.pieces = numbered_pieces(*pieces.value, pieces.path);
  }

  void read_merges(const JsonNode& merges) {
    if (!merges.value->is_array() || merges.value->empty())
      merges.refuse("a list of at least one merge", abbreviate(*merges.value));
    for (size_t i = 0; i < merges.value->size(); ++i) {
      const Json& merge_json = (*merges.value)[i];
      Merge merge;
      if (merge_json.is_array() && merge_json.size() == 2 && merge_json[0].is_string() && merge_json[1].is_string()) {
        merge = {merge_json[0], merge_json[1]};
      } else if (merge_json.is_string()) {
        const std::string text = merge_json;
        const size_t space = text.find(' ');
        if (space != text.npos && text.find(' ', space + 1) == text.npos)
          merge = {text.substr(0, space), text.substr(space + 1)};
      }
      if (merge.left.empty() || merge.right.empty())
        JsonNode{&merge_json, str(merges.path, "[", i, "]")}.refuse("two symbols, as a pair or separated by a space",
                                                                    abbreviate(merge_json));
      result_.merges.push_back(std::move(merge));
    }
  }

  void read_added_tokens() {
    const JsonNode tokens = root_.at("added_tokens");
    if (tokens.empty()) return;
    if (!tokens.value->is_array()) tokens.refuse("a list", abbreviate(*tokens.value));
    for (size_t i = 0; i < tokens.value->size(); ++i) {
      const JsonNode token{&(*tokens.value)[i], str(tokens.path, "[", i, "]")};
      const JsonNode id = token.at("id"), piece = token.at("content");
      if (!id.value->is_number_unsigned())
        id.refuse("the id of the added token, a whole number", id.empty() ? "none" : abbreviate(*id.value));
      if (!piece.value->is_string() || piece.value->get_ref<const std::string&>().empty())
        piece.refuse(str("the text of the added token with the id ", id.value->dump()),
                     piece.empty() ? "none" : abbreviate(*piece.value));
      result_.added_tokens.push_back({*id.value, *piece.value, token_flags(*token.value)});
    }
  }

  Json document_;
  JsonNode root_{};
  TokenizerJson result_;
};

}  // namespace

Json parse_tokenizer_json(const std::string& text, const std::string& path) {
  return parse_json_object<Json>(text, path, "copy the folder again");
}

void for_each_numbered_piece(const Json& object, const std::string& name,
                             const std::function<void(uint64_t id, const std::string& piece)>& visit) {
  auto refuse = [&](const std::string& expected, const std::string& found) {
    refuse_input(name, expected, found, "copy the file again");
  };
  if (!object.is_object() || object.empty()) refuse("a JSON object that maps pieces to ids", abbreviate(object));
  for (const auto& [piece, id] : object.items()) {
    if (!id.is_number_unsigned()) refuse(str("the id of the piece '", piece, "'"), abbreviate(id));
    if (piece.empty()) refuse("non-empty pieces", "an empty piece");
    visit(id.get<uint64_t>(), piece);
  }
}

void refuse_repeated_id(const std::string& name, const std::string& piece, const std::string& other_piece) {
  refuse_input(name, "a unique id for each piece", str("the same id for '", piece, "' and '", other_piece, "'"),
               "copy the file again");
}

NumberedPieces numbered_pieces(const Json& object, const std::string& name) {
  NumberedPieces pieces;
  for_each_numbered_piece(object, name, [&](uint64_t id, const std::string& piece) {
    const auto [entry, inserted] = pieces.emplace(id, piece);
    if (!inserted) refuse_repeated_id(name, entry->second, piece);
  });
  return pieces;
}

std::string token_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value;
  const auto content = value.is_object() ? value.find("content") : value.end();
  return value.is_object() && content != value.end() && content->is_string() ? content->get<std::string>() : "";
}

std::vector<Piece> pieces_in_id_order(const NumberedPieces& pieces, const std::string& name) {
  std::vector<Piece> sorted_pieces;
  sorted_pieces.reserve(pieces.size());
  for (const auto& [id, piece] : pieces) {
    if (id != sorted_pieces.size())
      refuse_input(name, str("a piece with the id ", sorted_pieces.size()),
                   str("no such piece: the next id is ", id, ", of the piece '", piece, "'"), "copy the folder again");
    sorted_pieces.push_back({piece, 0});
  }
  return sorted_pieces;
}

TokenizerJson read_byte_bpe_json(const std::string& text, const std::string& path) {
  return TokenizerJsonParser(text, path).read_byte_bpe();
}

TokenizerJson read_wordpiece_json(const std::string& text, const std::string& path) {
  return TokenizerJsonParser(text, path).read_wordpiece();
}

}  // namespace mh::text
