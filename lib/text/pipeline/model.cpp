#include "text/pipeline/model.h"

#include <cstdio>

#include "text/pipeline/normalizer.h"
#include "text/tokenizer_json.h"

namespace mh::text {

ParsedModel parse_model(const JsonNode& node, nlohmann::json& canonical) {
  std::string type = node.type();
  // Files of old versions of Hugging Face tokenizers lack the entry type.
  if (node.at("type").empty()) {
    if (!node.at("merges").empty()) type = "BPE";
    else if (!node.at("max_input_chars_per_word").empty()) type = "WordPiece";
    else if (!node.at("unk_id").empty()) type = "Unigram";
  }
  canonical["type"] = type;
  if (type == "BPE") return parse_bpe_model(node, canonical);
  if (type == "WordPiece") return parse_wordpiece_model(node, canonical);
  if (type == "Unigram") return parse_unigram_model(node, canonical);
  node.refuse("a model of the type BPE, WordPiece or Unigram",
              type.empty() ? str("the type ", abbreviate(*node.at("type").value)) : type, kUseSupportedType);
}

NumberedPieces parse_vocabulary(const JsonNode& node) {
  NumberedPieces pieces = numbered_pieces(*node.value, node.path);
  if (const uint64_t max_id = pieces.rbegin()->first; max_id > 2 * pieces.size() + 65536)
    node.refuse(str("ids of at most ", 2 * pieces.size() + 65536, ", twice the number of pieces plus 65536"),
                str("the id ", max_id));
  return pieces;
}

std::string byte_fallback_piece(uint8_t byte) {
  char text[8];
  std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte));
  return text;
}

std::vector<int32_t> byte_fallback_ids(const WordMap<int32_t>& ids) {
  std::vector<int32_t> result;
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t* id = ids.find(WordKey(byte_fallback_piece(static_cast<uint8_t>(byte))));
    result.push_back(id == nullptr ? -1 : *id);
  }
  return result;
}

WordMap<int32_t> ids_of_pieces(const NumberedPieces& pieces) {
  WordMap<int32_t> ids;
  ids.reserve(pieces.size());
  for (const auto& [id, piece] : pieces) ids[WordKey(piece)] = static_cast<int32_t>(id);
  return ids;
}

}  // namespace mh::text
