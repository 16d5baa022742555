// The GPU of a process in a job of several processes: each process of a machine uses a GPU of its own.
#pragma once

#include <optional>
#include <string>

#include "base/launch.h"

namespace mh::nn {

// Returns the value of CUDA_VISIBLE_DEVICES that shows a process only its own GPU, the GPU at position
// launch.local_rank among the visible GPUs. `visible_devices`: the present value of the variable, a list of indices,
// UUIDs or MIG names, in which CUDA ignores the first invalid entry and all later entries; nullopt: the variable is
// unset, and all `num_gpus` GPUs of the machine are visible. Throws Error(device) if fewer GPUs are visible than
// processes of the job run on this machine, and Error(usage) if launch.local_rank is unknown.
std::string own_gpu_of(const Launch& launch, const std::optional<std::string>& visible_devices, int num_gpus);

// Sets CUDA_VISIBLE_DEVICES to the own GPU of this process, which thus is the first GPU for all code. Must be called
// before choose_device(), since the driver reads the variable once, and in a process of one thread (base/child.h). For
// a job of one process, or if the driver reports no GPU, does nothing. Throws the errors of own_gpu_of().
void limit_to_own_gpu(const Launch& launch);

}  // namespace mh::nn
