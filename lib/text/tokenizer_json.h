// tokenizer.json of the package tokenizers, as far as GPT-2 and BERT use it: the byte-level pair encoding and
// WordPiece. Every part of the pipeline that changes the tokens of a text is either supported or an error with its
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
    std::set<std::string> flags;  // a subset of kTokenFlags
  };
  NumberedPieces pieces;  // without added tokens that the model lacks
  std::vector<Merge> merges;
  BertText text;
  std::vector<Token> added;
};

// Read tokenizer.json. Throw Error(input), with `path` and the setting.
TokenizerJson read_byte_bpe_json(const std::string& text, const std::string& path);
TokenizerJson read_wordpiece_json(const std::string& text, const std::string& path);

// Shared with the readers of vocab.json and tokenizer_config.json.
//
// Returns the pieces of an object from pieces to distinct numbers. Throws Error(input).

// The pieces of an object from pieces to numbers that all differ. Error(input).
NumberedPieces numbered_pieces(const nlohmann::json& object, const std::string& name);
// Returns the pieces as a list. Throws Error(input) for a number without a piece.
std::vector<Piece> in_order(const NumberedPieces& pieces, const std::string& name);
// Returns the flags of an added token that are true, for either JSON type.
template <class Token>
std::set<std::string> token_flags(const Token& token) {
  std::set<std::string> flags;
  for (const char* flag : kTokenFlags)
    if (const auto value = token.find(flag); value != token.end() && *value == Token(true)) flags.insert(flag);
  return flags;
}

}  // namespace mh::text
