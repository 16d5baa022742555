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

std::string shortened(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, find_invalid_utf8(text.substr(0, 80)) < 80 ? 77 : 80) + "...";
}

// A node of the JSON file, with its JSON path for messages.
struct Node {
  const Json* value;
  std::string place;

  Node at(const std::string& key) const {
    static const Json null;
    const auto member = value->is_object() ? value->find(key) : value->end();
    return {value->is_object() && member != value->end() ? &*member : &null, place + "." + key};
  }
  bool empty() const { return value->is_null(); }
  std::string type() const {
    const Json& type = *at("type").value;
    return type.is_string() ? type.get<std::string>() : "";
  }
  [[noreturn]] void refuse(const std::string& expected, const std::string& found, const std::string& why = "") const {
    throw Error(Exit::input, Problem{place, expected, found, why});
  }
  void require(const std::string& key, std::initializer_list<Json> allowed, const std::string& why) const {
    const Node node = at(key);
    if (std::find(allowed.begin(), allowed.end(), *node.value) != allowed.end()) return;
    std::vector<std::string> texts;
    for (const Json& one : allowed) texts.push_back(one.dump());
    node.refuse(join(texts, " or "), shortened(*node.value), why);
  }
  void require_type(std::initializer_list<const char*> allowed, const std::string& why) const {
    const std::string name = type();
    if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) return;
    refuse(join({allowed.begin(), allowed.end()}, " or "), name.empty() ? shortened(*value) : name, why);
  }
  // Returns the components of a pipeline stage in order: none for null, the (nested) entries of the array `list` for
  // the type Sequence, otherwise only this node.
  std::vector<Node> parts(const char* list) const {
    if (empty()) return {};
    if (type() != "Sequence") return {*this};
    const Node all = at(list);
    if (!all.value->is_array()) all.refuse("a list", shortened(*all.value));
    std::vector<Node> found;
    for (size_t i = 0; i < all.value->size(); ++i)
      for (Node& part : Node{&(*all.value)[i], str(all.place, "[", i, "]")}.parts(list))
        found.push_back(std::move(part));
    return found;
  }
};

constexpr const char* kOtherText = "multihead would encode text differently";

// Returns the special tokens that a template adds to a single text.
std::vector<std::string> template_tokens(const Node& processor) {
  const Node single = processor.at("single");
  if (!single.value->is_array()) single.refuse("a list", shortened(*single.value));
  std::vector<std::string> tokens;
  for (const Json& piece : *single.value)
    if (const Json& token = *Node{&piece, ""}.at("SpecialToken").at("id").value; token.is_string())
      tokens.push_back(token);
  return tokens;
}

class Parser {
 public:
  Parser(const std::string& text, const std::string& path) {
    const int depth = json_depth(text);
    if (depth <= kMaxJsonDepth) {
      require_sound_json(text, path, "copy the folder again");
      all_ = Json::parse(text, nullptr, false);
    }
    root_ = {&all_, path + ": tokenizer"};
    if (!all_.is_object())
      throw Error(Exit::input,
                  Problem{path, "a JSON object",
                          depth > kMaxJsonDepth ? str("an object nested ", depth, " levels deep") : "other text",
                          "copy the folder again"});
    read_added();
  }

  TokenizerJson byte_bpe() {
    const Node model = root_.at("model");
    // Files of old versions of tokenizers lack the entry model.type.
    if (!model.at("type").empty() || model.at("merges").empty())
      model.require_type({"BPE"}, "the tokenizer of GPT-2 is byte-level BPE");
    for (const Node& part : root_.at("normalizer").parts("normalizers"))
      part.refuse("no normalizer", part.type(), kOtherText);
    const auto words = root_.at("pre_tokenizer").parts("pretokenizers");
    for (const Node& part : words) {
      part.require_type({"ByteLevel"}, kOtherText);
      part.require("add_prefix_space", {false}, kOtherText);
      part.require("use_regex", {true, nullptr}, kOtherText);
    }
    if (words.size() != 1)
      root_.at("pre_tokenizer").refuse("ByteLevel", words.empty() ? "none" : "several", kOtherText);
    for (const Node& part : root_.at("post_processor").parts("processors")) {
      part.require_type({"ByteLevel", "TemplateProcessing"}, "no other post-processor is supported");
      if (part.type() != "TemplateProcessing") continue;
      for (const std::string& token : template_tokens(part))
        if (token != kEndOfText) part.refuse(str("no special token except ", kEndOfText), token);
    }
    for (const Node& part : root_.at("decoder").parts("decoders")) part.require_type({"ByteLevel"}, kOtherText);
    model.require("dropout", {nullptr, 0}, "dropout would make tokens random");
    model.require("continuing_subword_prefix", {nullptr, ""}, kOtherText);
    model.require("end_of_word_suffix", {nullptr, ""}, kOtherText);
    model.require("ignore_merges", {nullptr, false}, kOtherText);
    read_pieces(model);
    read_merges(model.at("merges"));
    return std::move(json_);
  }

