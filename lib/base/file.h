// Input and output of bytes: files, pipes and standard streams behind two small interfaces. "-" is standard input or
// output everywhere. Resources are closed explicitly, with error reports; destructors only clean up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mh {

// An output of bytes, buffered (1 MiB). Errors (no space, closed pipe) throw: Error(failed) with the file's name and
// the system's message, or BrokenPipe.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual void write(const void* data, size_t size) = 0;
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Flushes, syncs, and renames a file to its final name. Without close() the file never appears, and an existing one
  // stays.
  virtual void close() = 0;
  virtual uint64_t written() const = 0;
  virtual const std::string& name() const = 0;
};

// Opens a file, written under a temporary name next to it and renamed by close() (atomic; permissions by the umask), or
// standard output for "-". Throws Error(failed) if the folder does not exist or is read-only, Error(usage) for a
// folder. A device such as /dev/full or /dev/null, or a FIFO, is written in place.
std::unique_ptr<ByteSink> open_sink(const std::string& path);
// Removes the temporary files of sinks that are still open. For a signal handler: it only calls unlink().
void unlink_unfinished_files();
// Returns a sink over an open file descriptor; close() does not close it.
std::unique_ptr<ByteSink> sink_of_descriptor(int descriptor, const std::string& name);

// An input of bytes, in order.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads up to `size` bytes, at least one unless at the end; returns how many. Throws Error(input).
  virtual size_t read(void* data, size_t size) = 0;
  virtual const std::string& name() const = 0;
  // Reads exactly `size` bytes; returns false if the input ends before (the bytes read are lost).
  bool read_exactly(void* data, size_t size);
};
// Opens a file or, for "-", standard input. Throws Error(input) for a missing file, a folder, no permission.
std::unique_ptr<ByteSource> open_source(const std::string& path);

// A whole regular file, mapped read-only. Throws the errors of open_source(); an empty file has size 0.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& name() const { return name_; }
  // Returns whether `path` is a regular file (not "-", a pipe or a device), which can be mapped.
  static bool possible(const std::string& path);

 private:
  std::string name_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

std::string read_text_file(const std::string& path);  // reads a whole file; "-" is standard input
void write_file_atomically(const std::string& path, std::string_view bytes);

// Throws Error(usage) if `output` is the same file as one of the inputs (by device and inode, also if standard output
// is redirected to an input).
void refuse_output_onto_input(const std::string& output, const std::vector<std::string>& inputs);

// Reads lines of text: '
// ' ends a line; the last one may lack it. Memory is constant: a line longer than `max_line` bytes is returned in
// chunks (see `ends_line`).
class LineReader {
 public:
  explicit LineReader(ByteSource& source, size_t max_line = 1 << 20);
  struct Chunk {
    std::string_view text;  // without the '\n'; valid until the next call
    bool starts_line;
    bool ends_line;
    bool has_newline;  // ends_line, by a '\n' rather than the end of the input
    uint64_t line;     // from 1
    uint64_t offset;   // offset of the first byte in the input
  };
  bool next(Chunk& piece);

 private:
  ByteSource& source_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0, max_line_;
  uint64_t line_ = 1, offset_ = 0;
  bool starts_ = true, eof_ = false;
};

}  // namespace mh
