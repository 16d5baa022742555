#include "nn/visible_gpus.h"

#include <cstdlib>
#include <vector>

#include "base/child.h"
#include "base/error.h"
#include "base/text.h"
#include "nn/device.h"

namespace mh::nn {

namespace {

constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";

// Returns the valid entries at the start of a value of CUDA_VISIBLE_DEVICES. "-1" is the usual invalid entry, which
// hides all GPUs. Whether a GPU of this index or UUID exists is left to the driver.
std::vector<std::string> entries_of(const std::string& visible_devices) {
  std::vector<std::string> entries;
  for (const std::string& text : split(visible_devices, ',')) {
    const std::string entry = trim(text);
    if (entry.empty() || entry[0] == '-') break;
    entries.push_back(entry);
  }
  return entries;
}

// Returns count_gpus() of a child process, since the driver of this process has to read CUDA_VISIBLE_DEVICES later. A
// driver that crashes counts as no GPU here; choose_device() then reports the failure.
int count_gpus_in_child() {
  Child child([](ChildInput&) { return std::to_string(count_gpus()); }, [](std::string_view) {});
  const ChildEnd end = child.finish();
  return end.has_succeeded ? std::stoi(end.result) : 0;
}

}  // namespace

std::string own_gpu_of(const Launch& launch, const std::optional<std::string>& visible_devices, int num_gpus) {
  std::vector<std::string> gpus;
  if (visible_devices) gpus = entries_of(*visible_devices);
  else
    for (int i = 0; i < num_gpus; ++i) gpus.push_back(std::to_string(i));
  const std::string job = str("a job of ", launch.size, " processes on GPUs");
  if (!launch.local_rank)
    refuse_usage(job, "LOCAL_RANK, the index of the process on its machine, which selects the GPU", "no value",
                 "set the environment variable LOCAL_RANK in the launcher of the job, or pass --device cpu");
  // Without a number of processes from the launcher, at least the processes up to this one run on this machine.
  const int num_processes = launch.local_size.value_or(*launch.local_rank + 1);
  if (static_cast<int>(gpus.size()) < num_processes)
    throw Error(Exit::device,
                Problem{job, str("a GPU for each of the ", num_processes, " processes on this machine"),
                        str(count_of(static_cast<int64_t>(gpus.size()), "visible GPU"),
                            visible_devices ? str(" (", kVisibleDevices, "=", *visible_devices, ")") : std::string()),
                        "start fewer processes, show every process more GPUs, or pass --device cpu"});
  return gpus[static_cast<size_t>(*launch.local_rank)];
}

void limit_to_own_gpu(const Launch& launch) {
  if (launch.size == 1) return;
  const int num_gpus = count_gpus_in_child();
  if (num_gpus == 0) return;
  const char* value = std::getenv(kVisibleDevices);
  const auto visible_devices = value == nullptr ? std::nullopt : std::optional<std::string>(value);
  setenv(kVisibleDevices, own_gpu_of(launch, visible_devices, num_gpus).c_str(), 1);
}

}  // namespace mh::nn
