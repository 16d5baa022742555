// Byte input and output: the interfaces ByteSource and ByteSink for files, pipes and standard streams. The path "-" is
// standard input or standard output. Callers close sinks explicitly with close(), which reports errors; destructors
// only release resources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mh {

// A byte output with a buffer of 1 MiB. write() and close() throw Error(failed), with the name of the output and the
// message of the system, or BrokenPipe.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual void write(const void* data, size_t size) = 0;
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Flushes the buffer; also syncs a file to disk and renames it from its temporary name to its final name. Without
  // close() no file appears, and an existing file of the final name remains unchanged.
  virtual void close() = 0;
  // Returns the number of bytes passed to write(); for a terminal, the number of bytes after control characters are
  // escaped.
  virtual uint64_t bytes_written() const = 0;
  virtual const std::string& name() const = 0;
};

// Opens a file for writing, or standard output for "-". A file is written under a temporary name in the same folder,
// and close() renames it atomically; the new file has the permissions of the file that it replaces; without such a
// file, the umask determines its permissions. A device such as /dev/null or a FIFO is written in place. Throws
// Error(failed) if the folder does not exist or is read-only, and Error(usage) if `path` is a folder or empty.
std::unique_ptr<ByteSink> open_sink(const std::string& path);

// Discards all outputs of this process from now on: standard output becomes /dev/null, and open_sink() returns sinks
// that create no file. Every process of a job except rank 0 calls this function, since all processes have the same
// results. Throws Error(failed) if /dev/null cannot be opened.
void discard_outputs();
// Returns whether discard_outputs() has been called.
bool discards_outputs();
// Discards what is written to standard output after its reader has closed the pipe, instead of throwing BrokenPipe.
// Rank 0 of a job of several processes calls this function, since the other processes need rank 0 until the end of the
// job.
void continue_after_closed_pipe();

struct TemporaryPath;  // an entry of the table that remove_unfinished_outputs() reads; in file.cpp

// A new folder of files. The files are written to a temporary folder in the same parent folder, and close() gives the
// temporary folder its final name. Without close() no folder appears, and the destructor removes the temporary folder.
class OutputFolder {
 public:
  // Creates the temporary folder. Throws Error(failed) if the parent folder does not exist or is read-only.
  explicit OutputFolder(const std::string& path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  // Returns the path at which the caller writes the file `name`, for example with open_sink(), and registers the path
  // for remove_unfinished_outputs().
  std::string file(const std::string& name);
  // Renames the folder to its final name. Throws Error(failed) if a file or a folder with files has this name.
  void close();

 private:
  std::string path_, temporary_path_;
  std::vector<TemporaryPath*> table_entries_;  // the folder and its files, for remove_unfinished_outputs()
};

// Removes the temporary files of open sinks, and the folders and files of open OutputFolders, up to 64 paths in all.
// Safe in signal handlers, since the function only calls unlink() and rmdir().
void remove_unfinished_outputs();
// Returns the name, without control characters, of the mapped file (MappedFile) that contains the address, or null.
// Safe in signal handlers, since the function only reads memory, and takes no lock.
const char* mapped_file_name_at(const void* address);
// Returns a sink that writes to an open file descriptor; close() flushes the sink but does not close the descriptor.
// `name`: name of the output in messages.
std::unique_ptr<ByteSink> sink_of_descriptor(int descriptor, const std::string& name);

// A sequential byte input.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads between 1 and `size` bytes and returns their number; returns 0 at the end of the input. Throws Error(input)
  // if reading fails, or Error(device) if the system lacks memory.
  virtual size_t read(void* data, size_t size) = 0;
  virtual const std::string& name() const = 0;
  // Reads exactly `size` bytes. Returns false if the input ends earlier; the bytes read until then are lost.
  bool read_exactly(void* data, size_t size);
};
// Opens a file for reading, or standard input for "-". Throws Error(input) if the file is missing, is a folder or may
// not be read, and Error(device) if the system lacks memory.
std::unique_ptr<ByteSource> open_source(const std::string& path);

