// WordPiece (Schuster and Nakajima 2012) as BERT has it (Devlin et al. 2019): text is normalised and parted into words
// (bert_text.h), and of each word the longest piece that begins it is taken, then the longest of what is left, whose
// pieces carry ## in front. A word that pieces do not spell, or of more than 100 characters, is [UNK].
//
// Text is text: where it reads [SEP], that is a bracket, a word and a bracket, as with a tokenizer of the package
// tokenizers that was not told of special tokens. Who needs the tokens [CLS], [SEP], [MASK] and [PAD] puts them in by
// their numbers (special()). [SEP] closes a line.
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

// Where a piece comes from: bytes [begin, end) of the text.
struct TextRange {
  uint32_t begin = 0, end = 0;
  bool operator==(const TextRange&) const = default;
};

constexpr std::string_view kWordPieceGoesOn = "##";
// In the order of WordPieceTokenizer::Special.
constexpr const char* kSpecialPieces[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
constexpr const char* kSpecialPieceRoles[] = {"pad_token", "unk_token", "cls_token", "sep_token", "mask_token"};

class WordPieceTokenizer : public Tokenizer {
 public:
  static constexpr const char* kType = "wordpiece";
  struct Special {
    int32_t padding = -1, unknown = -1, start = -1, separator = -1, mask = -1;  // [PAD] [UNK] [CLS] [SEP] [MASK]
  };

  // Error(input) where a special token is missing; `name` stands in the message. The pieces all differ. Words are not
  // divided into added tokens that the vocabulary lacks (kAppended).
  WordPieceTokenizer(std::vector<Piece> pieces, const BertText& text, const std::string& name, AddedTokens added = {});

  std::string type() const override { return kType; }
  int64_t size() const override { return static_cast<int64_t>(pieces_.size()); }
  int32_t end_of_line() const override { return special_.separator; }
  int32_t unknown() const override { return special_.unknown; }
  std::string piece(int32_t token) const override { return pieces_.at(static_cast<size_t>(token)).text; }
  std::unique_ptr<Encoder> encoder() const override;
  // Pieces with spaces between, but where ## joins one to the piece before it on its line.
  std::string decode(std::span<const int32_t> tokens) const override;
  size_t cut(std::string_view text) const override;
  std::string serialize() const override;
  std::string content() const override;

  const Special& special() const { return special_; }
  const BertText& text() const { return text_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  // Without any, BERT's five special tokens.
  AddedTokens added_tokens() const;

  // As an encoder does, and appends the place of each token in `text` (valid UTF-8 without NUL, of less than 4 GiB):
  // from the first to the last character that the piece is made of. Characters that were dropped do not count, such as
  // an accent behind its letter; a character that gave several pieces is of each.
  void encode_with_ranges(std::string_view text, std::vector<int32_t>& tokens, std::vector<TextRange>& ranges) const;
  // As an encoder does, without its memory of words.
  void encode_part(std::string_view text, std::vector<int32_t>& tokens) const;

 private:
  static constexpr size_t kLongestWord = 100;  // characters
  struct Part {
    int32_t token;
    size_t begin, end;  // bytes of the word
  };
  // The pieces of a normalised word; none where they do not spell it.
  std::span<const Part> divide(std::string_view word, std::span<Part, kLongestWord> parts) const;
  void encode_ascii(std::string_view text, std::vector<int32_t>& tokens) const;
  void encode_word(std::string_view word, std::vector<int32_t>& tokens) const;

  std::vector<Piece> pieces_;
  AddedTokens added_;
  BertText text_;
  Special special_;
  WordMap<int32_t> first_, further_;                // further: without their ##
  size_t longest_first_ = 0, longest_further_ = 0;  // bytes
};

// As the options --cased and --strip-accents (auto, yes, no) say.
BertText bert_text(bool cased, const std::string& strip_accents);

std::unique_ptr<WordPieceTokenizer> make_wordpiece_tokenizer(std::vector<Piece> pieces, const BertText& text,
                                                             const std::string& name, AddedTokens added = {});

// The tokenizer where it is one of WordPiece; Error(input) with the way to one where it is another. `name`: whose it
// is.
const WordPieceTokenizer& require_wordpiece(const Tokenizer& tokenizer, const std::string& name);

// BERT's vocab.txt: a piece a line, the first one has the number 0. Error(input) for lines that are empty or there
// twice.
std::vector<Piece> read_wordpieces(const std::string& bytes, const std::string& name);
// Writes vocab.txt. Throws Error(input) if the reader would return different pieces; `name` is the file in messages.
std::string write_wordpieces(const std::vector<Piece>& pieces, const std::string& name = "vocab.txt");

struct WordPieceOptions {
  int64_t size = 0;         // pieces at most, the special ones included; what the characters need there is at least
  int64_t alphabet = 1000;  // characters at most, the most frequent ones (equal ones: those of lower code points)
  int64_t min_count = 1;    // how often two pieces must follow each other to be joined
};

// Learns pieces from normalised words with their counts as the WordPieceTrainer of tokenizers 0.22 does, which is byte
// pair encoding: of all neighbours those that occur together most often are joined, again and again. In the order of
// their numbers: [PAD] [UNK] [CLS] [SEP] [MASK], the characters by code point, those of them that stand behind another
// with ##, by code point too, then what was joined. Equal counts: the pair of lower numbers. That package numbers the
// characters with ## in the order of a hash table, so its vocabularies differ from run to run where counts are equal;
// given these numbers its pieces are these.
// Error(usage) where size is too small.
std::vector<std::string> learn_wordpieces(const WordMap<uint64_t>& words, const WordPieceOptions& options);

}  // namespace mh::text
