// Outputs: a new folder appears complete or not at all, and a path that cannot be examined is not replaced. Messages:
// escaped line feeds, and messages of processes with a rank above 0.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "fixtures/folder.h"

using namespace mh;

namespace {

namespace fs = std::filesystem;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

// Runs the action in a child process and returns the status from waitpid().
template <class Action>
int wait_status_of(const Action& action) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    action();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

// Runs the action in a child process and returns the text that it writes to stderr.
template <class Action>
std::string stderr_of(const Action& action) {
  const Folder folder;
  const int status = wait_status_of([&] {
    REQUIRE(std::freopen(folder.file("stderr").c_str(), "w", stderr) != nullptr);
    action();
    std::fflush(stderr);
  });
  CHECK(status == 0);
  return read_text_file(folder.file("stderr"));
}

}  // namespace

TEST_CASE("a line feed in a message does not begin a further message") {
  CHECK(stderr_of([] { log_error("none\nmh-train: error: \ttext\r"); }) ==
        "mh: error: none\\x0amh-train: error: \ttext\\x0d\n");
  CHECK(escape_message("") == "");
  CHECK(escape_message("\na\n") == "\\x0aa\\x0a");
}

TEST_CASE("discard_outputs() suppresses files and standard output") {
  const Folder folder;
  const int status = wait_status_of([&] {
    if (std::freopen(folder.file("stdout").c_str(), "w", stdout) == nullptr) _exit(1);
    std::printf("before");
    discard_outputs();
    std::printf("after");
    std::fflush(stdout);
    write_file_atomically("-", "after");
    write_file_atomically(folder.file("a"), "text");
    const auto sink = open_sink(folder.file("b"));
    sink->write("text");
    sink->close();
    _exit(discards_outputs() && sink->bytes_written() == 4 && sink->name() == folder.file("b") ? 0 : 2);
  });
  CHECK(status == 0);
  CHECK(names_in(folder.path) == std::set<std::string>{"stdout"});
  CHECK(read_text_file(folder.file("stdout")) == "before");
}

TEST_CASE("a process of rank above 0 logs only errors, and its messages state the rank") {
  const auto log_all = [](int rank) {
    return stderr_of([rank] {
      set_log_level(LogLevel::verbose);
      set_log_name("mh-test");
      set_log_rank(rank);
      log_detail("a detail");
      log_info("a message");
      log_warning("a warning");
      log_error("an error");
    });
  };
  CHECK(log_all(0) == "mh-test: a detail\nmh-test: a message\nmh-test: warning: a warning\nmh-test: error: an error\n");
  CHECK(log_all(3) == "mh-test: rank 3: error: an error\n");
}

