// The number of processors that the process may use.
#pragma once

#include <sched.h>

#include <thread>

namespace mh {

// Returns the number of processors in the affinity mask of the calling thread (taskset, cgroup cpusets), at least 1.
// std::thread::hardware_concurrency(), in contrast, counts all processors of the machine.
inline int num_usable_processors() {
  cpu_set_t cpus;
  const int num_usable = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
  const auto num_all = static_cast<int>(std::thread::hardware_concurrency());
  return num_usable > 0 ? num_usable : num_all > 0 ? num_all : 1;
}

}  // namespace mh
