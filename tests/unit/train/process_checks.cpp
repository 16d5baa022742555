// Options that a job of several processes refuses.
#include "train/process_checks.h"

#include <catch2/catch.hpp>
#include <string>

#include "fixtures/status.h"

using namespace mh;
using Catch::Contains;

namespace {

// Returns the error for a run with the option `option` of [train] in `num_processes` processes on `device`; "" without
// an error.
std::string refusal_of(const std::string& option, int64_t num_processes, at::Device device) {
  Config config;
  config.load_text("[model]\nlayers = 1\nwidth = 8\nffn_dim = 8\n[attention]\nheads = 2\n[train]\n" + option, "test");
  const train::RunConfig run = train::RunConfig::read(config);
  return refusal([&] { train::check_processes(run, num_processes, device); });
}

const at::Device kGpu(at::kCUDA, 0);

}  // namespace

TEST_CASE("processes: several processes train on CPUs and on GPUs") {
  for (const at::Device device : {at::Device(at::kCPU), kGpu}) CHECK(refusal_of("lr = 1e-3\n", 4, device).empty());
}

TEST_CASE("processes: only processes on CPUs divide the state of the optimiser") {
  CHECK(refusal_of("shard = 'optimizer'\n", 4, at::kCPU).empty());
  CHECK(refusal_of("shard = 'optimizer'\n", 1, kGpu).empty());
  CHECK_THAT(refusal_of("shard = 'optimizer'\n", 4, kGpu), Contains("train.shard=none"));
}

TEST_CASE("processes: a CUDA graph is refused with several processes") {
  CHECK(refusal_of("cuda_graph = true\n", 1, kGpu).empty());
  CHECK_THAT(refusal_of("cuda_graph = true\n", 2, kGpu), Contains("train.cuda_graph=false"));
}
