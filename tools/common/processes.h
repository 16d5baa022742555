// The processes of a job that run one command together (base/launch.h).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/launch.h"
#include "distributed/group.h"

namespace mh {

// Returns the description of this process. The first call also prepares the process: ranks above 0 write no outputs
// and log errors only.
const Launch& start_process();

// Connects the processes of the job. If `num_threads` (--threads) is 0 and the environment variable OMP_NUM_THREADS is
// not set, also divides the processors of each machine among its processes. Only the first call does this. Throws the
// errors of distributed::join().
const distributed::Group& join_processes(std::chrono::seconds timeout, int num_threads);

// Connects the processes of a job that evaluates a model together. Throws the errors of join_processes(), and
// Error(usage) if a job of several processes has standard input (-) among `files`, which every process reads, or if the
// arguments of the tool or the sizes of the files differ between processes.
const distributed::Group& join_readers(const std::vector<std::string>& files, int num_threads);

}  // namespace mh
