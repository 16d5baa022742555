// A library for LD_PRELOAD that makes one system call or large allocation of a tool fail, for
// tests/faults/failing_calls.py.
//
//   MH_FAULT=FUNCTION:N:ERRNO   the Nth call (from 1) of FUNCTION fails with ERRNO, a name in kErrors; malloc always
//                               fails with ENOMEM; write also takes "short", which writes half of the bytes; "KILL"
//                               kills the process by SIGKILL before the call, "STOP" stops the process by SIGSTOP,
//                               and SIGCONT then lets the call succeed
//   MH_FAULT=FUNCTION:N+:ERRNO  all calls from the Nth on fail
//   MH_FAULT_COUNTS=FILE        appends a line "FUNCTION calls" for each function when the process ends
//   MH_FAULT_WRITES=FILE        appends the path of each file that the process, a child or a program that it starts
//                               creates, opens for writing, renames to or removes
//   MH_FAULT_ALLOCATION=BYTES   smallest allocation that "malloc" counts; default: 1 MiB
//
// After the start of main(), counts these calls, which MH_FAULT can make fail:
//   - from the project's own code: open (mkstemp and mkostemp included), read, write (except to stderr), fsync, rename,
//     mmap, close, fstat, fchmod, chmod, ftruncate, flock, lseek, realpath, socketpair, pipe, memfd_create ("memfd"),
//     fork, posix_spawnp ("spawn"), poll, send and waitpid;
//   - from the project's own code and from std::filesystem: stat, mkdir (mkdtemp included), opendir (openat of a folder
//     included), readdir, and unlink (remove and unlinkat included);
//   - from anywhere: allocations ("malloc") of at least MH_FAULT_ALLOCATION bytes by malloc() and its relatives or by
//     any form of operator new, and new threads ("thread").
// mmap counts only mappings of files. fsync counts calls for files, "fsyncfolder" calls for folders. close counts calls
// for outputs (a temporary file, or standard output in a file); "closeother" counts the other calls, except for
// standard output in a pipe: an error of that call is reported although the output file of the command is complete.
//
// Does not count these calls, which therefore never fail by MH_FAULT:
//   - calls of children (fork) and of programs that the tool starts, such as gnuplot: the tool sees only how they end,
//     which the unit tests of Child and Plot cover;
//   - smaller allocations: a run has too many to fail each one, and std::bad_alloc takes the same path for each size;
//   - rmdir: the tools call it only after another call has failed;
//   - isatty, munmap, madvise, posix_fadvise, sigaction, gethostname: their failure cannot change an output;
//   - calls inside the C library (stdio), LibTorch and other libraries: the project sees only the errors of its calls
//     of these libraries.
//
// link(2), linkat(2), renameat2(2) and O_TMPFILE always fail, as on file systems without them.
#undef _FILE_OFFSET_BITS  // otherwise open() is another name of open64()
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

namespace {

enum Function {
  kOpen,
  kRead,
  kWrite,
  kFsync,
  kFsyncFolder,
  kRename,
  kMkdir,
  kMmap,
  kClose,
  kCloseOther,
  kStat,
  kFstat,
  kFchmod,
  kChmod,
  kOpendir,
  kReaddir,
  kUnlink,
  kFtruncate,
  kFlock,
  kLseek,
  kMemfd,
  kSpawn,
  kRealpath,
  kSocketpair,
  kPipe,
  kFork,
  kPoll,
  kSend,
  kWaitpid,
  kThread,
  kMalloc,
  kFunctions
};
constexpr const char* kNames[kFunctions] = {
    "open",   "read",       "write", "fsync", "fsyncfolder", "rename", "mkdir",    "mmap",
    "close",  "closeother", "stat",  "fstat", "fchmod",      "chmod",  "opendir",  "readdir",
    "unlink", "ftruncate",  "flock", "lseek", "memfd",       "spawn",  "realpath", "socketpair",
    "pipe",   "fork",       "poll",  "send",  "waitpid",     "thread", "malloc"};

size_t min_allocation = 1 << 20;  // smallest allocation that is counted, bytes

std::atomic<long> counts[kFunctions];
std::atomic<bool> in_main = false;
pid_t first_process = 0;
int failing_function = -1, failing_errno = 0;
long failing_call = 0;
int signal_number = 0;  // signal that the process receives instead of an error; 0: none
bool fails_from_then_on = false, writes_half = false;

struct ErrorName {
  const char* name;
  int code;
};
constexpr ErrorName kErrors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},     {"EDQUOT", EDQUOT},
                                 {"ENOMEM", ENOMEM}, {"EINTR", EINTR}, {"EAGAIN", EAGAIN},
                                 {"EMFILE", EMFILE}, {"EPERM", EPERM}, {"ENOLCK", ENOLCK}};

