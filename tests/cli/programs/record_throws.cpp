// A library for LD_PRELOAD that records where a process throws exceptions, for tests/cli/error_sites.py. For each
// distinct call stack of a throw it appends one line to the file $MH_THROWS: the kFrames innermost return addresses,
// each as "module offset", separated by tabs.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <typeinfo>

namespace {

constexpr int kFrames = 6;  // return addresses per record: 2 in this library, the throw and 3 callers

void record_throw() {
  static std::mutex mutex;
  static std::set<std::array<void*, kFrames>> recorded;
  const char* file = std::getenv("MH_THROWS");
  std::array<void*, kFrames> frames{};
  const int count = backtrace(frames.data(), kFrames);
  const std::lock_guard lock(mutex);
  if (file == nullptr || !recorded.insert(frames).second) return;
  std::string line;
  for (int i = 0; i < count; ++i) {
    Dl_info info;
    if (dladdr(frames[static_cast<size_t>(i)], &info) == 0 || info.dli_fname == nullptr) continue;
    const auto offset =
        reinterpret_cast<uintptr_t>(frames[static_cast<size_t>(i)]) - reinterpret_cast<uintptr_t>(info.dli_fbase);
    // dladdr names the main program by argv[0], which may lack the folder.
    char program[4096] = {};
    const bool has_path = info.dli_fname[0] == '/' || readlink("/proc/self/exe", program, sizeof program - 1) > 0;
    if (!has_path) continue;
    line += (line.empty() ? "" : "\t") + std::string(program[0] != 0 ? program : info.dli_fname) + " " +
            std::to_string(offset - 1);
  }
  line += "\n";
  const int out = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (out < 0) return;
  [[maybe_unused]] const ssize_t written = write(out, line.data(), line.size());
  close(out);
}

}  // namespace

extern "C" [[noreturn]] void __cxa_throw(void* object, std::type_info* type, void (*destroy)(void*)) {
  record_throw();
  using Throw = void (*)(void*, std::type_info*, void (*)(void*));
  reinterpret_cast<Throw>(dlsym(RTLD_NEXT, "__cxa_throw"))(object, type, destroy);
  std::abort();  // not reached
}
