// Errors that reach the user: what was expected, what was found, what to do next, and the exit status.
//
// Library code throws Error and never calls exit(); a tool's main prints it as one message on stderr and ends with the
// status (tool.h). Checks of input throw Error; assert() is only for bugs.
#pragma once

#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>

namespace mh {

// Exit statuses of every tool. A run stopped by signal n after saving ends with 128 + n.
enum class Exit : int {
  done = 0,
  failed = 1,  // failed at run time: disk full, diverged
  usage = 2,   // wrong usage or configuration
  input = 3,   // an input file is missing, unreadable, damaged, or of another kind or vocabulary
  device = 4,  // no such device, or out of memory
};

// The parts of a message. `where` is a file and a place in it, or an option; empty parts are left out.
struct Problem {
  std::string where;
  std::string expected;
  std::string found;
  std::string next;  // what the user can do
};

class Error : public std::runtime_error {
 public:
  Error(Exit exit, const std::string& message) : std::runtime_error(message), exit_(exit) {}
  Error(Exit exit, const Problem& problem);
  Exit exit() const { return exit_; }

 private:
  Exit exit_;
};

constexpr const char* kStandardOutput = "standard output";  // its name in messages

// The reader of our output closed it (EPIPE). A printer of text ends quietly with 0; a writer of a shard or a
// checkpoint reports it, since its reader received only a part.
class BrokenPipe : public Error {
 public:
  explicit BrokenPipe(const std::string& where);
  const std::string& where() const { return where_; }

 private:
  std::string where_;
};

// Runs a printer of text, which ends quietly if the reader of standard output closes it.
void quietly(const std::function<void()>& printer);

// Concatenates its arguments as operator<< prints them: str("expected ", 3, " rows").
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

}  // namespace mh