template <class Call>
Call real_function(const char* name) {
  return reinterpret_cast<Call>(dlsym(RTLD_NEXT, name));
}

// Returns whether the code at `address` is in a program or library whose name begins with one of the prefixes.
bool is_in(void* address, std::initializer_list<const char*> prefixes) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return false;
  const char* slash = std::strrchr(info.dli_fname, '/');
  const char* name = slash != nullptr ? slash + 1 : info.dli_fname;
  for (const char* prefix : prefixes)
    if (std::strncmp(name, prefix, std::strlen(prefix)) == 0) return true;
  return false;
}
// Returns whether the code at `address` belongs to a tool or a library of the project.
bool is_project_code(void* address) { return is_in(address, {"mh-", "libmultihead"}); }
// Returns whether the code at `address` belongs to the C++ library, which contains std::filesystem, or to LibTorch,
// which may contain a copy of it.
bool is_filesystem(void* address) { return is_in(address, {"libstdc++", "libtorch", "libc10"}); }

// Appends a path to the file MH_FAULT_WRITES with open() and write() instead of a stream, since children call this
// function after fork() too.
void record_write(const char* path) {
  static const char* const log = std::getenv("MH_FAULT_WRITES");
  if (log == nullptr || !in_main) return;
  const int out =
      real_function<int (*)(const char*, int, mode_t)>("open")(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  char line[4096];
  const int size = std::snprintf(line, sizeof line, "%s\n", path);
  if (out < 0 || size >= static_cast<int>(sizeof line) ||
      real_function<ssize_t (*)(int, const void*, size_t)>("write")(out, line, static_cast<size_t>(size)) != size)
    std::abort();
  real_function<int (*)(int)>("close")(out);
}
// Returns whether the flags contain O_TMPFILE, and sets errno if so.
bool is_unsupported(int flags) {
  if ((flags & O_TMPFILE) != O_TMPFILE) return false;
  errno = EOPNOTSUPP;
  return true;
}
bool opens_for_writing(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0; }

// Counts a call. Returns whether the call must fail; with KILL and STOP, the process receives a signal instead.
bool fails(Function function) {
  if (!in_main || getpid() != first_process) return false;
  const long call = ++counts[function];
  if (failing_function != function || (fails_from_then_on ? call < failing_call : call != failing_call)) return false;
  if (signal_number == 0) return true;
  raise(signal_number);
  return false;
}
// Counts a call from the code of the project. Returns whether the call must fail, and sets errno if so.
bool fails(Function function, void* caller) {
  if (!in_main || !is_project_code(caller) || !fails(function)) return false;
  errno = failing_errno;
  return true;
}
// Counts a call from the code of the project or from std::filesystem. Returns whether the call must fail, and sets
// errno if so.
bool fails_in_filesystem(Function function, void* caller) {
  if (!in_main || !(is_project_code(caller) || is_filesystem(caller)) || !fails(function)) return false;
  errno = failing_errno;
  return true;
}
// Whether this thread is inside operator new of the next library. Its calls of malloc() belong to an allocation that is
// already counted. The model initial-exec of thread-local storage never allocates.
[[gnu::tls_model("initial-exec")]] thread_local bool is_in_operator_new = false;
// Sets is_in_operator_new for its lifetime.
class InOperatorNew {
 public:
  InOperatorNew() { is_in_operator_new = true; }
  ~InOperatorNew() { is_in_operator_new = was_in_operator_new_; }
  InOperatorNew(const InOperatorNew&) = delete;
  InOperatorNew& operator=(const InOperatorNew&) = delete;

 private:
  const bool was_in_operator_new_ = is_in_operator_new;
};

// Counts an allocation of at least min_allocation bytes. Returns whether the allocation must fail.
bool fails_to_allocate(size_t size) { return size >= min_allocation && !is_in_operator_new && fails(kMalloc); }
// Counts an allocation by a throwing form of operator new, and calls the function `next` to allocate.
template <class Next, class... Options>
void* allocate_or_throw(Next next, size_t size, Options... options) {
  if (fails_to_allocate(size)) throw std::bad_alloc();
  const InOperatorNew in_operator_new;
  return next(size, options...);
}
// Counts an allocation by a form of operator new that returns null after a failure, and calls the function `next` to
// allocate.
template <class Next, class... Options>
void* allocate_or_null(Next next, size_t size, const Options&... options) noexcept {
  if (fails_to_allocate(size)) return nullptr;
  const InOperatorNew in_operator_new;
  return next(size, options...);
}

bool is_folder(int descriptor) {
  struct stat status;
  return fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode);
}
// Returns whether the descriptor is a temporary file, or standard output in a file.
bool is_output(int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (descriptor == STDOUT_FILENO) return true;
  char name[64], path[4096];
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(name, path, sizeof path - 1);
  if (size < 0) return false;
  path[size] = '\0';
  const char* slash = std::strrchr(path, '/');
  return slash != nullptr && std::strstr(slash, ".part") != nullptr;
}

