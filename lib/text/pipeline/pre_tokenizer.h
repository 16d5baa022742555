// Pre-tokenizers of tokenizer.json, which split a normalised text into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_node.h"
#include "text/pipeline/regex.h"

namespace mh::text {

// The words of a text while pre-tokenizers split it. Pre-tokenizers read `words` and replace it.
struct WordList {
  struct Word {
    uint32_t begin, end;  // byte range of `text`
    bool starts_text;     // the word begins with the first character of the whole text
  };
  std::string_view text;
  std::vector<Word> words, next_words;
  std::string buffers[2];  // texts that pre-tokenizers wrote; `text` may be a view of buffers[buffer]
  int buffer = 0;
  Regex::Workspace workspace;

  // Sets the list to a single word, the whole text, of less than 4 GiB. `starts_text` as in Word.
  void assign(std::string_view new_text, bool starts_text);
  std::string_view text_of(const Word& word) const { return text.substr(word.begin, word.end - word.begin); }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Splits each word of the list; no word of the result is empty.
  virtual void apply(WordList& list) const = 0;
};

struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  // Whether the last pre-tokenizer is ByteLevel. Its mapping of bytes to characters (append_byte_characters()) is then
  // not a part of `stages`: words found in a cache need no mapping.
  bool yields_bytes = false;
};

// Returns the pre-tokenizers of the entry `pre_tokenizer`, and appends to `canonical`, a JSON array, the settings of
// each in one form. Throws Error(input) for a type or a setting that is not supported.
PreTokenizers parse_pre_tokenizers(const JsonNode& node, nlohmann::json& canonical);

}  // namespace mh::text