// A regular file that is mapped into memory, read-only; data() is null for an empty file. The constructor throws
// Error(input) for "-", pipes and devices, and for paths that open_source() cannot open.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& name() const { return name_; }
  // Throws Error(input) if another program has shortened the file. Callers use this function after they have read a
  // file without checksums, since in a shortened file the bytes of the last page after the new end read as zeros,
  // without SIGBUS. Accepts a file that was renamed, removed or replaced, whose data stay complete.
  void require_full_size() const;
  // Throws Error(input) if another program has shortened the file or has written to it. Callers use this function
  // before they report results that were computed from mapped bytes, which change with the file. Accepts a file that
  // was renamed, removed or replaced, like require_full_size().
  void require_unchanged() const;
  // Releases the memory of the pages that lie completely within the bytes first, …, first + size - 1. The bytes stay
  // readable; the next access reads them from the file again. Callers that read a large file once use this function, so
  // that the file does not fill the memory of the process.
  void release(size_t first, size_t size) const;
  // Returns whether `path` names a regular file, which can be mapped, instead of "-", a pipe or a device.
  static bool is_mappable(const std::string& path);

 private:
  std::string name_, escaped_name_;  // escaped_name_: without control characters, for a signal handler
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  uint64_t device_ = 0, inode_ = 0;  // identity of the file, for require_full_size()
  int64_t modification_time_ = 0;    // ns since 1970, for require_unchanged()
};

// Releases the memory of the pages that lie completely within the `size` bytes at `data`, if these bytes are part of a
// MappedFile, as MappedFile::release() does; other bytes stay in memory. For bytes whose file the caller does not know.
void release_mapped_pages(const void* data, size_t size);

// Returns the name of an input in messages: "standard input" for "-", otherwise the path.
std::string input_name(const std::string& path);
// Returns the content of a file, or of standard input for "-". Throws Error(input) if opening or reading fails.
std::string read_text_file(const std::string& path);
// Returns the content of a regular file. Throws Error(input) for a pipe or a device, which could supply bytes without
// end, and for paths that open_source() cannot open. Meant for paths that come from a folder or from another file
// instead of the user.
std::string read_regular_file(const std::string& path);
// Writes a file under a temporary name and renames it, as open_sink() does.
void write_file_atomically(const std::string& path, std::string_view bytes);
// Calls open(2) and repeats it while signals interrupt it. Returns the descriptor, or -1 with errno.
int open_descriptor(const std::string& path, int flags, unsigned mode = 0);
// Writes all bytes to an open descriptor; repeats writes that signals interrupt or that write only some of the bytes.
// Returns 0, or the errno of the failed write.
int write_fully(int descriptor, std::string_view bytes);

// Throws Error(usage) if `output` is the same file as one of the inputs, or as a file directly inside a folder among
// the inputs. Compares device and inode, so that links and redirections of the standard streams are detected.
void refuse_output_onto_input(const std::string& output, const std::vector<std::string>& inputs);

// Reads lines of text. '\n' ends a line; the last line may lack it. Memory use is constant: next() returns a line that
// is longer than `max_line_bytes` bytes in several chunks.
class LineReader {
 public:
  explicit LineReader(ByteSource& source, size_t max_line_bytes = 1 << 20);
  // A line, or a part of a line that is longer than `max_line_bytes`.
  struct Chunk {
    std::string_view text;  // bytes of the chunk, without the '\n'; valid until the next call
    bool starts_line;       // the chunk is the first of its line
    // The chunk is the last of its line. False for a chunk of `max_line_bytes` bytes after which the input ends without
    // '\n'.
    bool ends_line;
    bool has_newline;      // a '\n' follows the chunk
    uint64_t line_number;  // number of the line, from 1
    uint64_t offset;       // offset in the input of the first byte of the chunk
  };
  // Reads the next chunk. Returns false at the end of the input.
  bool next(Chunk& chunk);

 private:
  ByteSource& source_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // range in `buffer_` of the bytes that no chunk has returned yet
  size_t max_line_bytes_;
  uint64_t line_number_ = 1, offset_ = 0;  // line number and offset of the next chunk
  bool starts_line_ = true;                // the next chunk is the first of its line
  bool has_source_ended_ = false;
};

}  // namespace mh
