#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/system_message.h"
#include "base/text.h"
#include "base/unicode.h"

namespace mh {

namespace {

constexpr size_t kBufferBytes = 1 << 20;

// The umask of the process at its start. The only way to read the umask is to set it, so it is read before other
// threads exist, since these could create a file while the umask is 0.
const mode_t start_umask = [] {
  const mode_t mask = umask(0);
  umask(mask);
  return mask;
}();

// Repeats a system call while a signal interrupts it.
template <class Call>
auto retry_if_interrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// Closes a descriptor and returns 0 or an errno. Linux closes the descriptor even if a signal interrupts the call.
int close_descriptor(int descriptor) { return ::close(descriptor) == 0 || errno == EINTR ? 0 : errno; }

// Returns advice for the errno of a failed write.
std::string advice_for_errno(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "free some space, or write elsewhere";
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose a writable folder";
    case ENOENT:
      return "create the folder first";
    default:
      return "write to another folder or disk";
  }
}

// Returns the error of a failed system call on an input: Error(device) if the system lacks memory, since the input may
// be intact, otherwise Error(input) with `advice`.
Error input_error(const std::string& name, const std::string& expected, int error_number, const std::string& advice) {
  const bool lacks_memory = error_number == ENOMEM;
  return {lacks_memory ? Exit::device : Exit::input,
          Problem{name, expected, system_message(error_number),
                  lacks_memory ? "free memory, or use a machine with more memory" : advice}};
}

[[noreturn]] void fail_to_write(const std::string& name, int error_number) {
  if (error_number == EPIPE) throw BrokenPipe(name);
  // The folder of an output is missing, since the output itself need not exist.
  const std::string found = error_number == ENOENT ? "no such folder" : system_message(error_number);
  throw Error(Exit::failed, Problem{name, "a writable output", found, advice_for_errno(error_number)});
}

bool continues_after_closed_pipe = false;

// Makes standard output the file /dev/null.
void redirect_standard_output_to_null() {
  const int descriptor = open_descriptor("/dev/null", O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) fail_to_write("/dev/null", errno);
  std::fflush(stdout);
  const int result = retry_if_interrupted([&] { return dup2(descriptor, STDOUT_FILENO); });
  const int error_number = errno;
  ::close(descriptor);
  if (result < 0) fail_to_write("/dev/null", error_number);
}

// Reads one byte of each page of the memory from `bytes` on.
void read_each_page(const char* bytes, size_t size) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t i = 0; i < size; i += page_bytes) (void)*static_cast<const volatile char*>(bytes + i);
  if (size > 0) (void)*static_cast<const volatile char*>(bytes + size - 1);
}

class DescriptorSink : public ByteSink {
 public:
  DescriptorSink(int descriptor, std::string name) : descriptor_(descriptor), name_(std::move(name)) {
    buffer_.reserve(kBufferBytes);
  }

  using ByteSink::write;
  void write(const void* data, size_t size) override {
    const char* bytes = static_cast<const char*>(data);
    if (buffer_.size() + size > kBufferBytes) flush();
    if (size >= kBufferBytes) write_all(bytes, size);
    else buffer_.insert(buffer_.end(), bytes, bytes + size);
    bytes_written_ += size;
  }
  void close() override { flush(); }
  uint64_t bytes_written() const override { return bytes_written_; }
  const std::string& name() const override { return name_; }

 protected:
  void flush() {
    write_all(buffer_.data(), buffer_.size());
    buffer_.clear();
  }
  int descriptor_;
  std::string name_;

 private:
  void write_all(const char* bytes, size_t size) {
    const int error_number = write_fully(descriptor_, {bytes, size});
    // write() reports EFAULT, an error of its input, if the bytes are in a mapped file that another program has
    // truncated. A read of the bytes raises SIGBUS, whose handler names this file.
    if (error_number == EFAULT) read_each_page(bytes, size);
    if (error_number == EPIPE && descriptor_ == STDOUT_FILENO && continues_after_closed_pipe)
      redirect_standard_output_to_null();
    else if (error_number != 0) fail_to_write(name_, error_number);
  }
  std::vector<char> buffer_;
  uint64_t bytes_written_ = 0;
};

