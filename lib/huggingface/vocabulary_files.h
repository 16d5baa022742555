// Functions with which the architectures write the special tokens of a vocabulary to tokenizer_config.json and
// config.json.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "io/json_config.h"
#include "text/tokenizer.h"

namespace mh::huggingface {

// Adds the added tokens with their flags, the token of each role, such as pad_token, and the additional special tokens
// to `config`, the contents of tokenizer_config.json.
void add_special_tokens(const text::AddedTokens& tokens, const std::vector<text::Piece>& pieces, io::Json& config);
// Returns the token ids of the roles, such as "pad_token", by the keys of config.json, such as "pad_token_id", in the
// order of `roles`; null for a role without a token.
io::Json token_ids(const text::AddedTokens& tokens, std::initializer_list<const char*> roles);

// Throws Error(input): the vocabulary of the model `name` does not have the type `expected`.
[[noreturn]] void refuse_vocabulary(const text::Tokenizer& tokenizer, const std::string& name,
                                    const std::string& expected);

}  // namespace mh::huggingface
