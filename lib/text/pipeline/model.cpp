#include "text/pipeline/model.h"

#include <algorithm>
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
    else if (node.at("vocab").value->is_object() && !node.at("unk_token").empty()) type = "WordLevel";
  }
  canonical["type"] = type;
  if (type == "BPE") return parse_bpe_model(node, canonical);
  if (type == "WordPiece") return parse_wordpiece_model(node, canonical);
  if (type == "WordLevel") return parse_wordlevel_model(node, canonical);
  if (type == "Unigram") return parse_unigram_model(node, canonical);
  node.refuse("a model of the type BPE, WordPiece, WordLevel or Unigram",
              type.empty() ? str("the type ", abbreviate(*node.at("type").value)) : type, kUseSupportedType);
}

std::vector<std::string> parse_vocabulary(const JsonNode& node) {
  uint64_t max_id = 0;
  for_each_numbered_piece(*node.value, node.path,
                          [&](uint64_t id, const std::string&) { max_id = std::max(max_id, id); });
  const uint64_t limit = 2 * node.value->size() + 65536;
  if (max_id > limit)
    node.refuse(str("ids of at most ", limit, ", twice the number of pieces plus 65536"), str("the id ", max_id));
  std::vector<std::string> pieces(max_id + 1);
  for_each_numbered_piece(*node.value, node.path, [&](uint64_t id, const std::string& piece) {
    if (!pieces[id].empty()) refuse_repeated_id(node.path, pieces[id], piece);
    pieces[id] = piece;
  });
  return pieces;
}

int32_t id_of_unknown(const JsonNode& node, const std::string& piece, const std::vector<std::string>& pieces) {
  const auto unknown = std::find(pieces.begin(), pieces.end(), piece);
  if (piece.empty() || unknown == pieces.end())
    node.at("unk_token").refuse("a piece of the vocabulary", "'" + piece + "'");
  return static_cast<int32_t>(unknown - pieces.begin());
}

std::string byte_fallback_piece(uint8_t byte) {
  char text[8];
  std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte));
  return text;
}

std::vector<int32_t> byte_fallback_ids(const std::function<int32_t(std::string_view piece)>& id_of) {
  std::vector<int32_t> result;
  for (int byte = 0; byte < 256; ++byte) result.push_back(id_of(byte_fallback_piece(static_cast<uint8_t>(byte))));
  return result;
}

PieceIds::PieceIds(const std::vector<std::string>& pieces) {
  const auto num_gaps = std::count(pieces.begin(), pieces.end(), "");
  ids_.reserve(pieces.size() - static_cast<size_t>(num_gaps));
  for (size_t id = 0; id < pieces.size(); ++id)
    if (!pieces[id].empty()) ids_[WordKey(pieces[id])] = static_cast<int32_t>(id);
}

}  // namespace mh::text
