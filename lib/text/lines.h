// Reads a text file with one sentence per line into memory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mh::text {

struct Lines {
  // Reads the file `path`, or standard input for "-". Drops a byte order mark. Throws Error(input) for text that is not
  // UTF-8, lines that end in CR LF, and a file without lines.
  explicit Lines(const std::string& path);
  Lines(const Lines&) = delete;
  std::string name, text;
  std::vector<std::string_view> lines;  // without line ends; views of `text`
};

// Throws Error(input) unless `lines` has `num_sentences` lines. `paired_name`: name, for the message, of the file or
// text whose `num_sentences` sentences are paired with the lines; `advice`: last part of the message.
void require_line_count(const std::string& paired_name, size_t num_sentences, const Lines& lines,
                        const std::string& advice = "give one line per sentence in both inputs, in the same order");

}  // namespace mh::text