void read_fault() {
  // A program that the tool starts inherits the library and this variable, which excludes its calls from the count.
  const char* tool_process = std::getenv("MH_FAULT_PROCESS");
  first_process = tool_process != nullptr ? static_cast<pid_t>(std::strtol(tool_process, nullptr, 10)) : getpid();
  char number[16];
  std::snprintf(number, sizeof number, "%d", first_process);
  setenv("MH_FAULT_PROCESS", number, 1);
  if (const char* bytes = std::getenv("MH_FAULT_ALLOCATION"); bytes != nullptr)
    min_allocation = std::strtoull(bytes, nullptr, 10);
  const char* text = std::getenv("MH_FAULT");
  if (text == nullptr) return;
  char function[32], error[32], plus = 0;
  if (std::sscanf(text, "%31[a-z]:%ld:%31s", function, &failing_call, error) != 3) {
    if (std::sscanf(text, "%31[a-z]:%ld%c:%31s", function, &failing_call, &plus, error) != 4) std::abort();
    fails_from_then_on = true;
  }
  for (int i = 0; i < kFunctions; ++i)
    if (std::strcmp(function, kNames[i]) == 0) failing_function = i;
  writes_half = std::strcmp(error, "short") == 0;
  for (const ErrorName& e : kErrors)
    if (std::strcmp(error, e.name) == 0) failing_errno = e.code;
  if (std::strcmp(error, "KILL") == 0) signal_number = SIGKILL;
  if (std::strcmp(error, "STOP") == 0) signal_number = SIGSTOP;
  if (failing_function < 0 || (failing_errno == 0 && !writes_half && signal_number == 0)) std::abort();
}

void write_counts() {
  const char* file = std::getenv("MH_FAULT_COUNTS");
  if (file == nullptr || getpid() != first_process) return;
  in_main = false;
  FILE* out = std::fopen(file, "a");
  if (out == nullptr) return;
  for (int i = 0; i < kFunctions; ++i) std::fprintf(out, "%s %ld\n", kNames[i], counts[i].load());
  std::fclose(out);
}

