// Tests of Child: the parent process receives the result of the child process, its Error, or the cause of its end.
#include "base/child.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "fixtures/folder.h"
#include "fixtures/status.h"

using namespace mh;

namespace {

struct Outcome {
  ChildEnd end;
  std::vector<std::string> lines;
};

Outcome run(const Child::Work& work, const std::string& input = "") {
  Outcome outcome;
  Child child(work, [&](std::string_view line) { outcome.lines.emplace_back(line); });
  child.write(input);
  outcome.end = child.finish();
  return outcome;
}

// Sets the action of a signal; the destructor restores the previous action.
class ScopedSignalAction {
 public:
  ScopedSignalAction(int number, void (*handler)(int)) : number_(number) {
    struct sigaction action {};
    action.sa_handler = handler;
    sigaction(number, &action, &previous_action_);
  }
  ~ScopedSignalAction() { sigaction(number_, &previous_action_, nullptr); }
  ScopedSignalAction(const ScopedSignalAction&) = delete;
  ScopedSignalAction& operator=(const ScopedSignalAction&) = delete;

 private:
  int number_;
  struct sigaction previous_action_ {};
};

// Returns the descriptor of the socket to the parent. Must be called in a child process, which has no other socket.
int socket_of_child() {
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0) return descriptor;
  }
  std::abort();
}

// Returns the open descriptors of this process that refer to the same file as `descriptor`, each followed by a space.
std::string descriptors_of_same_file(int descriptor) {
  namespace fs = std::filesystem;
  const fs::path folder = "/proc/self/fd", file = fs::read_symlink(folder / std::to_string(descriptor));
  std::string descriptors;
  std::error_code error;
  for (int other = 0; other < 1024; ++other)
    if (fs::read_symlink(folder / std::to_string(other), error) == file) descriptors += std::to_string(other) + " ";
  return descriptors;
}

// Whether a child process raises SIGTERM directly after the fork, before any other code of the child runs.
bool should_signal_after_fork = false;
std::string file_of_parent;
void raise_after_fork() {
  if (should_signal_after_fork) raise(SIGTERM);
}
void remove_file_of_parent(int) { unlink(file_of_parent.c_str()); }

}  // namespace

TEST_CASE("the parent receives the result of the child's work, and the child's standard error line by line",
          "[child]") {
  std::string text, long_line(300000, 'x');
  for (int i = 0; i < 20000; ++i) text += std::to_string(i) + "\n";
  text += long_line + "\n\nlast";
  const Outcome outcome = run(
      [](ChildInput& input) {
        std::string all, line;
        while (input.read_line(line)) {
          if (line == "7" || line.size() > 1000) std::fprintf(stderr, "line of %zu bytes\n\n", line.size());
          all += "<" + line + ">";
        }
        std::fputs("no line feed", stderr);
        return all;
      },
      text);
  CHECK(outcome.end.has_succeeded);
  CHECK(outcome.end.cause.empty());
  std::string expected;
  for (int i = 0; i < 20000; ++i) expected += "<" + std::to_string(i) + ">";
  CHECK(outcome.end.result == expected + "<" + long_line + "><><last>");
  CHECK(outcome.lines == std::vector<std::string>{"line of 1 bytes", "line of 300000 bytes", "no line feed"});
}

TEST_CASE("a child that writes to standard error while the parent sends input does not deadlock", "[child]") {
  std::string text(100, 'x');
  text.back() = '\n';
  size_t num_lines = 0, num_bytes = 0;
  Child child(
      [](ChildInput& input) {
        for (std::string line; input.read_line(line);) std::fprintf(stderr, "%s\n", line.c_str());
        return std::string(1 << 20, 'r');
      },
      [&](std::string_view line) { ++num_lines, num_bytes += line.size(); });
  for (int i = 0; i < 20000; ++i) REQUIRE(child.write(text));
  CHECK(child.finish().result.size() == 1 << 20);
  CHECK(num_lines == 20000);
  CHECK(num_bytes == 99 * 20000);
}

