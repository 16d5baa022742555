// Files that change or fail while they are used: truncation of a mapped file, bus errors, short writes. Escaping of
// control characters in messages.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/signals.h"
#include "base/text.h"
#include "fixtures/folder.h"
#include "fixtures/status.h"

using namespace mh;

namespace {

struct ProcessEnd {
  int status;  // status from waitpid()
  std::string error_output;
};

// Runs the action in a child process and returns the status and the standard error of the process.
template <class Action>
ProcessEnd run_in_fork(const Action& action) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    action();
    _exit(0);
  }
  close(ends[1]);
  ProcessEnd process_end{0, {}};
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    process_end.error_output.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  REQUIRE(waitpid(child, &process_end.status, 0) == child);
  return process_end;
}

}  // namespace

TEST_CASE("a mapped file truncated by another program ends the tool with status 3 and the file's name") {
  const Folder folder;
  const std::string path = folder.file("data\x1b[31m.mhs"), unfinished_path = folder.file("out");
  write_file_atomically(path, std::string(100'000, 'x'));
  const ProcessEnd process_end = run_in_fork([&] {
    install_sigbus_handler();
    const MappedFile file(path);
    const auto sink = open_sink(unfinished_path);
    sink->write("half");
    if (truncate(path.c_str(), 0) != 0) _exit(9);
    volatile uint8_t byte = file.data()[50'000];
    (void)byte;
  });
  REQUIRE(WIFEXITED(process_end.status));
  CHECK(WEXITSTATUS(process_end.status) == 3);
  CHECK_THAT(process_end.error_output, Catch::Contains(escape_controls(path)) && Catch::Contains("restore the file"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.path)) CHECK(entry.path() == path);
}

TEST_CASE("writing from a mapped file truncated by another program names the file, not the output") {
  const Folder folder;
  const std::string path = folder.file("input"), unfinished_path = folder.file("out");
  write_file_atomically(path, std::string(4'000'000, 'x'));
  const ProcessEnd process_end = run_in_fork([&] {
    install_sigbus_handler();
    const MappedFile file(path);
    const auto sink = open_sink(unfinished_path);
    if (truncate(path.c_str(), 1'000'000) != 0) _exit(9);
    sink->write(file.data(), file.size());  // more than the buffer of the sink, so that write(2) reads the mapping
  });
  REQUIRE(WIFEXITED(process_end.status));
  CHECK(WEXITSTATUS(process_end.status) == 3);
  CHECK_THAT(process_end.error_output, Catch::Contains(path) && Catch::Contains("restore the file"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.path)) CHECK(entry.path() == path);
}

TEST_CASE("each of many mapped files is recorded, and a removed mapping is not") {
  const Folder folder;
  const std::string path = folder.file("data"), last_path = folder.file("last");
  for (const std::string& name : {path, last_path}) write_file_atomically(name, "x");
  std::vector<std::unique_ptr<MappedFile>> files;
  for (int i = 0; i < 600; ++i) files.push_back(std::make_unique<MappedFile>(path));
  auto last_file = std::make_unique<MappedFile>(last_path);
  CHECK(mapped_file_name_at(files[300]->data()) == path);
  const uint8_t* last_data = last_file->data();
  CHECK(mapped_file_name_at(last_data) == last_path);
  last_file.reset();
  CHECK(mapped_file_name_at(last_data) == nullptr);
}

TEST_CASE("require_full_size() refuses a shortened file, and accepts a removed or replaced one") {
  const Folder folder;
  const std::string path = folder.file("data");
  write_file_atomically(path, "0123456789");
  {
    const MappedFile file(path);
    file.require_full_size();
    REQUIRE(truncate(path.c_str(), 9) == 0);
    CHECK(status_of([&] { file.require_full_size(); }) == 3);
  }
  const MappedFile file(path);
  write_file_atomically(path, "0");
  file.require_full_size();
  std::filesystem::remove(path);
  file.require_full_size();
}

TEST_CASE(
    "require_unchanged() refuses a file that was written to or shortened, and accepts a removed or replaced one") {
  const Folder folder;
  const std::string path = folder.file("data");
  write_file_atomically(path, "0123456789");
  const auto move_modification_time = [&] {
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  };
  {
    const MappedFile file(path);
    file.require_unchanged();
    move_modification_time();
    CHECK(status_of([&] { file.require_unchanged(); }) == 3);
    CHECK_THROWS_WITH(file.require_unchanged(), Catch::Contains("another program has changed"));
    file.require_full_size();
  }
  {
    const MappedFile file(path);
    REQUIRE(truncate(path.c_str(), 9) == 0);
    CHECK_THROWS_WITH(file.require_unchanged(), Catch::Contains("another program has shortened"));
  }
  const MappedFile file(path);
  write_file_atomically(path, "0");
  move_modification_time();
  file.require_unchanged();
  std::filesystem::remove(path);
  file.require_unchanged();
}

TEST_CASE("released pages of a mapped file leave memory and read as before, and other memory is not released") {
  const Folder folder;
  const std::string path = folder.file("data");
  std::string bytes(8 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 4096);
  write_file_atomically(path, bytes);
  const MappedFile file(path);
  const auto resident_kb = [&] {
    // mincore() would count the page cache instead of the pages of this process.
    std::ifstream maps("/proc/self/smaps");
    bool is_file = false;
    for (std::string line; std::getline(maps, line);) {
      if (line.find(path) != line.npos) is_file = true;
      else if (is_file && line.rfind("Rss:", 0) == 0) return std::stoll(line.substr(4));
    }
    return -1LL;
  };
  const auto equals = [&](size_t first, size_t size) {
    return std::string_view(reinterpret_cast<const char*>(file.data()) + first, size) ==
           std::string_view(bytes).substr(first, size);
  };
  CHECK(equals(0, bytes.size()));
  if (resident_kb() > 0) {
    CHECK(resident_kb() == 8192);
    release_mapped_pages(file.data() + 100, (4 << 20) - 100);
    // The first page is not whole in the released range; the kernel also unmaps it if it is part of a huge page.
    CHECK(resident_kb() >= 4096);
    CHECK(resident_kb() <= 4096 + sysconf(_SC_PAGESIZE) / 1024);
    file.release(0, bytes.size());
    CHECK(resident_kb() == 0);
  }
  CHECK(equals(0, bytes.size()));
  for (const size_t first : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{5000}})
    for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{4097}, size_t{9000}, size_t{100'000}}) {
      release_mapped_pages(file.data() + first, size);
      CHECK(equals(0, 200'000));
    }
  std::string memory = bytes;
  release_mapped_pages(memory.data(), memory.size());
  CHECK(memory == bytes);
}

TEST_CASE("a bus error outside mapped files ends the process by SIGBUS") {
  const ProcessEnd process_end = run_in_fork([] {
    install_sigbus_handler();
    std::raise(SIGBUS);
  });
  REQUIRE(WIFSIGNALED(process_end.status));
  CHECK(WTERMSIG(process_end.status) == SIGBUS);
}

TEST_CASE("write_fully() writes all bytes to a pipe that takes them in parts") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const std::string text(300'000, 'y');  // more than a pipe holds
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    _exit(write_fully(ends[1], text));
  }
  close(ends[1]);
  std::string actual;
  char buffer[1000];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) actual.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(actual == text);
  const int read_only_descriptor = open("/dev/null", O_RDONLY);
  CHECK(write_fully(read_only_descriptor, "x") == EBADF);
  close(read_only_descriptor);
}

TEST_CASE("escape_controls() escapes control characters and keeps all other text") {
  CHECK(escape_controls("plain, na\u00efve \u6771\u4eac\t\n") == "plain, na\u00efve \u6771\u4eac\t\n");
  CHECK(escape_controls("\x1b[31mred\x1b[0m\a\r\x7f") == "\\x1b[31mred\\x1b[0m\\x07\\x0d\\x7f");
  CHECK(escape_controls("\u0085\u009b2J\u00a0") == "\\x85\\x9b2J\u00a0");
  CHECK(escape_controls(std::string("a\0b", 3)) == "a\\x00b");
  CHECK(escape_controls("\xc2") == "\xc2");
  CHECK(escape_controls("\x9b[J\xe9\xc2") == "\\x9b[J\xe9\xc2");
  CHECK(escape_controls("\xe4\x9b") == "\xe4\\x9b");
  CHECK(escape_controls("a\u202eb\u202a\u2066\u2069") == "a\\u202eb\\u202a\\u2066\\u2069");
  CHECK(escape_controls("\u2029\u202f\u2065\u206a\u200f") == "\u2029\u202f\u2065\u206a\u200f");
}
