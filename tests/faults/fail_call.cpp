// A library for LD_PRELOAD that makes one system call or allocation of a tool fail, for tests/faults/failing_calls.py.
//
//   MH_FAULT=FUNCTION:N:ERRNO   the Nth call (from 1) of FUNCTION fails with ERRNO; malloc takes any ERRNO; write also
//                               takes "short", which writes half of the bytes
//   MH_FAULT=FUNCTION:N+:ERRNO  all calls from the Nth on fail
//   MH_FAULT_COUNTS=FILE        appends a line "FUNCTION calls" for each function when the process ends
//   MH_FAULT_WRITES=FILE        appends the path of each file that the process or a child creates, opens for writing,
//                               renames to or removes
//
// Counts calls after the start of main(), in the process that was started, not in its children: open, read, write
// (except to stderr), fsync, rename, mmap of a file, link and close from the project's own code, and allocations of 1
// MiB and more from anywhere
// ("malloc").
#undef _FILE_OFFSET_BITS  // otherwise open() is another name of open64()
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum Function { kOpen, kRead, kWrite, kFsync, kRename, kMmap, kLink, kClose, kMalloc, kFunctions };
constexpr const char* kNames[kFunctions] = {"open", "read", "write", "fsync", "rename",
                                            "mmap", "link", "close", "malloc"};
constexpr size_t kLargeAllocation = 1 << 20;

std::atomic<long> counts[kFunctions];
std::atomic<bool> in_main = false;
pid_t first_process = 0;
int failing_function = -1, failing_errno = 0;
long failing_call = 0;
bool fails_from_then_on = false, writes_half = false;

struct ErrorName {
  const char* name;
  int code;
};
constexpr ErrorName kErrors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},      {"EDQUOT", EDQUOT}, {"ENOMEM", ENOMEM},
                                 {"EINTR", EINTR},   {"EPERM", EPERM},  {"ENOSYS", ENOSYS}, {"EOPNOTSUPP", EOPNOTSUPP},
                                 {"EMFILE", EMFILE}, {"EINVAL", EINVAL}};

template <class Call>
Call real_function(const char* name) {
  return reinterpret_cast<Call>(dlsym(RTLD_NEXT, name));
}

// Returns whether the code at `address` belongs to a tool or a library of the project.
bool is_ours(void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return false;
  const char* slash = std::strrchr(info.dli_fname, '/');
  const char* name = slash != nullptr ? slash + 1 : info.dli_fname;
  return std::strncmp(name, "mh-", 3) == 0 || std::strncmp(name, "libmultihead", 12) == 0;
}

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
bool opens_for_writing(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0; }

// Counts a call. Returns whether the call must fail.
bool fails(Function function) {
  if (!in_main || getpid() != first_process) return false;
  const long call = ++counts[function];
  return failing_function == function && (call == failing_call || (fails_from_then_on && call > failing_call));
}
// Counts a call from the code of the project. Returns whether the call must fail, and sets errno if so.
bool fails(Function function, void* caller) {
  if (!in_main || !is_ours(caller) || !fails(function)) return false;
  errno = failing_errno;
  return true;
}

void read_fault() {
  first_process = getpid();
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
  if (failing_function < 0 || (failing_errno == 0 && !writes_half)) std::abort();
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
  if (fails(kOpen, __builtin_return_address(0))) return -1;
  if (opens_for_writing(flags)) record_write(path);
  return real_function<int (*)(const char*, int, mode_t)>("open")(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  if (fails(kOpen, __builtin_return_address(0))) return -1;
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
  if (fails(kFsync, __builtin_return_address(0))) return -1;
  return real_function<int (*)(int)>("fsync")(descriptor);
}
int rename(const char* from, const char* to) {
  if (fails(kRename, __builtin_return_address(0))) return -1;
  record_write(to);
  return real_function<int (*)(const char*, const char*)>("rename")(from, to);
}
int link(const char* from, const char* to) {
  if (fails(kLink, __builtin_return_address(0))) return -1;
  record_write(to);
  return real_function<int (*)(const char*, const char*)>("link")(from, to);
}
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
  if (opens_for_writing(flags)) record_write(path);
  return real_function<int (*)(int, const char*, int, mode_t)>("openat")(folder, path, flags, mode);
}
int remove(const char* path) {
  record_write(path);
  return real_function<int (*)(const char*)>("remove")(path);
}
int unlinkat(int folder, const char* path, int flags) {
  record_write(path);
  return real_function<int (*)(int, const char*, int)>("unlinkat")(folder, path, flags);
}
int unlink(const char* path) {
  record_write(path);
  return real_function<int (*)(const char*)>("unlink")(path);
}
int mkdir(const char* path, mode_t mode) {
  record_write(path);
  return real_function<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}
// Closes the descriptor even if the call fails, as Linux does.
int close(int descriptor) {
  const bool failing = fails(kClose, __builtin_return_address(0));
  const int result = real_function<int (*)(int)>("close")(descriptor);
  if (!failing) return result;
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

// Names of the allocator within glibc: dlsym() allocates, so it cannot look up the real malloc().
void* __libc_malloc(size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_calloc(size_t count, size_t size);

void* malloc(size_t size) {
  if (size >= kLargeAllocation && fails(kMalloc)) return errno = ENOMEM, nullptr;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  if (count * size >= kLargeAllocation && fails(kMalloc)) return errno = ENOMEM, nullptr;
  return __libc_calloc(count, size);
}
void* realloc(void* block, size_t size) {
  if (size >= kLargeAllocation && fails(kMalloc)) return errno = ENOMEM, nullptr;
  return __libc_realloc(block, size);
}
int posix_memalign(void** block, size_t alignment, size_t size) {
  if (size >= kLargeAllocation && fails(kMalloc)) return ENOMEM;
  *block = __libc_memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}
void* aligned_alloc(size_t alignment, size_t size) {
  if (size >= kLargeAllocation && fails(kMalloc)) return errno = ENOMEM, nullptr;
  return __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) {
  if (size >= kLargeAllocation && fails(kMalloc)) return errno = ENOMEM, nullptr;
  return __libc_memalign(alignment, size);
}

}  // extern "C"
