// Byte-level BPE of GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2, and
// the encoder.py of its code), token for token equal to GPT2TokenizerFast of transformers with tokenizers 0.22. A
// regular expression splits text into words, every byte of a word is a symbol, and merges join symbols. Thus every text
// can be encoded, and its tokens decode to the same bytes.
//
// Special tokens are not recognised in text: "<|endoftext|>" is encoded like any other text. Callers insert the token
// by its id, end_of_line_id().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/merge_table.h"
#include "text/tokenizer.h"
#include "text/word_map.h"

namespace mh::text {

constexpr const char* kEndOfText = "<|endoftext|>";

// Returns the byte offset of the end of the word that begins at offset `begin`, by GPT-2's regular expression
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// `text` is valid UTF-8. \p{L} and \p{N} are the categories of Unicode 16.0, as in tokenizers 0.22.
size_t byte_bpe_word_end(std::string_view text, size_t begin);

// Returns the offset of the last space or line feed in `text` that follows another character than white space; npos if
// there is none. A word starts there, whatever text follows.
size_t find_byte_bpe_split(std::string_view text);

// Returns the character that represents a byte in GPT-2's files: the character of the same number if the byte is
// printable, otherwise a character from U+0100 on.
char32_t character_of_byte(uint8_t byte);
// Returns the byte for which character_of_byte() returns `character`, or -1.
int byte_of_character(char32_t character);
// Returns the bytes that a piece represents; a piece with a character that represents no byte represents itself.
std::string bytes_of_piece(const std::string& piece);

class ByteBpeTokenizer : public Tokenizer {
 public:
  static constexpr const char* kType = "byte-bpe";

  // `pieces` are distinct and written in the characters of character_of_byte(). Throws Error(input), with `name`, if a
  // byte has no piece, a merge has an unknown symbol or result or occurs twice, or <|endoftext|> is missing.
  ByteBpeTokenizer(std::vector<Piece> pieces, std::vector<Merge> merges, const std::string& name,
                   AddedTokens added_tokens = {});

  std::string type() const override { return kType; }
  int64_t size() const override { return static_cast<int64_t>(pieces_.size()); }
  int32_t end_of_line_id() const override { return end_of_text_id_; }
  int32_t unknown_id() const override { return -1; }
  std::string piece(int32_t token) const override { return pieces_.at(static_cast<size_t>(token)).text; }
  std::unique_ptr<Encoder> encoder() const override;
  // Returns the bytes of the pieces, with a line feed for <|endoftext|>; arbitrary tokens need not decode to valid
  // UTF-8.
  std::string decode(std::span<const int32_t> tokens) const override;
  bool encodes_line_feeds() const override { return true; }
  size_t find_split(std::string_view text) const override { return find_byte_bpe_split(text); }
  std::string serialize() const override;
  std::string fingerprint_content() const override;

  const std::vector<Piece>& pieces() const { return pieces_; }
  const std::vector<Merge>& merges() const { return merges_; }
  // Returns the added tokens; if there are none, <|endoftext|> with all roles it has in GPT-2.
  AddedTokens added_tokens() const;
  // Appends the tokens of `word`, which byte_bpe_word_end() delimits.
  void encode_word(std::string_view word, std::vector<int32_t>& tokens) const;

 private:
  std::vector<Piece> pieces_;
  std::vector<Merge> merges_;
  AddedTokens added_tokens_;
  std::vector<std::string> piece_bytes_;  // bytes of each piece in decoded text, by token id
  std::array<int32_t, 256> token_of_byte_{};
  MergeTable merge_table_;
  int32_t end_of_text_id_ = -1;
};

std::unique_ptr<ByteBpeTokenizer> make_byte_bpe_tokenizer(std::vector<Piece> pieces, std::vector<Merge> merges,
                                                          const std::string& name, AddedTokens added_tokens = {});

// Adds the words of `text`, a line with its line feed or a segment of a long line (find_byte_bpe_split()), to the
// counts of words.
void count_byte_bpe_words(std::string_view text, WordMap<uint64_t>& counts);
constexpr int64_t kMinByteBpeSize = 257;  // <|endoftext|> and a piece for each byte

// Learns a vocabulary from words and their counts. Its pieces and merges equal the result of tokenizers 0.22:
//   ByteLevelBPETokenizer(add_prefix_space=False).train(FILES, vocab_size=max_size, min_frequency=min_count,
//                                                       special_tokens=["<|endoftext|>"])
// The rules of that package (its bpe/trainer.rs, and experiments with version 0.22.1):
//   - The text of a word is counted per line of a file, the line feed included: the line "a  \n" has the words "a" and
//     "  \n", and no word contains two line feeds. A last line without a line feed counts without it. An empty line is
//     the word "\n". Only a line feed ends a line; a carriage return is white space. <|endoftext|> in a text has no
//     special meaning.
//   - The pieces are <|endoftext|>, then the 256 characters of character_of_byte() by code point, whether they occur or
//     not, then the joined pieces in the order of the joins. max_size counts them all; the package gives 257 pieces for
//     a smaller size.
//   - The pair of the highest count is joined next; among equal counts, the pair of the lowest ids, left symbol first
//     (bpe_trainer.h). Learning ends at `max_size` pieces, or if no pair has a count of at least `min_count`; a pair
//     of count 0 is never joined. The package has the default 2 for min_frequency, mh-prep 1 for --min-count.
//   - A join whose result already is a piece adds a merge but no piece.
// The counts of the pieces are 0, so that a vocabulary keeps its fingerprint through vocab.json and merges.txt.
// Requires max_size >= kMinByteBpeSize.
std::unique_ptr<ByteBpeTokenizer> learn_byte_bpe(const WordMap<uint64_t>& words, int64_t max_size, int64_t min_count);

// Parse the content of GPT-2's files vocab.json and merges.txt; `name` is the file name in messages. vocab.json maps
// pieces to ids, which may have gaps, since added tokens have ids too. merges.txt has an optional first line
// "#version: …", then one merge per line. Throw Error(input) for malformed content.
NumberedPieces read_numbered_pieces(const std::string& json, const std::string& name);
std::vector<Merge> read_byte_bpe_merges(const std::string& text, const std::string& name);
// Returns the content of vocab.json. Throws Error(input) if read_numbered_pieces() would not restore the pieces.
std::string serialize_byte_bpe_pieces(const NumberedPieces& pieces);
// Returns the content of merges.txt. Throws Error(input) if read_byte_bpe_merges() would not restore the merges.
std::string serialize_byte_bpe_merges(const std::vector<Merge>& merges);
// Returns the content of a tokenizer.json with the pieces, merges and added tokens of `tokenizer`. Every piece is in
// the entry model.vocab, appended tokens included, so that all tokens keep their ids.
std::string serialize_byte_bpe_json(const ByteBpeTokenizer& tokenizer);

}  // namespace mh::text
