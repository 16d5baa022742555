// Warns if other programs use the cores of the threads of OpenMP. Threads of OpenMP spin while they wait for each
// other, so if the system interrupts one thread for another program, the others spin until it runs again.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace mh {

// Returns a warning if the threads of a process were interrupted so often that waiting without spinning is faster; ""
// otherwise, and for a single thread. `num_interruptions`: number of times that the system gave the core of a thread to
// another program in these `seconds`.
std::string contention_warning(double seconds, int64_t num_interruptions, int num_threads);

// Watches the interruptions of this process.
class ContentionWatch {
 public:
  ContentionWatch();
  // Logs contention_warning() of the time since construction, once, after the first kSeconds. Logs nothing if the
  // environment sets how threads wait (OMP_WAIT_POLICY or GOMP_SPINCOUNT). `num_threads`: number of threads of OpenMP.
  void check(int num_threads);

 private:
  static constexpr double kSeconds = 10;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int64_t num_interruptions_;  // of the process at construction
  bool is_done_ = false;
};

}  // namespace mh