// Returns the number of bytes at the end of a text that begin a UTF-8 character whose other bytes are missing.
size_t count_incomplete_bytes(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(3, text.size()); ++n) {
    if (is_continuation_byte(text[text.size() - n])) continue;
    const auto byte = static_cast<unsigned char>(text[text.size() - n]);
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return n < length ? n : 0;
  }
  return 0;
}

// Standard output on a terminal. Escapes control characters, so that the terminal shows them instead of obeying them.
class TerminalSink : public DescriptorSink {
 public:
  TerminalSink() : DescriptorSink(STDOUT_FILENO, kStandardOutput) {}
  using ByteSink::write;
  void write(const void* data, size_t size) override {
    pending_bytes_.append(static_cast<const char*>(data), size);
    write_escaped(pending_bytes_.size() - count_incomplete_bytes(pending_bytes_));
  }
  void close() override {
    write_escaped(pending_bytes_.size());
    DescriptorSink::close();
  }

 private:
  void write_escaped(size_t num_bytes) {
    const std::string escaped_text = escape_controls({pending_bytes_.data(), num_bytes});
    pending_bytes_.erase(0, num_bytes);
    DescriptorSink::write(escaped_text.data(), escaped_text.size());
  }
  std::string pending_bytes_;  // start of a character that the next write() completes
};

}  // namespace

// Path of an unfinished file or folder, in static memory so that a signal handler can read it.
struct TemporaryPath {
  std::atomic<bool> is_claimed{false};  // a thread has taken the entry
  std::atomic<bool> has_path{false};    // `path` is complete, so a signal handler may read it
  char path[PATH_MAX]{};
};

