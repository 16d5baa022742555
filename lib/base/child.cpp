#include "base/child.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "base/system_message.h"

namespace mh {

namespace {

// First byte of a reply from the child; the length of the text (8 bytes) and the text follow.
enum ReplyKind : char {
  kResult = 'R',       // return value of the work
  kError = 'E',        // exit status (1 byte) and message of an mh::Error
  kOutOfMemory = 'M',  // no text
  kException = 'X',    // message of another exception
};
constexpr size_t kReplyHeaderBytes = 1 + sizeof(uint64_t);
constexpr int kExitCalled = 255, kReplyFailed = 254;  // exit statuses of the child: exit() called; reply not sent

// The child's end of the socket; global because a handler of std::terminate() takes no argument.
int reply_channel = -1;

// Sends all bytes to a socket. Returns false if send() fails.
bool send_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Sends a reply to the parent and ends the child with `status`, or with kReplyFailed if sending fails.
[[noreturn]] void reply(ReplyKind kind, std::string_view text, int status) {
  char header[kReplyHeaderBytes] = {kind};
  const uint64_t length = text.size();
  std::memcpy(header + 1, &length, sizeof length);
  const bool is_sent = send_all(reply_channel, {header, sizeof header}) && send_all(reply_channel, text);
  _exit(is_sent ? status : kReplyFailed);
}

// Returns whether `reply` has as many bytes as its header states.
bool is_complete_reply(std::string_view reply) {
  if (reply.size() < kReplyHeaderBytes) return false;
  uint64_t length = 0;
  std::memcpy(&length, reply.data() + 1, sizeof length);
  return reply.size() - kReplyHeaderBytes == length;
}

// Sends the exception that is being handled to the parent and ends the child.
[[noreturn]] void reply_exception() {
  try {
    throw;
  } catch (const Error& error) {
    const std::string text = static_cast<char>(error.exit()) + std::string(error.what());
    reply(kError, text, 1);
  } catch (const std::bad_alloc&) {
    reply(kOutOfMemory, "", 1);
  } catch (const std::exception& error) {
    reply(kException, error.what(), 1);
  } catch (...) {
    reply(kException, "unknown type, not derived from std::exception", 1);
  }
}

// Terminate handler of the child: sends the parent an exception that a thread of the library did not catch.
[[noreturn]] void on_terminate() {
  if (std::current_exception() != nullptr) reply_exception();
  std::abort();
}

// Exit handler of the child, for a library that calls exit(): skips the destructors of static objects inherited from
// the parent, since other threads may still use these objects.
void handle_exit() { _exit(kExitCalled); }

// Returns the number of threads of this process, or 1 if /proc is not available.
size_t count_threads() {
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return 1;
  size_t count = 0;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(folder);
  return count;
}

[[noreturn]] void fail(const char* message) {
  throw Error(Exit::failed, str(message, ": ", system_message(errno), "; run the command again"));
}

// Resets the signal handlers inherited from the parent. In the child they would remove unfinished files of the parent,
// or report a crash of the child as a crash of the parent.
void reset_signal_handlers() {
  for (int signal_number = 1; signal_number < NSIG; ++signal_number) {
    struct sigaction action {};
    if (sigaction(signal_number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN)
      std::signal(signal_number, SIG_DFL);
  }
}

void close_descriptor(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

}  // namespace

bool ChildInput::read_line(std::string& line) {
  for (;;) {
    if (const size_t end = buffer_.find('\n', begin_); end != buffer_.npos) {
      line.assign(buffer_, begin_, end - begin_);
      begin_ = end + 1;
      return true;
    }
    buffer_.erase(0, begin_);
    begin_ = 0;
    char bytes[1 << 16];
    const ssize_t n = read(descriptor_, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot read from the parent process");
    if (n == 0) {
      if (buffer_.empty()) return false;
      line = std::move(buffer_);
      buffer_.clear();
      return true;
    }
    const size_t search_begin = buffer_.size();  // the bytes before this index contain no '\n'
    buffer_.append(bytes, static_cast<size_t>(n));
    if (const size_t end = buffer_.find('\n', search_begin); end != buffer_.npos) {
      line.assign(buffer_, 0, end);
      begin_ = end + 1;
      return true;
    }
  }
}

Child::Child(const Work& work, LineConsumer on_line) : line_consumer_(std::move(on_line)) {
  if (const size_t num_threads = count_threads(); num_threads > 1)
    throw Error(
        Exit::failed,
        Problem{"child process", "a parent process with a single thread, since a child process copies only one thread",
                str(num_threads, " threads"), "unset LD_PRELOAD, since a preloaded library may start threads"});
  int channel[2], output_pipe[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) != 0)
    fail("cannot create a socket for the child process");
  if (pipe2(output_pipe, O_CLOEXEC) != 0) {
    close(channel[0]);
    close(channel[1]);
    fail("cannot create a pipe for the child process");
  }
  std::fflush(nullptr);  // otherwise the child would write the buffered output of the parent a second time
  // Sets the default action of SIGCHLD: if the parent ignored it, the kernel would discard the exit status of the
  // child, and waitpid() would fail.
  struct sigaction default_action {};
  default_action.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &default_action, &parent_sigchld_action_);
  // Blocks signals until the child has reset the inherited handlers; until then a signal to the child would run them.
  sigset_t all_signals, parent_mask;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_BLOCK, &all_signals, &parent_mask);
  const pid_t parent_pid = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    const int error_number = errno;
    pthread_sigmask(SIG_SETMASK, &parent_mask, nullptr);
    sigaction(SIGCHLD, &parent_sigchld_action_, nullptr);
    for (int descriptor : {channel[0], channel[1], output_pipe[0], output_pipe[1]}) close(descriptor);
    errno = error_number;
    fail("cannot start a child process");
  }
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent_pid) _exit(kReplyFailed);
    reset_signal_handlers();
    pthread_sigmask(SIG_SETMASK, &parent_mask, nullptr);
    const rlimit no_core_dump{0, 0};
    setrlimit(RLIMIT_CORE, &no_core_dump);
    // If the parent was started with descriptor 0, 1 or 2 closed, the socket or the pipe may have one of these numbers.
    // The child duplicates the socket and the pipe to numbers above 2.
    reply_channel = fcntl(channel[1], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int output_descriptor = fcntl(output_pipe[1], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    for (int descriptor : {channel[0], channel[1], output_pipe[0], output_pipe[1]}) close(descriptor);
    for (int standard_descriptor : {STDOUT_FILENO, STDERR_FILENO}) dup2(output_descriptor, standard_descriptor);
    close(output_descriptor);
    std::atexit(handle_exit);
    std::set_terminate(on_terminate);
    try {
      ChildInput input(reply_channel);
      const std::string result = work(input);
      reply(kResult, result, 0);
    } catch (...) {
      reply_exception();
    }
  }
  pthread_sigmask(SIG_SETMASK, &parent_mask, nullptr);
  close(channel[1]);
  close(output_pipe[1]);
  channel_ = channel[0];
  output_pipe_ = output_pipe[0];
}

