#include "text/encoder_vocabulary.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/unicode.h"
#include "text/byte_bpe.h"
#include "text/json_tokenizer.h"

namespace mh::text {

namespace {

constexpr std::string_view kPaddingPieces[] = {"<pad>", "[PAD]"}, kMaskPieces[] = {"<mask>", "[MASK]"};
// Marks of a space at the start of a piece: the character of the byte 0x20, and the mark of Metaspace.
constexpr std::string_view kByteLevelSpace = "\u0120", kMetaspace = "\u2581";

// Returns the id of the special token with one of these pieces; -1: none.
template <class Pieces>
int32_t special_id(const JsonTokenizer& tokenizer, const Pieces& pieces) {
  for (const AddedToken& token : tokenizer.added_tokens())
    if (token.special && std::find(std::begin(pieces), std::end(pieces), token.content) != std::end(pieces))
      return token.id;
  return -1;
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Returns the byte range of a token that encodes the bytes [begin, end) of `text`.
TextRange range_of_token(std::string_view text, size_t begin, size_t end) {
  size_t first = begin, last = end;
  while (first < last && is_space(text[first])) ++first;
  while (last > first && is_space(text[last - 1])) --last;
  if (first == last) return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};  // white space alone
  while (first > 0 && is_continuation_byte(text[first])) --first;
  while (last < text.size() && is_continuation_byte(text[last])) ++last;
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(last)};
}

}  // namespace

EncoderTokens encoder_tokens(const Tokenizer& tokenizer, const std::string& name) {
  if (const auto* wordpiece = dynamic_cast<const WordPieceTokenizer*>(&tokenizer)) {
    const WordPieceTokenizer::SpecialTokens& tokens = wordpiece->special_tokens();
    return {.padding_id = tokens.padding_id,
            .begin_id = tokens.cls_id,
            .separator_id = tokens.separator_id,
            .mask_id = tokens.mask_id};
  }
  const auto* json = dynamic_cast<const JsonTokenizer*>(&tokenizer);
  if (json == nullptr)
    refuse_input(name, "a vocabulary of an encoder, of the type wordpiece or tokenizer-json",
                 "a vocabulary of the type " + tokenizer.type(),
                 "make the vocabulary with mh-prep vocab --type wordpiece --size 30000, or use the vocabulary of an "
                 "encoder");
  const EncoderTokens tokens{.padding_id = special_id(*json, kPaddingPieces),
                             .begin_id = json->begin_id(),
                             .separator_id = json->end_id(),
                             .mask_id = special_id(*json, kMaskPieces),
                             .num_pair_separators = json->num_pair_separators(),
                             .has_segments = false};
  const char* missing = tokens.begin_id < 0 || tokens.num_pair_separators < 1
                            ? "a post-processor with a token before and after each text"
                        : tokens.padding_id < 0 ? "the special token <pad> or [PAD]"
                        : tokens.mask_id < 0    ? "the special token <mask> or [MASK]"
                                                : nullptr;
  if (missing != nullptr)
    refuse_input(name, str("a vocabulary of an encoder, with ", missing), "none in its tokenizer.json",
                 "use the vocabulary of an encoder, such as RoBERTa");
  return tokens;
}

std::vector<bool> word_continuations(const Tokenizer& tokenizer) {
  std::vector<bool> continues_word;
  const bool is_wordpiece = dynamic_cast<const WordPieceTokenizer*>(&tokenizer) != nullptr;
  for (int32_t token = 0; token < tokenizer.size(); ++token) {
    const std::string piece = tokenizer.piece(token);
    continues_word.push_back(is_wordpiece ? piece.starts_with(kContinuationPrefix)
                                          : !piece.starts_with(kByteLevelSpace) && !piece.starts_with(kMetaspace));
  }
  return continues_word;
}

bool encode_with_ranges(const Tokenizer& tokenizer, Encoder& encoder, std::string_view text,
                        std::vector<int32_t>& tokens, std::vector<TextRange>& ranges) {
  if (const auto* wordpiece = dynamic_cast<const WordPieceTokenizer*>(&tokenizer)) {
    wordpiece->encode_with_ranges(text, tokens, ranges);
    return true;
  }
  const auto* json = dynamic_cast<const JsonTokenizer*>(&tokenizer);
  if (json == nullptr || !json->has_byte_pieces()) return false;
  std::vector<int32_t> new_tokens;
  std::vector<TextRange> new_ranges;
  encoder.encode(text, new_tokens);
  size_t begin = 0;
  for (const int32_t token : new_tokens) {
    const std::string bytes = bytes_of_piece(tokenizer.piece(token));
    if (text.substr(begin, bytes.size()) != bytes) return false;
    new_ranges.push_back(range_of_token(text, begin, begin + bytes.size()));
    begin += bytes.size();
  }
  if (begin != text.size()) return false;
  tokens.insert(tokens.end(), new_tokens.begin(), new_tokens.end());
  ranges.insert(ranges.end(), new_ranges.begin(), new_ranges.end());
  return true;
}

}  // namespace mh::text