namespace {

constinit std::array<TemporaryPath, 64> temporary_paths;  // constinit: initialising at start-up would touch each page

// Stores the path of an unfinished file or folder in a free entry of `temporary_paths` and returns the entry. Returns
// null if all entries are in use or the path is too long.
TemporaryPath* register_temporary_path(const std::string& path) {
  if (path.size() >= PATH_MAX) return nullptr;
  for (TemporaryPath& t : temporary_paths)
    if (!t.is_claimed.exchange(true)) {
      std::memcpy(t.path, path.c_str(), path.size() + 1);
      t.has_path = true;
      return &t;
    }
  return nullptr;
}
// Frees an entry that register_temporary_path() returned.
void release_temporary_path(TemporaryPath* entry) {
  if (entry == nullptr) return;
  entry->has_path = false;
  entry->is_claimed = false;
}

// Syncs the folder that contains `path`, so that the new name survives a power failure. Logs only a warning if syncing
// fails, since the output is already complete under its name.
void sync_folder_of(const std::string& path) {
  size_t slash = path.rfind('/');
  std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  int descriptor = open_descriptor(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool is_synced =
      descriptor >= 0 && (retry_if_interrupted([&] { return fsync(descriptor); }) == 0 || errno == EINVAL);
  const int error_number = is_synced ? 0 : errno;
  if (descriptor >= 0) ::close(descriptor);
  if (error_number != 0)
    log_warning(str(path, " is written, but its name may not survive a power failure: cannot sync ", folder, ": ",
                    system_message(error_number)));
}

// Address range and name of a mapped file, for a signal handler, which only reads atomic variables.
struct Mapping {
  std::atomic<const uint8_t*> begin{nullptr};  // null: the entry is free
  std::atomic<const uint8_t*> end{nullptr};
  std::atomic<const char*> name{nullptr};  // without control characters and line feeds
};
// A block of the table of mappings. The table grows by blocks, which are never freed, so that a signal handler can read
// them without a lock.
struct MappingBlock {
  std::array<Mapping, 256> mappings;
  std::atomic<MappingBlock*> next{nullptr};
};
constinit MappingBlock first_mappings;
std::mutex mappings_mutex;

// Returns a free entry of the table. The caller holds `mappings_mutex`.
Mapping& free_mapping() {
  for (MappingBlock* block = &first_mappings;; block = block->next) {
    for (Mapping& m : block->mappings)
      if (m.begin == nullptr) return m;
    if (block->next == nullptr) block->next = new MappingBlock;
  }
}
// Adds an entry, which refers to `name` until remove_mapping().
void add_mapping(const uint8_t* begin, size_t size, const char* name) {
  const std::lock_guard lock(mappings_mutex);
  Mapping& m = free_mapping();
  m.name = name;
  m.end = begin + size;
  m.begin = begin;
}
void remove_mapping(const uint8_t* begin) {
  const std::lock_guard lock(mappings_mutex);
  for (MappingBlock* block = &first_mappings; block != nullptr; block = block->next)
    for (Mapping& m : block->mappings)
      if (m.begin == begin) m.begin = nullptr;
}

// Writes to a temporary file and renames it in close(), so that the final name never refers to an incomplete file.
class FileSink : public DescriptorSink {
 public:
  FileSink(const std::string& path, mode_t mode) : DescriptorSink(-1, path) {
    do {
      temporary_path_ = path + ".partXXXXXX";  // set for each attempt: a failed mkostemp() may change the path
      descriptor_ = mkostemp(temporary_path_.data(), O_CLOEXEC);
    } while (descriptor_ < 0 && errno == EINTR);
    if (descriptor_ < 0) fail_to_write(path, errno);
    if (fchmod(descriptor_, mode) != 0) {
      const int error_number = errno;
      ::close(descriptor_);
      unlink(temporary_path_.c_str());
      fail_to_write(path, error_number);
    }
    table_entry_ = register_temporary_path(temporary_path_);
  }
  ~FileSink() override {
    release_temporary_path(table_entry_);
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    unlink(temporary_path_.c_str());
  }

  void close() override {
    flush();
    if (retry_if_interrupted([&] { return fsync(descriptor_); }) != 0 && errno != EINVAL) fail_to_write(name_, errno);
    int descriptor = descriptor_;
    descriptor_ = -1;
    int error_number = close_descriptor(descriptor);
    if (error_number == 0 && rename(temporary_path_.c_str(), name_.c_str()) != 0) error_number = errno;
    if (error_number != 0) {
      unlink(temporary_path_.c_str());
      fail_to_write(name_, error_number);
    }
    sync_folder_of(name_);
  }

 private:
  std::string temporary_path_;
  TemporaryPath* table_entry_ = nullptr;
};

// Writes in place to a device or FIFO, which the constructor opens and close() closes.
class SpecialFileSink : public DescriptorSink {
 public:
  explicit SpecialFileSink(const std::string& path)
      : DescriptorSink(open_descriptor(path, O_WRONLY | O_CLOEXEC), path) {
    if (descriptor_ < 0) fail_to_write(path, errno);
  }
  ~SpecialFileSink() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  void close() override {
    flush();
    int descriptor = descriptor_;
    descriptor_ = -1;
    if (const int error_number = close_descriptor(descriptor); error_number != 0) fail_to_write(name_, error_number);
  }
};

// Counts the bytes of an output that discard_outputs() suppresses.
class DiscardingSink : public ByteSink {
 public:
  explicit DiscardingSink(std::string name) : name_(std::move(name)) {}
  using ByteSink::write;
  void write(const void*, size_t size) override { bytes_written_ += size; }
  void close() override {}
  uint64_t bytes_written() const override { return bytes_written_; }
  const std::string& name() const override { return name_; }

 private:
  std::string name_;
  uint64_t bytes_written_ = 0;
};
bool are_outputs_discarded = false;

class DescriptorSource : public ByteSource {
 public:
  DescriptorSource(int descriptor, std::string name, bool owns_descriptor)
      : descriptor_(descriptor), name_(std::move(name)), owns_descriptor_(owns_descriptor) {}
  ~DescriptorSource() override {
    if (owns_descriptor_) ::close(descriptor_);
  }
  size_t read(void* data, size_t size) override {
    const ssize_t n = retry_if_interrupted([&] { return ::read(descriptor_, data, size); });
    if (n < 0)
      throw input_error(
          name_, "a readable input", errno,
          errno == EISDIR ? "name a file in the folder" : "check the disk or the connection that provides the input");
    return static_cast<size_t>(n);
  }
  const std::string& name() const override { return name_; }

 private:
  int descriptor_;
  std::string name_;
  bool owns_descriptor_;
};

// Opens a file for reading with additional `flags` and sets `status` to its properties; returns the descriptor. Throws
// Error(input) for folders and for paths that cannot be opened.
int open_to_read(const std::string& path, struct stat& status, int flags = 0) {
  int descriptor = open_descriptor(path, O_RDONLY | O_CLOEXEC | flags);
  if (descriptor < 0)
    throw input_error(path, "a file to read", errno,
                      errno == ENOENT ? "check the name" : "check the permissions of the file");
  if (const int error_number = fstat(descriptor, &status) == 0 ? 0 : errno;
      error_number != 0 || S_ISDIR(status.st_mode)) {
    close(descriptor);
    if (error_number != 0)
      throw input_error(path, "a file to read", error_number,
                        "check the disk or the connection that provides the file");
    refuse_input(path, "a file to read", "a folder", "name a file in the folder");
  }
  return descriptor;
}

}  // namespace

OutputFolder::OutputFolder(const std::string& path) : path_(path), temporary_path_(path + ".partXXXXXX") {
  if (mkdtemp(temporary_path_.data()) == nullptr) fail_to_write(path, errno);
  table_entries_.push_back(register_temporary_path(temporary_path_));
  // mkdtemp() gives the folder the mode 0700. If the parent folder has the set-group-ID bit, the new folder has this
  // bit, too, and chmod() must preserve it.
  struct stat status {};
  const bool has_mode = stat(temporary_path_.c_str(), &status) == 0 &&
                        chmod(temporary_path_.c_str(), (status.st_mode & 07777) | (0777 & ~start_umask)) == 0;
  if (has_mode) return;
  const int error_number = errno;
  rmdir(temporary_path_.c_str());
  release_temporary_path(table_entries_.front());
  fail_to_write(path, error_number);
}

OutputFolder::~OutputFolder() {
  std::error_code ignored_error;
  std::filesystem::remove_all(temporary_path_, ignored_error);  // finds nothing after close()
  for (TemporaryPath* entry : table_entries_) release_temporary_path(entry);
}

std::string OutputFolder::file(const std::string& name) {
  std::string path = str(temporary_path_, "/", name);
  table_entries_.push_back(register_temporary_path(path));
  return path;
}

void OutputFolder::close() {
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) fail_to_write(path_, errno);
  sync_folder_of(path_);
}

