#include "fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/log.h"

// The interface of the sanitizer's allocator; GCC 12 has no header for it.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, size_t),
                                                         void (*on_free)(const volatile void*));
extern "C" size_t __sanitizer_get_allocated_size(const volatile void* block);

namespace fuzz {

namespace {

// Bytes allocated since the start of the current check and not yet freed: current and largest number.
std::atomic<size_t> live_bytes = 0, peak_bytes = 0;

void on_malloc(const volatile void*, size_t size) {
  const size_t now = live_bytes.fetch_add(size) + size;
  for (size_t before = peak_bytes.load(); before < now && !peak_bytes.compare_exchange_weak(before, now);) {
  }
}
void on_free(const volatile void* block) {
  // The current check may free a block from before its start; the count must not become negative.
  const size_t size = __sanitizer_get_allocated_size(block);
  for (size_t before = live_bytes.load();
       !live_bytes.compare_exchange_weak(before, before > size ? before - size : 0);) {
  }
}

// Whether the allocation hooks are installed. The initialisation also silences the log, since messages of readers would
// hide the report of a failure.
const bool are_hooks_installed = [] {
  mh::set_log_level(mh::LogLevel::quiet);
  return __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) != 0;
}();

[[noreturn]] void fail(const char* message) {
  std::fprintf(stderr, "fuzz: %s\n", message);
  std::abort();
}

}  // namespace

const std::string& memory_file(std::string_view bytes) {
  static const int descriptor = memfd_create("input", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  if (pwrite(descriptor, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()) ||
      ftruncate(descriptor, static_cast<off_t>(bytes.size())) != 0)
    fail("writing a file in memory failed");
  return path;
}

namespace {

struct Folder {
  std::string path = "/dev/shm/multihead-fuzz-" + std::to_string(getpid());
  std::vector<std::string> texts;  // content of each file of the argument `names`; "": the file does not exist
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace

const std::string& memory_folder(std::span<const char* const> names, std::span<const std::string> texts) {
  static Folder folder;
  folder.texts.resize(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (texts[i] == folder.texts[i]) continue;
    folder.texts[i] = texts[i];
    const std::string path = folder.path + "/" + names[i];
    if (texts[i].empty()) std::filesystem::remove(path);
    else std::ofstream(path, std::ios::binary) << texts[i];
  }
  return folder.path;
}

void check(size_t size, size_t factor, const std::function<void()>& reader) {
  if (!are_hooks_installed) fail("the sanitizer cannot count allocations");
  live_bytes = peak_bytes = 0;
  try {
    reader();
  } catch (const mh::Error& error) {
    if (error.exit() != mh::Exit::input && error.exit() != mh::Exit::usage) fail(error.what());
  } catch (const std::exception& error) {
    fail(error.what());
  }
  if (peak_bytes > (size_t{64} << 20) + factor * size) {
    std::fprintf(stderr, "fuzz: %zu bytes allocated for a file of %zu bytes\n", peak_bytes.load(), size);
    std::abort();
  }
}

std::vector<std::string> split_records(std::string_view bytes, size_t count) {
  std::vector<std::string> parts;
  while (parts.size() + 1 < count) {
    const size_t end = std::min(bytes.find('\x1e'), bytes.size());
    parts.emplace_back(bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  parts.emplace_back(bytes);
  return parts;
}

}  // namespace fuzz
