#include "base/error.h"

namespace mh {

namespace {

std::string message_of(const Problem& p) {
  std::string text = p.where;
  auto add = [&](const char* label, const std::string& field) {
    if (field.empty()) return;
    if (!text.empty()) text += text.back() == ':' ? " " : (text.size() == p.where.size() ? ": " : "; ");
    text += label + field;
  };
  add("expected ", p.expected);
  add("found ", p.found);
  add("", p.next);
  return text;
}

}  // namespace

Error::Error(Exit exit, const Problem& problem) : Error(exit, message_of(problem)) {}

void refuse_usage(const std::string& where, const std::string& expected, const std::string& found,
                  const std::string& next) {
  throw Error(Exit::usage, Problem{where, expected, found, next});
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
