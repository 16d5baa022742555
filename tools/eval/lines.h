// Sentences a line, read whole.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mh {

// Throws Error(input) for text that is not UTF-8 or has lines that end in CR LF; drops a byte order mark. "-" is
// standard input.
struct Lines {
  explicit Lines(const std::string& path);
  Lines(const Lines&) = delete;
  std::string name, text;
  std::vector<std::string_view> lines;  // without their ends; into `text`
};

// Error(input) unless there are as many lines as sentences of `others`.
void require_as_many(const std::string& others, size_t sentences, const Lines& lines);

}  // namespace mh