  TokenizerJson wordpiece() {
    const Node model = root_.at("model");
    model.require_type({"WordPiece"}, "the tokenizer of BERT is WordPiece");
    model.require("unk_token", {"[UNK]"}, kOtherText);
    model.require("continuing_subword_prefix", {std::string(kContinuationPrefix)}, kOtherText);
    model.require("max_input_chars_per_word", {100, nullptr}, kOtherText);
    const auto normalizers = root_.at("normalizer").parts("normalizers");
    for (const Node& part : normalizers) {
      part.require_type({"BertNormalizer"}, kOtherText);
      part.require("clean_text", {true}, kOtherText);
      part.require("handle_chinese_chars", {true}, kOtherText);
      part.require("lowercase", {true, false}, "");
      part.require("strip_accents", {true, false, nullptr}, "");
      json_.text.lowercase = part.at("lowercase").value->get<bool>();
      const Json& accents = *part.at("strip_accents").value;
      json_.text.strip_accents = accents.is_null() ? json_.text.lowercase : accents.get<bool>();
    }
    if (normalizers.size() != 1)
      root_.at("normalizer").refuse("BertNormalizer", normalizers.empty() ? "none" : "several", kOtherText);
    const auto words = root_.at("pre_tokenizer").parts("pretokenizers");
    for (const Node& part : words) part.require_type({"BertPreTokenizer"}, kOtherText);
    if (words.size() != 1)
      root_.at("pre_tokenizer").refuse("BertPreTokenizer", words.empty() ? "none" : "several", kOtherText);
    for (const Node& part : root_.at("post_processor").parts("processors")) {
      part.require_type({"TemplateProcessing", "BertProcessing"}, "no other post-processor is supported");
      if (part.type() != "TemplateProcessing") continue;
      const std::vector<std::string> tokens = template_tokens(part);
      if (tokens != std::vector<std::string>{"[CLS]", "[SEP]"})
        part.refuse("[CLS], the text and [SEP]", tokens.empty() ? "no special tokens" : join(tokens, " "));
    }
    for (const Node& part : root_.at("decoder").parts("decoders")) part.require_type({"WordPiece"}, kOtherText);
    read_pieces(model);
    return std::move(json_);
  }

 private:
  void read_pieces(const Node& model) {
    const Node pieces = model.at("vocab");
    json_.pieces = numbered_pieces(*pieces.value, pieces.place);
  }

  void read_merges(const Node& merges) {
    if (!merges.value->is_array() || merges.value->empty()) merges.refuse("a list of merges", shortened(*merges.value));
    for (size_t i = 0; i < merges.value->size(); ++i) {
      const Json& one = (*merges.value)[i];
      Merge merge;
      if (one.is_array() && one.size() == 2 && one[0].is_string() && one[1].is_string()) {
        merge = {one[0], one[1]};
      } else if (one.is_string()) {
        const std::string text = one;
        const size_t space = text.find(' ');
        if (space != text.npos && text.find(' ', space + 1) == text.npos)
          merge = {text.substr(0, space), text.substr(space + 1)};
      }
      if (merge.left.empty() || merge.right.empty())
        Node{&one, str(merges.place, "[", i, "]")}.refuse("two symbols, as a pair or separated by a space",
                                                          shortened(one));
      json_.merges.push_back(std::move(merge));
    }
  }

  void read_added() {
    const Node tokens = root_.at("added_tokens");
    if (tokens.empty()) return;
    if (!tokens.value->is_array()) tokens.refuse("a list", shortened(*tokens.value));
    for (const Json& token : *tokens.value) {
      const Json &number = *Node{&token, ""}.at("id").value, &piece = *Node{&token, ""}.at("content").value;
      if (!number.is_number_unsigned() || !piece.is_string() || piece.get_ref<const std::string&>().empty())
        tokens.refuse("tokens with id and content", shortened(token));
      json_.added.push_back({number, piece, token_flags(token)});
    }
  }

  Json all_;
  Node root_{};
  TokenizerJson json_;
};

}  // namespace

NumberedPieces numbered_pieces(const Json& object, const std::string& name) {
  auto refuse = [&](const std::string& expected, const std::string& found) {
    throw Error(Exit::input, Problem{name, expected, found, "copy the file again"});
  };
  if (!object.is_object() || object.empty()) refuse("a JSON object that maps pieces to ids", "another JSON value");
  NumberedPieces pieces;
  for (const auto& [piece, number] : object.items()) {
    if (!number.is_number_unsigned()) refuse(str("the id of the piece '", piece, "'"), shortened(number));
    if (piece.empty()) refuse("non-empty pieces", "an empty piece");
    const auto [other, fresh] = pieces.emplace(number.get<uint64_t>(), piece);
    if (!fresh) refuse("a unique id for each piece", str("the same id for '", other->second, "' and '", piece, "'"));
  }
  return pieces;
}

std::vector<Piece> pieces_in_id_order(const NumberedPieces& pieces, const std::string& name) {
  std::vector<Piece> list;
  list.reserve(pieces.size());
  for (const auto& [number, piece] : pieces) {
    if (number != list.size())
      throw Error(Exit::input,
                  Problem{name, str("a piece with the id ", list.size()),
                          str("the next piece '", piece, "' with the id ", number), "copy the folder again"});
    list.push_back({piece, 0});
  }
  return list;
}

TokenizerJson read_byte_bpe_json(const std::string& text, const std::string& path) {
  return Parser(text, path).byte_bpe();
}

TokenizerJson read_wordpiece_json(const std::string& text, const std::string& path) {
  return Parser(text, path).wordpiece();
}

}  // namespace mh::text
