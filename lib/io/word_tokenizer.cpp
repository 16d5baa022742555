// Words: what stands between spaces and tabs. Entry 0 is the end of a line, entry 1 the unknown word.
#include "base/error.h"
#include "io/tokenizer.h"
#include "io/word_map.h"

namespace mh::io {

namespace {

class WordTokenizer : public Tokenizer {
 public:
  explicit WordTokenizer(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
    ids_.reserve(pieces_.size());
    for (size_t i = 0; i < pieces_.size(); ++i) ids_[pieces_[i].text] = static_cast<int32_t>(i);
  }
  std::string type() const override { return "word"; }
  int64_t size() const override { return static_cast<int64_t>(pieces_.size()); }
  int32_t end_of_line() const override { return 0; }
  int32_t unknown() const override { return 1; }
  std::string piece(int32_t token) const override { return pieces_.at(static_cast<size_t>(token)).text; }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    bool first = true;
    for (int32_t token : tokens) {
      if (token == end_of_line()) {
        text += '\n';
        first = true;
        continue;
      }
      if (!first) text += ' ';
      first = false;
      text += pieces_.at(static_cast<size_t>(token)).text;
    }
    return text;
  }
  size_t cut(std::string_view text) const override {
    size_t last = text.find_last_of(" \t\v\f");
    return last == text.npos ? text.npos : last + 1;
  }
  std::string serialize() const override { return write_vocabulary("word", pieces_); }
  std::unique_ptr<Encoder> encoder() const override;

  const WordMap<int32_t>& ids() const { return ids_; }

 private:
  std::vector<Piece> pieces_;
  WordMap<int32_t> ids_;
};

class WordEncoder : public Encoder {
 public:
  explicit WordEncoder(const WordTokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void encode(std::string_view text, std::vector<int32_t>& out) override {
    WordKey words[kTogether];
    size_t n = 0;
    auto look_up = [&] {
      for (size_t i = 0; i < n; ++i) {
        const int32_t* id = tokenizer_.ids().find(words[i]);
        out.push_back(id != nullptr ? *id : tokenizer_.unknown());
      }
      n = 0;
    };
    each_word(text, [&](const WordKey& word) {
      tokenizer_.ids().prefetch(word);
      words[n++] = word;
      if (n == kTogether) look_up();
    });
    look_up();
  }

 private:
  static constexpr size_t kTogether = 32;  // words looked up at once
  const WordTokenizer& tokenizer_;
};

std::unique_ptr<Encoder> WordTokenizer::encoder() const { return std::make_unique<WordEncoder>(*this); }

}  // namespace

std::unique_ptr<Tokenizer> make_word_tokenizer(std::vector<Piece> pieces) {
  return std::make_unique<WordTokenizer>(std::move(pieces));
}

}  // namespace mh::io
