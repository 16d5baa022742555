// Errors that reach the user: what was expected, what was found, what to do next, and the exit status.
//
// Library code throws Error and never calls exit(); the main function of a tool prints the error as one message on
// stderr and exits with the status of the error (tool.h). Checks of input throw Error; assert() is only for bugs.
#pragma once

#include <cmath>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace mh {

// Exit statuses of all tools. A training run that signal n stops saves its state and exits with 128 + n.
enum class Exit : int {
  done = 0,
  failed = 1,  // failure at run time, such as a full disk or a diverged loss
  usage = 2,   // invalid command line or configuration
  input = 3,   // an input file is missing, unreadable, damaged, or of the wrong kind or vocabulary
  device = 4,  // compute device not available, or out of memory
};

// Parts of an error message; empty parts are omitted, and parts of more than 2000 bytes are shortened.
struct Problem {
  std::string where;  // such as an option, a layer, or a file with a position
  std::string expected;
  std::string found;
  std::string advice;  // what the user can do
};

class Error : public std::runtime_error {
 public:
  Error(Exit exit, const std::string& message)
      : std::runtime_error(message), exit_(exit), problem_{message, "", "", ""} {}
  Error(Exit exit, const Problem& problem);
  Exit exit() const { return exit_; }
  // Returns the parts of the message; the whole message is the part `where` if the error was constructed from a
  // message.
  const Problem& problem() const { return problem_; }

 private:
  Exit exit_;
  Problem problem_;
};

// Throw Error(usage), for an invalid command line or configuration, and Error(input), for an invalid input file, with
// the parts of a Problem.
[[noreturn]] void refuse_usage(const std::string& where, const std::string& expected, const std::string& found,
                               const std::string& advice);
[[noreturn]] void refuse_input(const std::string& where, const std::string& expected, const std::string& found,
                               const std::string& advice);

constexpr const char* kStandardOutput = "standard output";  // name of standard output in messages

// Error of a write to a pipe that its reader has closed (EPIPE). Tools that print text exit with status 0
// (ignore_broken_pipe()); tools that write a shard or a checkpoint report the error, since the reader received an
// incomplete file.
class BrokenPipe : public Error {
 public:
  explicit BrokenPipe(const std::string& where);
  const std::string& where() const { return where_; }

 private:
  std::string where_;
};

// Calls `printer`, a function that prints text, and ignores a BrokenPipe of standard output.
void ignore_broken_pipe(const std::function<void()>& printer);

// Prints a value as operator<< does, but NaN without its sign.
template <class T>
void print_value(std::ostream& out, const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) {
      out << "nan";
      return;
    }
  }
  out << value;
}

// Concatenates its arguments as print_value() prints them: str("expected ", 3, " rows").
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (print_value(out, args), ...);
  return out.str();
}

constexpr const char* kDefaultRemark = "the default, ";
// Returns a value for the part `found` of a Problem. Names a value that equals the default as the default, since the
// user may not have written it: "the default, 3".
template <class T>
std::string found_value(const T& value, const T& default_value) {
  return value == default_value ? str(kDefaultRemark, value) : str(value);
}
// Returns the part `found` without the remark of found_value(), for a file that states all its values.
std::string without_default_remark(const std::string& found);

}  // namespace mh
