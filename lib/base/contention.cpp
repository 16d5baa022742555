#include "base/contention.h"

#include <sys/resource.h>

#include <cstdlib>

#include "base/error.h"
#include "base/log.h"

namespace mh {

namespace {

// Number of interruptions per second and thread above which the system is taken as shared.
constexpr double kMaxInterruptions = 20;

// Returns the number of interruptions of all threads of this process since its start.
int64_t count_interruptions() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

}  // namespace

std::string contention_warning(double seconds, int64_t num_interruptions, int num_threads) {
  if (num_threads < 2 || static_cast<double>(num_interruptions) <= kMaxInterruptions * seconds * num_threads) return "";
  return str(
      "other programs use the cores: the system interrupted ", num_threads, " threads ",
      static_cast<int64_t>(static_cast<double>(num_interruptions) / seconds),
      " times a second, and the other threads spin meanwhile; set OMP_WAIT_POLICY=passive in the environment, or "
      "--threads 1");
}

ContentionWatch::ContentionWatch() : num_interruptions_(count_interruptions()) {
  is_done_ = std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
}

void ContentionWatch::check(int num_threads) {
  if (is_done_) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (seconds < kSeconds) return;
  is_done_ = true;
  if (const std::string warning = contention_warning(seconds, count_interruptions() - num_interruptions_, num_threads);
      !warning.empty())
    log_warning(warning);
}

}  // namespace mh
