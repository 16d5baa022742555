// Shared by the architectures: writing vocabularies.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "io/config_file.h"
#include "text/tokenizer.h"

namespace mh::huggingface {

// Adds to tokenizer_config.json the added tokens with their flags, and the token of each role.
void write_special_tokens(const text::AddedTokens& tokens, const std::vector<text::Piece>& pieces, io::Json& config);
// Returns the token numbers of roles ("pad_token") by the keys of config.json ("pad_token_id"), in this order; null for
// a role without a token.
io::Json token_ids(const text::AddedTokens& tokens, std::initializer_list<const char*> roles);

[[noreturn]] void refuse_vocabulary(const text::Tokenizer& tokenizer, const std::string& name,
                                    const std::string& expected);

}  // namespace mh::huggingface
