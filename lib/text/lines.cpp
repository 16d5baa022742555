#include "text/lines.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "text/text_bytes.h"

namespace mh::text {

Lines::Lines(const std::string& path) : name(path == "-" ? "standard input" : path), text(read_text_file(path)) {
  // NUL is allowed, since metrics treat NUL like any other character.
  std::string_view rest = checked_text(text, name, NulBytes::keep);
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    lines.push_back(rest.substr(0, end));
    if (end != rest.npos && lines.back().ends_with('\r'))
      throw Error(Exit::input, Problem{str(name, ":", lines.size()), "lines that end in LF", "CR LF",
                                       "convert the line ends to LF"});
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  }
  if (lines.empty()) throw Error(Exit::input, Problem{name, "one sentence per line", "no lines", ""});
}

void require_line_count(const std::string& others, size_t sentences, const Lines& lines) {
  const size_t found = lines.lines.size();
  if (found == sentences) return;
  const std::string& longer = sentences > found ? others : lines.name;
  throw Error(Exit::input, Problem{lines.name, str(sentences, " lines, as many as in ", others),
                                   str(found, " lines; line ", std::min(sentences, found) + 1, " of ", longer,
                                       " has no counterpart"),
                                   "give two files with the same sentences, one per line"});
}

}  // namespace mh::text
