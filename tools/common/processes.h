// The processes of a job that run one command together (base/launch.h).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/launch.h"
#include "common/model_options.h"
#include "distributed/group.h"
#include "distributed/join.h"

namespace mh {

// Returns the description of this process. The first call also prepares the process: ranks above 0 write no outputs
// and log errors only.
const Launch& start_process();

// Returns the device of this process for the value of --device: nn::choose_device() of the first call. A process that
// computes alone uses the first GPU.
at::Device device_of_process(const std::string& device_option);
// Returns the device of this process of a job whose processes compute together: device_of_process(), after this process
// is limited to the GPU at its local rank. Throws the errors of nn::limit_to_own_gpu().
at::Device device_in_job(const std::string& device_option);

// Connects the processes of the job. If `num_threads` (--threads) is 0 and the environment variable OMP_NUM_THREADS is
// not set, also divides the processors of each machine among its processes. Only the first call does this. Throws the
// errors of distributed::join().
const distributed::Group& join_processes(std::chrono::seconds timeout, int num_threads,
                                         const distributed::DeviceUse& device_use);

// Connects the processes of a job that evaluates a model together, each on its device_in_job(). The processes exchange
// results in main memory only, also if they compute on GPUs. Throws the errors of device_in_job() and join_processes(),
// and Error(usage) if a job of several processes has standard input (-) among `files`, which every process reads, or if
// the arguments of the tool or the contents of the files (io/content_checksum.h) differ between processes.
const distributed::Group& join_evaluation(const std::vector<std::string>& files, const ModelArguments& args);

}  // namespace mh
