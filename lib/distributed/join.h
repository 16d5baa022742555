// Connects the processes of a job.
#pragma once

#include <chrono>
#include <string>

#include "base/launch.h"
#include "distributed/group.h"

namespace mh::distributed {

// A process as a member of its job.
struct Membership {
  Group group;
  int local_size = 1;  // number of processes of the job on this machine
  // Number of processes of the job on this machine that may use the same processors; 1 if the launcher has given each
  // process processors of its own.
  int num_sharing_processors = 1;
};

// Connects this process with the other processes of its job, and returns when all are connected. If the job has one
// process, returns a group of one process at once. `build`: build id of the program (build_id()); "" if unknown.
// `timeout`: maximum wait for another process, in join() and in each later operation of the group.
//
// Throws Error(failed) if a process is missing after `timeout`, if the address of the job is wrong or in use, or if two
// processes have the same rank, and Error(usage) if the processes disagree on the number of processes, on the job, or
// on the build. Every process of the job then throws.
Membership join(const Launch& launch, const std::string& build, std::chrono::milliseconds timeout);

}  // namespace mh::distributed