void remove_unfinished_outputs() {
  for (const TemporaryPath& t : temporary_paths)
    if (t.has_path) unlink(t.path);
  for (const TemporaryPath& t : temporary_paths)
    if (t.has_path) rmdir(t.path);  // fails, as intended, for a file
}

const char* mapped_file_name_at(const void* address) {
  for (const MappingBlock* block = &first_mappings; block != nullptr; block = block->next)
    for (const Mapping& m : block->mappings) {
      const uint8_t* begin = m.begin;
      if (begin != nullptr && address >= begin && address < m.end) return m.name;
    }
  return nullptr;
}

std::unique_ptr<ByteSink> sink_of_descriptor(int descriptor, const std::string& name) {
  return std::make_unique<DescriptorSink>(descriptor, name);
}

void discard_outputs() {
  redirect_standard_output_to_null();
  are_outputs_discarded = true;
}
bool discards_outputs() { return are_outputs_discarded; }

void continue_after_closed_pipe() { continues_after_closed_pipe = true; }

std::unique_ptr<ByteSink> open_sink(const std::string& path) {
  if (are_outputs_discarded) return std::make_unique<DiscardingSink>(path == "-" ? kStandardOutput : path);
  if (path == "-" && isatty(STDOUT_FILENO) == 1) return std::make_unique<TerminalSink>();
  if (path == "-") return sink_of_descriptor(STDOUT_FILENO, kStandardOutput);
  if (path.empty()) refuse_usage("output", "a file name, or - for standard output", "''", "name the output file");
  struct stat status {};
  mode_t mode = 0666 & ~start_umask;
  if (stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) refuse_usage(path, "a file to write", "a folder", "name a file in the folder");
    if (!S_ISREG(status.st_mode)) return std::make_unique<SpecialFileSink>(path);
    mode = status.st_mode & 07777;
    // Replaces the target of a symbolic link and preserves the link.
    std::unique_ptr<char, decltype(&std::free)> resolved_path(realpath(path.c_str(), nullptr), &std::free);
    if (resolved_path == nullptr) fail_to_write(path, errno);
    return std::make_unique<FileSink>(resolved_path.get(), mode);
  }
  if (errno != ENOENT) fail_to_write(path, errno);  // `path` may exist; close() must not replace it
  return std::make_unique<FileSink>(path, mode);
}

