#include "lines.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace mh {

Lines::Lines(const std::string& path) : name(path == "-" ? "standard input" : path), text(read_text_file(path)) {
  auto bad = [&](size_t offset, const std::string& expected, const std::string& found) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(offset), '\n');
    throw Error(Exit::input, Problem{str(name, ":", line), expected, found, "convert the file"});
  };
  if (const size_t at = find_invalid_utf8(text); at != std::string::npos)
    bad(at, "UTF-8 text", str("another byte, ", at, " bytes into the file"));
  if (const size_t at = text.find("\r\n"); at != std::string::npos) bad(at, "lines that end in LF", "CR LF");
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    lines.push_back(rest.substr(0, end));
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  }
  if (lines.empty()) throw Error(Exit::input, Problem{name, "a sentence a line", "no lines", ""});
}

void require_as_many(const std::string& others, size_t sentences, const Lines& lines) {
  const size_t found = lines.lines.size();
  if (found == sentences) return;
  const std::string& longer = sentences > found ? others : lines.name;
  throw Error(Exit::input,
              Problem{lines.name, str("a line for each of the ", sentences, " of ", others),
                      str(found, " lines; line ", std::min(sentences, found) + 1, " of ", longer, " lacks its other"),
                      "give both sides of the same sentences"});
}

}  // namespace mh
