// Runs a function in a child process, so that a library that calls exit(), crashes or exhausts the memory ends only the
// child. The child is a fork: it starts with a copy-on-write copy of the memory of its parent, and the kernel kills it
// when the parent dies.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace mh {

// Reads, in the child, the bytes that the parent sends with Child::write().
class ChildInput {
 public:
  explicit ChildInput(int descriptor) : descriptor_(descriptor) {}
  // Reads the next line, without its '\n', which the last line may lack; returns false at the end of the input. Throws
  // Error(failed) if reading fails.
  bool read_line(std::string& line);

 private:
  int descriptor_;
  std::string buffer_;
  size_t begin_ = 0;
};

// The end of a child process, as returned by Child::finish().
struct ChildEnd {
  bool has_succeeded = false;  // true if the work returned
  std::string result;          // return value of the work, if `has_succeeded`
  bool ran_out_of_memory =
      false;                 // std::bad_alloc in the work, or SIGKILL, which the kernel sends when memory runs out
  bool has_crashed = false;  // SIGSEGV, SIGBUS, SIGABRT or a call of exit() ended the child
  std::string cause;  // verb phrase for messages: "ended by signal 11 (Segmentation fault)"; empty if `has_succeeded`
};

class Child {
 public:
  using Work = std::function<std::string(ChildInput&)>;
  using LineConsumer = std::function<void(std::string_view)>;

  // Forks a child that runs `work`. In the parent, write() and finish() call `on_line` with each non-empty line that
  // the child writes to standard output or standard error. Throws Error(failed) if forking fails, or if the process has
  // more than one thread, since a fork leaves the mutexes of other threads locked. In the parent, SIGCHLD has its
  // default action until the child has ended.
  Child(const Work& work, LineConsumer on_line);
  // Kills the child process if it is still running.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Sends bytes to the ChildInput of the child. Returns false if the child no longer reads, since it has replied or
  // died (see finish()). Throws Error(failed) if sending fails for another reason.
  bool write(std::string_view bytes);
  // Ends the input of the child and waits until the child has ended. Rethrows an Error that the work threw.
  ChildEnd finish();
  pid_t pid() const { return pid_; }

 private:
  bool wait_until_writable();
  void read_reply();
  bool read_lines();
  // Waits until the child has ended and restores the parent's action for SIGCHLD. Returns the wait status of the child,
  // or none if waitpid() fails.
  std::optional<int> reap();

  LineConsumer line_consumer_;
  pid_t pid_ = -1;
  int channel_ = -1;      // socket that sends the input to the child and receives the reply
  int output_pipe_ = -1;  // read end of a pipe from standard output and standard error of the child
  struct sigaction parent_sigchld_action_ {};
  std::string reply_;            // bytes of the reply received so far
  std::string unfinished_line_;  // output of the child after its last line feed
  bool has_reply_ended_ = false;
};

// Waits for the end of a child process, also if signals interrupt the wait. Returns its wait status, or none if
// waitpid() fails.
std::optional<int> wait_for_end(pid_t pid);

}  // namespace mh