bool ByteSource::read_exactly(void* data, size_t size) {
  char* bytes = static_cast<char*>(data);
  while (size > 0) {
    size_t n = read(bytes, size);
    if (n == 0) return false;
    bytes += n;
    size -= n;
  }
  return true;
}

std::string input_name(const std::string& path) { return path == "-" ? "standard input" : path; }

std::unique_ptr<ByteSource> open_source(const std::string& path) {
  if (path == "-") return std::make_unique<DescriptorSource>(STDIN_FILENO, input_name(path), false);
  struct stat status {};
  int descriptor = open_to_read(path, status);
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  return std::make_unique<DescriptorSource>(descriptor, path, true);
}

namespace {

int64_t modification_time_of(const struct stat& status) {
  return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

// Releases the memory of the pages that lie completely within `size` mapped bytes. Pages of a read-only mapping of a
// file are read from the file again at the next access.
void release_whole_pages(const uint8_t* bytes, size_t size) {
  const auto page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t num_before_page = (page_size - reinterpret_cast<uintptr_t>(bytes) % page_size) % page_size;
  if (size < num_before_page + page_size) return;
  // A failure only leaves the pages in memory.
  madvise(const_cast<uint8_t*>(bytes) + num_before_page, (size - num_before_page) / page_size * page_size,
          MADV_DONTNEED);
}

// Returns the status of the file `path` if it still is the file with this identity; nullopt if the file was renamed,
// removed or replaced.
std::optional<struct stat> status_of_file(const std::string& path, uint64_t device, uint64_t inode) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || status.st_dev != device || status.st_ino != inode) return std::nullopt;
  return status;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : name_(path), escaped_name_(escape_message(path)) {
  if (path == "-")
    refuse_input(input_name(path), "a regular file, since this input needs random access", "-",
                 "write the data to a file first");
  struct stat status {};
  int descriptor = open_to_read(path, status, O_NONBLOCK);  // O_NONBLOCK: does not wait for the writer of a pipe
  if (!S_ISREG(status.st_mode)) {
    close(descriptor);
    refuse_input(path, "a regular file, since this input needs random access", "a pipe or a device",
                 "write the data to a file first");
  }
  size_ = static_cast<size_t>(status.st_size);
  device_ = status.st_dev, inode_ = status.st_ino;
  modification_time_ = modification_time_of(status);
  if (size_ > 0) {
    void* address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      int error_number = errno;
      close(descriptor);
      throw input_error(path, "a file that can be mapped into memory", error_number, "copy the file to a local disk");
    }
    data_ = static_cast<const uint8_t*>(address);
    add_mapping(data_, size_, escaped_name_.c_str());
  }
  close(descriptor);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  remove_mapping(data_);
  munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::require_full_size() const {
  const auto status = status_of_file(name_, device_, inode_);
  if (status && static_cast<uint64_t>(status->st_size) < size_)
    refuse_input(name_, "a file that keeps its size while the tool reads it",
                 "a file that another program has shortened", "restore the file");
}

void MappedFile::require_unchanged() const {
  require_full_size();
  const auto status = status_of_file(name_, device_, inode_);
  if (status && modification_time_of(*status) != modification_time_)
    refuse_input(name_, "a file that no other program writes while the tool reads it",
                 "a file that another program has changed", "run the tool again once the file is complete");
}

void MappedFile::release(size_t first, size_t size) const {
  if (first <= size_ && size <= size_ - first) release_whole_pages(data_ + first, size);
}

void release_mapped_pages(const void* data, size_t size) {
  if (mapped_file_name_at(data) != nullptr) release_whole_pages(static_cast<const uint8_t*>(data), size);
}

bool MappedFile::is_mappable(const std::string& path) {
  struct stat status {};
  return path != "-" && stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

std::string read_text_file(const std::string& path) {
  auto source = open_source(path);
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (size_t n = source->read(buffer.data(), buffer.size())) text.append(buffer.data(), n);
  return text;
}

std::string read_regular_file(const std::string& path) {
  const MappedFile file(path);
  std::string text(reinterpret_cast<const char*>(file.data()), file.size());
  file.require_full_size();
  return text;
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  auto sink = open_sink(path);
  sink->write(bytes);
  sink->close();
}

int open_descriptor(const std::string& path, int flags, unsigned mode) {
  return retry_if_interrupted([&] { return ::open(path.c_str(), flags, mode); });
}

int write_fully(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = retry_if_interrupted([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
    if (n < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

void refuse_output_onto_input(const std::string& output, const std::vector<std::string>& inputs) {
  auto read_status = [](const std::string& path, int standard_descriptor, struct stat& status) {
    return (path == "-" ? fstat(standard_descriptor, &status) : stat(path.c_str(), &status)) == 0;
  };
  struct stat output_status {};
  if (!read_status(output, STDOUT_FILENO, output_status) || !S_ISREG(output_status.st_mode)) return;
  std::vector<std::string> files = inputs;
  for (const std::string& input : inputs)
    if (std::error_code ignored_error; input != "-" && std::filesystem::is_directory(input, ignored_error))
      for (const auto& entry : std::filesystem::directory_iterator(input, ignored_error))
        files.push_back(entry.path().string());
  for (const std::string& input : files) {
    struct stat input_status {};
    if (read_status(input, STDIN_FILENO, input_status) && input_status.st_dev == output_status.st_dev &&
        input_status.st_ino == output_status.st_ino)
      refuse_usage(output == "-" ? kStandardOutput : output, "an output that is not an input",
                   "the input " + (input == "-" ? "on standard input" : "file " + input) + " itself",
                   "write to another file");
  }
}

LineReader::LineReader(ByteSource& source, size_t max_line_bytes) : source_(source), max_line_bytes_(max_line_bytes) {
  buffer_.resize(std::max<size_t>(2 * max_line_bytes, 1 << 16));
}

bool LineReader::next(Chunk& chunk) {
  size_t num_searched_bytes = 0;  // number of bytes from `begin_` on that are known to contain no '\n'
  for (;;) {
    const char* begin = buffer_.data() + begin_;
    size_t num_buffered_bytes = end_ - begin_;
    const void* newline = num_buffered_bytes > num_searched_bytes
                              ? std::memchr(begin + num_searched_bytes, '\n', num_buffered_bytes - num_searched_bytes)
                              : nullptr;
    size_t length =
        newline != nullptr ? static_cast<size_t>(static_cast<const char*>(newline) - begin) : num_buffered_bytes;
    bool is_line_complete = newline != nullptr || has_source_ended_;
    if ((is_line_complete && num_buffered_bytes > 0) || length >= max_line_bytes_) {
      bool chunk_ends_line = is_line_complete && length <= max_line_bytes_;
      if (!chunk_ends_line) length = max_line_bytes_;
      chunk = {std::string_view(begin, length),       starts_line_, chunk_ends_line,
               chunk_ends_line && newline != nullptr, line_number_, offset_};
      size_t num_consumed_bytes = length + (chunk_ends_line && newline != nullptr ? 1 : 0);
      begin_ += num_consumed_bytes;
      offset_ += num_consumed_bytes;
      starts_line_ = chunk_ends_line;
      if (chunk_ends_line) ++line_number_;
      return true;
    }
    if (has_source_ended_) return false;
    num_searched_bytes = num_buffered_bytes;
    if (end_ == buffer_.size()) {
      std::memmove(buffer_.data(), begin, num_buffered_bytes);
      begin_ = 0;
      end_ = num_buffered_bytes;
    }
    size_t n = source_.read(buffer_.data() + end_, buffer_.size() - end_);
    if (n == 0) has_source_ended_ = true;
    end_ += n;
  }
}

}  // namespace mh
