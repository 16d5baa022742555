// Functions with which the architectures write the vocabulary files of a folder, and the special tokens of a vocabulary
// to tokenizer_config.json and config.json.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "io/json_config.h"
#include "text/byte_bpe.h"
#include "text/tokenizer.h"

namespace mh::huggingface {

// Adds the added tokens with their flags, the token of each role, such as pad_token, and the additional special tokens
// to `config`, the contents of tokenizer_config.json.
void add_special_tokens(const text::AddedTokens& tokens, const std::vector<text::Piece>& pieces, io::Json& config);
// Returns the token ids of the roles, such as "pad_token", by the keys of config.json, such as "pad_token_id", in the
// order of `roles`; null for a role without a token.
io::Json token_ids(const text::AddedTokens& tokens, std::initializer_list<const char*> roles);

// Returns the vocabulary files of GPT-2 by file name: vocab.json, merges.txt and tokenizer_config.json. `max_length`:
// maximum number of tokens of a text.
std::map<std::string, std::string> byte_bpe_files(const text::ByteBpeTokenizer& tokenizer, int64_t max_length);

// The next two functions are for architectures that read the tokenizer of any family (text::read_tokenizer_folder).

// Returns the ids of the tokens before and after a text, and of the padding token if the vocabulary has one, by the
// keys of config.json; null for a token that the vocabulary does not state. Returns an empty object for a vocabulary of
// a type that vocabulary_files() does not write.
io::Json token_ids(const text::Tokenizer& tokenizer);
// Returns the vocabulary files by file name, for a vocabulary of the type tokenizer-json (tokenizer.json with
// tokenizer_config.json and special_tokens_map.json, which name the tokens around a text), byte-bpe (byte_bpe_files()),
// or sentencepiece (tokenizer.model and both files). `name`: name of the model. Throws Error(input) for another type.
std::map<std::string, std::string> vocabulary_files(const text::Tokenizer& tokenizer, int64_t max_length,
                                                    const std::string& name);

// The next two functions are for encoders with a vocabulary of the type tokenizer-json (text::encoder_tokens()).

// Returns the ids of the tokens of an encoder by the keys of config.json; an empty object for a vocabulary of another
// type.
io::Json encoder_token_ids(const text::Tokenizer& tokenizer);
// Returns the files of vocabulary_files() with the tokens of an encoder (cls_token, sep_token, pad_token, mask_token)
// added to tokenizer_config.json and special_tokens_map.json. `name`: name of the model. Throws Error(input) for a
// vocabulary of another type or without the tokens of an encoder.
std::map<std::string, std::string> encoder_vocabulary_files(const text::Tokenizer& tokenizer, int64_t max_length,
                                                            const std::string& name);

// Throws Error(input): the vocabulary of the model `name` does not have the type `expected`.
[[noreturn]] void refuse_vocabulary(const text::Tokenizer& tokenizer, const std::string& name,
                                    const std::string& expected);

}  // namespace mh::huggingface
