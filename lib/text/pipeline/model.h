// Models of tokenizer.json, which convert a word to tokens: BPE, WordPiece, WordLevel and Unigram.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_node.h"
#include "text/merge_table.h"
#include "text/pipeline/unicode16.h"
#include "text/tokenizer.h"
#include "text/word_map.h"

namespace mh::text {

class Model {
 public:
  // Memory of encode_word(), which a caller that encodes many words reuses.
  struct Workspace {
    struct PathNode {  // the best segmentation of the bytes before a position (Unigram)
      double score;
      uint32_t begin;  // start of the last piece; UINT32_MAX: no segmentation ends here
      int32_t id;
    };
    std::string text;
    std::vector<Symbol> symbols;
    MergeTable::Workspace merges;
    std::vector<PathNode> path;
    struct Segment {
      std::string_view text;
      int32_t id;
    };
    std::vector<Segment> segments;  // the best segmentation, from the last piece to the first (Unigram)
  };
  virtual ~Model() = default;
  // Appends the tokens of `word`, which is not empty.
  virtual void encode_word(std::string_view word, Workspace& workspace, std::vector<int32_t>& tokens) const = 0;
  // Returns the token of unknown text; -1: none.
  virtual int32_t unknown_id() const = 0;
  // Returns the token of `piece`, which is not empty; -1: no such piece.
  virtual int32_t id_of(std::string_view piece) const = 0;
};

// A model with its vocabulary.
struct ParsedModel {
  std::unique_ptr<Model> model;
  std::vector<std::string> pieces;  // by token id; "": no piece has this id
};

// Returns the model of the entry `model`, and writes its settings, without the entries vocab and merges, in one form to
// `canonical`. Throws Error(input) for a type or a setting that is not supported, and for pieces and merges that do not
// fit together.
ParsedModel parse_model(const JsonNode& node, nlohmann::json& canonical);
// The same for one type; parse_model() calls these functions.
ParsedModel parse_bpe_model(const JsonNode& node, nlohmann::json& canonical);
ParsedModel parse_wordpiece_model(const JsonNode& node, nlohmann::json& canonical);
ParsedModel parse_wordlevel_model(const JsonNode& node, nlohmann::json& canonical);
ParsedModel parse_unigram_model(const JsonNode& node, nlohmann::json& canonical);

// Returns the pieces of an entry `vocab` that maps pieces to ids. Throws Error(input) for ids that are repeated, or
// higher than twice the number of pieces plus 65536, which bounds the memory that a damaged file takes.
std::vector<std::string> parse_vocabulary(const JsonNode& node);
// Returns the id of `piece`, the entry `unk_token` of the model `node`. Throws Error(input) if it is no piece.
int32_t id_of_unknown(const JsonNode& node, const std::string& piece, const std::vector<std::string>& pieces);
// Returns the piece of a byte in vocabularies with byte_fallback, such as <0x0A>.
std::string byte_fallback_piece(uint8_t byte);
// Returns the ids of the 256 pieces of bytes; -1 for a byte without a piece. `id_of` is Model::id_of().
std::vector<int32_t> byte_fallback_ids(const std::function<int32_t(std::string_view piece)>& id_of);
// The ids of pieces, for Model::id_of().
class PieceIds {
 public:
  // `pieces[id]` is the piece of a token; "": no piece.
  explicit PieceIds(const std::vector<std::string>& pieces);
  // Returns the id of a piece; -1: no such piece.
  int32_t find(std::string_view piece) const {
    const int32_t* id = ids_.find(WordKey(piece));
    return id == nullptr ? -1 : *id;
  }

 private:
  WordMap<int32_t> ids_;
};

}  // namespace mh::text
