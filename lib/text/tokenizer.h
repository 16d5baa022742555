// Interface of tokenizers, which convert text to tokens and back: words, bytes, characters, SentencePiece, BPE of
// subword-nmt, WordPiece of BERT (wordpiece.h), byte-level BPE of GPT-2 (byte_bpe.h), and other pipelines of Hugging
// Face's tokenizer.json (json_tokenizer.h). Shards and checkpoints store a complete copy of their tokenizer; two files
// can be used together only if the fingerprints of their tokenizers are equal.
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

// Converts text to tokens. Not thread-safe, since an encoder may cache words.
class Encoder {
 public:
  virtual ~Encoder() = default;
  // Appends the tokens of `text` to `out`. `text` contains a line feed only if Tokenizer::encodes_line_feeds(). A line
  // may be passed in several calls, split at positions that Tokenizer::find_split() returns; the caller appends the
  // end-of-line token.
  virtual void encode(std::string_view text, std::vector<int32_t>& out) = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string type() const = 0;        // word, byte, char, sentencepiece, subword-nmt, wordpiece, byte-bpe,
                                               // tokenizer-json, marian
  virtual int64_t size() const = 0;            // number of vocabulary entries; tokens are in [0, size())
  virtual int32_t end_of_line_id() const = 0;  // end-of-line token; it is also the context of the first token of a text
  virtual int32_t unknown_id() const = 0;      // token of unknown text; -1: none, since every text can be encoded
  // Returns the token that the published model expects in front of a text, such as <s> of Llama 2; -1: none.
  virtual int32_t begin_id() const { return -1; }
  // Returns the token that ends a text, which differs from end_of_line_id() if the vocabulary has a begin token; -1:
  // none is known.
  virtual int32_t end_id() const { return end_of_line_id(); }
  virtual std::string piece(int32_t token) const = 0;  // text of the token, for display
  virtual std::unique_ptr<Encoder> encoder() const = 0;
  // Returns the text of `tokens`, the first of which starts a line; end-of-line tokens become line feeds.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  // Returns the length of a prefix of `text` such that encoding the prefix and the rest of the line separately gives
  // the tokens of the line; npos if no such prefix is known. `text` is the start of a line that is too long to be read
  // at once.
  virtual size_t find_split(std::string_view text) const = 0;
  // Returns whether text may be arbitrary bytes (type byte); otherwise it must be valid UTF-8 without NUL.
  virtual bool takes_any_bytes() const { return false; }
  // Returns whether a line feed in text is encoded as tokens other than end_of_line_id(), so that a document can have
  // several lines. decode() restores the line feed.
  virtual bool encodes_line_feeds() const { return false; }
  // Returns the bytes of the vocabulary file, which parse_tokenizer() reads.
  virtual std::string serialize() const = 0;
  // Returns the bytes that determine the fingerprint: serialize(), but without those attributes of added tokens that do
  // not affect how text is encoded.
  virtual std::string fingerprint_content() const { return serialize(); }
  // Returns the 128-bit XXH3 hash of type() and fingerprint_content() as 32 hexadecimal digits.
  std::string fingerprint() const;
};

// Returns how many of `tokens` are tokenizer.unknown_id().
uint64_t count_unknown(std::span<const int32_t> tokens, const Tokenizer& tokenizer);

// Return the tokenizer of a vocabulary file of any type, of a SentencePiece model or of a tokenizer.json, given the
// bytes of the file or its path. `name` is the file name in messages. load_tokenizer() also takes the path of a Hugging
// Face model folder (read_tokenizer_folder()) or of a checkpoint. For a checkpoint or the folder of a Marian model it
// returns the target vocabulary (load_tokenizers() in tokenizers.h returns both vocabularies). Throw Error(input) if
// the content is not a vocabulary or is damaged.
std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& bytes, const std::string& name);
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// Returns the text of `tokens`. Each end-of-line token becomes a line feed; `append(token, starts_line, text)` appends
// the text of any other token to `text`; `starts_line` is true for the first token of a line.
template <class Append>
std::string decode_lines(std::span<const int32_t> tokens, int32_t end_of_line_id, const Append& append) {
  std::string text;
  bool starts_line = true;
  for (int32_t token : tokens) {
    if (token == end_of_line_id) text += '\n';
    else append(token, starts_line, text);
    starts_line = token == end_of_line_id;
  }
  return text;
}

// A vocabulary entry, with its number of occurrences in the text from which the vocabulary was made; 0 if occurrences
// were not counted.
struct Piece {
  std::string text;
  uint64_t count = 0;
};
// Pieces by token id; ids may have gaps.
using NumberedPieces = std::map<uint64_t, std::string>;
// A merge of byte pair encoding (merges.h): two symbols to join.
struct Merge {
  std::string left, right;
  bool operator==(const Merge&) const = default;
};
// Return a tokenizer of the type in the name of the function; `pieces[i]` is the piece of token i, see mh-vocab(5).
// `model` is the content of a SentencePiece model file, and `name` its name in messages.
std::unique_ptr<Tokenizer> make_word_tokenizer(std::vector<Piece> pieces);
std::unique_ptr<Tokenizer> make_char_tokenizer(std::vector<Piece> pieces);
std::unique_ptr<Tokenizer> make_byte_tokenizer();
std::unique_ptr<Tokenizer> make_subword_tokenizer(std::vector<Piece> pieces, std::vector<Merge> merges);
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& model, const std::string& name);

// Returns whether `c` separates words in a vocabulary of the type word.
inline bool is_word_space(char c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f'; }

constexpr const char* kEndOfLinePiece = "<eos>";
constexpr const char* kUnknownPiece = "<unk>";

// Returns `piece` in the notation of vocabulary files and tables: ASCII white space and control characters as \xNN, and
// backslashes doubled.
std::string escape_piece(const std::string& piece);

// Returns the content of a vocabulary file (mh-vocab(5)) of any type except sentencepiece. `merges` is null for types
// other than subword-nmt and byte-bpe, `normalisation` for types other than wordpiece; only wordpiece and byte-bpe have
// added tokens. Throws Error(input) for entries and merges that read_vocabulary() would reject.
std::string serialize_vocabulary(const std::string& type, const std::vector<Piece>& pieces,
                                 const std::vector<Merge>* merges = nullptr,
                                 const BertNormalisation* normalisation = nullptr,
                                 const AddedTokens& added_tokens = {});
// Returns the content of a vocabulary file of the type tokenizer-json, sentencepiece or marian, with the members of
// VocabularyFile.
std::string serialize_embedded_file(const std::string& type, int64_t num_entries, int32_t begin_id, int32_t end_id,
                                    const std::string& embedded_file);
struct VocabularyFile {
  std::string type;
  std::vector<Piece> pieces;
  std::vector<Merge> merges;
  BertNormalisation normalisation;
  AddedTokens added_tokens;
  // Types tokenizer-json, sentencepiece and marian:
  std::string embedded_file;           // the content of a tokenizer.json or of a SentencePiece model; both parts of
                                       // a tokenizer of Marian (marian_tokenizer.h)
  int64_t num_entries = 0;             // the number of token ids
  int32_t begin_id = -1, end_id = -1;  // tokens at the start and the end of a text; -1: none
};
bool is_vocabulary_file(std::string_view bytes);
VocabularyFile read_vocabulary(const std::string& bytes, const std::string& name);

}  // namespace mh::text
