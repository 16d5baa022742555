#include "text/folder_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "io/json_config.h"
#include "text/json_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tokenizer_json.h"

namespace mh::text {

namespace {

constexpr const char* kCopyTokenizerJson = "add the tokenizer.json of the model to the folder";

// Tokenizers of transformers that put bos_token in front of a text unless add_bos_token of tokenizer_config.json is
// false.
constexpr const char* kBeginTokenClasses[] = {"LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizer",
                                              "GemmaTokenizerFast"};

// Tokenizers of transformers whose files may be vocab.json and merges.txt without tokenizer.json.
constexpr const char* kGpt2Classes[] = {"GPT2Tokenizer", "GPT2TokenizerFast"};
constexpr const char* kQwen2Classes[] = {"Qwen2Tokenizer", "Qwen2TokenizerFast"};
// The expression by which Qwen2Tokenizer divides a text into words, after the normalisation NFC.
constexpr const char* kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

template <size_t N>
bool is_one_of(const char* const (&names)[N], const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool puts_token_in_front(const std::string& tokenizer_class) { return is_one_of(kBeginTokenClasses, tokenizer_class); }

std::optional<std::string> read_if_exists(const std::string& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  return read_regular_file(path);
}

// Returns the type of the tokenizer of a tokenizer.json: byte-bpe or wordpiece if this type gives the same tokens,
// otherwise tokenizer-json.
std::string type_of_tokenizer_json(const std::string& text, const std::string& name) {
  // Each reader of a type refuses what the type cannot represent. Only special added tokens are text to both types.
  const auto is_readable = [&](const auto& read) {
    try {
      const TokenizerJson json = read(text, name);
      return std::all_of(json.added_tokens.begin(), json.added_tokens.end(),
                         [](const TokenizerJson::Token& token) { return token.flags.count(kSpecialToken) > 0; });
    } catch (const Error&) {
      return false;
    }
  };
  if (text.find("\"ByteLevel\"") != text.npos && text.find(kEndOfText) != text.npos && is_readable(read_byte_bpe_json))
    return ByteBpeTokenizer::kType;
  if (text.find("\"BertNormalizer\"") != text.npos && is_readable(read_wordpiece_json))
    return WordPieceTokenizer::kType;
  return JsonTokenizer::kType;
}

class FolderReader {
 public:
  explicit FolderReader(const std::string& folder)
      : folder_(folder),
        config_(io::JsonConfig::read_if_exists(folder + "/tokenizer_config.json")),
        special_tokens_map_(io::JsonConfig::read_if_exists(folder + "/special_tokens_map.json")) {}

  std::unique_ptr<ByteBpeTokenizer> read_byte_bpe() {
    config_.require("add_prefix_space", false, {false},
                    "use a model with this setting: multihead encodes text without a leading space");
    const std::string json_path = path("tokenizer.json"), pieces_path = path("vocab.json"),
                      merges_path = path("merges.txt");
    std::vector<Merge> merges;
    if (const auto json_text = read_if_exists(json_path)) {
      TokenizerJson json = read_byte_bpe_json(*json_text, json_path);
      if (const auto file_text = read_if_exists(pieces_path))
        require_equal_pieces(json.pieces, read_numbered_pieces(*file_text, pieces_path), pieces_path);
      if (const auto file_text = read_if_exists(merges_path))
        if (read_byte_bpe_merges(*file_text, merges_path) != json.merges)
          refuse_difference(merges_path, "the merges", "different merges");
      merges = std::move(json.merges);
      store(std::move(json));
    } else {
      require_files({"vocab.json", "merges.txt"});
      if (const std::string name = tokenizer_class(); !is_one_of(kGpt2Classes, name))
        refuse_tokenizer_class(name, {std::begin(kGpt2Classes), std::end(kGpt2Classes)});
      pieces_ = read_numbered_pieces(read_regular_file(pieces_path), pieces_path);
      merges = read_byte_bpe_merges(read_regular_file(merges_path), merges_path);
    }
    add_listed_tokens();
    AddedTokens default_tokens;
    if (const int64_t end_of_text = id_of(kEndOfText); end_of_text >= 0)
      default_tokens = {{end_of_text, {kSpecialToken, "bos_token", "eos_token", "unk_token"}}};
    assign_roles(default_tokens);
    if (const int64_t end_of_text = token_id_of_role(added_tokens_, "eos_token");
        end_of_text >= 0 && default_tokens.count(end_of_text) == 0)
      log_warning(str(folder_, ": eos_token is ", pieces_.at(static_cast<uint64_t>(end_of_text)), ", but ", kEndOfText,
                      " ends each text in multihead"));
    warn_about_plain_tokens();
    return make_byte_bpe_tokenizer(pieces_in_id_order(pieces_, folder_), std::move(merges), folder_,
                                   non_default_tokens(default_tokens));
  }

  std::unique_ptr<WordPieceTokenizer> read_wordpiece() {
    config_.require("tokenize_chinese_chars", true, {true},
                    "use a model with this setting: multihead encodes each ideograph as a word");
    config_.require("do_basic_tokenize", true, {true},
                    "use a model with this setting: multihead always splits text into words");
    const std::string json_path = path("tokenizer.json"), pieces_path = path("vocab.txt");
    BertNormalisation normalisation;
    if (const auto json_text = read_if_exists(json_path)) {
      TokenizerJson json = read_wordpiece_json(*json_text, json_path);
      if (const auto file_text = read_if_exists(pieces_path))
        require_equal_pieces(json.pieces, number_pieces(read_wordpieces(*file_text, pieces_path)), pieces_path);
      normalisation = json.normalisation;
      require_equal_setting("do_lower_case", normalisation.lowercase, json_path + " (lowercase)");
      require_equal_setting("strip_accents", normalisation.strip_accents, json_path + " (strip_accents)");
      store(std::move(json));
    } else {
      require_files({"vocab.txt"});
      pieces_ = number_pieces(read_wordpieces(read_regular_file(pieces_path), pieces_path));
      if (config_.empty())
        log_info(folder_ + " has no tokenizer_config.json: text is converted to lower case, as in transformers");
      normalisation.lowercase = config_.value("do_lower_case", true);
      normalisation.strip_accents = config_.value("strip_accents", normalisation.lowercase);
    }
    add_listed_tokens();
    AddedTokens default_tokens;
    for (size_t i = 0; i < std::size(kSpecialPieces); ++i) {
      if (const int64_t id = id_of(kSpecialPieces[i]); id >= 0)
        default_tokens[id] = {kSpecialToken, kSpecialPieceRoles[i]};
      if (const std::string token = configured_token(kSpecialPieceRoles[i]);
          !token.empty() && token != kSpecialPieces[i])
        refuse_input(path_of_role(kSpecialPieceRoles[i]) + ": " + kSpecialPieceRoles[i], kSpecialPieces[i], token,
                     "use a model with BERT's names of special tokens, which multihead requires");
    }
    assign_roles(default_tokens);
    warn_about_plain_tokens();
    return make_wordpiece_tokenizer(pieces_in_id_order(pieces_, folder_), normalisation, folder_,
                                    non_default_tokens(default_tokens));
  }

  std::unique_ptr<Tokenizer> read_any() {
    const std::string json_path = path("tokenizer.json"), model_path = path("tokenizer.model");
    if (const auto json_text = read_if_exists(json_path)) {
      const std::string type = type_of_tokenizer_json(*json_text, json_path);
      if (type == ByteBpeTokenizer::kType) return read_byte_bpe();
      if (type == WordPieceTokenizer::kType) return read_wordpiece();
      return std::make_unique<JsonTokenizer>(*json_text, json_path, json_settings());
    }
    if (const auto model = read_if_exists(model_path)) {
      auto tokenizer = parse_tokenizer(*model, model_path);
      // A vocabulary file of mh-prep already has the tokens around a text.
      if (auto* sentencepiece = dynamic_cast<SentencePieceTokenizer*>(tokenizer.get());
          sentencepiece != nullptr && !is_vocabulary_file(*model))
        set_surrounding_tokens(*sentencepiece);
      return tokenizer;
    }
    // T5 puts no token in front of a text.
    if (const auto model = read_if_exists(path("spiece.model"))) {
      config_.require("tokenizer_class", "T5Tokenizer",
                      {"T5Tokenizer", "T5TokenizerFast", "MT5Tokenizer", "MT5TokenizerFast"}, kCopyTokenizerJson);
      return parse_tokenizer(*model, path("spiece.model"));
    }
    if (std::filesystem::exists(path("vocab.txt"))) return read_wordpiece();
    if (std::filesystem::exists(path("merges.txt"))) return read_merges();
    refuse_input(folder_,
                 "a folder with tokenizer.json, tokenizer.model, spiece.model, vocab.json and merges.txt, or vocab.txt",
                 "none of these files", kCopyTokenizerJson);
  }

 private:
  // Returns the class of the tokenizer that transformers makes from the files of the folder.
  std::string tokenizer_class() const {
    const auto model_config = io::JsonConfig::read_if_exists(path("config.json"));
    for (const io::JsonConfig* config : {&config_, &model_config})
      if (const std::string name = config->value("tokenizer_class", std::string()); !name.empty()) return name;
    const std::string model_type = model_config.value("model_type", std::string());
    return model_type == "qwen2" || model_type == "qwen3" ? kQwen2Classes[0] : kGpt2Classes[0];
  }

  [[noreturn]] void refuse_tokenizer_class(const std::string& name,
                                           const std::vector<std::string>& supported_names) const {
    refuse_input(config_.path() + ": tokenizer_class",
                 join(supported_names, ", ") + " in a folder with vocab.json and merges.txt and without tokenizer.json",
                 name, kCopyTokenizerJson);
  }

  // Reads vocab.json and merges.txt by the class of the tokenizer. The tokenizer of GPT-2 has the type byte-bpe. Qwen
  // 2, and models such as OPT with GPT-2's division into words and other tokens around a text, have the type
  // tokenizer-json, with the tokenizer.json that transformers makes from these files.
  std::unique_ptr<Tokenizer> read_merges() {
    const std::string class_name = tokenizer_class();
    const bool is_qwen2 = is_one_of(kQwen2Classes, class_name);
    if (!is_qwen2 && !is_one_of(kGpt2Classes, class_name))
      refuse_tokenizer_class(class_name, {kGpt2Classes[0], kGpt2Classes[1], kQwen2Classes[0], kQwen2Classes[1]});
    JsonTokenizerSettings settings = json_settings();
    const bool has_begin_token = !is_qwen2 && config_.value("add_bos_token", false);
    if (!is_qwen2 && !has_begin_token && settings.end_piece.value_or(kEndOfText) == kEndOfText) return read_byte_bpe();
    config_.require("add_prefix_space", false, {false}, kCopyTokenizerJson);
    if (has_begin_token) {
      const std::string token = configured_token("bos_token");
      settings.begin_piece = token.empty() ? kEndOfText : token;
    }
    const std::string json = tokenizer_json_of_merges(is_qwen2);
    pieces_.clear(), ids_.clear();  // releases memory before the tokenizer takes memory
    return std::make_unique<JsonTokenizer>(json, folder_, settings);
  }

  // Returns the content of the tokenizer.json that transformers makes from vocab.json, merges.txt and the added tokens,
  // with the pre-tokenizer of Qwen 2 or, if `is_qwen2` is false, of GPT-2.
  std::string tokenizer_json_of_merges(bool is_qwen2) {
    require_files({"vocab.json", "merges.txt"});
    const std::string pieces_path = path("vocab.json"), merges_path = path("merges.txt");
    pieces_ = read_numbered_pieces(read_regular_file(pieces_path), pieces_path);
    const std::string vocabulary = serialize_byte_bpe_pieces(pieces_);
    std::string merges, added_tokens;
    for (const Merge& merge : read_byte_bpe_merges(read_regular_file(merges_path), merges_path))
      merges += (merges.empty() ? "" : ",") + io::Json(merge.left + " " + merge.right).dump();
    add_listed_tokens();
    assign_roles({});
    for (const auto& [id, attributes] : added_tokens_) {
      io::Json token = {{"id", id}, {"content", pieces_.at(static_cast<uint64_t>(id))}};
      for (const char* flag : kTokenFlags) token[flag] = attributes.count(flag) > 0;
      added_tokens += (added_tokens.empty() ? "" : ",") + token.dump();
    }
    const io::Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", !is_qwen2}};
    const io::Json split = {
        {"type", "Split"}, {"pattern", {{"Regex", kQwen2Words}}}, {"behavior", "Isolated"}, {"invert", false}};
    const io::Json words =
        is_qwen2 ? io::Json({{"type", "Sequence"}, {"pretokenizers", io::Json::array({split, byte_level})}})
                 : byte_level;
    return str(R"({"version":"1.0","normalizer":)", is_qwen2 ? R"({"type":"NFC"})" : "null", R"(,"pre_tokenizer":)",
               words.dump(), R"(,"post_processor":null,"decoder":{"type":"ByteLevel"},)", R"("added_tokens":[)",
               added_tokens, R"(],"model":{"type":"BPE","vocab":)", vocabulary, R"(,"merges":[)", merges, "]}}");
  }

  // Returns the tokens around a text that tokenizer_config.json states.
  JsonTokenizerSettings json_settings() const {
    JsonTokenizerSettings settings;
    if (const std::string token = configured_token("eos_token"); !token.empty()) settings.end_piece = token;
    const std::string tokenizer_class = config_.value("tokenizer_class", std::string());
    if (!puts_token_in_front(tokenizer_class) || config_.value("add_bos_token", nullptr) == nullptr) return settings;
    // Without bos_token the post-processor states the token in front of a text.
    if (!config_.value("add_bos_token", true)) settings.begin_piece = "";
    else if (const std::string token = configured_token("bos_token"); !token.empty()) settings.begin_piece = token;
    return settings;
  }

  // Sets the begin token and the end token for a folder without tokenizer.json, as the tokenizers of Llama and Gemma in
  // transformers choose them. The vocabulary has the pieces of tokenizer.model only, so other files may add only tokens
  // that do not occur in text.
  void set_surrounding_tokens(SentencePieceTokenizer& tokenizer) {
    const std::string tokenizer_class = config_.value("tokenizer_class", kBeginTokenClasses[0]);
    if (!puts_token_in_front(tokenizer_class) && config_.value("add_bos_token", nullptr) == nullptr)
      refuse_input(config_.path() + ": tokenizer_class",
                   join({std::begin(kBeginTokenClasses), std::end(kBeginTokenClasses)}, ", ") +
                       ", or add_bos_token, which states whether a token precedes a text",
                   tokenizer_class, kCopyTokenizerJson);
    config_.require("add_prefix_space", true, {true}, kCopyTokenizerJson);
    for (int32_t id = 0; id < tokenizer.size(); ++id)
      pieces_.emplace_hint(pieces_.end(), static_cast<uint64_t>(id), tokenizer.piece(id));
    add_listed_tokens();
    // Returns the token of a role, which a file states, or else `model_id`.
    const auto token_of_role = [&](const char* role, int32_t model_id) {
      const std::string piece = configured_token(role);
      const int64_t id = piece.empty() ? model_id : id_of(piece);
      if (id < 0 || id >= tokenizer.size())
        refuse_input(path_of_role(role) + ": " + role, "a piece of tokenizer.model",
                     piece.empty() ? "none" : str("'", piece, "', ", id < 0 ? "which is no piece" : "an added token"),
                     str(piece.empty() ? "set " : "correct ", role, ", or ", kCopyTokenizerJson));
      return static_cast<int32_t>(id);
    };
    const int32_t begin_id =
        config_.value("add_bos_token", true) ? token_of_role("bos_token", tokenizer.model_begin_id()) : -1;
    tokenizer.set_surrounding_tokens(begin_id, token_of_role("eos_token", tokenizer.end_id()));
    assign_roles({});
    for (const auto& [id, attributes] : added_tokens_)
      if (attributes.count(kAppended) > 0 && attributes.count(kSpecialToken) == 0)
        refuse_input(folder_, "added tokens that are special, since tokenizer.model does not have them",
                     str("the token '", pieces_.at(static_cast<uint64_t>(id)), "' with the id ", id),
                     kCopyTokenizerJson);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  void require_files(const std::vector<std::string>& names) const {
    for (const std::string& name : names)
      if (!std::filesystem::exists(path(name))) {
        const bool is_folder = std::filesystem::is_directory(folder_);
        refuse_input(folder_, "a folder with tokenizer.json, or " + join(names, " and "),
                     is_folder ? "no " + name : "no folder of this name",
                     is_folder ? "copy " + name + " from the source of the model" : "check the name of the folder");
      }
  }

  static NumberedPieces number_pieces(const std::vector<Piece>& pieces) {
    NumberedPieces numbered_pieces;
    for (size_t i = 0; i < pieces.size(); ++i) numbered_pieces[i] = pieces[i].text;
    return numbered_pieces;
  }

  [[noreturn]] void refuse_difference(const std::string& file, const std::string& content,
                                      const std::string& found) const {
    refuse_input(file, content + " of " + path("tokenizer.json"), found,
                 str("remove ", file, " or ", path("tokenizer.json"), ", whichever belongs to another model"));
  }

  void require_equal_pieces(const NumberedPieces& json_pieces, const NumberedPieces& file_pieces,
                            const std::string& file) const {
    if (json_pieces == file_pieces) return;
    const auto [json_it, file_it] =
        std::mismatch(json_pieces.begin(), json_pieces.end(), file_pieces.begin(), file_pieces.end());
    if (json_it == json_pieces.end())
      refuse_difference(file, str("the ", count_of(json_pieces.size(), "piece")),
                        "the additional piece '" + file_it->second + "'");
    refuse_difference(file, str("piece ", json_it->first, ", '", json_it->second, "',"),
                      file_it == file_pieces.end()
                          ? str("only ", count_of(file_pieces.size(), "piece"), ", without piece ", json_it->first)
                          : str("piece ", file_it->first, ", '", file_it->second, "'"));
  }

  void require_equal_setting(const char* key, bool expected_value, const std::string& where) const {
    if (config_.value(key, expected_value) == expected_value) return;
    refuse_input(config_.path() + ": " + key, str(expected_value ? "true" : "false", ", as in ", where),
                 expected_value ? "false" : "true", "set both settings to the value that the model was trained with");
  }

  // Keeps the pieces and the added tokens of tokenizer.json.
  void store(TokenizerJson json) {
    pieces_ = std::move(json.pieces);
    json_tokens_ = std::move(json.added_tokens);
  }

  // Reads the added tokens of all files of the folder: inserts each token into `added_tokens_` and, unless `pieces_`
  // already contains the token, into `pieces_`. Must precede id_of().
  void add_listed_tokens() {
    for (const auto& [id, piece] : pieces_) ids_.emplace(piece, id);  // the readers of pieces refuse a repeated piece
    for (const TokenizerJson::Token& token : json_tokens_)
      add_token(path("tokenizer.json") + ": added_tokens", token.id, token.piece, token.flags);
    const io::Json decoder = config_.value("added_tokens_decoder", io::Json::object());
    for (const auto& [key, token] : decoder.items()) {
      uint64_t id = 0;
      const auto parse_result = std::from_chars(key.data(), key.data() + key.size(), id);
      const bool is_number = parse_result.ec == std::errc() && parse_result.ptr == key.data() + key.size();
      const std::string piece = token.is_object() ? token_text(token) : "";
      const std::string where = config_.path() + ": added_tokens_decoder";
      if (!is_number || piece.empty()) refuse_token(where, key + ": " + token.dump());
      add_token(where, id, piece, token_flags(token));
    }
    if (const std::string file = path("added_tokens.json"); std::filesystem::exists(file)) {
      const io::Json tokens_by_piece = io::parse_json_object(read_regular_file(file), file);
      for (const auto& [piece, id] : tokens_by_piece.items()) {
        if (!id.is_number_unsigned() || piece.empty()) refuse_token(file, io::Json(piece).dump() + ": " + id.dump());
        add_token(file, id, piece, {});
      }
    }
  }

  [[noreturn]] static void refuse_token(const std::string& where, const std::string& found) {
    refuse_input(where, "a token with a unique id", found, "copy the folder again");
  }

  // Adds a token that the file `where` lists. Several files may list a token; the flags in the first file apply.
  void add_token(const std::string& where, uint64_t id, const std::string& piece, std::set<std::string> flags) {
    const auto [by_id, id_is_new] = pieces_.emplace(id, piece);
    const auto [by_piece, piece_is_new] = ids_.emplace(piece, id);
    if (by_id->second != piece || by_piece->second != id)
      refuse_token(where, str("'", piece, "' with the id ", id, ", but ",
                              id_is_new ? "the piece has the id " : "the id belongs to '",
                              id_is_new ? std::to_string(by_piece->second) : by_id->second + "'"));
    if (id_is_new) flags.insert(kAppended);
    added_tokens_.emplace(static_cast<int64_t>(id), std::move(flags));
  }

  // Returns the id of `piece`; -1 if the folder has no such piece.
  int64_t id_of(const std::string& piece) const {
    const auto it = ids_.find(piece);
    return it == ids_.end() ? -1 : static_cast<int64_t>(it->second);
  }

  // Returns the text of the token to which tokenizer_config.json or special_tokens_map.json gives `role`; "" if none.
  std::string configured_token(const char* role) const {
    const std::string token = token_text(config_.value(role, nullptr));
    return token.empty() ? token_text(special_tokens_map_.value(role, nullptr)) : token;
  }

  // Returns the path of the file from which configured_token() reads `role`; the path of tokenizer_config.json if no
  // file gives the role.
  std::string path_of_role(const char* role) const {
    const bool is_in_map = token_text(config_.value(role, nullptr)).empty() &&
                           !token_text(special_tokens_map_.value(role, nullptr)).empty();
    return is_in_map ? special_tokens_map_.path() : config_.path();
  }

  // `file`: path of the file that gives `role` to `token`, for a warning.
  void assign_role(const std::string& file, const std::string& role, const std::string& token) {
    const int64_t id = id_of(token);
    if (id < 0) {
      log_warning(str(file, ": ", role, " '", token, "' is not in the vocabulary and is ignored"));
      return;
    }
    added_tokens_[id].insert({role, kSpecialToken});
  }

  // Assigns roles to tokens as the folder's files state. A role that no file states goes to its token in
  // `default_tokens`.
  void assign_roles(const AddedTokens& default_tokens) {
    for (const char* role : kTokenRoles) {
      const int64_t id = token_id_of_role(default_tokens, role);
      if (const std::string token = configured_token(role); !token.empty())
        assign_role(path_of_role(role), role, token);
      else if (id >= 0) added_tokens_[id].insert({role, kSpecialToken});
    }
    for (const io::JsonConfig* file : {&config_, &special_tokens_map_})
      for (const char* key : {kAdditionalSpecialTokens, "extra_special_tokens"})
        for (const io::Json& token : file->value(key, nullptr))
          if (!token_text(token).empty()) assign_role(file->path(), kAdditionalSpecialTokens, token_text(token));
  }

  // Returns the added tokens to store in the tokenizer: none if the folder's added tokens equal `default_tokens`, which
  // ByteBpeTokenizer::added_tokens() and WordPieceTokenizer::added_tokens() return for a tokenizer that stores none.
  // The comparison ignores the flag "normalized" of special tokens, which differs between versions of transformers.
  AddedTokens non_default_tokens(const AddedTokens& default_tokens) const {
    AddedTokens comparable_tokens = added_tokens_;
    for (auto& [id, attributes] : comparable_tokens)
      if (attributes.count(kSpecialToken) > 0) attributes.erase("normalized");
    return comparable_tokens == default_tokens ? AddedTokens() : added_tokens_;
  }

  // Warns about added tokens that are not special, which multihead encodes like other text.
  void warn_about_plain_tokens() const {
    std::vector<std::string> names;
    for (const auto& [id, attributes] : added_tokens_)
      if (attributes.count(kSpecialToken) == 0) names.push_back("'" + pieces_.at(static_cast<uint64_t>(id)) + "'");
    if (names.empty()) return;
    const size_t num_tokens = names.size();
    names.resize(std::min<size_t>(num_tokens, 5));
    log_warning(
        str(folder_, ": added tokens that are not special (", num_tokens, "): ", join(names, ", "),
            num_tokens > names.size() ? ", ..." : "",
            "; multihead encodes these tokens like other text, whereas transformers encodes each as one token"));
  }

  std::string folder_;
  io::JsonConfig config_, special_tokens_map_;
  NumberedPieces pieces_;
  std::unordered_map<std::string, uint64_t> ids_;
  std::vector<TokenizerJson::Token> json_tokens_;
  AddedTokens added_tokens_;
};

}  // namespace

std::unique_ptr<ByteBpeTokenizer> read_byte_bpe_folder(const std::string& folder) {
  return FolderReader(folder).read_byte_bpe();
}

std::unique_ptr<WordPieceTokenizer> read_wordpiece_folder(const std::string& folder) {
  return FolderReader(folder).read_wordpiece();
}

std::unique_ptr<Tokenizer> read_tokenizer_folder(const std::string& folder) { return FolderReader(folder).read_any(); }

std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& text, const std::string& name) {
  const std::string type = type_of_tokenizer_json(text, name);
  if (type == JsonTokenizer::kType) return std::make_unique<JsonTokenizer>(text, name);
  TokenizerJson json =
      type == ByteBpeTokenizer::kType ? read_byte_bpe_json(text, name) : read_wordpiece_json(text, name);
  // The pieces include the added tokens, all of which are special.
  for (const TokenizerJson::Token& token : json.added_tokens) json.pieces.emplace(token.id, token.piece);
  std::vector<Piece> pieces = pieces_in_id_order(json.pieces, name);
  if (type == ByteBpeTokenizer::kType) return make_byte_bpe_tokenizer(std::move(pieces), std::move(json.merges), name);
  return make_wordpiece_tokenizer(std::move(pieces), json.normalisation, name);
}

std::unique_ptr<WordPieceTokenizer> read_wordpiece_vocabulary(const std::string& path,
                                                              BertNormalisation normalisation) {
  if (std::filesystem::is_directory(path)) return read_wordpiece_folder(path);
  const std::string name = input_name(path);
  return make_wordpiece_tokenizer(read_wordpieces(read_text_file(path), name), normalisation, name);
}

void refuse_text_options(const char* option, const std::string& folder, bool cased, const std::string& strip_accents) {
  const char* text_option = cased ? "--cased" : strip_accents != "auto" ? "--strip-accents" : nullptr;
  if (text_option != nullptr)
    refuse_usage(text_option, str(option, " with a vocabulary file"),
                 str("the folder ", folder, ", whose tokenizer configuration states the normalisation"),
                 str("leave ", text_option, " out"));
}

}  // namespace mh::text
