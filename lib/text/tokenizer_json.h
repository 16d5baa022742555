// Reads tokenizer.json of Hugging Face tokenizers for GPT-2 (byte-level BPE) and BERT (WordPiece). Every part of the
// pipeline that affects the tokens of a text is either supported or rejected with an error that names the part.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "text/bert_text.h"
#include "text/tokenizer.h"

namespace mh::text {

struct TokenizerJson {
  struct Token {
    uint64_t id;
    std::string piece;
    std::set<std::string> flags;  // a subset of kTokenFlags
  };
  NumberedPieces pieces;  // pieces of the entry model.vocab
  std::vector<Merge> merges;
  BertNormalisation normalisation;
  std::vector<Token> added_tokens;
};

// Parse `text`, the content of tokenizer.json. Throw Error(input), with the path of the file and the JSON path of the
// fault, for malformed content and unsupported settings.
TokenizerJson read_byte_bpe_json(const std::string& text, const std::string& path);
TokenizerJson read_wordpiece_json(const std::string& text, const std::string& path);

// Parses the JSON object of a tokenizer.json. Throws the errors of parse_json_object().
nlohmann::json parse_tokenizer_json(const std::string& text, const std::string& path);

// The following functions also serve the readers of vocab.json and tokenizer_config.json.

// Calls visit(id, piece) for each member of a JSON object that maps pieces to ids. Throws Error(input) for another JSON
// value, an empty object or an empty piece. `name` is the name of the object in messages.
void for_each_numbered_piece(const nlohmann::json& object, const std::string& name,
                             const std::function<void(uint64_t id, const std::string& piece)>& visit);
[[noreturn]] void refuse_repeated_id(const std::string& name, const std::string& piece, const std::string& other_piece);
// Returns the pieces of a JSON object that maps pieces to distinct ids. Throws the errors of both functions above.
NumberedPieces numbered_pieces(const nlohmann::json& object, const std::string& name);
// Returns the text of a token, given its JSON value in a configuration file: a string, or an object with the text as
// the entry "content". Returns "" for other values.
std::string token_text(const nlohmann::ordered_json& value);
// Returns the pieces in the order of their ids. Throws Error(input) for a gap in the ids.
std::vector<Piece> pieces_in_id_order(const NumberedPieces& pieces, const std::string& name);
// Returns the names of the flags (kTokenFlags) that are true in the JSON object of an added token.
template <class Json>
std::set<std::string> token_flags(const Json& token) {
  std::set<std::string> flags;
  for (const char* flag : kTokenFlags)
    if (const auto value = token.find(flag); value != token.end() && *value == Json(true)) flags.insert(flag);
  return flags;
}

}  // namespace mh::text
