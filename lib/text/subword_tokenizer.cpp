// Tokenizer of subword-nmt, which splits space-separated words by BPE merges (merges.h). A piece ends in @@ unless it
// is the last piece of its word.
#include "text/merges.h"
#include "text/piece_tokenizer.h"
#include "text/word_cache.h"

namespace mh::text {

namespace {

constexpr std::string_view kContinuationMark = "@@";

class SubwordTokenizer : public PieceTokenizer {
 public:
  SubwordTokenizer(std::vector<Piece> pieces, std::vector<Merge> merges)
      : PieceTokenizer(std::move(pieces)), merges_(std::move(merges)), segmenter_(merges_) {}
  std::string type() const override { return "subword-nmt"; }
  std::string decode(std::span<const int32_t> tokens) const override {
    bool continues_word = false;  // the previous piece ends in @@
    return decode_lines(tokens, end_of_line_id(), [&](int32_t token, bool starts_line, std::string& text) {
      if (!starts_line && !continues_word) text += ' ';
      std::string_view piece = text_of(token);
      continues_word = piece.ends_with(kContinuationMark);
      if (continues_word) piece.remove_suffix(kContinuationMark.size());
      text += piece;
    });
  }
  size_t find_split(std::string_view text) const override {
    const size_t last_space = text.rfind(' ');
    return last_space == text.npos ? text.npos : last_space + 1;
  }
  std::string serialize() const override { return serialize_vocabulary(type(), pieces(), &merges_); }
  std::unique_ptr<Encoder> encoder() const override;

  void encode_word(std::string_view word, std::vector<int32_t>& out) const {
    for_each_piece(segmenter_, word, [&](std::string_view piece) { out.push_back(id_of(WordKey(piece))); });
  }

 private:
  std::vector<Merge> merges_;
  Segmenter segmenter_;
};

class SubwordEncoder : public Encoder {
 public:
  explicit SubwordEncoder(const SubwordTokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void encode(std::string_view text, std::vector<int32_t>& out) override {
    for_each_spaced_word(text, [&](std::string_view word) {
      cache_.encode(WordKey(word), out,
                    [&](std::string_view w, std::vector<int32_t>& ids) { tokenizer_.encode_word(w, ids); });
    });
  }

 private:
  const SubwordTokenizer& tokenizer_;
  WordCache cache_;
};

std::unique_ptr<Encoder> SubwordTokenizer::encoder() const { return std::make_unique<SubwordEncoder>(*this); }

}  // namespace

void for_each_piece(const Segmenter& segmenter, std::string_view word,
                    const std::function<void(std::string_view)>& visit) {
  std::string piece;
  size_t offset = 0;
  for (size_t size : segmenter.piece_lengths(word)) {
    piece = word.substr(offset, size);
    offset += size;
    if (offset < word.size()) piece += kContinuationMark;
    visit(piece);
  }
}

std::unique_ptr<Tokenizer> make_subword_tokenizer(std::vector<Piece> pieces, std::vector<Merge> merges) {
  return std::make_unique<SubwordTokenizer>(std::move(pieces), std::move(merges));
}

}  // namespace mh::text
