// Warns if other programs use the cores of the threads of OpenMP. Threads of OpenMP spin while they wait for each
// other, so if the system interrupts one thread for another program, the others spin until it runs again.
#pragma once

#include <cstdint>
#include <string>

namespace mh {

// What a process got from the processors over a time.
struct ProcessorUse {
  double seconds = 0;             // wall time
  double cpu_seconds = 0;         // processor time of all threads
  int64_t num_interruptions = 0;  // number of times that the system gave the core of a thread to another program
};

// Returns a warning if the threads were interrupted so often, and for so long, that waiting without spinning is faster;
// "" otherwise, and for a single thread. A program that wakes often but works little, such as a reader of the log,
// causes no warning.
std::string contention_warning(const ProcessorUse& use, int num_threads);

// Watches how this process uses the processors.
class ContentionWatch {
 public:
  ContentionWatch();
  // Logs contention_warning() of the time since construction, once, after the first kSeconds. Logs nothing if the
  // environment sets how threads wait (OMP_WAIT_POLICY or GOMP_SPINCOUNT). `num_threads`: number of threads of OpenMP.
  void check(int num_threads);

 private:
  static constexpr double kSeconds = 10;
  ProcessorUse start_;  // at construction, with `seconds` of a clock
  bool is_done_ = false;
};

}  // namespace mh
