// The value of CUDA_VISIBLE_DEVICES for each process of a job.
#include "nn/visible_gpus.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.h"
#include "fixtures/status.h"

using namespace mh;
using Catch::Contains;

namespace {

// Returns the description of a process of a job of four processes on two machines.
Launch process(std::optional<int> local_rank, std::optional<int> local_size) {
  Launch launch;
  launch.size = 4, launch.local_rank = local_rank, launch.local_size = local_size;
  return launch;
}

}  // namespace

TEST_CASE("visible GPUs: without CUDA_VISIBLE_DEVICES a process uses the GPU whose index is its local rank") {
  CHECK(nn::own_gpu_of(process(0, 2), std::nullopt, 2) == "0");
  CHECK(nn::own_gpu_of(process(1, 2), std::nullopt, 2) == "1");
  CHECK(nn::own_gpu_of(process(1, 2), std::nullopt, 8) == "1");
}

TEST_CASE("visible GPUs: a process uses the entry of CUDA_VISIBLE_DEVICES at its local rank") {
  CHECK(nn::own_gpu_of(process(0, 2), "5,3,1", 3) == "5");
  CHECK(nn::own_gpu_of(process(1, 2), "5, 3 ,1", 3) == "3");
  CHECK(nn::own_gpu_of(process(1, 2), "GPU-8932f937,GPU-b4c2e1a0-0d2f", 2) == "GPU-b4c2e1a0-0d2f");
  // The driver shows a process one MIG instance, whatever the number of entries.
  CHECK(nn::own_gpu_of(process(1, 2), "MIG-1,MIG-GPU-8932f937/1/0", 1) == "MIG-GPU-8932f937/1/0");
}

TEST_CASE("visible GPUs: fewer GPUs than processes on the machine are an error that names both numbers") {
  const auto refusal_of = [](const Launch& launch, const std::optional<std::string>& visible_devices, int num_gpus) {
    try {
      return nn::own_gpu_of(launch, visible_devices, num_gpus);
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::device);
      return std::string(error.what());
    }
  };
  CHECK_THAT(refusal_of(process(0, 2), std::nullopt, 1),
             Contains("each of the 2 processes") && Contains("found 1 vis"));
  CHECK_THAT(refusal_of(process(0, 3), "5,3", 8), Contains("each of the 3 processes") && Contains("found 2 vis"));
  CHECK_THAT(refusal_of(process(0, 3), "5,-1,3", 8), Contains("found 1 visible GPU (CUDA_VISIBLE_DEVICES=5,-1,3)"));
  CHECK_THAT(refusal_of(process(0, 2), "", 8), Contains("found 0 visible GPUs"));
  CHECK_THAT(refusal_of(process(1, std::nullopt), "5", 8), Contains("each of the 2 processes"));
}

TEST_CASE("visible GPUs: without the number of processes on the machine, a GPU at the local rank suffices") {
  CHECK(nn::own_gpu_of(process(1, std::nullopt), "5,3", 2) == "3");
}

TEST_CASE("visible GPUs: an unknown local rank is refused") {
  const auto own_gpu = [] { nn::own_gpu_of(process(std::nullopt, 2), std::nullopt, 2); };
  CHECK_THAT(refusal(own_gpu), Contains("LOCAL_RANK"));
}

TEST_CASE("visible GPUs: a job of one process keeps CUDA_VISIBLE_DEVICES") {
  const char* before = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string value = before == nullptr ? "unset" : before;
  nn::limit_to_own_gpu({});
  const char* after = std::getenv("CUDA_VISIBLE_DEVICES");
  CHECK((after == nullptr ? "unset" : after) == value);
}
