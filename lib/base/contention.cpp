#include "base/contention.h"

#include <sys/resource.h>

#include <chrono>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"

namespace mh {

namespace {

// The system is taken as shared if there are more interruptions per second and thread, and the process gets a smaller
// part of the time of its threads.
constexpr double kMaxInterruptions = 20, kMinShare = 0.9;

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// Returns the processor time and the interruptions of this process since its start; `seconds` has an arbitrary origin.
ProcessorUse use_so_far() {
  ProcessorUse use;
  use.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return use;
  use.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  use.num_interruptions = usage.ru_nivcsw;
  return use;
}

}  // namespace

std::string contention_warning(const ProcessorUse& use, int num_threads) {
  const double thread_seconds = use.seconds * num_threads;
  if (num_threads < 2 || static_cast<double>(use.num_interruptions) <= kMaxInterruptions * thread_seconds ||
      use.cpu_seconds >= kMinShare * thread_seconds)
    return "";
  return str(
      "other programs use the cores: the system interrupted ", num_threads, " threads ",
      static_cast<int64_t>(static_cast<double>(use.num_interruptions) / use.seconds),
      " times a second, and the other threads spin meanwhile; set OMP_WAIT_POLICY=passive in the environment, or "
      "--threads 1");
}

ContentionWatch::ContentionWatch() : start_(use_so_far()) {
  is_done_ = std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
}

void ContentionWatch::check(int num_threads) {
  if (is_done_) return;
  const ProcessorUse now = use_so_far();
  const ProcessorUse use{now.seconds - start_.seconds, now.cpu_seconds - start_.cpu_seconds,
                         now.num_interruptions - start_.num_interruptions};
  if (use.seconds < kSeconds) return;
  is_done_ = true;
  if (const std::string warning = contention_warning(use, num_threads); !warning.empty()) log_warning(warning);
}

}  // namespace mh
