// Writes vocabularies and their special tokens for transformers.
#include "huggingface/vocabulary_files.h"

#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "text/encoder_vocabulary.h"
#include "text/json_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"

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

std::map<std::string, std::string> byte_bpe_files(const text::ByteBpeTokenizer& tokenizer, int64_t max_length) {
  io::Json config{{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", false}, {"model_max_length", max_length}};
  const text::AddedTokens tokens = tokenizer.added_tokens();
  add_special_tokens(tokens, tokenizer.pieces(), config);
  text::NumberedPieces pieces;
  for (size_t i = 0; i < tokenizer.pieces().size(); ++i) {
    const auto token = tokens.find(static_cast<int64_t>(i));
    if (token == tokens.end() || token->second.count(text::kAppended) == 0) pieces[i] = tokenizer.pieces()[i].text;
  }
  return {{"vocab.json", text::serialize_byte_bpe_pieces(pieces)},
          {"merges.txt", text::serialize_byte_bpe_merges(tokenizer.merges())},
          {"tokenizer_config.json", config.dump(2) + "\n"}};
}

namespace {

// The tokens around a text; -1: none.
struct SurroundingIds {
  int32_t begin = -1, end = -1;
};

// Returns nullopt for a vocabulary that is neither tokenizer-json nor sentencepiece.
std::optional<SurroundingIds> surrounding_ids(const text::Tokenizer& tokenizer) {
  if (const auto* json = dynamic_cast<const text::JsonTokenizer*>(&tokenizer))
    return SurroundingIds{json->begin_id(), json->end_id()};
  if (const auto* sentencepiece = dynamic_cast<const text::SentencePieceTokenizer*>(&tokenizer))
    return SurroundingIds{sentencepiece->begin_id(), sentencepiece->end_id()};
  return std::nullopt;
}

}  // namespace

io::Json token_ids(const text::Tokenizer& tokenizer) {
  if (const auto* byte_bpe = dynamic_cast<const text::ByteBpeTokenizer*>(&tokenizer))
    return token_ids(byte_bpe->added_tokens(), {"bos_token", "eos_token", "pad_token"});
  const auto ids = surrounding_ids(tokenizer);
  io::Json result = io::Json::object();
  if (!ids) return result;
  result["bos_token_id"] = ids->begin < 0 ? io::Json() : io::Json(ids->begin);
  result["eos_token_id"] = ids->end < 0 ? io::Json() : io::Json(ids->end);
  return result;
}

std::map<std::string, std::string> vocabulary_files(const text::Tokenizer& tokenizer, int64_t max_length,
                                                    const std::string& name) {
  if (const auto* byte_bpe = dynamic_cast<const text::ByteBpeTokenizer*>(&tokenizer))
    return byte_bpe_files(*byte_bpe, max_length);
  const auto ids = surrounding_ids(tokenizer);
  if (!ids)
    refuse_vocabulary(tokenizer, name,
                      str(text::JsonTokenizer::kType, ", ", text::ByteBpeTokenizer::kType, " or ",
                          text::SentencePieceTokenizer::kType));
  io::Json roles = io::Json::object();
  if (ids->begin >= 0) roles["bos_token"] = tokenizer.piece(ids->begin);
  if (ids->end >= 0) roles["eos_token"] = tokenizer.piece(ids->end);
  if (tokenizer.unknown_id() >= 0) roles["unk_token"] = tokenizer.piece(tokenizer.unknown_id());
  io::Json config{{"model_max_length", max_length}, {"clean_up_tokenization_spaces", false}};
  config.update(roles);
  std::map<std::string, std::string> files;
  if (const auto* sentencepiece = dynamic_cast<const text::SentencePieceTokenizer*>(&tokenizer)) {
    files["tokenizer.model"] = sentencepiece->model();
    config["tokenizer_class"] = "LlamaTokenizer";
    config["add_bos_token"] = ids->begin >= 0;
    config["add_eos_token"] = false;
  } else {
    files["tokenizer.json"] = text::tokenizer_json_text(tokenizer);
    // The class that uses tokenizer.json without changes; its post-processor puts the token before a text.
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
  }
  files["tokenizer_config.json"] = config.dump(2) + "\n";
  files["special_tokens_map.json"] = roles.dump(2) + "\n";
  return files;
}

io::Json encoder_token_ids(const text::Tokenizer& tokenizer) {
  io::Json result = io::Json::object();
  if (dynamic_cast<const text::JsonTokenizer*>(&tokenizer) == nullptr) return result;
  const text::EncoderTokens tokens = text::encoder_tokens(tokenizer, "tokenizer.json");
  result["bos_token_id"] = tokens.begin_id;
  result["eos_token_id"] = tokens.separator_id;
  result["pad_token_id"] = tokens.padding_id;
  return result;
}

std::map<std::string, std::string> encoder_vocabulary_files(const text::Tokenizer& tokenizer, int64_t max_length,
                                                            const std::string& name) {
  if (dynamic_cast<const text::JsonTokenizer*>(&tokenizer) == nullptr)
    refuse_vocabulary(tokenizer, name, text::JsonTokenizer::kType);
  const text::EncoderTokens tokens = text::encoder_tokens(tokenizer, name);
  const io::Json roles{{"cls_token", tokenizer.piece(tokens.begin_id)},
                       {"sep_token", tokenizer.piece(tokens.separator_id)},
                       {"pad_token", tokenizer.piece(tokens.padding_id)},
                       {"mask_token", tokenizer.piece(tokens.mask_id)}};
  std::map<std::string, std::string> files = vocabulary_files(tokenizer, max_length, name);
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    io::Json content = io::Json::parse(files.at(file));
    content.update(roles);
    // The models have no segments, and ModernBERT refuses an input of segments.
    if (file == std::string_view("tokenizer_config.json"))
      content["model_input_names"] = {"input_ids", "attention_mask"};
    files[file] = content.dump(2) + "\n";
  }
  return files;
}

void refuse_vocabulary(const text::Tokenizer& tokenizer, const std::string& name, const std::string& expected) {
  refuse_input(name, "a vocabulary of the type " + expected + ", which transformers requires for this architecture",
               "a vocabulary of the type " + tokenizer.type(), "keep the model as a multihead checkpoint");
}

}  // namespace mh::huggingface
