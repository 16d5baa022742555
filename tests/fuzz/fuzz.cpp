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

std::atomic<size_t> live = 0, peak = 0;  // allocated bytes since the start of the current check

void on_malloc(const volatile void*, size_t size) {
  const size_t now = live.fetch_add(size) + size;
  for (size_t before = peak.load(); before < now && !peak.compare_exchange_weak(before, now);) {
  }
}
void on_free(const volatile void* block) {
  // A block from before the current check, freed during it, must not turn the count negative.
  const size_t size = __sanitizer_get_allocated_size(block);
  for (size_t before = live.load(); !live.compare_exchange_weak(before, before > size ? before - size : 0);) {
  }
}

// Messages of readers would hide the report of a failure.
const bool is_ready = [] {
  mh::set_log_level(mh::LogLevel::quiet);
  return __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) != 0;
}();

[[noreturn]] void fail(const char* message) {
  std::fprintf(stderr, "fuzz: %s\n", message);
  std::abort();
}

}  // namespace

MemoryFile::MemoryFile(std::string_view bytes) : descriptor_(memfd_create("input", MFD_CLOEXEC)) {
  if (descriptor_ < 0) fail("memfd_create failed");
  path_ = "/proc/self/fd/" + std::to_string(descriptor_);
  if (write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    fail("writing a file in memory failed");
}
MemoryFile::~MemoryFile() { close(descriptor_); }

MemoryFolder::MemoryFolder(std::span<const char* const> names, std::span<const std::string> texts)
    : path_("/dev/shm/multihead-fuzz-" + std::to_string(getpid())) {
  std::filesystem::create_directories(path_);
  for (size_t i = 0; i < names.size(); ++i)
    if (!texts[i].empty()) std::ofstream(path_ + "/" + names[i], std::ios::binary) << texts[i];
}
MemoryFolder::~MemoryFolder() { std::filesystem::remove_all(path_); }

void check(size_t size, size_t factor, const std::function<void()>& reader) {
  if (!is_ready) fail("the sanitizer cannot count allocations");
  live = peak = 0;
  try {
    reader();
  } catch (const mh::Error& error) {
    if (error.exit() != mh::Exit::input && error.exit() != mh::Exit::usage) fail(error.what());
  } catch (const std::exception& error) {
    fail(error.what());
  }
  if (peak > (size_t{64} << 20) + factor * size) {
    std::fprintf(stderr, "fuzz: %zu bytes allocated for a file of %zu bytes\n", peak.load(), size);
    std::abort();
  }
}

std::vector<std::string> divide(std::string_view bytes, size_t count) {
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
