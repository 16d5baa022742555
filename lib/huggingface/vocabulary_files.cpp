// Writes the special tokens of vocabularies for transformers.
#include "huggingface/vocabulary_files.h"

#include "base/error.h"
#include "base/text.h"

namespace mh::huggingface {

void add_special_tokens(const text::AddedTokens& tokens, const std::vector<text::Piece>& pieces, io::Json& config) {
  for (const auto& [id, attributes] : tokens) {
    const std::string& piece = pieces.at(static_cast<size_t>(id)).text;
    io::Json& token = config["added_tokens_decoder"][std::to_string(id)];
    token["content"] = piece;
    for (const char* flag : text::kTokenFlags) token[flag] = attributes.count(flag) > 0;
    for (const char* role : text::kTokenRoles)
      if (attributes.count(role) > 0) config[role] = piece;
    if (attributes.count(text::kAdditionalSpecialTokens) > 0) config[text::kAdditionalSpecialTokens].push_back(piece);
  }
}

io::Json token_ids(const text::AddedTokens& tokens, std::initializer_list<const char*> roles) {
  io::Json ids = io::Json::object();
  for (const char* role : roles) {
    const int64_t id = text::token_id_of_role(tokens, role);
    ids[str(role, "_id")] = id < 0 ? io::Json() : io::Json(id);
  }
  return ids;
}

void refuse_vocabulary(const text::Tokenizer& tokenizer, const std::string& name, const std::string& expected) {
  refuse_input(name, "a vocabulary of the type " + expected + ", which transformers requires for this architecture",
               "a vocabulary of the type " + tokenizer.type(), "keep the model as a multihead checkpoint");
}

}  // namespace mh::huggingface
