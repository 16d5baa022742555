// Tokenizer of SentencePiece models, with the ids of the SentencePiece library. The vocabulary file of a model is the
// model itself, in which the end-of-sentence piece ends a line. A model of the form of Llama 2, Mistral and Gemma
// expects a token in front of a text; the folder of such a model states the tokens around a text
// (folder_tokenizer.h), and the vocabulary file has these tokens in its header (mh-vocab(5)).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace mh::text {

class SentencePieceTokenizer : public Tokenizer {
 public:
  static constexpr const char* kType = "sentencepiece";

  // `model` is the content of a model file, and `name` its name in messages. Throws Error(input) for content that the
  // library cannot load, and for a model without an end-of-sentence piece.
  SentencePieceTokenizer(const std::string& model, const std::string& name);
  ~SentencePieceTokenizer() override;

  // Sets the tokens around a text: `begin_id` in front of a text (-1: none), `end_id` at its end. Then a line feed
  // within a text is text, if the model restores line feeds, and the line end is begin_id() or, without one, end_id(),
  // as for the type tokenizer-json. Throws Error(input) for ids outside the vocabulary, and if both are -1.
  void set_surrounding_tokens(int32_t begin_id, int32_t end_id);

  std::string type() const override { return kType; }
  int64_t size() const override;
  int32_t end_of_line_id() const override { return begin_id_ >= 0 ? begin_id_ : end_id_; }
  int32_t unknown_id() const override;
  int32_t begin_id() const override { return begin_id_; }
  // Returns the end-of-sentence piece, or the token of set_surrounding_tokens().
  int32_t end_id() const override { return end_id_; }
  // Returns the begin-of-sentence piece of the model; -1: none.
  int32_t model_begin_id() const;
  std::string piece(int32_t token) const override;
  std::unique_ptr<Encoder> encoder() const override;
  std::string decode(std::span<const int32_t> tokens) const override;
  size_t find_split(std::string_view text) const override;
  bool encodes_line_feeds() const override { return encodes_line_feeds_; }
  std::string serialize() const override;

  // Returns the content of the model file, tokenizer.model in a folder.
  const std::string& model() const { return model_; }
  void encode_by_library(std::string_view text, std::vector<int32_t>& out) const;
  // Returns the pieces of a text; a part of the text without a piece is returned unchanged.
  std::vector<std::string> pieces_of(std::string_view text) const;
  // Returns the text of pieces, the first of which starts a line.
  std::string text_of(const std::vector<std::string>& pieces) const;
  // Returns whether the tokens of a line are the concatenated tokens of its words.
  bool splits_words() const { return splits_words_; }

 private:
  void load();
  bool segments_words_independently() const;

  std::string model_, name_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  int32_t begin_id_ = -1, end_id_ = -1;
  bool has_surrounding_tokens_ = false;  // set_surrounding_tokens() was called
  bool encodes_line_feeds_ = false;
  bool splits_words_ = false;
};

// Returns the tokenizer of a vocabulary file of this type (mh-vocab(5)).
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const VocabularyFile& file, const std::string& name);

}  // namespace mh::text
