// Tokenizers of characters (Unicode code points) and of bytes. The line feed is a token like any other character.
#include <cstdio>

#include "base/unicode.h"
#include "text/piece_tokenizer.h"

namespace mh::text {

namespace {

// Returns the length in bytes of the valid UTF-8 sequence that starts with the byte `first`.
size_t sequence_length(char first) {
  auto c = static_cast<unsigned char>(first);
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

class CharTokenizer : public PieceTokenizer {
 public:
  explicit CharTokenizer(std::vector<Piece> pieces) : PieceTokenizer(std::move(pieces)) {}
  std::string type() const override { return "char"; }
  std::string piece(int32_t token) const override { return token == end_of_line_id() ? "\\n" : text_of(token); }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (int32_t token : tokens) text += text_of(token);
    return text;
  }
  size_t find_split(std::string_view text) const override {
    // Splits before the last character, of which `text` may contain only the first bytes.
    size_t n = text.size();
    while (n > 0 && is_continuation_byte(text[n - 1])) --n;
    return n == 0 ? text.npos : n - 1 == 0 ? text.npos : n - 1;
  }
  std::unique_ptr<Encoder> encoder() const override;
};

class CharEncoder : public Encoder {
 public:
  explicit CharEncoder(const CharTokenizer& tokenizer) : tokenizer_(tokenizer) {
    for (int c = 0; c < 128; ++c) ascii_tokens_[c] = tokenizer.id_of(WordKey(std::string(1, static_cast<char>(c))));
  }
  void encode(std::string_view text, std::vector<int32_t>& out) override {
    const char* end = text.data() + text.size();
    for (size_t i = 0; i < text.size();) {
      size_t length = sequence_length(text[i]);
      out.push_back(length == 1 ? ascii_tokens_[static_cast<unsigned char>(text[i])]
                                : tokenizer_.id_of(WordKey(text.substr(i, length), end)));
      i += length;
    }
  }

 private:
  const CharTokenizer& tokenizer_;
  int32_t ascii_tokens_[128];
};

std::unique_ptr<Encoder> CharTokenizer::encoder() const { return std::make_unique<CharEncoder>(*this); }

class ByteEncoder : public Encoder {
 public:
  void encode(std::string_view text, std::vector<int32_t>& out) override {
    for (char c : text) out.push_back(static_cast<unsigned char>(c));
  }
};

class ByteTokenizer : public Tokenizer {
 public:
  std::string type() const override { return "byte"; }
  int64_t size() const override { return 256; }
  int32_t end_of_line_id() const override { return '\n'; }
  int32_t unknown_id() const override { return -1; }
  std::string piece(int32_t token) const override {
    if (token == '\n') return "\\n";
    if (token > 0x20 && token < 0x7F) return std::string(1, static_cast<char>(token));
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(token));
    return text;
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    return std::string(tokens.begin(), tokens.end());
  }
  size_t find_split(std::string_view text) const override { return text.size(); }
  bool takes_any_bytes() const override { return true; }
  std::string serialize() const override { return serialize_vocabulary("byte", {}); }
  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<ByteEncoder>(); }
};

}  // namespace

std::unique_ptr<Tokenizer> make_char_tokenizer(std::vector<Piece> pieces) {
  return std::make_unique<CharTokenizer>(std::move(pieces));
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace mh::text
