// The WordPiece tokenizer: encoding with and without byte ranges, decoding, and BERT's vocab.txt.
#include <algorithm>
#include <array>
#include <utility>

#include "base/empty_input.h"
#include "base/error.h"
#include "base/text.h"
#include "base/unicode.h"
#include "text/text_bytes.h"
#include "text/word_cache.h"
#include "text/wordpiece.h"

namespace mh::text {

namespace {

// ASCII white space that separates words. Normalisation removes \v and \f as control characters, so they join the text
// around them.
struct IsSpace {
  constexpr bool operator()(char c) const { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
};

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Returns whether `piece`, on the first line of vocab.txt, starts with a byte order mark, which read_wordpieces()
// drops, or with the magic line of a vocabulary of mh-prep, which read_wordpieces() rejects.
bool looks_like_other_file(const std::string& piece) {
  return piece.starts_with(kByteOrderMark) || is_vocabulary_file(piece + "\n");
}

class WordPieceEncoder : public Encoder {
 public:
  explicit WordPieceEncoder(const WordPieceTokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void encode(std::string_view text, std::vector<int32_t>& out) override {
    auto encode_cache_miss = [&](std::string_view word, std::vector<int32_t>& ids) {
      tokenizer_.encode_uncached(word, ids);
    };
    for_each_word(text, IsSpace{}, [&](const WordKey& word) { cache_.encode(word, out, encode_cache_miss); });
  }

 private:
  const WordPieceTokenizer& tokenizer_;
  WordCache cache_;
};

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(std::vector<Piece> pieces, const BertNormalisation& normalisation,
                                       const std::string& name, AddedTokens added_tokens)
    : pieces_(std::move(pieces)), added_tokens_(std::move(added_tokens)), normalisation_(normalisation) {
  initial_pieces_.reserve(pieces_.size());
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const auto token = added_tokens_.find(static_cast<int64_t>(i));
    if (token != added_tokens_.end() && token->second.count(kAppended) > 0) continue;
    std::string_view piece = pieces_[i].text;
    const bool is_continuation = piece.starts_with(kContinuationPrefix) && piece.size() > kContinuationPrefix.size();
    if (is_continuation) piece.remove_prefix(kContinuationPrefix.size());
    size_t& max_bytes = is_continuation ? max_continuation_bytes_ : max_initial_bytes_;
    max_bytes = std::max(max_bytes, piece.size());
    (is_continuation ? continuation_pieces_ : initial_pieces_)[piece] = static_cast<int32_t>(i);
  }
  auto find_special = [&](const char* piece) {
    const auto token = std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& p) { return p.text == piece; });
    if (token == pieces_.end())
      refuse_input(name, str("the piece ", piece, ", which every vocabulary of BERT has"), "none",
                   "use another vocabulary, or learn a vocabulary with mh-prep vocab --type wordpiece --size 30000");
    return static_cast<int32_t>(token - pieces_.begin());
  };
  int32_t* const special_ids[] = {&special_tokens_.padding_id, &special_tokens_.unknown_id, &special_tokens_.cls_id,
                                  &special_tokens_.separator_id, &special_tokens_.mask_id};
  for (size_t i = 0; i < std::size(kSpecialPieces); ++i) *special_ids[i] = find_special(kSpecialPieces[i]);
}

std::unique_ptr<Encoder> WordPieceTokenizer::encoder() const { return std::make_unique<WordPieceEncoder>(*this); }

std::string WordPieceTokenizer::decode(std::span<const int32_t> tokens) const {
  return decode_lines(tokens, end_of_line_id(), [&](int32_t token, bool starts_line, std::string& text) {
    std::string_view piece = pieces_.at(static_cast<size_t>(token)).text;
    if (!starts_line && piece.starts_with(kContinuationPrefix)) piece.remove_prefix(kContinuationPrefix.size());
    else if (!starts_line) text += ' ';
    text += piece;
  });
}

size_t WordPieceTokenizer::find_split(std::string_view text) const {
  const size_t last_space = text.find_last_of(" \t");
  return last_space == text.npos ? text.npos : last_space + 1;
}

std::string WordPieceTokenizer::serialize() const {
  return serialize_vocabulary(kType, pieces_, nullptr, &normalisation_, added_tokens_);
}

std::string WordPieceTokenizer::fingerprint_content() const {
  AddedTokens appended_tokens;
  for (const auto& [id, attributes] : added_tokens_)
    if (attributes.count(kAppended) > 0) appended_tokens[id] = {kAppended};
  return serialize_vocabulary(kType, pieces_, nullptr, &normalisation_, appended_tokens);
}

AddedTokens WordPieceTokenizer::added_tokens() const {
  if (!added_tokens_.empty()) return added_tokens_;
  AddedTokens tokens;
  const int32_t special_ids[] = {special_tokens_.padding_id, special_tokens_.unknown_id, special_tokens_.cls_id,
                                 special_tokens_.separator_id, special_tokens_.mask_id};
  for (size_t i = 0; i < std::size(special_ids); ++i) tokens[special_ids[i]] = {kSpecialToken, kSpecialPieceRoles[i]};
  return tokens;
}

std::span<const WordPieceTokenizer::PieceRange> WordPieceTokenizer::split_word(
    std::string_view word, std::span<PieceRange, kMaxWordCharacters> piece_ranges) const {
  if (word.size() > kMaxWordCharacters && static_cast<size_t>(std::count_if(word.begin(), word.end(), [](char c) {
                                            return !is_continuation_byte(c);
                                          })) > kMaxWordCharacters)
    return {};
  const char* readable_end = word.data() + word.size();
  size_t num_pieces = 0;
  for (size_t begin = 0; begin < word.size();) {
    const WordMap<int32_t>& pieces = begin == 0 ? initial_pieces_ : continuation_pieces_;
    size_t end = std::min(word.size(), begin + (begin == 0 ? max_initial_bytes_ : max_continuation_bytes_));
    const int32_t* token = nullptr;
    for (; end > begin; --end) {
      if (end < word.size() && is_continuation_byte(word[end])) continue;
      token = pieces.find(WordKey(word.substr(begin, end - begin), readable_end));
      if (token != nullptr) break;
    }
    if (token == nullptr) return {};
    piece_ranges[num_pieces++] = {*token, begin, end};
    begin = end;
  }
  return piece_ranges.first(num_pieces);
}

void WordPieceTokenizer::encode_word(std::string_view word, std::vector<int32_t>& tokens) const {
  std::array<PieceRange, kMaxWordCharacters> piece_ranges;
  const auto used_ranges = split_word(word, piece_ranges);
  if (used_ranges.empty()) tokens.push_back(unknown_id());
  for (const PieceRange& piece_range : used_ranges) tokens.push_back(piece_range.token);
}

void WordPieceTokenizer::encode_ascii(std::string_view text, std::vector<int32_t>& tokens) const {
  std::string word;
  auto end_word = [&] {
    if (!word.empty()) encode_word(word, tokens);
    word.clear();
  };
  for (char byte : text) {
    const char c = normalised_ascii(byte, normalisation_.lowercase);
    if (c == 0) continue;
    const bool is_punctuation_mark = is_ascii_punctuation(c);
    if (c != ' ' && !is_punctuation_mark) {
      word += c;
      continue;
    }
    end_word();
    if (is_punctuation_mark) encode_word({&c, 1}, tokens);
  }
  end_word();
}

void WordPieceTokenizer::encode_uncached(std::string_view text, std::vector<int32_t>& tokens) const {
  if (is_ascii(text)) return encode_ascii(text, tokens);
  std::string word;
  for_each_bert_word(bert_characters(text, normalisation_), [&](std::span<const BertCharacter> characters) {
    word.clear();
    for (const BertCharacter& character : characters) append_utf8(character.c, word);
    encode_word(word, tokens);
  });
}

void WordPieceTokenizer::encode_with_ranges(std::string_view text, std::vector<int32_t>& tokens,
                                            std::vector<TextRange>& ranges) const {
  std::string word;
  std::vector<uint32_t> character_indices;  // for each byte of `word`, index of its character in `characters`
  std::array<PieceRange, kMaxWordCharacters> piece_ranges;
  for_each_bert_word(bert_characters(text, normalisation_), [&](std::span<const BertCharacter> characters) {
    word.clear();
    character_indices.clear();
    for (size_t i = 0; i < characters.size(); ++i) {
      append_utf8(characters[i].c, word);
      character_indices.resize(word.size(), static_cast<uint32_t>(i));
    }
    auto used_ranges = split_word(word, piece_ranges);
    if (used_ranges.empty()) {
      piece_ranges[0] = {unknown_id(), 0, word.size()};
      used_ranges = std::span(piece_ranges).first(1);
    }
    for (const PieceRange& piece_range : used_ranges) {
      tokens.push_back(piece_range.token);
      ranges.push_back({characters[character_indices[piece_range.begin]].begin,
                        characters[character_indices[piece_range.end - 1]].end});
    }
  });
}

std::unique_ptr<WordPieceTokenizer> make_wordpiece_tokenizer(std::vector<Piece> pieces,
                                                             const BertNormalisation& normalisation,
                                                             const std::string& name, AddedTokens added_tokens) {
  return std::make_unique<WordPieceTokenizer>(std::move(pieces), normalisation, name, std::move(added_tokens));
}

BertNormalisation bert_normalisation(bool cased, const std::string& strip_accents) {
  return {!cased, strip_accents == "auto" ? !cased : strip_accents == "yes"};
}

const WordPieceTokenizer& require_wordpiece(const Tokenizer& tokenizer, const std::string& name) {
  const auto* wordpiece = dynamic_cast<const WordPieceTokenizer*>(&tokenizer);
  if (wordpiece == nullptr)
    refuse_input(name, "a vocabulary of the type wordpiece", "a vocabulary of the type " + tokenizer.type(),
                 "make a vocabulary with mh-prep vocab --type wordpiece --size 30000");
  return *wordpiece;
}

std::vector<Piece> read_wordpieces(const std::string& bytes, const std::string& name) {
  if (is_vocabulary_file(bytes))
    refuse_input(name, "BERT's vocab.txt", "a vocabulary of mh-prep",
                 "pass this file to --vocab of another command; it needs no conversion");
  std::vector<Piece> pieces;
  WordMap<size_t> line_numbers;  // line number of each piece, from 1
  std::string_view remaining_text = validate_text(bytes, name);
  if (remaining_text.empty()) throw empty_input_error(name, "BERT's vocab.txt", "copy the file again");
  while (!remaining_text.empty()) {
    const size_t end = std::min(remaining_text.find('\n'), remaining_text.size());
    std::string_view piece = remaining_text.substr(0, end);
    remaining_text.remove_prefix(std::min(end + 1, remaining_text.size()));
    while (!piece.empty() && (IsSpace{}(piece.back()))) piece.remove_suffix(1);
    const size_t line_number = pieces.size() + 1;
    auto refuse = [&](const std::string& found) {
      refuse_input(str(name, ":", line_number), "distinct pieces, one per line, as in BERT's vocab.txt", found,
                   "copy the file again");
    };
    if (piece.empty()) refuse("an empty line");
    size_t& first_line_number = line_numbers[piece];
    if (first_line_number != 0)
      refuse(str("'", escape_piece(std::string(piece)), "', which is already in line ", first_line_number));
    first_line_number = line_number;
    pieces.push_back({std::string(piece), 0});
  }
  return pieces;
}

std::string serialize_wordpieces(const std::vector<Piece>& pieces, const std::string& name) {
  std::string text;
  WordMap<bool> written_pieces;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string& piece = pieces[i].text;
    const bool is_writable = !piece.empty() && !IsSpace{}(piece.back()) && piece.find_first_of("\n\r") == piece.npos &&
                             find_invalid_byte(piece) == piece.npos && (i > 0 || !looks_like_other_file(piece));
    if (!is_writable || std::exchange(written_pieces[piece], true))
      refuse_input(str(name, ": entry ", i), "distinct pieces, each a line of BERT's vocab.txt",
                   str("'", escape_piece(piece), "', which readers of this format would change or refuse"),
                   "use the vocabulary file of mh-prep without conversion");
    text += piece + "\n";
  }
  return text;
}

}  // namespace mh::text
