// Learns WordPieces: pieces of single characters, then the joins of BpeTrainer.
#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/unicode.h"
#include "text/bpe_trainer.h"
#include "text/wordpiece.h"

namespace mh::text {

namespace {

std::string utf8(char32_t c) {
  std::string text;
  append_utf8(c, text);
  return text;
}

// Returns the `max_characters` most frequent characters, ordered by code point.
std::u32string alphabet_of(const WordMap<uint64_t>& words, int64_t max_characters) {
  std::unordered_map<char32_t, uint64_t> counts;
  words.for_each([&](std::string_view word, uint64_t count) {
    for (char32_t c : code_points(word)) counts[c] += count;
  });
  std::vector<std::pair<char32_t, uint64_t>> characters(counts.begin(), counts.end());
  std::sort(characters.begin(), characters.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (characters.size() > static_cast<size_t>(max_characters)) {
    log_info(str("the vocabulary has pieces for ", with_commas(max_characters), " of ",
                 count_with_commas(characters.size(), "character"),
                 " (--alphabet); words with other characters are [UNK]"));
    characters.resize(static_cast<size_t>(max_characters));
  }
  std::u32string alphabet;
  for (const auto& [c, count] : characters) alphabet += c;
  std::sort(alphabet.begin(), alphabet.end());
  return alphabet;
}

// Inserts the pieces of one character. `alphabet`: characters that get pieces.
void add_character_pieces(const WordMap<uint64_t>& words, const std::u32string& alphabet, BpeTrainer& trainer) {
  // Whether a character of the alphabet follows another character in some word.
  std::unordered_map<char32_t, bool> follows_character;
  for (char32_t c : alphabet) {
    follows_character[c] = false;
    trainer.find_or_insert_piece(utf8(c));
  }
  words.for_each([&](std::string_view word, uint64_t) {
    const std::u32string text = code_points(word);
    for (size_t i = 1; i < text.size(); ++i)
      if (auto it = follows_character.find(text[i]); it != follows_character.end()) it->second = true;
  });
  for (char32_t c : alphabet)
    if (follows_character[c]) trainer.find_or_insert_piece(str(kContinuationPrefix, utf8(c)));
}

// Adds the words with their counts. Characters outside the alphabet are omitted, so their neighbours become adjacent.
void add_words(const WordMap<uint64_t>& words, BpeTrainer& trainer) {
  std::vector<int32_t> symbols;
  words.for_each([&](std::string_view text, uint64_t count) {
    symbols.clear();
    bool is_first_character = true;
    for (char32_t c : code_points(text)) {
      if (trainer.has_piece(utf8(c)))
        symbols.push_back(
            trainer.find_or_insert_piece(std::string(is_first_character ? "" : kContinuationPrefix) + utf8(c)));
      is_first_character = false;
    }
    trainer.add_word(symbols, static_cast<int64_t>(count));
  });
}

}  // namespace

std::vector<std::string> learn_wordpieces(const WordMap<uint64_t>& words, const WordPieceOptions& options) {
  BpeTrainer trainer(kContinuationPrefix);
  for (const char* special : kSpecialPieces) trainer.find_or_insert_piece(special);
  const std::u32string alphabet = alphabet_of(words, options.max_alphabet_size);
  add_character_pieces(words, alphabet, trainer);
  if (const size_t num_pieces = trainer.pieces().size(); static_cast<size_t>(options.max_size) < num_pieces)
    refuse_usage("--size",
                 str("at least ", num_pieces, ": 5 special pieces, ", alphabet.size(), " characters, and ",
                     num_pieces - alphabet.size() - 5, " pieces that consist of the prefix ## and a character"),
                 str(options.max_size), "raise --size, or limit the characters with --alphabet");
  add_words(words, trainer);
  trainer.learn(options.max_size, options.min_count);
  return trainer.pieces();
}

}  // namespace mh::text
