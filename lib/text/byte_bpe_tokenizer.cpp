// The byte-level BPE tokenizer: construction, encoding and decoding.
#include "base/error.h"
#include "base/unicode.h"
#include "text/byte_bpe.h"
#include "text/word_cache.h"

namespace mh::text {

namespace {

class ByteBpeEncoder : public Encoder {
 public:
  explicit ByteBpeEncoder(const ByteBpeTokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void encode(std::string_view text, std::vector<int32_t>& out) override {
    const char* readable_end = text.data() + text.size();
    auto encode_cache_miss = [&](std::string_view word, std::vector<int32_t>& ids) {
      tokenizer_.encode_word(word, ids);
    };
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = byte_bpe_word_end(text, begin);
      cache_.encode(WordKey(text.substr(begin, end - begin), readable_end), out, encode_cache_miss);
      begin = end;
    }
  }

 private:
  const ByteBpeTokenizer& tokenizer_;
  WordCache cache_;
};

}  // namespace

std::string bytes_of_piece(const std::string& piece) {
  std::string bytes;
  for (char32_t character : code_points(piece)) {
    const int byte = byte_of_character(character);
    if (byte < 0) return piece;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

ByteBpeTokenizer::ByteBpeTokenizer(std::vector<Piece> pieces, std::vector<Merge> merges, const std::string& name,
                                   AddedTokens added_tokens)
    : pieces_(std::move(pieces)), merges_(std::move(merges)), added_tokens_(std::move(added_tokens)) {
  WordMap<int32_t> ids;
  ids.reserve(pieces_.size());
  for (size_t i = 0; i < pieces_.size(); ++i) {
    ids[pieces_[i].text] = static_cast<int32_t>(i);
    piece_bytes_.push_back(bytes_of_piece(pieces_[i].text));
  }
  auto id_of = [&](const std::string& piece, const std::string& owner) {
    const int32_t* id = ids.find(std::string_view(piece));
    if (id == nullptr)
      refuse_input(name, str("the piece '", piece, "' ", owner), "no such piece in the vocabulary",
                   "use the complete vocabulary and merges of one model");
    return *id;
  };
  end_of_text_id_ = id_of(kEndOfText, "that ends a text");
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    append_utf8(character_of_byte(static_cast<uint8_t>(byte)), character);
    token_of_byte_[static_cast<size_t>(byte)] = id_of(character, str("of the byte ", byte));
  }
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const Merge& m = merges_[rank];
    const std::string owner = str("of merge ", rank + 1);
    MergeTable::Entry& entry = merge_table_.find_or_insert(id_of(m.left, owner), id_of(m.right, owner));
    if (entry.joined_symbol >= 0)
      refuse_input(name, "distinct merges", str("'", m.left, " ", m.right, "' twice"),
                   "use the complete vocabulary and merges of one model");
    entry = {rank, id_of(m.left + m.right, owner)};
  }
}

std::unique_ptr<Encoder> ByteBpeTokenizer::encoder() const { return std::make_unique<ByteBpeEncoder>(*this); }

void ByteBpeTokenizer::encode_word(std::string_view word, std::vector<int32_t>& tokens) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (char byte : word) symbols.push_back({token_of_byte_[static_cast<unsigned char>(byte)], 1});
  merge_table_.apply(symbols, MergeOrder::one_by_one);
  for (const Symbol& s : symbols) tokens.push_back(s.id);
}

std::string ByteBpeTokenizer::decode(std::span<const int32_t> tokens) const {
  return decode_lines(tokens, end_of_text_id_, [&](int32_t token, bool, std::string& text) {
    text += piece_bytes_.at(static_cast<size_t>(token));
  });
}

std::string ByteBpeTokenizer::serialize() const {
  return serialize_vocabulary(kType, pieces_, &merges_, nullptr, added_tokens_);
}

std::string ByteBpeTokenizer::fingerprint_content() const { return serialize_vocabulary(kType, pieces_, &merges_); }

AddedTokens ByteBpeTokenizer::added_tokens() const {
  if (!added_tokens_.empty()) return added_tokens_;
  return {{end_of_text_id_, {kSpecialToken, "bos_token", "eos_token", "unk_token"}}};
}

std::unique_ptr<ByteBpeTokenizer> make_byte_bpe_tokenizer(std::vector<Piece> pieces, std::vector<Merge> merges,
                                                          const std::string& name, AddedTokens added_tokens) {
  return std::make_unique<ByteBpeTokenizer>(std::move(pieces), std::move(merges), name, std::move(added_tokens));
}

}  // namespace mh::text
