#include "huggingface/companion_files.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace mh::huggingface {

namespace {

using io::Json;

constexpr const char* kConfig = "config.json";
constexpr const char* kTemplate = "chat_template.jinja";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kSpecialTokens = "special_tokens_map.json";
// Keys of tokenizer_config.json that are companions. Its other keys follow from the vocabulary.
constexpr const char* kTokenizerKeys[] = {"chat_template", "pad_token", "additional_special_tokens",
                                          "extra_special_tokens", "padding_side"};

const std::string& max_size_text() {
  static const std::string text = with_commas(static_cast<int64_t>(kMaxCompanionBytes)) + " bytes";
  return text;
}

// Returns whether the folder has a small file of this name. Warns about a larger file.
bool has_small_file(const std::string& folder, const char* name) {
  const std::string path = folder + "/" + name;
  if (!std::filesystem::is_regular_file(path)) return false;
  if (std::filesystem::file_size(path) <= kMaxCompanionBytes) return true;
  log_warning(str(path, ": larger than ", max_size_text(), ", and not kept for a conversion to Hugging Face"));
  return false;
}

std::string read_template(const std::string& path) {
  std::string text = read_regular_file(path);
  if (const size_t offset = find_invalid_utf8(text); offset < text.size())
    refuse_input(path, "a chat template in UTF-8", str("an invalid byte at offset ", offset),
                 "copy the file from the source of the model");
  return text;
}

// Returns the token ids of config.json that do not follow from the vocabulary: the padding token, and a list of tokens
// that end a text.
Json companion_ids(const io::JsonConfig& config) {
  Json ids = Json::object();
  if (const Json id = config.value("pad_token_id", nullptr); id.is_number_unsigned()) ids["pad_token_id"] = id;
  if (const Json list = config.value("eos_token_id", nullptr); list.is_array()) ids["eos_token_id"] = list;
  return ids;
}

// Adds the keys of `companion` that `values` lacks or that are null there.
void add_missing(const Json& companion, Json& values) {
  for (const auto& [key, value] : companion.items())
    if (!values.contains(key) || values.at(key).is_null()) values[key] = value;
}

std::string file_text(const Json& values) { return values.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string read_companions(const std::string& folder, const io::JsonConfig& config) {
  Json companions = Json::object();
  if (Json ids = companion_ids(config); !ids.empty()) companions[kConfig] = std::move(ids);
  for (const char* name : {kGeneration, kSpecialTokens})
    if (const std::string path = folder + "/" + name; has_small_file(folder, name))
      companions[name] = io::parse_json_object(read_regular_file(path), path);
  if (has_small_file(folder, kTemplate)) companions[kTemplate] = read_template(folder + "/" + kTemplate);
  const auto tokenizer_config = io::JsonConfig::read_if_exists(folder + "/" + kTokenizerConfig);
  for (const char* key : kTokenizerKeys)
    if (const Json value = tokenizer_config.value(key, nullptr); !value.empty())
      companions[kTokenizerConfig][key] = value;
  if (companions.empty()) return "";
  std::string text = companions.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= kMaxCompanionBytes) return text;
  log_warning(str(folder, ": generation settings, chat templates and special tokens of more than ", max_size_text(),
                  " are not kept for a conversion to Hugging Face"));
  return "";
}

void add_companions(const std::string& companions, const std::string& where, Json& config,
                    std::map<std::string, std::string>& files) {
  if (companions.empty()) return;
  const Json parts = io::parse_json_object(companions, where);
  for (const auto& [name, part] : parts.items()) {
    const bool is_template = name == kTemplate;
    if (is_template ? !part.is_string() : !part.is_object())
      refuse_input(where + ": " + name, is_template ? "a text" : "a JSON object", str("a JSON ", part.type_name()),
                   "convert the folder again");
    if (name == kConfig) {
      add_missing(part, config);
      // If several tokens end a text, their list replaces the single token that the vocabulary has.
      if (const auto ids = part.find("eos_token_id");
          ids != part.end() && ids->is_array() &&
          std::find(ids->begin(), ids->end(), config.at("eos_token_id")) != ids->end())
        config["eos_token_id"] = *ids;
    } else if (is_template) {
      files[name] = part.get<std::string>();
    } else if (name == kGeneration) {
      files[name] = file_text(part);
    } else if (const auto file = files.find(name);
               file != files.end() && (name == kTokenizerConfig || name == kSpecialTokens)) {
      Json values = io::parse_json_object(file->second, name);
      add_missing(part, values);
      file->second = file_text(values);
    }
  }
}

std::vector<int32_t> end_token_ids(const std::string& companions, const std::string& where) {
  std::vector<int32_t> ids;
  if (companions.empty()) return ids;
  const Json parts = io::parse_json_object(companions, where);
  for (const char* file : {kGeneration, kConfig}) {
    const auto part = parts.find(file);
    if (part == parts.end() || !part->is_object()) continue;
    const auto value = part->find("eos_token_id");
    if (value == part->end() || value->is_null()) continue;
    for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > std::numeric_limits<int32_t>::max())
        refuse_input(str(where, ": ", file, ": eos_token_id"), "the id of a token, or a list of ids",
                     io::json_excerpt(*value), "correct the file in the folder of the model, and convert it again");
      ids.push_back(id.get<int32_t>());
    }
    break;
  }
  return ids;
}

}  // namespace mh::huggingface
