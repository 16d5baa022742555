// Tokenizers: text to numbers and back, one interface over words, bytes, characters, SentencePiece models,
// the merges of subword-nmt, BERT's WordPiece (wordpiece.h) and the byte-level pair encoding of GPT-2 (byte_bpe.h).
// A tokenizer travels whole inside shards and checkpoints; its fingerprint tells whether two files go together.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "text/added_tokens.h"
#include "text/bert_text.h"

namespace mh::text {

// Turns segments of text into tokens. Not shared between threads: it may keep a cache of the words it has seen.
class Encoder {
 public:
  virtual ~Encoder() = default;
  // Appends the tokens of `text`, which holds no line end, to `out`. A line may come in several calls, cut where
  // Tokenizer::cut says; the end-of-line token is the caller's to add.
  virtual void encode(std::string_view text, std::vector<int32_t>& out) = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string type() const = 0;     // word, byte, char, sentencepiece, subword-nmt, wordpiece, byte-bpe
  virtual int64_t size() const = 0;         // tokens are in [0, size)
  virtual int32_t end_of_line() const = 0;  // closes each line; also what the first token is predicted from
  virtual int32_t unknown() const = 0;      // -1: everything is known
  virtual std::string piece(int32_t token) const = 0;  // as shown to people
  virtual std::unique_ptr<Encoder> encoder() const = 0;
  // Text of the tokens of one line; end-of-line tokens become line ends.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  // Where a line too long to hold may be cut without changing its tokens: the length of a prefix of `text`, or npos.
  virtual size_t cut(std::string_view text) const = 0;
  // Whether any bytes are text (byte), or only valid UTF-8 without NUL.
  virtual bool takes_any_bytes() const { return false; }
  // The bytes of the vocabulary file; parse_tokenizer reads them.
  virtual std::string serialize() const = 0;
  // The part of the file that decides which tokens a text has.
  virtual std::string content() const { return serialize(); }
  // 32 hexadecimal digits over type and content (XXH3, 128 bits).
  std::string fingerprint() const;
};

// How many of these are the tokenizer's unknown one.
uint64_t count_unknown(std::span<const int32_t> tokens, const Tokenizer& tokenizer);

// Recognises the type from the content. `name` stands in messages. Error(input) for anything else or damaged.
std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& bytes, const std::string& name);
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// Text of tokens: `append(token, first, text)` adds what one of them says, `first` on its line or not; the end of a
// line is '\n'.
template <class Append>
std::string decode_lines(std::span<const int32_t> tokens, int32_t end_of_line, const Append& append) {
  std::string text;
  bool first = true;
  for (int32_t token : tokens) {
    if (token == end_of_line) text += '\n';
    else append(token, first, text);
    first = token == end_of_line;
  }
  return text;
}

// Makers from a list of pieces with counts, in the order of their tokens; see mhv(5).
struct Piece {
  std::string text;
  uint64_t count = 0;
};
using NumberedPieces = std::map<uint64_t, std::string>;
// Of byte pair encoding (merges.h): two symbols that are joined.
struct Merge {
  std::string left, right;
  bool operator==(const Merge&) const = default;
};
std::unique_ptr<Tokenizer> make_word_tokenizer(std::vector<Piece> pieces);
std::unique_ptr<Tokenizer> make_char_tokenizer(std::vector<Piece> pieces);
std::unique_ptr<Tokenizer> make_byte_tokenizer();
std::unique_ptr<Tokenizer> make_subword_tokenizer(std::vector<Piece> pieces, std::vector<Merge> merges);
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& model, const std::string& name);

// Words are separated by spaces and tabs.
inline bool is_word_space(char c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f'; }

constexpr const char* kEndOfLinePiece = "<eos>";
constexpr const char* kUnknownPiece = "<unk>";

// A piece as a vocabulary file and a table write it: white space, control characters and backslashes as \xNN.
std::string escaped(const std::string& piece);

// Returns the text form of all but SentencePiece's vocabularies (mhv(5)). Only those of the types subword-nmt and
// byte-bpe have merges, only those of the type wordpiece say how text is normalised, and only wordpiece and byte-bpe
// have added tokens. Error(input) for entries and merges that read_vocabulary would refuse.
std::string write_vocabulary(const std::string& type, const std::vector<Piece>& pieces,
                             const std::vector<Merge>* merges = nullptr, const BertText* text = nullptr,
                             const AddedTokens& added = {});
struct VocabularyFile {
  std::string type;
  std::vector<Piece> pieces;
  std::vector<Merge> merges;
  BertText text;
  AddedTokens added;
};
bool is_vocabulary_file(std::string_view bytes);
VocabularyFile read_vocabulary(const std::string& bytes, const std::string& name);

}  // namespace mh::text