TEST_CASE("an OutputFolder appears only in close(), with all files and the mode of the umask") {
  const Folder folder;
  const mode_t mask = umask(0);
  umask(mask);
  {
    OutputFolder output(folder.file("model"));
    write_file_atomically(output.file("a"), "first");
    write_file_atomically(output.file("b"), "second");
    CHECK_FALSE(fs::exists(folder.file("model")));
    output.close();
  }
  CHECK(names_in(folder.path) == std::set<std::string>{"model"});
  CHECK(names_in(folder.file("model")) == std::set<std::string>{"a", "b"});
  CHECK(read_text_file(folder.file("model/b")) == "second");
  struct stat status {};
  REQUIRE(stat(folder.file("model").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == (0777 & ~mask));
}

TEST_CASE("an OutputFolder without close() leaves nothing") {
  const Folder folder;
  {
    OutputFolder output(folder.file("model"));
    write_file_atomically(output.file("a"), "first");
    const auto sink = open_sink(output.file("b"));
    sink->write("half");
  }
  CHECK(names_in(folder.path).empty());
}

TEST_CASE("an OutputFolder does not replace a folder with files") {
  const Folder folder;
  OutputFolder output(folder.file("model"));
  fs::create_directory(folder.file("model"));
  write_file_atomically(folder.file("model/old"), "old");
  CHECK_THROWS_AS(output.close(), Error);
  CHECK(names_in(folder.file("model")) == std::set<std::string>{"old"});
}

TEST_CASE("the temporary folder of a killed process does not hinder the next OutputFolder") {
  const Folder folder;
  const int status = wait_status_of([&] {
    OutputFolder output(folder.file("model"));
    write_file_atomically(output.file("a"), "killed");
    std::raise(SIGKILL);
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(names_in(folder.path).count("model") == 0);
  OutputFolder output(folder.file("model"));
  write_file_atomically(output.file("a"), "complete");
  output.close();
  CHECK(read_text_file(folder.file("model/a")) == "complete");
}

TEST_CASE("SIGTERM removes the files and the temporary folder of an OutputFolder") {
  const Folder folder;
  const int status = wait_status_of([&] {
    install_cleanup_handlers();
    OutputFolder output(folder.file("model"));
    write_file_atomically(output.file("a"), "first");
    const auto sink = open_sink(output.file("b"));
    sink->write("half");
    std::raise(SIGTERM);
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
  CHECK(names_in(folder.path).empty());
}

TEST_CASE("a program that the process starts does not inherit the file of an unfinished output") {
  const Folder folder;
  const auto sink = open_sink(folder.file("out"));
  FILE* listing = popen("ls -l /proc/self/fd", "r");
  REQUIRE(listing != nullptr);
  std::string text;
  for (int c; (c = std::fgetc(listing)) != EOF;) text += static_cast<char>(c);
  CHECK(pclose(listing) == 0);
  CHECK_THAT(text, !Catch::Contains(folder.path.string()));
}

TEST_CASE("open_sink() refuses a path that cannot be examined, such as a link to itself") {
  const Folder folder;
  fs::create_symlink("loop", folder.file("loop"));
  CHECK_THROWS_WITH(open_sink(folder.file("loop")), Catch::Contains("symbolic links"));
  CHECK(fs::is_symlink(fs::symlink_status(folder.file("loop"))));
}

TEST_CASE("an output that cannot be opened or renamed is refused with its path and the cause, and leaves nothing") {
  const Folder folder;
  const auto refuses = [&](const std::string& path, const char* cause) {
    return Catch::Contains(path + ": expected a writable output; found " + cause);
  };
  const std::string missing = folder.file("none/model"), socket_path = folder.file("socket"), path = folder.file("x");
  CHECK_THROWS_WITH(OutputFolder(missing), refuses(missing, "no such folder"));
  const int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(socket_path.size() < sizeof address.sun_path);
  socket_path.copy(address.sun_path, socket_path.size());
  REQUIRE(bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  CHECK_THROWS_WITH(open_sink(socket_path), refuses(socket_path, "no such device"));  // open() refuses a socket
  close(descriptor);
  // The link of /proc to a removed file has a status, but no path.
  const int removed_file = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  fs::remove(path);
  const std::string link = str("/proc/self/fd/", removed_file);
  CHECK_THROWS_WITH(open_sink(link), refuses(link, "no such"));
  close(removed_file);
  const auto sink = open_sink(path);
  fs::create_directory(path);
  CHECK_THROWS_WITH(sink->close(), refuses(path, "is a directory"));
  CHECK(names_in(folder.path) == std::set<std::string>{"socket", "x"});
}

TEST_CASE("an error of the close() of a device is reported with its path") {
  const int descriptor = dup(STDERR_FILENO);  // the lowest free descriptor, which open_sink() gets next
  close(descriptor);
  const auto sink = open_sink("/dev/null");
  REQUIRE(close(descriptor) == 0);  // so that the close() of the sink fails
  CHECK_THROWS_WITH(sink->close(), Catch::Contains("/dev/null: expected a writable output; found bad file descriptor"));
}
