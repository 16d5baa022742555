#include "text/tokenizer_json.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/json_types.h"
#include "base/text.h"
#include "text/byte_bpe.h"
#include "text/wordpiece.h"

namespace mh::text {

namespace {

using Json = nlohmann::json;  // not ordered_json, whose look-ups among 100,000 keys are slow

std::string abbreviate(const Json& value) {
  return shorten(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80);
}

// A node of the JSON file, with its JSON path for messages.
struct JsonNode {
  const Json* value;
  std::string path;

  JsonNode at(const std::string& key) const {
    static const Json null;
    const auto member = value->is_object() ? value->find(key) : value->end();
    const bool is_root = path.ends_with(": ");  // the path of the root is the name of the file and ": "
    return {value->is_object() && member != value->end() ? &*member : &null, path + (is_root ? "" : ".") + key};
  }
  bool empty() const { return value->is_null(); }
  std::string type() const {
    const Json& type = *at("type").value;
    return type.is_string() ? type.get<std::string>() : "";
  }
  [[noreturn]] void refuse(const std::string& expected, const std::string& found,
                           const std::string& advice = "copy the folder again") const {
    refuse_input(path, expected, found, advice);
  }
  void require(const std::string& key, std::initializer_list<Json> allowed_values, const std::string& advice) const {
    const JsonNode node = at(key);
    if (std::find(allowed_values.begin(), allowed_values.end(), *node.value) != allowed_values.end()) return;
    std::vector<std::string> texts;
    for (const Json& allowed_value : allowed_values) texts.push_back(allowed_value.dump());
    node.refuse(join(texts, " or "), abbreviate(*node.value), advice);
  }
  void require_type(std::initializer_list<const char*> allowed_types, const std::string& advice) const {
    const std::string name = type();
    if (std::find(allowed_types.begin(), allowed_types.end(), name) != allowed_types.end()) return;
    refuse(join({allowed_types.begin(), allowed_types.end()}, " or "), name.empty() ? abbreviate(*value) : name,
           advice);
  }
  // Returns the components of a pipeline stage in order: none for null, the (nested) entries of the array `list_key`
  // for the type Sequence, otherwise only this node.
  std::vector<JsonNode> stages(const char* list_key) const {
    if (empty()) return {};
    if (type() != "Sequence") return {*this};
    const JsonNode list_node = at(list_key);
    if (!list_node.value->is_array()) list_node.refuse("a list", abbreviate(*list_node.value));
    std::vector<JsonNode> result;
    for (size_t i = 0; i < list_node.value->size(); ++i)
      for (JsonNode& stage : JsonNode{&(*list_node.value)[i], str(list_node.path, "[", i, "]")}.stages(list_key))
        result.push_back(std::move(stage));
    return result;
  }
};

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
    const int depth = json_depth(text);
    if (depth <= kMaxJsonDepth) {
      require_sound_json(text, path, "copy the folder again");
      document_ = Json::parse(text, nullptr, false);
    }
    root_ = {&document_, path + ": "};
    if (!document_.is_object())
      refuse_input(path, "a JSON object",
                   depth > kMaxJsonDepth ? str("an object nested ", depth, " levels deep") : "other text",
                   "copy the folder again");
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

NumberedPieces numbered_pieces(const Json& object, const std::string& name) {
  auto refuse = [&](const std::string& expected, const std::string& found) {
    refuse_input(name, expected, found, "copy the file again");
  };
  if (!object.is_object() || object.empty()) refuse("a JSON object that maps pieces to ids", abbreviate(object));
  NumberedPieces pieces;
  for (const auto& [piece, id] : object.items()) {
    if (!id.is_number_unsigned()) refuse(str("the id of the piece '", piece, "'"), abbreviate(id));
    if (piece.empty()) refuse("non-empty pieces", "an empty piece");
    const auto [entry, inserted] = pieces.emplace(id.get<uint64_t>(), piece);
    if (!inserted) refuse("a unique id for each piece", str("the same id for '", entry->second, "' and '", piece, "'"));
  }
  return pieces;
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
