// The model WordLevel of tokenizer.json: a word that is a piece is one token, and any other word is the unknown token.
#include "text/pipeline/model.h"

namespace mh::text {

namespace {

class WordLevelModel : public Model {
 public:
  WordLevelModel(const std::vector<std::string>& pieces, int32_t unknown_id) : ids_(pieces), unknown_id_(unknown_id) {}

  int32_t unknown_id() const override { return unknown_id_; }
  int32_t id_of(std::string_view piece) const override { return ids_.find(piece); }

  void encode_word(std::string_view word, Workspace&, std::vector<int32_t>& tokens) const override {
    const int32_t id = ids_.find(word);
    tokens.push_back(id < 0 ? unknown_id_ : id);
  }

 private:
  PieceIds ids_;
  int32_t unknown_id_;
};

}  // namespace

ParsedModel parse_wordlevel_model(const JsonNode& node, nlohmann::json& canonical) {
  const std::string unknown_piece = node.text("unk_token", "");
  canonical["unk_token"] = unknown_piece;
  ParsedModel result;
  result.pieces = parse_vocabulary(node.at("vocab"));
  const int32_t unknown_id = id_of_unknown(node, unknown_piece, result.pieces);
  result.model = std::make_unique<WordLevelModel>(result.pieces, unknown_id);
  return result;
}

}  // namespace mh::text
