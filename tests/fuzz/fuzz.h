// Shared by the fuzz targets. A target is one source file that defines LLVMFuzzerTestOneInput(data, size), the entry
// point of libFuzzer: it passes the bytes to one reader of the library as a damaged file. In ./run test driver.cpp
// calls the same function, without libFuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fuzz {

// A file in memory (memfd_create), for readers that take a path. The file exists as long as this object.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

// A folder in memory (/dev/shm) with files, for readers that take a folder. An empty text makes no file. The folder
// exists as long as this object.
class MemoryFolder {
 public:
  MemoryFolder(std::span<const char* const> names, std::span<const std::string> texts);
  ~MemoryFolder();
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Allocated bytes that a damaged file of `size` bytes may cost: 64 MiB, and `factor` times its size.
inline constexpr size_t kBinaryFactor = 2, kTextFactor = 24;

// Runs a reader of a file of `size` bytes. The reader may return or throw Error(input) or Error(usage), the refusals of
// a damaged file. Aborts the process after any other exception, and if the allocations that exist at one time exceed 64
// MiB + factor * size.
void check(size_t size, size_t factor, const std::function<void()>& reader);

// Splits the bytes at each 0x1E (the ASCII record separator) into `count` texts, the contents of several files; missing
// ones are empty, and the last one has the rest.
std::vector<std::string> divide(std::string_view bytes, size_t count);

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
