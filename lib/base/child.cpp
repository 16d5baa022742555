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
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

namespace mh {

namespace {

// The first byte of a reply.
enum Reply : char { kResult = 'R', kError = 'E', kMemory = 'M', kException = 'X' };

// Of the child; plain so that the handlers below reach it.
int reply_channel = -1;

void send_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

[[noreturn]] void reply(Reply kind, std::string_view text, int status) {
  const char head = kind;
  send_all(reply_channel, {&head, 1});
  send_all(reply_channel, text);
  _exit(status);
}

[[noreturn]] void reply_exception() {
  try {
    throw;
  } catch (const Error& error) {
    const std::string text = static_cast<char>(error.exit()) + std::string(error.what());
    reply(kError, text, 1);
  } catch (const std::bad_alloc&) {
    reply(kMemory, "", 1);
  } catch (const std::exception& error) {
    reply(kException, error.what(), 1);
  } catch (...) {
    reply(kException, "of an unknown type", 1);
  }
}

// An exception that leaves a thread of the library.
[[noreturn]] void on_terminate() {
  if (std::current_exception() != nullptr) reply_exception();
  std::abort();
}

// exit() called by the library: skips the destructors of the parent's objects, which other threads may still use.
void on_exit_call() { _exit(255); }

size_t threads_of_process() {
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return 1;
  size_t count = 0;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(folder);
  return count;
}

[[noreturn]] void fail(const char* what) { throw Error(Exit::failed, str(what, ": ", std::strerror(errno))); }

void close_descriptor(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

}  // namespace

bool ChildInput::next(std::string& line) {
  for (;;) {
    if (const size_t end = buffer_.find('\n', begin_); end != buffer_.npos) {
      line.assign(buffer_, begin_, end - begin_);
      begin_ = end + 1;
      return true;
    }
    buffer_.erase(0, begin_);
    begin_ = buffer_.size();  // searched already
    char bytes[1 << 16];
    const ssize_t n = read(descriptor_, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) {
      begin_ = 0;
      continue;
    }
    if (n < 0) fail("read from the parent process");
    const size_t searched = begin_;
    begin_ = 0;
    if (n == 0) {
      if (buffer_.empty()) return false;
      line = std::move(buffer_);
      buffer_.clear();
      return true;
    }
    buffer_.append(bytes, static_cast<size_t>(n));
    if (const size_t end = buffer_.find('\n', searched); end != buffer_.npos) {
      line.assign(buffer_, 0, end);
      begin_ = end + 1;
      return true;
    }
  }
}

Child::Child(const Work& work, Line on_line) : on_line_(std::move(on_line)) {
  if (threads_of_process() > 1) throw std::logic_error("a child process is started before all threads");
  int channel[2], errors[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) != 0) fail("socketpair");
  if (pipe2(errors, O_CLOEXEC) != 0) {
    close(channel[0]);
    close(channel[1]);
    fail("pipe");
  }
  std::fflush(nullptr);  // else the child would write what is buffered once more
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    for (int descriptor : {channel[0], channel[1], errors[0], errors[1]}) close(descriptor);
    fail("fork");
  }
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(255);
    // The parent's handlers remove its unfinished files, or report a crash as its own.
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
      std::signal(signal, SIG_DFL);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    close(channel[0]);
    reply_channel = channel[1];
    for (int standard : {STDOUT_FILENO, STDERR_FILENO}) dup2(errors[1], standard);
    std::atexit(on_exit_call);
    std::set_terminate(on_terminate);
    try {
      ChildInput input(channel[1]);
      const std::string result = work(input);
      reply(kResult, result, 0);
    } catch (...) {
      reply_exception();
    }
  }
  close(channel[1]);
  close(errors[1]);
  channel_ = channel[0];
  stderr_ = errors[0];
}

Child::~Child() {
  close_descriptor(channel_);
  close_descriptor(stderr_);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  reap();
}

int Child::reap() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

bool Child::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!wait_until_writable()) return false;
    const ssize_t n = send(channel_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Reads what the child says meanwhile, so that it never waits for its parent.
bool Child::wait_until_writable() {
  for (;;) {
    pollfd all[2] = {{channel_, POLLIN | POLLOUT, 0}, {stderr_, POLLIN, 0}};
    if (poll(all, 2, -1) < 0) {
      if (errno == EINTR) continue;
      fail("poll");
    }
    if (all[1].revents != 0 && !read_lines()) close_descriptor(stderr_);
    if ((all[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) return false;  // a reply before the end of the input
    if ((all[0].revents & POLLOUT) != 0) return true;
  }
}

void Child::read_reply() {
  char bytes[1 << 16];
  const ssize_t n = read(channel_, bytes, sizeof bytes);
  if (n > 0) reply_.append(bytes, static_cast<size_t>(n));
  else if (n == 0 || errno != EINTR) reply_ended_ = true;
}

// False at the end.
bool Child::read_lines() {
  char bytes[1 << 12];
  const ssize_t n = read(stderr_, bytes, sizeof bytes);
  if (n < 0) return errno == EINTR;
  for (const char c : std::string_view(bytes, static_cast<size_t>(n))) {
    if (c != '\n') {
      line_ += c;
      continue;
    }
    if (!line_.empty()) on_line_(line_);
    line_.clear();
  }
  if (n == 0 && !line_.empty()) on_line_(line_);
  return n > 0;
}

ChildEnd Child::finish() {
  shutdown(channel_, SHUT_WR);
  while (!reply_ended_ || stderr_ >= 0) {
    pollfd all[2] = {{reply_ended_ ? -1 : channel_, POLLIN, 0}, {stderr_, POLLIN, 0}};
    if (poll(all, 2, -1) < 0) {
      if (errno == EINTR) continue;
      fail("poll");
    }
    if (all[0].revents != 0) read_reply();
    if (all[1].revents != 0 && !read_lines()) close_descriptor(stderr_);
  }
  const int status = reap();
  ChildEnd end;
  const char kind = reply_.empty() ? '\0' : reply_[0];
  std::string text = reply_.empty() ? "" : reply_.substr(1);
  if (kind == kError && !text.empty()) throw Error(static_cast<Exit>(text[0]), text.substr(1));
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    end.cause = str("ended by signal ", signal, " (", strsignal(signal), ")");
    end.out_of_memory = signal == SIGKILL;
  } else if (kind == kMemory) {
    end.cause = "out of memory";
    end.out_of_memory = true;
  } else if (kind == kException) {
    end.cause = "the exception " + text;
  } else if (kind == kResult && WEXITSTATUS(status) == 0) {
    end.done = true;
    end.result = std::move(text);
  } else {
    end.cause = str("ended by exit status ", WEXITSTATUS(status));
  }
  return end;
}

}  // namespace mh
