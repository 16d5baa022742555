// Every reader of text in the core library, each as a function from a file to the text that it read.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/text_batches.h"
#include "text/tokenizer.h"

namespace text_readers {

struct ReadHow {
  mh::text::ReadSizes sizes;
  int threads = 1;
};

struct TextReader {
  std::string name;
  // The outcome for each of kOddBytes inside a field (see `outcome_of`).
  std::string cells;
  // The bytes of a file that holds this field.
  std::function<std::string(const std::string& field)> file;
  // The fields of the file at `path` after reading: words with single spaces, lines with | between.
  std::function<std::string(const std::string& path, const ReadHow& how)> read;
  // Lines of batches: appended to the text of each line.
  bool in_batches = false;
  std::string line_tail = {};
  // A field is written as bytes, not as escapes.
  bool raw = true;
};

struct OddByte {
  const char* name;
  std::string bytes;
};
inline const std::vector<OddByte> kOddBytes{
    {"NUL", std::string(1, '\0')}, {"U+2028", "\u2028"}, {"U+0085", "\u0085"}, {"form feed", "\f"},
    {"vertical tab", "\v"},        {"lone CR", "\r"},    {"U+001C", "\x1C"},   {"U+00A0", "\u00A0"},
    {"U+FEFF", "\uFEFF"},          {"LF", "\n"}};

// The text that is read of "aXb": w: X is part of the word; s: it separates words; d: it is dropped; l: it ends a line
// or record; r: the file is refused.
inline std::string outcome_of(char cell, const std::string& odd) {
  switch (cell) {
    case 'w':
      return "a" + odd + "b";
    case 's':
      return "a b";
    case 'd':
      return "ab";
    case 'l':
      return "a|b";
    default:
      return "refused";
  }
}

std::vector<TextReader> all_readers();

}  // namespace text_readers
