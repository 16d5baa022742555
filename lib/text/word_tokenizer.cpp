// Tokenizer of words, which are separated by spaces, tabs, \v and \f.
#include "text/piece_tokenizer.h"

namespace mh::text {

namespace {

class WordTokenizer : public PieceTokenizer {
 public:
  explicit WordTokenizer(std::vector<Piece> pieces) : PieceTokenizer(std::move(pieces)) {}
  std::string type() const override { return "word"; }
  std::string decode(std::span<const int32_t> tokens) const override {
    return decode_lines(tokens, end_of_line_id(), [&](int32_t token, bool starts_line, std::string& text) {
      if (!starts_line) text += ' ';
      text += text_of(token);
    });
  }
  size_t find_split(std::string_view text) const override {
    size_t last_space = text.find_last_of(" \t\v\f");
    return last_space == text.npos ? text.npos : last_space + 1;
  }
  std::unique_ptr<Encoder> encoder() const override;
};

class WordEncoder : public Encoder {
 public:
  explicit WordEncoder(const WordTokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void encode(std::string_view text, std::vector<int32_t>& out) override {
    WordKey words[kPrefetchedWords];
    size_t num_words = 0;
    auto look_up = [&] {
      for (size_t i = 0; i < num_words; ++i) out.push_back(tokenizer_.id_of(words[i]));
      num_words = 0;
    };
    for_each_word(text, [&](const WordKey& word) {
      tokenizer_.ids().prefetch(word);
      words[num_words++] = word;
      if (num_words == kPrefetchedWords) look_up();
    });
    look_up();
  }

 private:
  static constexpr size_t kPrefetchedWords = 32;  // words prefetched together, so that their memory accesses overlap
  const WordTokenizer& tokenizer_;
};

std::unique_ptr<Encoder> WordTokenizer::encoder() const { return std::make_unique<WordEncoder>(*this); }

}  // namespace

std::unique_ptr<Tokenizer> make_word_tokenizer(std::vector<Piece> pieces) {
  return std::make_unique<WordTokenizer>(std::move(pieces));
}

}  // namespace mh::text
