// tokenizer.json of the package tokenizers, as far as GPT-2 and BERT use it: the byte-level pair encoding and
// WordPiece. Every part of the pipeline that changes which tokens a text has is either understood or refused by its
// name.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "text/bert_text.h"
#include "text/tokenizer.h"

namespace mh::text {

struct TokenizerJson {
  struct Token {
    uint64_t number;
    std::string piece;
    std::set<std::string> flags;  // of kTokenFlags
  };
  NumberedPieces pieces;  // without added tokens that the model lacks
  std::vector<Merge> merges;
  BertText text;
  std::vector<Token> added;
};

// Both throw Error(input), which names `path` and the setting.
TokenizerJson read_byte_bpe_json(const std::string& text, const std::string& path);
TokenizerJson read_wordpiece_json(const std::string& text, const std::string& path);

// Shared with the readers of vocab.json and tokenizer_config.json.

// The pieces of an object from pieces to numbers that all differ. Error(input).
NumberedPieces numbered_pieces(const nlohmann::json& object, const std::string& name);
// The pieces as a list. Error(input) for a number that no piece has.
std::vector<Piece> in_order(const NumberedPieces& pieces, const std::string& name);
// The flags of an added token that are true; of either kind of JSON.
template <class Token>
std::set<std::string> token_flags(const Token& token) {
  std::set<std::string> flags;
  for (const char* flag : kTokenFlags)
    if (const auto value = token.find(flag); value != token.end() && *value == Token(true)) flags.insert(flag);
  return flags;
}

}  // namespace mh::text
