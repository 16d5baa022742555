// The model WordPiece of tokenizer.json: a word is split from left to right into the longest matching pieces. The type
// wordpiece (text/wordpiece.h) does the same with the settings of BERT, and in addition returns byte ranges.
#include <algorithm>

#include "base/unicode.h"
#include "text/pipeline/model.h"
#include "text/pipeline/normalizer.h"

namespace mh::text {

namespace {

class WordPieceModel : public Model {
 public:
  WordPieceModel(const std::vector<std::string>& pieces, std::string prefix, int32_t unknown_id, size_t max_characters)
      : ids_(pieces), prefix_(std::move(prefix)), unknown_id_(unknown_id), max_characters_(max_characters) {
    for (const std::string& piece : pieces) max_piece_bytes_ = std::max(max_piece_bytes_, piece.size());
  }

  int32_t unknown_id() const override { return unknown_id_; }
  int32_t id_of(std::string_view piece) const override { return ids_.find(piece); }

  void encode_word(std::string_view word, Workspace& workspace, std::vector<int32_t>& tokens) const override {
    const auto num_characters =
        static_cast<size_t>(std::count_if(word.begin(), word.end(), [](char c) { return !is_continuation_byte(c); }));
    if (num_characters > max_characters_) return tokens.push_back(unknown_id_);
    const size_t first_token = tokens.size();
    for (size_t begin = 0; begin < word.size();) {
      std::string& piece = workspace.text;
      piece = begin > 0 ? prefix_ : std::string();
      const size_t prefix_size = piece.size();
      size_t end = std::min(word.size(), begin + max_piece_bytes_);
      while (end < word.size() && is_continuation_byte(word[end])) --end;
      piece += word.substr(begin, end - begin);
      int32_t id = -1;
      while (piece.size() > prefix_size && (id = ids_.find(piece)) < 0) {
        while (is_continuation_byte(piece.back())) piece.pop_back();
        piece.pop_back();
      }
      if (id < 0) {
        tokens.resize(first_token);
        return tokens.push_back(unknown_id_);
      }
      tokens.push_back(id);
      begin += piece.size() - prefix_size;
    }
  }

 private:
  PieceIds ids_;
  std::string prefix_;
  int32_t unknown_id_;
  size_t max_characters_, max_piece_bytes_ = 0;
};

}  // namespace

ParsedModel parse_wordpiece_model(const JsonNode& node, nlohmann::json& canonical) {
  const std::string unknown_piece = node.text("unk_token", "[UNK]");
  const std::string prefix = node.text("continuing_subword_prefix", "##");
  const int64_t max_characters = node.count("max_input_chars_per_word", 100);
  canonical.update({{"unk_token", unknown_piece},
                    {"continuing_subword_prefix", prefix},
                    {"max_input_chars_per_word", max_characters}});
  ParsedModel result;
  result.pieces = parse_vocabulary(node.at("vocab"));
  const int32_t unknown_id = id_of_unknown(node, unknown_piece, result.pieces);
  result.model =
      std::make_unique<WordPieceModel>(result.pieces, prefix, unknown_id, static_cast<size_t>(max_characters));
  return result;
}

}  // namespace mh::text