TEST_CASE("an Error thrown in a child is rethrown in the parent with the same message and exit status", "[child]") {
  for (const Exit exit : {Exit::failed, Exit::usage, Exit::input, Exit::device}) {
    std::string message;
    try {
      run([&](ChildInput&) -> std::string { throw Error(exit, "message of the error"); });
    } catch (const Error& error) {
      message = error.what();
      CHECK(error.exit() == exit);
    }
    CHECK(message == "message of the error");
  }
}

TEST_CASE("the parent survives a child that crashes, exits or throws, and reports the cause", "[child]") {
  auto cause = [](const Child::Work& work) {
    const Outcome outcome = run(work, std::string(1 << 20, 'x'));
    CHECK_FALSE(outcome.end.has_succeeded);
    CHECK_FALSE(outcome.end.ran_out_of_memory);
    return outcome.end.cause + (outcome.end.has_crashed ? "; crashed" : "");
  };
  const auto cause_of_signal = [&](int number) {
    return cause([=](ChildInput&) -> std::string {
      raise(number);
      return "";
    });
  };
  CHECK(cause([](ChildInput&) -> std::string { std::exit(7); }) == "ended by exit status 255; crashed");
  CHECK(cause([](ChildInput&) -> std::string { std::abort(); }) == "ended by signal 6 (Aborted); crashed");
  CHECK(cause_of_signal(SIGSEGV) == "ended by signal 11 (Segmentation fault); crashed");
  CHECK(cause_of_signal(SIGBUS) == "ended by signal 7 (Bus error); crashed");
  CHECK(cause_of_signal(SIGTERM) == "ended by signal 15 (Terminated)");
  CHECK(cause([](ChildInput&) -> std::string { throw std::runtime_error("odd"); }) == "threw an exception: odd");
  CHECK(cause([](ChildInput&) -> std::string {
          std::thread([] { throw std::runtime_error("in a thread"); }).join();
          return "";
        }) == "threw an exception: in a thread");
  // A child that exits with status 0 without a reply has not succeeded.
  CHECK(cause([](ChildInput&) -> std::string { _exit(0); }) == "ended by exit status 0");
  // A child that exits with status 0 after a truncated reply has not succeeded.
  CHECK(cause([](ChildInput&) -> std::string {
          const std::string truncated_reply = std::string("R") + "\x64" + std::string(7, '\0') + "less than 100 bytes";
          if (send(socket_of_child(), truncated_reply.data(), truncated_reply.size(), 0) < 0) std::abort();
          _exit(0);
        }) == "ended by exit status 0");
  CHECK(cause([](ChildInput&) -> std::string {
          shutdown(socket_of_child(), SHUT_WR);
          return "a result after shutdown";
        }) == "ended by exit status 254");
}

TEST_CASE("the cause of a child's end is reported even if the parent ignores SIGCHLD", "[child]") {
  const ScopedSignalAction ignore_action(SIGCHLD, SIG_IGN);
  const ChildEnd abort_end = run([](ChildInput&) -> std::string { std::abort(); }).end;
  CHECK_FALSE(abort_end.has_succeeded);
  CHECK(abort_end.cause == "ended by signal 6 (Aborted)");
  const ChildEnd kill_end = run([](ChildInput&) -> std::string {
                              raise(SIGKILL);
                              return "";
                            }).end;
  CHECK(kill_end.ran_out_of_memory);
  CHECK(run([](ChildInput&) { return std::string("result"); }).end.result == "result");
  struct sigaction restored_action {};
  sigaction(SIGCHLD, nullptr, &restored_action);
  CHECK(restored_action.sa_handler == SIG_IGN);
}

TEST_CASE("a child whose exit status was consumed by another waitpid() call is reported as not succeeded", "[child]") {
  Child child([](ChildInput&) { return std::string("result"); }, [](std::string_view) {});
  REQUIRE(waitpid(child.pid(), nullptr, 0) == child.pid());
  const ChildEnd end = child.finish();
  CHECK_FALSE(end.has_succeeded);
  CHECK_FALSE(end.has_crashed);
  CHECK(end.cause == "ended with an unknown status");
}

