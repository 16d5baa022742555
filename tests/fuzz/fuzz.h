// Functions that the fuzz targets share. A target is one source file that defines LLVMFuzzerTestOneInput(data, size),
// the entry point of libFuzzer: it passes the bytes to readers of the library as a damaged file. In ./run test
// driver.cpp calls the same function, without libFuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fuzz {

// Writes the bytes to a file in memory (memfd_create), for readers that take a path, and returns its path. The process
// has one such file: the next call replaces its content.
const std::string& memory_file(std::string_view bytes);

// Writes files to a folder in memory (/dev/shm), for readers that take a folder, and returns its path. For an empty
// text no file is written. The process has one such folder: the next call, with the same names, replaces the files that
// differ.
const std::string& memory_folder(std::span<const char* const> names, std::span<const std::string> texts);

// Factors of check() for binary and text formats: bytes that a reader may allocate per byte of the file, in addition to
// 64 MiB.
inline constexpr size_t kBinaryFactor = 2, kTextFactor = 24;

// Runs a reader of a file of `size` bytes. The reader may return or throw Error(input) or Error(usage), the refusals of
// a damaged file. Aborts the process after any other exception, or if more than 64 MiB + factor * size bytes
// are allocated and not yet freed at any moment.
void check(size_t size, size_t factor, const std::function<void()>& reader);

// Splits the bytes at the first `count` - 1 bytes 0x1E (the ASCII record separator) into `count` texts, the contents of
// several files; missing texts are empty.
std::vector<std::string> split_records(std::string_view bytes, size_t count);

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
