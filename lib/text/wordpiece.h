// WordPiece (Schuster and Nakajima 2012) as in BERT (Devlin et al. 2019): text is normalised and split into words
// (bert_text.h), and each word is split greedily, from left to right, into the longest matching pieces; pieces
// after the first start with ##. A word that the pieces cannot spell, or that has more than 100 characters, is [UNK].
//
// Special tokens are not recognised in text: "[SEP]" is encoded as a bracket, a word and a bracket, as in transformers
// with split_special_tokens=True. Callers insert [CLS], [SEP], [MASK] and [PAD] by their ids, special_tokens(). [SEP]
// is the end-of-line token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/bert_text.h"
#include "text/tokenizer.h"
#include "text/word_map.h"

namespace mh::text {

// A byte range [begin, end) of a text, such as the bytes that a token encodes.
struct TextRange {
  uint32_t begin = 0, end = 0;
  bool operator==(const TextRange&) const = default;
};

constexpr std::string_view kContinuationPrefix = "##";  // prefix of a piece that continues a word
// The special pieces, and their roles in transformers, in the order of the members of
// WordPieceTokenizer::SpecialTokens.
constexpr const char* kSpecialPieces[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
constexpr const char* kSpecialPieceRoles[] = {"pad_token", "unk_token", "cls_token", "sep_token", "mask_token"};

class WordPieceTokenizer : public Tokenizer {
 public:
  static constexpr const char* kType = "wordpiece";
  // Ids of the tokens [PAD], [UNK], [CLS], [SEP] and [MASK].
  struct SpecialTokens {
    int32_t padding_id = -1, unknown_id = -1, cls_id = -1, separator_id = -1, mask_id = -1;
  };

  // `pieces` are distinct. Throws Error(input), with `name`, if a special token is missing. Added tokens with the
  // attribute kAppended are never produced from text.
  WordPieceTokenizer(std::vector<Piece> pieces, const BertNormalisation& normalisation, const std::string& name,
                     AddedTokens added_tokens = {});

  std::string type() const override { return kType; }
  int64_t size() const override { return static_cast<int64_t>(pieces_.size()); }
  int32_t end_of_line_id() const override { return special_tokens_.separator_id; }
  int32_t unknown_id() const override { return special_tokens_.unknown_id; }
  std::string piece(int32_t token) const override { return pieces_.at(static_cast<size_t>(token)).text; }
  std::unique_ptr<Encoder> encoder() const override;
  // Returns the pieces separated by spaces; a piece that starts with ## is joined to the previous piece of its line.
  std::string decode(std::span<const int32_t> tokens) const override;
  size_t find_split(std::string_view text) const override;
  std::string serialize() const override;
  std::string fingerprint_content() const override;

  const SpecialTokens& special_tokens() const { return special_tokens_; }
  const BertNormalisation& normalisation() const { return normalisation_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  // Returns the added tokens; if there are none, BERT's five special tokens.
  AddedTokens added_tokens() const;

  // Appends the tokens of a text (valid UTF-8 without NUL, of less than 4 GiB) and the byte range of each token, from
  // the first to the last character of its piece. Removed characters at either end, such as an accent after its letter,
  // are not included; a character that yields several pieces is in the range of each.
  void encode_with_ranges(std::string_view text, std::vector<int32_t>& tokens, std::vector<TextRange>& ranges) const;
  // Encodes a text without caching words.
  void encode_uncached(std::string_view text, std::vector<int32_t>& tokens) const;

 private:
  static constexpr size_t kMaxWordCharacters = 100;  // a longer word is [UNK], as in transformers
  struct PieceRange {
    int32_t token;
    size_t begin, end;  // byte range [begin, end) in the word
  };
  // Splits a normalised word into pieces, writes them to `piece_ranges`, and returns the used prefix of `piece_ranges`.
  // Returns an empty span if the pieces cannot spell the word, or if the word has more than kMaxWordCharacters
  // characters.
  std::span<const PieceRange> split_word(std::string_view word,
                                         std::span<PieceRange, kMaxWordCharacters> piece_ranges) const;
  void encode_ascii(std::string_view text, std::vector<int32_t>& tokens) const;
  void encode_word(std::string_view word, std::vector<int32_t>& tokens) const;

  std::vector<Piece> pieces_;
  AddedTokens added_tokens_;
  BertNormalisation normalisation_;
  SpecialTokens special_tokens_;
  WordMap<int32_t> initial_pieces_;       // tokens of the pieces that start a word
  WordMap<int32_t> continuation_pieces_;  // tokens of the pieces that continue a word; the keys lack ##
  size_t max_initial_bytes_ = 0, max_continuation_bytes_ = 0;  // maximum length in bytes of a key of each map
};

// Returns the normalisation set by the options --cased and --strip-accents (auto, yes, no).
BertNormalisation bert_normalisation(bool cased, const std::string& strip_accents);

std::unique_ptr<WordPieceTokenizer> make_wordpiece_tokenizer(std::vector<Piece> pieces,
                                                             const BertNormalisation& normalisation,
                                                             const std::string& name, AddedTokens added_tokens = {});

// Returns `tokenizer` as a WordPieceTokenizer. Throws Error(input) if it is of another type; `name` is the name of the
// vocabulary or model in the message.
const WordPieceTokenizer& require_wordpiece(const Tokenizer& tokenizer, const std::string& name);

// Reads BERT's vocab.txt: one piece per line, numbered from 0; white space at the end of a line is dropped. Throws
// Error(input) for an empty file, for empty and repeated lines, for text that is not UTF-8 or has NUL bytes, and for a
// vocabulary file of mh-prep.
std::vector<Piece> read_wordpieces(const std::string& bytes, const std::string& name);
// Returns the content of vocab.txt. Throws Error(input) if read_wordpieces() would return different pieces; `name` is
// the name of the file in the message.
std::string serialize_wordpieces(const std::vector<Piece>& pieces, const std::string& name = "vocab.txt");

struct WordPieceOptions {
  int64_t max_size = 0;  // maximum number of pieces; must leave room for the special and the character pieces
  // Maximum number of characters that get a piece: the most frequent and, among equal counts, the lowest code points.
  int64_t max_alphabet_size = 1000;
  int64_t min_count = 1;  // minimum count at which a pair is joined
};

// Learns pieces from normalised words and their counts as the WordPieceTrainer of Hugging Face tokenizers 0.22 does, by
// byte pair encoding: repeatedly joins the most frequent pair of adjacent symbols; among equal counts, the pair with
// the lower ids. The order of the pieces is [PAD] [UNK] [CLS] [SEP] [MASK], the characters by code point, then, with
// ##, the characters that occur after another character of a word, by code point, then the joined pieces. Hugging Face
// tokenizers assigns ids to the characters with ## in the order of a hash table, so its vocabulary differs between
// executions if counts are equal; with the ids of this function it would learn the same pieces. Throws Error(usage) if
// `max_size` is too small.
std::vector<std::string> learn_wordpieces(const WordMap<uint64_t>& words, const WordPieceOptions& options);

}  // namespace mh::text
