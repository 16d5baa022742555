// Models of tokenizer.json, which convert a word to tokens: BPE, WordPiece and Unigram.
#pragma once

#include <cstdint>
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
    std::vector<std::string_view> pieces;
  };
  virtual ~Model() = default;
  // Appends the tokens of `word`, which is not empty.
  virtual void encode_word(std::string_view word, Workspace& workspace, std::vector<int32_t>& tokens) const = 0;
  // Returns the token of unknown text; -1: none.
  virtual int32_t unknown_id() const = 0;
};

// A model with its vocabulary.
struct ParsedModel {
  std::unique_ptr<Model> model;
  NumberedPieces pieces;  // pieces by token id; ids may have gaps
};

// Returns the model of the entry `model`, and writes its settings, without the entries vocab and merges, in one form to
// `canonical`. Throws Error(input) for a
// type or a setting that is not supported, and for pieces and merges that do not fit together.
ParsedModel parse_model(const JsonNode& node, nlohmann::json& canonical);
// The same for one type; parse_model() calls these functions.
ParsedModel parse_bpe_model(const JsonNode& node, nlohmann::json& canonical);
ParsedModel parse_wordpiece_model(const JsonNode& node, nlohmann::json& canonical);
ParsedModel parse_unigram_model(const JsonNode& node, nlohmann::json& canonical);

// Returns the pieces of an entry `vocab` that maps pieces to ids. Throws Error(input) for ids that are repeated, or
// higher than twice the number of pieces plus 65536, which bounds the memory that a damaged file takes.
NumberedPieces parse_vocabulary(const JsonNode& node);
// Returns the piece of a byte in vocabularies with byte_fallback, such as <0x0A>.
std::string byte_fallback_piece(uint8_t byte);
// Returns the ids of the 256 pieces of bytes; -1 for a byte without a piece.
std::vector<int32_t> byte_fallback_ids(const WordMap<int32_t>& ids);
// Returns the ids of pieces.
WordMap<int32_t> ids_of_pieces(const NumberedPieces& pieces);

}  // namespace mh::text
