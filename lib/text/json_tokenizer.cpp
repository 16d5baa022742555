#include "text/json_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_types.h"
#include "base/text.h"
#include "base/unicode.h"
#include "text/byte_bpe.h"
#include "text/pipeline/post_processor.h"
#include "text/tokenizer_json.h"
#include "text/word_cache.h"

namespace mh::text {

using Json = nlohmann::json;

class JsonEncoder : public Encoder {
 public:
  explicit JsonEncoder(const JsonTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void encode(std::string_view text, std::vector<int32_t>& out) override {
    if (tokenizer_.raw_matcher_.empty()) return encode_raw(text, true, out);
    tokenizer_.raw_matcher_.find(text, raw_parts_);
    for (const AddedTokenMatcher::Part& part : raw_parts_)
      if (part.id >= 0) out.push_back(part.id);
      else encode_raw(text.substr(part.begin, part.end - part.begin), part.begin == 0, out);
  }

 private:
  // Encodes text without added tokens that are searched in the raw text.
  void encode_raw(std::string_view text, bool starts_text, std::vector<int32_t>& out) {
    text = normalize(tokenizer_.normalizers_, text, buffers_);
    if (tokenizer_.normalized_matcher_.empty()) return encode_normalized(text, starts_text, out);
    tokenizer_.normalized_matcher_.find(text, normalized_parts_);
    for (const AddedTokenMatcher::Part& part : normalized_parts_)
      if (part.id >= 0) out.push_back(part.id);
      else encode_normalized(text.substr(part.begin, part.end - part.begin), starts_text && part.begin == 0, out);
  }

  // Encodes normalised text without added tokens.
  void encode_normalized(std::string_view text, bool starts_text, std::vector<int32_t>& out) {
    words_.assign(text, starts_text);
    for (const auto& pre_tokenizer : tokenizer_.pre_tokenizers_.stages) pre_tokenizer->apply(words_);
    const char* readable_end = words_.text.data() + words_.text.size();
    for (const WordList::Word& word : words_.words)
      cache_.encode(WordKey(words_.text_of(word), readable_end), out,
                    [this](std::string_view w, std::vector<int32_t>& tokens) { encode_word(w, tokens); });
  }

  void encode_word(std::string_view word, std::vector<int32_t>& tokens) {
    if (tokenizer_.pre_tokenizers_.yields_bytes) {
      byte_characters_.clear();
      append_byte_characters(word, byte_characters_);
      word = byte_characters_;
    }
    tokenizer_.model_->encode_word(word, workspace_, tokens);
  }

  const JsonTokenizer& tokenizer_;
  WordCache cache_;
  std::vector<AddedTokenMatcher::Part> raw_parts_, normalized_parts_;
  std::string buffers_[2];
  WordList words_;
  std::string byte_characters_;
  Model::Workspace workspace_;
};

namespace {

// Names of the token that ends a text in published models, for files whose post-processor puts no token after a text.
constexpr const char* kEndPieces[] = {"<|endoftext|>",         "<|end_of_text|>", "</s>",      "<eos>",
                                      "<｜end▁of▁sentence｜>", "[SEP]",           "<|im_end|>"};

// Returns a component list in the form of tokenizer.json: null for none, otherwise a Sequence.
Json sequence_of(const char* list_key, Json components) {
  if (components.empty()) return nullptr;
  if (components.size() == 1) return std::move(components[0]);
  return {{"type", "Sequence"}, {list_key, std::move(components)}};
}

// Returns the components of a part that does not affect the tokens of a text. Settings of ByteLevel that have no effect
// get one value.
Json stages_in_one_form(const JsonNode& node, const char* list_key) {
  Json components = Json::array();
  for (const JsonNode& stage : node.stages(list_key)) {
    components.push_back(*stage.value);
    if (stage.type() == "ByteLevel")
      components.back() = {
          {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  }
  if (components.empty() && !node.empty()) return {{"type", "Sequence"}, {list_key, Json::array()}};
  return sequence_of(list_key, std::move(components));
}

// Writes merges that are pairs of symbols as strings, the shorter form. If a symbol has a space, all merges stay pairs,
// since tokenizers reads no list of strings and pairs. `name`: the name of the file in messages.
void shorten_merges(Json& merges, const std::string& name) {
  const auto has_space = [](const Json& merge) {
    return merge.is_array() && (merge[0].get_ref<const std::string&>().find(' ') != std::string::npos ||
                                merge[1].get_ref<const std::string&>().find(' ') != std::string::npos);
  };
  if (std::any_of(merges.begin(), merges.end(), has_space)) {
    if (!std::all_of(merges.begin(), merges.end(), [](const Json& merge) { return merge.is_array(); }))
      refuse_input(name + ": model.merges", "merges that are all pairs, since a symbol has a space",
                   "strings and pairs", "copy the folder again");
    return;
  }
  for (Json& merge : merges)
    if (merge.is_array()) merge = merge[0].get_ref<const std::string&>() + " " + merge[1].get_ref<const std::string&>();
}

}  // namespace

JsonTokenizer::JsonTokenizer(const std::string& json_text, const std::string& name,
                             const JsonTokenizerSettings& settings) {
  Json document = parse_tokenizer_json(json_text, name);
  const JsonNode root{&document, name + ": "};
  Json normalizers = Json::array(), pre_tokenizers = Json::array(), canonical = Json::object();
  normalizers_ = parse_normalizers(root.at("normalizer"), normalizers);
  canonical["normalizer"] = sequence_of("normalizers", std::move(normalizers));
  pre_tokenizers_ = parse_pre_tokenizers(root.at("pre_tokenizer"), pre_tokenizers);
  canonical["pre_tokenizer"] = sequence_of("pretokenizers", std::move(pre_tokenizers));
  decoders_ = parse_decoders(root.at("decoder"));
  canonical["decoder"] = stages_in_one_form(root.at("decoder"), "decoders");
  ParsedModel model = parse_model(root.at("model"), canonical["model"]);
  model_ = std::move(model.model);
  pieces_ = std::move(model.pieces);
  read_added_tokens(root.at("added_tokens"));
  document.erase("added_tokens");  // releases memory before json_ takes memory
  choose_surrounding_tokens(root, settings, name);
  canonical["post_processor"] = stages_in_one_form(root.at("post_processor"), "processors");
  canonical["version"] = "1.0";
  // The vocabulary moves, since it is most of the file.
  for (const char* key : {"vocab", "merges"})
    if (document["model"].contains(key)) canonical["model"][key] = std::move(document["model"][key]);
  if (canonical["model"].contains("merges")) shorten_merges(canonical["model"]["merges"], name);
  document = nullptr;
  std::string other_parts = canonical.dump();
  canonical = nullptr;
  other_parts.front() = ',';  // the key added_tokens precedes all other keys
  json_ = "{\"added_tokens\":" + added_tokens_json() + other_parts;
}

void JsonTokenizer::read_added_tokens(const JsonNode& list) {
  const auto num_gaps = std::count(pieces_.begin(), pieces_.end(), "");
  uint64_t next_id = pieces_.size() - static_cast<size_t>(num_gaps);
  std::vector<bool> is_added;  // by token id
  const auto read_token = [&](const JsonNode& node) {
    AddedToken token;
    token.content = node.text("content", "");
    if (token.content.empty() || node.at("id").empty())
      node.refuse("an added token with the entries id and content", abbreviate(*node.value));
    const int32_t known_id = model_->id_of(token.content);
    // Hugging Face tokenizers numbers the tokens itself: by the vocabulary, or after all other tokens.
    const uint64_t expected_id = known_id < 0 ? next_id : static_cast<uint64_t>(known_id);
    const auto id = static_cast<uint64_t>(node.count("id", -1));
    const bool is_repeated = id < is_added.size() && is_added[id];
    if (id != expected_id || is_repeated)
      node.refuse(str("the id ", expected_id, ", which tokenizers gives to '", token.content, "'"),
                  str("the id ", id, is_repeated ? " twice" : ""),
                  "use a tokenizer whose added tokens are numbered in order after the vocabulary");
    token.id = static_cast<int32_t>(id);
    if (expected_id >= next_id) next_id = expected_id + 1;
    token.special = node.flag("special", false);
    token.normalized = node.flag("normalized", !token.special);
    token.single_word = node.flag("single_word", false);
    token.lstrip = node.flag("lstrip", false);
    token.rstrip = node.flag("rstrip", false);
    is_added.resize(std::max<size_t>(is_added.size(), id + 1));
    is_added[id] = true;
    pieces_.resize(std::max<size_t>(pieces_.size(), id + 1));
    if (pieces_[id].empty()) pieces_[id] = token.content;
    added_tokens_.push_back(std::move(token));
  };
  if (!list.empty()) list.for_each_element(read_token);
  std::sort(added_tokens_.begin(), added_tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  std::string buffers[2];
  for (const AddedToken& token : added_tokens_) {
    const std::string_view pattern = token.normalized ? normalize(normalizers_, token.content, buffers) : token.content;
    if (pattern.empty())
      list.refuse("added tokens that are not empty when they are normalised", "'" + token.content + "'",
                  kUseSupportedType);
    (token.normalized ? normalized_matcher_ : raw_matcher_).add(pattern, token);
  }
  raw_matcher_.sort();
  normalized_matcher_.sort();
}

std::string JsonTokenizer::added_tokens_json() const {
  // The JSON values of all tokens at once would take 25 times the size of the text.
  std::string text = "[";
  for (const AddedToken& token : added_tokens_) {
    text += text == "[" ? "" : ",";
    text += Json({{"id", token.id},
                  {"content", token.content},
                  {"single_word", token.single_word},
                  {"lstrip", token.lstrip},
                  {"rstrip", token.rstrip},
                  {"normalized", token.normalized},
                  {"special", token.special}})
                .dump();
  }
  text += ']';
  return text;
}

void JsonTokenizer::choose_surrounding_tokens(const JsonNode& root, const JsonTokenizerSettings& settings,
                                              const std::string& name) {
  const auto id_of = [&](const std::string& piece) {
    const auto it = std::find(pieces_.begin(), pieces_.end(), piece);
    return it == pieces_.end() ? -1 : static_cast<int32_t>(it - pieces_.begin());
  };
  const auto require_id_of = [&](const std::string& piece, const char* role) {
    const int32_t id = id_of(piece);
    if (id < 0)
      refuse_input(name, str("the piece '", piece, "', the ", role, " of tokenizer_config.json"), "no such piece",
                   "copy the folder again");
    return id;
  };
  const SurroundingTokens tokens = parse_post_processor(root.at("post_processor"), size());
  const auto count_pair_separators = [&] {
    const bool are_equal =
        std::all_of(tokens.between.begin(), tokens.between.end(), [&](int32_t id) { return id == end_id_; });
    num_pair_separators_ = are_equal ? static_cast<int64_t>(tokens.between.size()) : 0;
  };
  if (settings.begin_id && settings.end_id) {
    begin_id_ = *settings.begin_id;
    end_id_ = *settings.end_id;
    if (end_of_line_id() < 0 || std::max(begin_id_, end_id_) >= size())
      refuse_input(name, str("ids of tokens below ", size(), " at the start or the end of a text"),
                   str("the ids ", begin_id_, " and ", end_id_), "copy the file again");
    return count_pair_separators();
  }
  if (tokens.begin.size() > 1 && !settings.begin_piece)
    root.at("post_processor")
        .refuse("at most one token in front of a text", count_of(tokens.begin.size(), "token"), kUseSupportedType);
  if (settings.begin_piece)
    begin_id_ = settings.begin_piece->empty() ? -1 : require_id_of(*settings.begin_piece, "bos_token");
  else if (!tokens.begin.empty()) begin_id_ = tokens.begin[0];
  if (!tokens.end.empty()) {
    end_id_ = tokens.end[0];
  } else if (settings.end_piece) {
    end_id_ = require_id_of(*settings.end_piece, "eos_token");
  } else {
    for (const char* piece : kEndPieces)
      if (end_id_ < 0) end_id_ = id_of(piece);
  }
  if (end_of_line_id() < 0)
    refuse_input(name,
                 "a token that starts or ends a text: a post-processor that adds one, or one of the pieces " +
                     join({std::begin(kEndPieces), std::end(kEndPieces)}, ", "),
                 "no such token", "give the folder with tokenizer_config.json, which names eos_token");
  count_pair_separators();
}

std::unique_ptr<Encoder> JsonTokenizer::encoder() const { return std::make_unique<JsonEncoder>(*this); }

std::string JsonTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  std::vector<std::string> pieces;
  const auto flush = [&] {
    if (pieces.empty()) return;
    for (const auto& decoder : decoders_) decoder->apply(pieces);
    for (const std::string& piece : pieces) text += piece;
    pieces.clear();
  };
  for (const int32_t token : tokens) {
    if (token != end_of_line_id()) {
      pieces.push_back(piece(token));
      continue;
    }
    flush();
    text += '\n';
  }
  flush();
  return text;
}

size_t JsonTokenizer::find_split(std::string_view text) const {
  // Bytes of `text` that follow the position, so that text after `text` cannot change the tokens near the position.
  constexpr size_t kMinRest = 1024;
  constexpr size_t kMaxRest = 8 * kMinRest;
  const auto encoder = this->encoder();
  std::vector<int32_t> tokens, tokens_of_parts;
  if (text.size() > kMinRest) encoder->encode(text, tokens);
  for (size_t num_rest_bytes = kMinRest; num_rest_bytes <= kMaxRest && num_rest_bytes < text.size();
       num_rest_bytes += kMinRest) {
    size_t position = text.size() - num_rest_bytes;
    while (position > 0 && is_continuation_byte(text[position])) --position;
    // Tries the positions before and after a space; in text without spaces, any position between characters.
    if (const size_t space = text.rfind(' ', position); space != text.npos && position - space < kMinRest)
      position = space;
    for (const size_t candidate : {position, position + 1}) {
      if (candidate == 0 || is_continuation_byte(text[candidate])) continue;
      tokens_of_parts.clear();
      encoder->encode(text.substr(0, candidate), tokens_of_parts);
      encoder->encode(text.substr(candidate), tokens_of_parts);
      if (tokens_of_parts == tokens) return candidate;
    }
  }
  return text.npos;
}

std::string JsonTokenizer::serialize() const {
  return serialize_embedded_file(kType, size(), begin_id_, end_id_, json_);
}

namespace {

// Returns a post-processor that puts the token `begin_id` (-1: none) in front of a text, and the tokens `end_ids` at
// its end. `processor`: the post-processor to replace, whose components that only change positions stay.
Json post_processor_of(const Tokenizer& tokenizer, int32_t begin_id, const std::vector<int32_t>& end_ids,
                       const JsonNode& processor) {
  Json special_tokens = Json::object();
  const auto add_text = [&](const char* name, int type_id, Json& elements) {
    const auto add_token = [&](int32_t id) {
      const std::string piece = tokenizer.piece(id);
      elements.push_back(Json::object({{"SpecialToken", {{"id", piece}, {"type_id", type_id}}}}));
      special_tokens[piece] = {{"id", piece}, {"ids", Json::array({id})}, {"tokens", Json::array({piece})}};
    };
    if (begin_id >= 0) add_token(begin_id);
    elements.push_back(Json::object({{"Sequence", {{"id", name}, {"type_id", type_id}}}}));
    for (const int32_t id : end_ids) add_token(id);
  };
  Json single = Json::array(), pair = Json::array();
  add_text("A", 0, single);
  add_text("A", 0, pair);
  add_text("B", 1, pair);
  Json components = Json::array();
  for (const JsonNode& stage : processor.stages("processors"))
    if (stage.type() == "ByteLevel") components.push_back(*stage.value);
  components.push_back(
      {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special_tokens}});
  return sequence_of("processors", std::move(components));
}

}  // namespace

std::string tokenizer_json_text(const Tokenizer& tokenizer) {
  if (const auto* byte_bpe = dynamic_cast<const ByteBpeTokenizer*>(&tokenizer))
    return serialize_byte_bpe_json(*byte_bpe);
  const auto* json_tokenizer = dynamic_cast<const JsonTokenizer*>(&tokenizer);
  if (json_tokenizer == nullptr)
    refuse_input("tokenizer.json", "a vocabulary of the type tokenizer-json or byte-bpe",
                 "a vocabulary of the type " + tokenizer.type(), "keep the vocabulary in a file of mh-prep vocab");
  Json document = Json::parse(json_tokenizer->json());
  const JsonNode processor{&document["post_processor"], "tokenizer.json: post_processor"};
  const SurroundingTokens tokens = parse_post_processor(processor, tokenizer.size());
  const int32_t begin_id = tokenizer.begin_id();
  if (tokens.begin == (begin_id < 0 ? std::vector<int32_t>() : std::vector<int32_t>{begin_id}))
    return json_tokenizer->json();
  document["post_processor"] = post_processor_of(tokenizer, begin_id, tokens.end, processor);
  return document.dump();
}

std::unique_ptr<Tokenizer> make_json_tokenizer(const VocabularyFile& file, const std::string& name) {
  // The tokens around a text come from the vocabulary file; the post-processor may name other tokens.
  JsonTokenizerSettings settings;
  settings.begin_id = file.begin_id;
  settings.end_id = file.end_id;
  return std::make_unique<JsonTokenizer>(file.embedded_file, name, settings);
}

}  // namespace mh::text
