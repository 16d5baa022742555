// Runs work in a child process, so that a library that ends its process, crashes or runs out of memory takes only the
// child with it. The child is a fork: it starts with the memory of its parent, shared until written, and dies with it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace mh {

// Reads the input from the parent; used in the child only.
class ChildInput {
 public:
  explicit ChildInput(int descriptor) : descriptor_(descriptor) {}
  // Reads the next line, without its '
  // '; returns false at the end. Throws Error(failed) if the parent has died.
  bool next(std::string& line);

 private:
  int descriptor_;
  std::string buffer_;
  size_t begin_ = 0;
};

// How the work ended.
struct ChildEnd {
  bool done = false;
  std::string result;          // return value of the work, if it finished
  bool out_of_memory = false;  // std::bad_alloc, or SIGKILL, which the kernel sends when memory runs out
  bool crashed = false;        // SIGSEGV, SIGBUS, SIGABRT or exit() in the work
  std::string cause;           // verb phrase, "ended by signal 11 (Segmentation fault)"; empty if the work finished
};

class Child {
 public:
  using Work = std::function<std::string(ChildInput&)>;
  using Line = std::function<void(std::string_view)>;

  // Starts the work. `on_line` receives, in the parent, each line that the child writes to standard output or error.
  // Throws Error(failed) if the process has other threads, since a fork would leave their locks locked. SIGCHLD has its
  // default action until the child has ended.
  Child(const Work& work, Line on_line);
  // Kills the child if it still runs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Writes to the input of the work. Returns false if the child has stopped reading; finish() returns the cause.
  bool write(std::string_view bytes);
  // Ends the input and waits for the work. Throws the Error that the work threw, if it did.
  ChildEnd finish();
  pid_t pid() const { return pid_; }

 private:
  bool wait_until_writable();
  void read_reply();
  bool read_lines();
  // Returns the status of waitpid(), or none if the system has lost it.
  std::optional<int> reap();

  Line line_consumer_;
  pid_t pid_ = -1;
  int channel_ = -1;  // socket: input to the child, reply from it
  int stderr_ = -1;   // reading end of a pipe
  struct sigaction parents_sigchld_ {};
  std::string reply_, line_;
  bool reply_ended_ = false;
};

}  // namespace mh