Child::~Child() {
  close_descriptor(channel_);
  close_descriptor(output_pipe_);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  reap();
}

std::optional<int> Child::reap() {
  const std::optional<int> status = wait_for_end(pid_);
  pid_ = -1;
  sigaction(SIGCHLD, &parent_sigchld_action_, nullptr);
  return status;
}

std::optional<int> wait_for_end(pid_t pid) {
  int status = 0;
  pid_t ended_pid = -1;
  while ((ended_pid = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {
  }
  if (ended_pid < 0) return {};  // ECHILD: another waitpid() has consumed the status
  return status;
}

bool Child::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!wait_until_writable()) return false;
    const ssize_t n = send(channel_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return false;
    // Without this error, the child would treat a truncated input as complete.
    if (n < 0) fail("cannot write to the child process");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Waits until the socket accepts input for the child; returns false if the child has replied or died. While waiting,
// reads the output of the child, so that a full pipe never blocks the child.
bool Child::wait_until_writable() {
  for (;;) {
    pollfd poll_fds[2] = {{channel_, POLLIN | POLLOUT, 0}, {output_pipe_, POLLIN, 0}};
    if (poll(poll_fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      fail("cannot wait for the child process");
    }
    if (poll_fds[1].revents != 0 && !read_lines()) close_descriptor(output_pipe_);
    if ((poll_fds[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) return false;  // the child has replied or died
    if ((poll_fds[0].revents & POLLOUT) != 0) return true;
  }
}

// Appends available bytes to `reply_`, and sets `has_reply_ended_` at the end of the socket. Throws Error(failed) if
// reading fails, since the parent would otherwise wait forever for the end of the reply.
void Child::read_reply() {
  char bytes[1 << 16];
  const ssize_t n = read(channel_, bytes, sizeof bytes);
  if (n > 0) reply_.append(bytes, static_cast<size_t>(n));
  else if (n == 0 || errno == ECONNRESET)
    has_reply_ended_ = true;  // ECONNRESET: the child died before it had read all its input
  else if (errno != EINTR) fail("cannot read the reply of the child process");
}

// Passes the lines of available output of the child to `line_consumer_`. Returns false at the end of the output. Throws
// Error(failed) if reading fails.
bool Child::read_lines() {
  char bytes[1 << 12];
  const ssize_t n = read(output_pipe_, bytes, sizeof bytes);
  if (n < 0 && errno != EINTR) fail("cannot read the output of the child process");
  if (n < 0) return true;
  for (const char c : std::string_view(bytes, static_cast<size_t>(n))) {
    if (c != '\n') {
      unfinished_line_ += c;
      continue;
    }
    if (!unfinished_line_.empty()) line_consumer_(unfinished_line_);
    unfinished_line_.clear();
  }
  if (n == 0 && !unfinished_line_.empty()) line_consumer_(unfinished_line_);
  return n > 0;
}

ChildEnd Child::finish() {
  shutdown(channel_, SHUT_WR);
  while (!has_reply_ended_ || output_pipe_ >= 0) {
    pollfd poll_fds[2] = {{has_reply_ended_ ? -1 : channel_, POLLIN, 0}, {output_pipe_, POLLIN, 0}};
    if (poll(poll_fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      fail("cannot wait for the child process");
    }
    if (poll_fds[0].revents != 0) read_reply();
    if (poll_fds[1].revents != 0 && !read_lines()) close_descriptor(output_pipe_);
  }
  const std::optional<int> wait_status = reap();
  ChildEnd end;
  if (!wait_status) {
    end.cause = "ended with an unknown status";
    return end;
  }
  const int status = *wait_status;
  const bool is_reply_complete = is_complete_reply(reply_);
  const char kind = is_reply_complete ? reply_[0] : '\0';
  std::string text = is_reply_complete ? reply_.substr(kReplyHeaderBytes) : "";
  if (kind == kError && !text.empty()) throw Error(static_cast<Exit>(text[0]), text.substr(1));
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    end.cause = str("ended by signal ", signal, " (", strsignal(signal), ")");
    end.ran_out_of_memory = signal == SIGKILL;
    end.has_crashed = signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT;
  } else if (kind == kOutOfMemory) {
    end.cause = "ran out of memory";
    end.ran_out_of_memory = true;
  } else if (kind == kException) {
    end.cause = "threw an exception: " + text;
  } else if (kind == kResult && WEXITSTATUS(status) == 0) {
    end.has_succeeded = true;
    end.result = std::move(text);
  } else {
    end.cause = str("ended by exit status ", WEXITSTATUS(status));
    end.has_crashed = WEXITSTATUS(status) == kExitCalled;
  }
  return end;
}

}  // namespace mh
