#include "text/lines.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "text/text_bytes.h"

namespace mh::text {

Lines::Lines(const std::string& path) : name(input_name(path)), text(read_text_file(path)) {
  // NUL is allowed, since metrics treat NUL like any other character.
  std::string_view remaining_text = validate_text(text, name, NulBytes::allow);
  while (!remaining_text.empty()) {
    const size_t end = remaining_text.find('\n');
    lines.push_back(remaining_text.substr(0, end));
    if (end != remaining_text.npos && lines.back().ends_with('\r'))
      refuse_input(str(name, ":", lines.size()), "lines that end in LF", "CR LF", "convert the line ends to LF");
    remaining_text.remove_prefix(end == remaining_text.npos ? remaining_text.size() : end + 1);
  }
  if (lines.empty()) refuse_input(name, "one sentence per line", "no lines", "name a file with at least one line");
}

void require_line_count(const std::string& paired_name, size_t num_sentences, const Lines& lines,
                        const std::string& advice) {
  const size_t num_lines = lines.lines.size();
  if (num_lines == num_sentences) return;
  const std::string& longer_name = num_sentences > num_lines ? paired_name : lines.name;
  refuse_input(lines.name, str(count_of(num_sentences, "line"), ", as many as in ", paired_name),
               str(count_of(num_lines, "line"), "; line ", std::min(num_sentences, num_lines) + 1, " of ", longer_name,
                   " has no counterpart"),
               advice);
}

}  // namespace mh::text
