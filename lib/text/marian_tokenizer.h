// Tokenizer of a Marian model (OPUS-MT), with the tokens of MarianTokenizer of Hugging Face transformers 4.57: a
// SentencePiece model divides a text into pieces, and a table shared by both languages gives the token of each piece. A
// piece that the table lacks is the unknown token. A language code in front of a text, such as >>fra<<, is one piece.
//
// A model has two of these tokenizers, which have different SentencePiece models. Their tables have the same entries,
// unless the model has separate vocabularies.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/sentencepiece_tokenizer.h"
#include "text/tokenizers.h"

namespace mh::text {

class MarianTokenizer : public Tokenizer {
 public:
  static constexpr const char* kType = "marian";

  // `model`: content of a SentencePiece model, such as source.spm. `pieces`: the table, by token. `end_id`,
  // `unknown_id`: the token that ends a text, and the token of unknown pieces. `name`: name of the vocabulary in
  // messages. Throws Error(input) for a model that SentencePiece cannot load, pieces that occur twice, and ids outside
  // the table.
  MarianTokenizer(const std::string& model, std::vector<std::string> pieces, int32_t end_id, int32_t unknown_id,
                  const std::string& name);

  std::string type() const override { return kType; }
  int64_t size() const override { return static_cast<int64_t>(pieces_.size()); }
  int32_t end_of_line_id() const override { return end_id_; }
  int32_t unknown_id() const override { return unknown_id_; }
  std::string piece(int32_t token) const override { return pieces_.at(static_cast<size_t>(token)); }
  std::unique_ptr<Encoder> encoder() const override;
  std::string decode(std::span<const int32_t> tokens) const override;
  size_t find_split(std::string_view text) const override { return text.npos; }
  std::string serialize() const override;

  // Returns the content of the SentencePiece model, source.spm or target.spm in a folder.
  const std::string& model() const { return sentencepiece_.model(); }
  // Returns the content of vocab.json: the token of each piece.
  std::string table_json() const;

  // Appends the tokens of a text.
  void encode(std::string_view text, std::vector<int32_t>& out) const;

 private:
  SentencePieceTokenizer sentencepiece_;
  std::vector<std::string> pieces_;  // by token
  std::unordered_map<std::string, int32_t> token_of_piece_;
  int32_t end_id_, unknown_id_;
};

// Returns the tokenizer of a vocabulary file of this type (mh-vocab(5)).
std::unique_ptr<Tokenizer> make_marian_tokenizer(const VocabularyFile& file, const std::string& name);

// Returns whether the folder has the vocabulary files of a Marian model.
bool is_marian_folder(const std::string& folder);
// Reads source.spm, target.spm and vocab.json of a model folder, and target_vocab.json if separate_vocabs of
// tokenizer_config.json is true. Both tokenizers of the result are of the type marian. Throws Error(input), with the
// file, if a file is missing or invalid.
Tokenizers read_marian_folder(const std::string& folder);

}  // namespace mh::text
