// The pipeline of a tokenizer.json of Hugging Face tokenizers 0.22, with the tokens of
//   tokenizer = Tokenizer.from_file("tokenizer.json")
//   tokenizer.encode_special_tokens = True
//   tokenizer.encode(text, add_special_tokens=False).ids
// for all components that lib/text/pipeline/ implements; other components are refused by name. GPT-2's byte-level BPE
// and BERT's WordPiece have types of their own (byte_bpe.h, wordpiece.h).
//
// Steps: added tokens that are searched in the raw text are cut out; the rest is normalised; added tokens that are
// searched in the normalised text are cut out; pre-tokenizers split the rest into words; the model converts each word.
//
// Special tokens are not recognised in text: "<|begin_of_text|>" is encoded like other text. Added tokens that are not
// special, such as runs of spaces, are recognised. Callers insert special tokens by their ids.
//
// Line ends: a line feed within a text is text and has tokens of its own, so encode() takes whole documents. A text
// ends with end_of_line_id(), which marks the end of one text and the start of the next: it is begin_id() if the
// post-processor puts a token in front of a text, so that the first token is predicted from the token with which the
// published model was trained; otherwise it is end_id(). decode() writes a line feed for it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/added_token_matcher.h"
#include "text/pipeline/decoder.h"
#include "text/pipeline/model.h"
#include "text/pipeline/normalizer.h"
#include "text/pipeline/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace mh::text {

// Tokens around a text, if other files than tokenizer.json state them.
struct JsonTokenizerSettings {
  // The piece in front of a text, instead of the token of the post-processor; "": none.
  std::optional<std::string> begin_piece;
  // The piece that ends a text, if the post-processor puts none after a text.
  std::optional<std::string> end_piece;
  // Instead of both, the ids of a vocabulary file; -1: none.
  std::optional<int32_t> begin_id, end_id;
};

class JsonTokenizer : public Tokenizer {
 public:
  static constexpr const char* kType = "tokenizer-json";

  // Parses the content of tokenizer.json. Throws Error(input), with `name`, the name of the file, and the JSON path,
  // for malformed content and for components that are not supported.
  JsonTokenizer(const std::string& json_text, const std::string& name, const JsonTokenizerSettings& settings = {});

  std::string type() const override { return kType; }
  int64_t size() const override { return static_cast<int64_t>(pieces_.size()); }
  int32_t end_of_line_id() const override { return begin_id_ >= 0 ? begin_id_ : end_id_; }
  int32_t unknown_id() const override { return model_->unknown_id(); }
  int32_t begin_id() const override { return begin_id_; }
  bool encodes_line_feeds() const override { return true; }
  int32_t end_id() const override { return end_id_; }
  // Returns how many times the post-processor puts end_id() between two texts; 0 if it puts no or other tokens there.
  int64_t num_pair_separators() const { return num_pair_separators_; }
  // Returns whether a piece has a character for each byte of text (character_of_byte()).
  bool has_byte_pieces() const { return pre_tokenizers_.yields_bytes; }
  std::string piece(int32_t token) const override { return pieces_.at(static_cast<size_t>(token)); }
  std::unique_ptr<Encoder> encoder() const override;
  std::string decode(std::span<const int32_t> tokens) const override;
  // Returns a position near the end of `text` at which both parts together have the tokens of the whole, and which at
  // least 1 KiB of text follows. Returns npos if there is none, as with models that segment whole texts.
  size_t find_split(std::string_view text) const override;
  std::string serialize() const override;

  // Returns the content of a tokenizer.json with the same tokens: sorted keys, all settings in one form, no white
  // space.
  const std::string& json() const { return json_; }
  const std::vector<AddedToken>& added_tokens() const { return added_tokens_; }

 private:
  friend class JsonEncoder;
  // Reads the added tokens; `pieces_` has the pieces of the model.
  void read_added_tokens(const JsonNode& list);
  // Returns the added tokens in the form of tokenizer.json.
  std::string added_tokens_json() const;
  void choose_surrounding_tokens(const JsonNode& root, const JsonTokenizerSettings& settings, const std::string& name);

  std::string json_;
  Normalizers normalizers_;
  PreTokenizers pre_tokenizers_;
  std::unique_ptr<Model> model_;
  Decoders decoders_;
  std::vector<std::string> pieces_;       // by token id; "": no token has this id
  std::vector<AddedToken> added_tokens_;  // in ascending order of their ids
  AddedTokenMatcher raw_matcher_, normalized_matcher_;
  int32_t begin_id_ = -1, end_id_ = -1;
  int64_t num_pair_separators_ = 0;
};

// Returns the content of a tokenizer.json with which Hugging Face tokenizers 0.22 has the tokens of `tokenizer`, of the
// type tokenizer-json or byte-bpe. Its post-processor puts the token begin_id() in front of a text. The file cannot
// state JsonTokenizer::end_id(), which is eos_token of tokenizer_config.json. Throws Error(input) for another type.
std::string tokenizer_json_text(const Tokenizer& tokenizer);

// Returns the tokenizer of a vocabulary file of this type (mh-vocab(5)).
std::unique_ptr<Tokenizer> make_json_tokenizer(const VocabularyFile& file, const std::string& name);

}  // namespace mh::text
