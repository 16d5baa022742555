// Tokens that a Hugging Face model folder adds to its vocabulary, or to which it gives a role such as pad_token.
// multihead's tokenizers do not recognise added tokens in text, but store the tokens, so that converting a model back
// to a folder restores the tokens.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace mh::text {

// The attributes of each added token, by token id: flags and roles, named as in transformers, and kAppended.
using AddedTokens = std::map<int64_t, std::set<std::string>>;

// Attribute of a token that only the list of added tokens contains, not the vocabulary (vocab.json, vocab.txt, or
// model.vocab in tokenizer.json).
constexpr const char* kAppended = "appended";
constexpr const char* kSpecialToken = "special";
constexpr const char* kTokenFlags[] = {kSpecialToken, "normalized", "lstrip", "rstrip", "single_word"};
constexpr const char* kTokenRoles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
constexpr const char* kAdditionalSpecialTokens = "additional_special_tokens";  // role that several tokens may have

// Returns the lowest id of a token with the role `role`; -1 if there is none.
int64_t token_id_of_role(const AddedTokens& tokens, std::string_view role);

// Appends to `text` one line for each token, in the format of a vocabulary file (mh-vocab(5)): the token id and the
// attributes, separated by spaces.
void append_added_tokens(const AddedTokens& tokens, std::string& text);
// Parses a line in the format of append_added_tokens() and adds its token to `tokens`. Returns false for a malformed
// line, an unknown or repeated attribute, an id outside [0, num_entries), or an id not above all ids in `tokens`.
bool parse_added_token(std::string_view line, uint64_t num_entries, AddedTokens& tokens);

}  // namespace mh::text
