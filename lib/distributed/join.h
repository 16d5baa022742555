// Connects the processes of a job.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <string>

#include "base/launch.h"
#include "distributed/group.h"

namespace mh::distributed {

// How the processes of a job use their devices.
struct DeviceUse {
  at::Device device = at::kCPU;    // device of the model
  bool exchanges_tensors = false;  // whether the processes exchange tensors on `device`; on a GPU, this needs NCCL
};

// A process as a member of its job.
struct Membership {
  Group group;
  int local_size = 1;  // number of processes of the job on this machine
  // Number of processes of the job on this machine that may use the same processors; 1 if the launcher has given each
  // process processors of its own.
  int num_processes_sharing_processors = 1;
};

// Connects this process with the other processes of its job, and returns when all are connected. If the job has one
// process, returns a group of one process at once. `build`: build id of the program (build_id()); "" if unknown.
// `timeout`: maximum wait for another process, in join() and in each later operation of the group. In join(), a process
// that is stopped ends the wait a few seconds later. `device_use`: equal in all processes.
//
// Throws Error(failed) if a process is missing or stopped after `timeout`, if the address of the job is wrong or in
// use, or if two processes have the same rank, and Error(usage) if the processes disagree on the number of processes,
// on the job, on the type of device, or on the build. Every process of the job then throws. Throws Error(device) if
// NCCL is needed but was not built.
Membership join(const Launch& launch, const std::string& build, std::chrono::milliseconds timeout,
                const DeviceUse& device_use);

}  // namespace mh::distributed
