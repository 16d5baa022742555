// Work in a child process: its result, its errors, and every way in which it can die, come back to the parent.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/child.h"
#include "status.h"

using namespace mh;

namespace {

struct Ended {
  ChildEnd end;
  std::vector<std::string> lines;
};

Ended run(const Child::Work& work, const std::string& input = "") {
  Ended ended;
  Child child(work, [&](std::string_view line) { ended.lines.emplace_back(line); });
  child.write(input);
  ended.end = child.finish();
  return ended;
}

}  // namespace

TEST_CASE("a child returns what its work returns, and the parent reads its standard error by lines", "[child]") {
  std::string text, longest(300000, 'x');
  for (int i = 0; i < 20000; ++i) text += std::to_string(i) + "\n";
  text += longest + "\n\nlast";
  const Ended ended = run(
      [](ChildInput& input) {
        std::string all, line;
        while (input.next(line)) {
          if (line == "7" || line.size() > 1000) std::fprintf(stderr, "line of %zu bytes\n\n", line.size());
          all += "<" + line + ">";
        }
        std::fputs("no line feed", stderr);
        return all;
      },
      text);
  CHECK(ended.end.done);
  CHECK(ended.end.cause.empty());
  std::string expected;
  for (int i = 0; i < 20000; ++i) expected += "<" + std::to_string(i) + ">";
  CHECK(ended.end.result == expected + "<" + longest + "><><last>");
  CHECK(ended.lines == std::vector<std::string>{"line of 1 bytes", "line of 300000 bytes", "no line feed"});
}

TEST_CASE("a child that writes much to its standard error while it is fed never waits", "[child]") {
  std::string text(100, 'x');
  text.back() = '\n';
  size_t lines = 0, read = 0;
  Child child(
      [](ChildInput& input) {
        for (std::string line; input.next(line);) std::fprintf(stderr, "%s\n", line.c_str());
        return std::string(1 << 20, 'r');
      },
      [&](std::string_view line) { ++lines, read += line.size(); });
  for (int i = 0; i < 20000; ++i) REQUIRE(child.write(text));
  CHECK(child.finish().result.size() == 1 << 20);
  CHECK(lines == 20000);
  CHECK(read == 99 * 20000);
}

TEST_CASE("an Error of the work is thrown in the parent with its exit status", "[child]") {
  for (const Exit exit : {Exit::failed, Exit::usage, Exit::input, Exit::device}) {
    std::string message;
    try {
      run([&](ChildInput&) -> std::string { throw Error(exit, "what was found"); });
    } catch (const Error& error) {
      message = error.what();
      CHECK(error.exit() == exit);
    }
    CHECK(message == "what was found");
  }
}

TEST_CASE("a child that dies leaves the parent alive and says how", "[child]") {
  auto cause = [](const Child::Work& work) {
    const Ended ended = run(work, std::string(1 << 20, 'x'));
    CHECK_FALSE(ended.end.done);
    CHECK_FALSE(ended.end.out_of_memory);
    return ended.end.cause;
  };
  CHECK(cause([](ChildInput&) -> std::string { std::exit(7); }) == "ended by exit status 255");
  CHECK(cause([](ChildInput&) -> std::string { std::abort(); }) == "ended by signal 6 (Aborted)");
  CHECK(cause([](ChildInput&) -> std::string { throw std::runtime_error("odd"); }) == "the exception odd");
  CHECK(cause([](ChildInput&) -> std::string {
          std::thread([] { throw std::runtime_error("in a thread"); }).join();
          return "";
        }) == "the exception in a thread");
  // The work is done only when the process has ended well.
  CHECK(cause([](ChildInput&) -> std::string { _exit(0); }) == "ended by exit status 0");
}

TEST_CASE("a child that is out of memory is told from one that fails", "[child]") {
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
    CHECK_FALSE(end.done);
    CHECK(end.out_of_memory);
    CHECK_FALSE(end.cause.empty());
  }
}

TEST_CASE("a child that is not waited for is ended with its parent's object", "[child]") {
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

TEST_CASE("a child dies with a parent that is killed", "[child]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t middle = fork();
  if (middle == 0) {
    close(ends[0]);
    Child child(
        [](ChildInput&) -> std::string {
          for (;;) pause();
        },
        [](std::string_view) {});
    raise(SIGKILL);
  }
  close(ends[1]);
  // The child holds the writing end too, so the pipe ends when both are gone.
  char byte = 0;
  CHECK(read(ends[0], &byte, 1) == 0);
  close(ends[0]);
  waitpid(middle, nullptr, 0);
}

TEST_CASE("a child is refused where other threads run", "[child]") {
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  CHECK_THROWS_AS(run([](ChildInput&) { return std::string(); }), std::logic_error);
  stop = true;
  other.join();
}
