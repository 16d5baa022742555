// Tokens that a folder of the package transformers adds to its vocabulary or gives a role, such as padding. Our
// tokenizers never produce them from text; they are stored so that a folder written from a model has them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace mh::text {

// Attributes by token number: flags and roles with the names of transformers, and kAppended.
using AddedTokens = std::map<int64_t, std::set<std::string>>;

constexpr const char* kAppended = "appended";  // the vocabulary itself lacks the token
constexpr const char* kSpecialToken = "special";
constexpr const char* kTokenFlags[] = {kSpecialToken, "normalized", "lstrip", "rstrip", "single_word"};
constexpr const char* kTokenRoles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
constexpr const char* kMoreSpecialTokens = "additional_special_tokens";  // role of several tokens

// Returns the number of the token that has a role, or -1.
int64_t token_of_role(const AddedTokens& tokens, std::string_view role);

// Appends the lines of a vocabulary file, mhv(5): a number and attributes with spaces between.
void write_added_tokens(const AddedTokens& tokens, std::string& text);
// Parses a line and adds its token. Returns false for another form, an unknown attribute, or a number that is not below
// `entries` or not above those before it.
bool parse_added_token(std::string_view line, uint64_t entries, AddedTokens& tokens);

}  // namespace mh::text
