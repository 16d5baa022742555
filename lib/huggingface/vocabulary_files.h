// What reading and writing the vocabularies of all architectures has in common.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "huggingface/config_file.h"
#include "io/tokenizer.h"

namespace mh::huggingface {

// Error(input) naming the first that is not there; of a folder with nothing but tokenizer.json it says how to make
// them.
void require_files(const std::string& folder, const std::vector<std::string>& names);

// Tokens behind the vocabulary by number, of added_tokens.json and of tokenizer_config.json. Error(input).
std::map<uint64_t, std::string> added_tokens(const std::string& folder, const ConfigFile& tokenizer_config);

[[noreturn]] void refuse_vocabulary(const io::Tokenizer& tokenizer, const std::string& name, const std::string& wanted);

}  // namespace mh::huggingface