TEST_CASE("a signal that arrives directly after the fork does not run the parent's handler in the child", "[child]") {
  REQUIRE(pthread_atfork(nullptr, nullptr, raise_after_fork) == 0);
  Folder folder;
  file_of_parent = folder.file("unfinished");
  write_file_atomically(file_of_parent, "text");
  const ScopedSignalAction handler(SIGTERM, remove_file_of_parent);
  should_signal_after_fork = true;
  const ChildEnd end = run([](ChildInput&) { return std::string("result"); }).end;
  should_signal_after_fork = false;
  CHECK(end.cause == "ended by signal 15 (Terminated)");
  CHECK(std::filesystem::exists(file_of_parent));
  sigset_t signals;
  sigemptyset(&signals);
  pthread_sigmask(SIG_SETMASK, nullptr, &signals);
  CHECK_FALSE(sigismember(&signals, SIGTERM));
}

TEST_CASE("a child has one descriptor of its socket, and its output pipe only as standard output and error",
          "[child]") {
  const auto work = [](ChildInput&) {
    const int socket = socket_of_child();
    return descriptors_of_same_file(STDERR_FILENO) +
           (descriptors_of_same_file(socket) == std::to_string(socket) + " " ? "one" : "");
  };
  CHECK(run(work).end.result == "1 2 one");
  // The child has the same descriptors if the parent has closed its standard input, output or error.
  for (int standard_stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    std::fflush(nullptr);
    const int saved_descriptor = dup(standard_stream);
    close(standard_stream);
    const Outcome outcome = run([](ChildInput&) {
      std::fputs("line\n", stderr);
      return descriptors_of_same_file(STDERR_FILENO);
    });
    dup2(saved_descriptor, standard_stream);
    close(saved_descriptor);
    CHECK(outcome.end.result == "1 2 ");
    CHECK(outcome.lines == std::vector<std::string>{"line"});
  }
}

TEST_CASE("std::bad_alloc and SIGKILL in a child are reported as out of memory", "[child]") {
  for (const Child::Work& work : {Child::Work([](ChildInput&) -> std::string { throw std::bad_alloc(); }),
                                  Child::Work([](ChildInput&) -> std::string {
                                    std::thread([] { throw std::bad_alloc(); }).join();
                                    return "";
                                  }),
                                  Child::Work([](ChildInput&) -> std::string {
                                    raise(SIGKILL);
                                    return "";
                                  })}) {
    const ChildEnd end = run(work).end;
    CHECK_FALSE(end.has_succeeded);
    CHECK(end.ran_out_of_memory);
    CHECK_FALSE(end.cause.empty());
  }
}

TEST_CASE("the destructor of Child kills a running child process", "[child]") {
  pid_t pid = 0;
  {
    Child child(
        [](ChildInput&) -> std::string {
          for (;;) pause();
        },
        [](std::string_view) {});
    pid = child.pid();
    CHECK(kill(pid, 0) == 0);
  }
  CHECK(kill(pid, 0) != 0);
}

TEST_CASE("a child process ends when its parent is killed", "[child]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t parent_pid = fork();
  if (parent_pid == 0) {
    // This process is a copy of the test runner, so an exception must not propagate to the code of the runner.
    try {
      close(ends[0]);
      Child child(
          [](ChildInput&) -> std::string {
            for (;;) pause();
          },
          [](std::string_view) {});
      raise(SIGKILL);
    } catch (...) {
    }
    _exit(1);
  }
  close(ends[1]);
  // The parent and its child hold the write end of the pipe, so read() returns 0 only after both have ended.
  char byte = 0;
  CHECK(read(ends[0], &byte, 1) == 0);
  close(ends[0]);
  int status = 0;
  CHECK(waitpid(parent_pid, &status, 0) == parent_pid);
  CHECK(WIFSIGNALED(status));
}

TEST_CASE("starting a Child in a process with more than one thread is refused", "[child]") {
  std::atomic<bool> stop = false;
  std::thread other_thread([&] {
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  std::string message;
  CHECK(status_of([&] {
          try {
            run([](ChildInput&) { return std::string(); });
          } catch (const Error& error) {
            message = error.what();
            throw;
          }
        }) == 1);
  CHECK(message.find("expected a parent process with a single thread, since a child process copies only one thread; "
                     "found 2 threads; unset LD_PRELOAD") != message.npos);
  stop = true;
  other_thread.join();
}
