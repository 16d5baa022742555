// A text file in memory, one sentence per line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mh::text {

struct Lines {
  // Reads a file, or standard input for "-". Drops a byte order mark. Throws Error(input) for text that is not UTF-8,
  // lines that end in CR LF, and a file without lines.
  explicit Lines(const std::string& path);
  Lines(const Lines&) = delete;
  std::string name, text;
  std::vector<std::string_view> lines;  // without line ends; views of `text`
};

// Throws Error(input) unless `lines` has `sentences` lines. `others` is the name of the other side in the message.
void require_as_many(const std::string& others, size_t sentences, const Lines& lines);

}  // namespace mh::text
