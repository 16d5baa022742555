#include "huggingface/vocabulary_files.h"

#include <charconv>
#include <filesystem>

#include "base/error.h"

namespace mh::huggingface {

void require_files(const std::string& folder, const std::vector<std::string>& names) {
  const bool whole = std::filesystem::exists(folder + "/tokenizer.json");
  for (const std::string& name : names)
    if (!std::filesystem::exists(folder + "/" + name))
      throw Error(Exit::input,
                  Problem{folder, name, whole ? "tokenizer.json alone" : "none",
                          whole ? "make it in Python: AutoTokenizer.from_pretrained(FOLDER).save_vocabulary(FOLDER)"
                                : "copy it from where the model is from"});
}

std::map<uint64_t, std::string> added_tokens(const std::string& folder, const ConfigFile& tokenizer_config) {
  std::map<uint64_t, std::string> tokens;
  auto add = [&](const std::string& path, const Json& number, const Json& text) {
    const bool fits = number.is_number_unsigned() && text.is_string() && !text.get<std::string>().empty();
    const auto [it, fresh] =
        fits ? tokens.emplace(number.get<uint64_t>(), text.get<std::string>()) : std::pair(tokens.end(), false);
    if (!fits || (!fresh && it->second != text))
      throw Error(Exit::input,
                  Problem{path, "a token with a number of its own", text.dump() + ": " + number.dump(), ""});
  };
  const std::string path = folder + "/added_tokens.json";
  if (std::filesystem::exists(path)) {
    const Json all = parse_object(read_text_file(path), path);
    for (const auto& [text, number] : all.items()) add(path, number, text);
  }
  const Json decoder = tokenizer_config.value("added_tokens_decoder", Json::object());
  for (const auto& [key, token] : decoder.items()) {
    uint64_t number = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), number);
    const bool whole = parsed.ec == std::errc() && parsed.ptr == key.data() + key.size();
    add(tokenizer_config.path(), whole ? Json(number) : Json(key),
        token.is_object() && token.contains("content") ? token["content"] : Json());
  }
  return tokens;
}

void refuse_vocabulary(const io::Tokenizer& tokenizer, const std::string& name, const std::string& wanted) {
  throw Error(Exit::input, Problem{name, "a vocabulary of the type " + wanted + ", as this architecture has there",
                                   "one of the type " + tokenizer.type(), ""});
}

}  // namespace mh::huggingface