using Main = int (*)(int, char**, char**);
Main tool_main;
int main_with_faults(int argc, char** argv, char** environment) {
  read_fault();
  in_main = true;
  return tool_main(argc, argv, environment);
}

}  // namespace

extern "C" {

int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld_fini)(),
                      void* stack_end) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  tool_main = main;
  return real_function<Start>("__libc_start_main")(main_with_faults, argc, argv, init, fini, rtld_fini, stack_end);
}

// The tools end with _Exit(), their children with _exit().
[[noreturn]] void _Exit(int status) {
  write_counts();
  real_function<void (*)(int)>("_Exit")(status);
  __builtin_unreachable();
}
[[noreturn]] void _exit(int status) {
  write_counts();
  real_function<void (*)(int)>("_exit")(status);
  __builtin_unreachable();
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  if (fails(kOpen, __builtin_return_address(0)) || is_unsupported(flags)) return -1;
  if (opens_for_writing(flags)) record_write(path);
  return real_function<int (*)(const char*, int, mode_t)>("open")(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  if (fails(kOpen, __builtin_return_address(0)) || is_unsupported(flags)) return -1;
  if (opens_for_writing(flags)) record_write(path);
  return real_function<int (*)(const char*, int, mode_t)>("open64")(path, flags, mode);
}
int mkstemp(char* path) {
  if (fails(kOpen, __builtin_return_address(0))) return -1;
  const int descriptor = real_function<int (*)(char*)>("mkstemp")(path);
  record_write(path);
  return descriptor;
}
int mkstemp64(char* path) {
  if (fails(kOpen, __builtin_return_address(0))) return -1;
  const int descriptor = real_function<int (*)(char*)>("mkstemp64")(path);
  record_write(path);
  return descriptor;
}
int mkostemp(char* path, int flags) {
  if (fails(kOpen, __builtin_return_address(0))) return -1;
  const int descriptor = real_function<int (*)(char*, int)>("mkostemp")(path, flags);
  record_write(path);
  return descriptor;
}
int mkostemp64(char* path, int flags) {
  if (fails(kOpen, __builtin_return_address(0))) return -1;
  const int descriptor = real_function<int (*)(char*, int)>("mkostemp64")(path, flags);
  record_write(path);
  return descriptor;
}
ssize_t read(int descriptor, void* data, size_t size) {
  if (fails(kRead, __builtin_return_address(0))) return -1;
  return real_function<ssize_t (*)(int, void*, size_t)>("read")(descriptor, data, size);
}
ssize_t write(int descriptor, const void* data, size_t size) {
  static const auto real_write = real_function<ssize_t (*)(int, const void*, size_t)>("write");
  if (descriptor != STDERR_FILENO && fails(kWrite, __builtin_return_address(0))) {
    if (!writes_half) return -1;
    return real_write(descriptor, data, size > 1 ? size / 2 : size);
  }
  return real_write(descriptor, data, size);
}
int fsync(int descriptor) {
  if (fails(is_folder(descriptor) ? kFsyncFolder : kFsync, __builtin_return_address(0))) return -1;
  return real_function<int (*)(int)>("fsync")(descriptor);
}
int rename(const char* from, const char* to) {
  if (fails(kRename, __builtin_return_address(0))) return -1;
  record_write(to);
  return real_function<int (*)(const char*, const char*)>("rename")(from, to);
}
int link(const char*, const char*) noexcept { return errno = EPERM, -1; }
int linkat(int, const char*, int, const char*, int) noexcept { return errno = EPERM, -1; }
int renameat2(int, const char*, int, const char*, unsigned) noexcept { return errno = ENOSYS, -1; }
FILE* fopen(const char* path, const char* mode) {
  if (std::strpbrk(mode, "wa+") != nullptr) record_write(path);
  return real_function<FILE* (*)(const char*, const char*)>("fopen")(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  if (std::strpbrk(mode, "wa+") != nullptr) record_write(path);
  return real_function<FILE* (*)(const char*, const char*)>("fopen64")(path, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  if ((flags & O_DIRECTORY) != 0 && fails_in_filesystem(kOpendir, __builtin_return_address(0))) return -1;
  if (opens_for_writing(flags)) record_write(path);
  return real_function<int (*)(int, const char*, int, mode_t)>("openat")(folder, path, flags, mode);
}
int remove(const char* path) {
  if (fails_in_filesystem(kUnlink, __builtin_return_address(0))) return -1;
  record_write(path);
  return real_function<int (*)(const char*)>("remove")(path);
}
int unlinkat(int folder, const char* path, int flags) {
  if (fails_in_filesystem(kUnlink, __builtin_return_address(0))) return -1;
  record_write(path);
  return real_function<int (*)(int, const char*, int)>("unlinkat")(folder, path, flags);
}
int unlink(const char* path) {
  if (fails(kUnlink, __builtin_return_address(0))) return -1;
  record_write(path);
  return real_function<int (*)(const char*)>("unlink")(path);
}
char* mkdtemp(char* path) {
  if (fails(kMkdir, __builtin_return_address(0))) return nullptr;
  char* folder = real_function<char* (*)(char*)>("mkdtemp")(path);
  record_write(path);
  return folder;
}
int rmdir(const char* path) {
  record_write(path);
  return real_function<int (*)(const char*)>("rmdir")(path);
}
int mkdir(const char* path, mode_t mode) {
  if (fails_in_filesystem(kMkdir, __builtin_return_address(0))) return -1;
  record_write(path);
  return real_function<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}
// Closes the descriptor even if the call fails, as Linux does.
int close(int descriptor) {
  const auto real_close = real_function<int (*)(int)>("close");
  const bool is_counted = descriptor != STDOUT_FILENO || is_output(descriptor);
  if (!is_counted) return real_close(descriptor);
  const bool must_fail = fails(is_output(descriptor) ? kClose : kCloseOther, __builtin_return_address(0));
  const int result = real_close(descriptor);
  if (!must_fail) return result;
  errno = failing_errno;
  return -1;
}
void* mmap(void* address, size_t size, int protection, int flags, int descriptor, off_t offset) {
  if (descriptor >= 0 && fails(kMmap, __builtin_return_address(0))) return MAP_FAILED;
  return real_function<void* (*)(void*, size_t, int, int, int, off_t)>("mmap")(address, size, protection, flags,
                                                                               descriptor, offset);
}
void* mmap64(void* address, size_t size, int protection, int flags, int descriptor, off64_t offset) {
  if (descriptor >= 0 && fails(kMmap, __builtin_return_address(0))) return MAP_FAILED;
  return real_function<void* (*)(void*, size_t, int, int, int, off64_t)>("mmap64")(address, size, protection, flags,
                                                                                   descriptor, offset);
}

int stat(const char* path, struct stat* status) {
  if (fails_in_filesystem(kStat, __builtin_return_address(0))) return -1;
  return real_function<int (*)(const char*, struct stat*)>("stat")(path, status);
}
int stat64(const char* path, struct stat64* status) {
  if (fails_in_filesystem(kStat, __builtin_return_address(0))) return -1;
  return real_function<int (*)(const char*, struct stat64*)>("stat64")(path, status);
}
int fstat(int descriptor, struct stat* status) {
  if (fails(kFstat, __builtin_return_address(0))) return -1;
  return real_function<int (*)(int, struct stat*)>("fstat")(descriptor, status);
}
int fstat64(int descriptor, struct stat64* status) {
  if (fails(kFstat, __builtin_return_address(0))) return -1;
  return real_function<int (*)(int, struct stat64*)>("fstat64")(descriptor, status);
}
int fchmod(int descriptor, mode_t mode) {
  if (fails(kFchmod, __builtin_return_address(0))) return -1;
  return real_function<int (*)(int, mode_t)>("fchmod")(descriptor, mode);
}
int chmod(const char* path, mode_t mode) {
  if (fails(kChmod, __builtin_return_address(0))) return -1;
  return real_function<int (*)(const char*, mode_t)>("chmod")(path, mode);
}
DIR* opendir(const char* path) {
  if (fails_in_filesystem(kOpendir, __builtin_return_address(0))) return nullptr;
  return real_function<DIR* (*)(const char*)>("opendir")(path);
}
dirent* readdir(DIR* folder) {
  if (fails_in_filesystem(kReaddir, __builtin_return_address(0))) return nullptr;
  return real_function<dirent* (*)(DIR*)>("readdir")(folder);
}
dirent64* readdir64(DIR* folder) {
  if (fails_in_filesystem(kReaddir, __builtin_return_address(0))) return nullptr;
  return real_function<dirent64* (*)(DIR*)>("readdir64")(folder);
}
int ftruncate(int descriptor, off_t size) {
  if (fails(kFtruncate, __builtin_return_address(0))) return -1;
  return real_function<int (*)(int, off_t)>("ftruncate")(descriptor, size);
}
int ftruncate64(int descriptor, off64_t size) {
  if (fails(kFtruncate, __builtin_return_address(0))) return -1;
  return real_function<int (*)(int, off64_t)>("ftruncate64")(descriptor, size);
}
int flock(int descriptor, int operation) {
  if (fails(kFlock, __builtin_return_address(0))) return -1;
  return real_function<int (*)(int, int)>("flock")(descriptor, operation);
}
off_t lseek(int descriptor, off_t offset, int origin) {
  if (fails(kLseek, __builtin_return_address(0))) return -1;
  return real_function<off_t (*)(int, off_t, int)>("lseek")(descriptor, offset, origin);
}
off64_t lseek64(int descriptor, off64_t offset, int origin) {
  if (fails(kLseek, __builtin_return_address(0))) return -1;
  return real_function<off64_t (*)(int, off64_t, int)>("lseek64")(descriptor, offset, origin);
}
int memfd_create(const char* name, unsigned flags) {
  if (fails(kMemfd, __builtin_return_address(0))) return -1;
  return real_function<int (*)(const char*, unsigned)>("memfd_create")(name, flags);
}
// Returns an error number instead of setting errno, like the real function.
int posix_spawnp(pid_t* process, const char* file, const posix_spawn_file_actions_t* actions,
                 const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) {
  if (fails(kSpawn, __builtin_return_address(0))) return failing_errno;
  using Spawn = int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const[],
                        char* const[]);
  return real_function<Spawn>("posix_spawnp")(process, file, actions, attributes, arguments, environment);
}
char* realpath(const char* path, char* resolved) {
  if (fails(kRealpath, __builtin_return_address(0))) return nullptr;
  return real_function<char* (*)(const char*, char*)>("realpath")(path, resolved);
}
int socketpair(int domain, int type, int protocol, int descriptors[2]) {
  if (fails(kSocketpair, __builtin_return_address(0))) return -1;
  return real_function<int (*)(int, int, int, int*)>("socketpair")(domain, type, protocol, descriptors);
}
int pipe2(int descriptors[2], int flags) {
  if (fails(kPipe, __builtin_return_address(0))) return -1;
  return real_function<int (*)(int*, int)>("pipe2")(descriptors, flags);
}
pid_t fork() {
  if (fails(kFork, __builtin_return_address(0))) return -1;
  return real_function<pid_t (*)()>("fork")();
}
int poll(pollfd* files, nfds_t count, int timeout) {
  if (fails(kPoll, __builtin_return_address(0))) return -1;
  return real_function<int (*)(pollfd*, nfds_t, int)>("poll")(files, count, timeout);
}
ssize_t send(int descriptor, const void* data, size_t size, int flags) {
  if (fails(kSend, __builtin_return_address(0))) return -1;
  return real_function<ssize_t (*)(int, const void*, size_t, int)>("send")(descriptor, data, size, flags);
}
pid_t waitpid(pid_t process, int* status, int options) {
  if (fails(kWaitpid, __builtin_return_address(0))) return -1;
  return real_function<pid_t (*)(pid_t, int*, int)>("waitpid")(process, status, options);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* argument) {
  if (fails(kThread)) return failing_errno;
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  return real_function<Create>("pthread_create")(thread, attributes, work, argument);
}

// Names of the allocator within glibc: dlsym() allocates, so it cannot look up the real malloc().
void* __libc_malloc(size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_calloc(size_t count, size_t size);

void* malloc(size_t size) {
  if (fails_to_allocate(size)) return errno = ENOMEM, nullptr;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  if (fails_to_allocate(count * size)) return errno = ENOMEM, nullptr;
  return __libc_calloc(count, size);
}
void* realloc(void* block, size_t size) {
  if (fails_to_allocate(size)) return errno = ENOMEM, nullptr;
  return __libc_realloc(block, size);
}
int posix_memalign(void** block, size_t alignment, size_t size) {
  if (fails_to_allocate(size)) return ENOMEM;
  *block = __libc_memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}
void* aligned_alloc(size_t alignment, size_t size) {
  if (fails_to_allocate(size)) return errno = ENOMEM, nullptr;
  return __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) {
  if (fails_to_allocate(size)) return errno = ENOMEM, nullptr;
  return __libc_memalign(alignment, size);
}

}  // extern "C"

// All forms of operator new, since tcmalloc, which the tools with a model link, defines them without malloc(). The next
// definition is that of tcmalloc, or that of the C++ library. operator delete needs no definition here: the memory
// comes from the library to which operator delete belongs.
void* operator new(size_t size) {
  static const auto next = real_function<void* (*)(size_t)>("_Znwm");
  return allocate_or_throw(next, size);
}
void* operator new[](size_t size) {
  static const auto next = real_function<void* (*)(size_t)>("_Znam");
  return allocate_or_throw(next, size);
}
void* operator new(size_t size, std::align_val_t alignment) {
  static const auto next = real_function<void* (*)(size_t, std::align_val_t)>("_ZnwmSt11align_val_t");
  return allocate_or_throw(next, size, alignment);
}
void* operator new[](size_t size, std::align_val_t alignment) {
  static const auto next = real_function<void* (*)(size_t, std::align_val_t)>("_ZnamSt11align_val_t");
  return allocate_or_throw(next, size, alignment);
}
void* operator new(size_t size, const std::nothrow_t& nothrow) noexcept {
  static const auto next = real_function<void* (*)(size_t, const std::nothrow_t&)>("_ZnwmRKSt9nothrow_t");
  return allocate_or_null(next, size, nothrow);
}
void* operator new[](size_t size, const std::nothrow_t& nothrow) noexcept {
  static const auto next = real_function<void* (*)(size_t, const std::nothrow_t&)>("_ZnamRKSt9nothrow_t");
  return allocate_or_null(next, size, nothrow);
}
void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t& nothrow) noexcept {
  using New = void* (*)(size_t, std::align_val_t, const std::nothrow_t&);
  static const auto next = real_function<New>("_ZnwmSt11align_val_tRKSt9nothrow_t");
  return allocate_or_null(next, size, alignment, nothrow);
}
void* operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t& nothrow) noexcept {
  using New = void* (*)(size_t, std::align_val_t, const std::nothrow_t&);
  static const auto next = real_function<New>("_ZnamSt11align_val_tRKSt9nothrow_t");
  return allocate_or_null(next, size, alignment, nothrow);
}
