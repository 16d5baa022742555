// Learns a byte-level BPE vocabulary: <|endoftext|>, the bytes, then the joins of BpeTrainer.
#include <algorithm>

#include "base/unicode.h"
#include "text/bpe_trainer.h"
#include "text/byte_bpe.h"

namespace mh::text {

void count_byte_bpe_words(std::string_view text, WordMap<uint64_t>& counts) {
  const char* readable_end = text.data() + text.size();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = byte_bpe_word_end(text, begin);
    ++counts[WordKey(text.substr(begin, end - begin), readable_end)];
    begin = end;
  }
}

std::unique_ptr<ByteBpeTokenizer> learn_byte_bpe(const WordMap<uint64_t>& words, int64_t max_size, int64_t min_count) {
  BpeTrainer trainer;
  trainer.find_or_insert_piece(kEndOfText);
  std::array<char32_t, 256> characters{};
  for (size_t byte = 0; byte < 256; ++byte) characters[byte] = character_of_byte(static_cast<uint8_t>(byte));
  std::sort(characters.begin(), characters.end());
  std::array<int32_t, 256> symbol_of_byte{};
  for (char32_t character : characters) {
    std::string piece;
    append_utf8(character, piece);
    symbol_of_byte[static_cast<size_t>(byte_of_character(character))] = trainer.find_or_insert_piece(piece);
  }
  std::vector<int32_t> symbols;
  words.for_each([&](std::string_view word, uint64_t count) {
    symbols.clear();
    for (char byte : word) symbols.push_back(symbol_of_byte[static_cast<uint8_t>(byte)]);
    trainer.add_word(symbols, static_cast<int64_t>(count));
  });
  trainer.learn(max_size, min_count);
  std::vector<Piece> pieces;
  for (const std::string& piece : trainer.pieces()) pieces.push_back({piece, 0});
  return make_byte_bpe_tokenizer(std::move(pieces), trainer.merges(), "the vocabulary just learnt");
}

}  // namespace mh::text
