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

// Reads what the parent writes; in the child only.
class ChildInput {
 public:
  explicit ChildInput(int descriptor) : descriptor_(descriptor) {}
  // The next line without its '\n'; false at the end. Error(failed) where the parent is gone.
  bool next(std::string& line);

 private:
  int descriptor_;
  std::string buffer_;
  size_t begin_ = 0;
};

// How the work ended.
struct ChildEnd {
  bool done = false;
  std::string result;          // what the work returned, where it is done
  bool out_of_memory = false;  // std::bad_alloc, or killed by SIGKILL, as the kernel does where memory runs out
  bool crashed = false;        // by the work itself: SIGSEGV, SIGBUS, SIGABRT or a call of exit()
  std::string cause;           // verb phrase, "ended by signal 11 (Segmentation fault)"; empty where it is done
};

class Child {
 public:
  using Work = std::function<std::string(ChildInput&)>;
  using Line = std::function<void(std::string_view)>;

  // Starts the work. `on_line` receives, in the parent, each line that the child writes to standard output or error.
  // Throws Error(failed) if the process has other threads, since a fork would leave their locks locked. SIGCHLD has its
  // default action until the child has ended.
  Child(const Work& work, Line on_line);
  // Kills the child where it still runs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Hands bytes to the work's input. False where the child has stopped reading; finish() says why.
  bool write(std::string_view bytes);
  // Ends the input and waits for the work. Throws the Error that the work threw, if it did.
  ChildEnd finish();
  pid_t pid() const { return pid_; }

 private:
  bool wait_until_writable();
  void read_reply();
  bool read_lines();
  // The status of waitpid(), or none if the system has lost it.
  std::optional<int> reap();

  Line on_line_;
  pid_t pid_ = -1;
  int channel_ = -1;  // a socket: input there, reply back
  int stderr_ = -1;   // reading end of a pipe
  struct sigaction parents_sigchld_ {};
  std::string reply_, line_;
  bool reply_ended_ = false;
};

}  // namespace mh
