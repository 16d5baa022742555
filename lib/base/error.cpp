#include "base/error.h"

#include <string_view>

#include "base/text.h"

namespace mh {

namespace {

// Maximum size of a part of a message, bytes. A part may quote a file name, or a value in a file, of any length.
constexpr size_t kMaxPartBytes = 2000;

std::string message_of(const Problem& p) {
  const std::string where = shorten(p.where, kMaxPartBytes);
  std::string text = where;
  auto add = [&](const char* label, const std::string& field) {
    if (field.empty()) return;
    if (!text.empty()) text += text.back() == ':' ? " " : (text.size() == where.size() ? ": " : "; ");
    text += label + shorten(field, kMaxPartBytes);
  };
  add("expected ", p.expected);
  add("found ", p.found);
  add("", p.advice);
  return text;
}

}  // namespace

Error::Error(Exit exit, const Problem& problem)
    : std::runtime_error(message_of(problem)), exit_(exit), problem_(problem) {}

void refuse_usage(const std::string& where, const std::string& expected, const std::string& found,
                  const std::string& advice) {
  throw Error(Exit::usage, Problem{where, expected, found, advice});
}

void refuse_input(const std::string& where, const std::string& expected, const std::string& found,
                  const std::string& advice) {
  throw Error(Exit::input, Problem{where, expected, found, advice});
}

std::string without_default_remark(const std::string& found) {
  return found.starts_with(kDefaultRemark) ? found.substr(std::string_view(kDefaultRemark).size()) : found;
}

BrokenPipe::BrokenPipe(const std::string& where)
    : Error(Exit::failed, Problem{where, "a program that reads the output", "a closed pipe",
                                  "the output is incomplete; check the program that reads the pipe"}),
      where_(where) {}

void ignore_broken_pipe(const std::function<void()>& printer) {
  try {
    printer();
  } catch (const BrokenPipe& pipe) {
    if (pipe.where() != kStandardOutput) throw;
  }
}

}  // namespace mh
