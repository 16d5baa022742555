// A text file read whole, a sentence a line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mh::text {

struct Lines {
  // "-" is standard input. Drops a byte order mark. Error(input) for text that is not UTF-8, lines that end in CR LF
  // and a file without lines.
  explicit Lines(const std::string& path);
  Lines(const Lines&) = delete;
  std::string name, text;
  std::vector<std::string_view> lines;  // without their ends; into `text`
};

// Error(input) unless there are as many lines as sentences of `others`, which is named in the message.
void require_as_many(const std::string& others, size_t sentences, const Lines& lines);

}  // namespace mh::text
