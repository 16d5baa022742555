// What writing the vocabularies of all architectures has in common.
#pragma once

#include <string>
#include <vector>

#include "io/config_file.h"
#include "io/tokenizer.h"

namespace mh::huggingface {

// Adds to tokenizer_config.json the added tokens with their flags, and the token of each role.
void give_tokens(const io::AddedTokens& tokens, const std::vector<io::Piece>& pieces, io::Json& config);
// The token number of a role as config.json has it, null where no token has the role.
io::Json token_id(const io::AddedTokens& tokens, const char* role);

[[noreturn]] void refuse_vocabulary(const io::Tokenizer& tokenizer, const std::string& name, const std::string& wanted);

}  // namespace mh::huggingface
