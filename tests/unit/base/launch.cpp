#include "base/launch.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "fixtures/status.h"

using Catch::Contains;

namespace {

using Environment = std::map<std::string, std::string>;

mh::Launch read(const Environment& environment) {
  return mh::read_launch([&](const char* name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
}

const Environment kTorchrun{{"RANK", "3"},           {"WORLD_SIZE", "8"},       {"LOCAL_RANK", "1"},
                            {"MASTER_ADDR", "host"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}};
const Environment kMpirun{{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"PMIX_NAMESPACE", "3735027713"}};
const Environment kSrun{{"SLURM_PROCID", "5"},  {"SLURM_STEP_NUM_TASKS", "8"},         {"SLURM_LOCALID", "1"},
                        {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_NODELIST", "gpu[03-06]"}, {"SLURM_STEP_ID", "0"}};

Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}
Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

}  // namespace

TEST_CASE("launch: without a launcher a job has one process") {
  const mh::Launch launch = read({});
  CHECK(launch.launcher.empty());
  CHECK(launch.size == 1);
  CHECK(launch.rank == 0);
  CHECK(launch.host.empty());
}

TEST_CASE("launch: the variables of torchrun") {
  const mh::Launch launch = read(with(
      kTorchrun,
      {{"TORCHELASTIC_RUN_ID", "a7"}, {"TORCHELASTIC_RESTART_COUNT", "2"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  CHECK(launch.launcher == "torchrun");
  CHECK(launch.rank == 3);
  CHECK(launch.size == 8);
  CHECK(launch.local_rank == 1);
  CHECK(launch.local_size == 2);
  CHECK(launch.host == "host");
  CHECK(launch.port == 29500);
  CHECK(launch.job == "a7");
  CHECK(launch.attempt == "2");
  CHECK(launch.launcher_serves_store);
  CHECK_FALSE(read(kTorchrun).launcher_serves_store);
  CHECK_FALSE(read(without(kTorchrun, "LOCAL_WORLD_SIZE")).local_size.has_value());
}

TEST_CASE("launch: mpirun on one machine needs no address") {
  const mh::Launch launch = read(kMpirun);
  CHECK(launch.launcher == "mpirun");
  CHECK(launch.rank == 1);
  CHECK(launch.host == "127.0.0.1");
  CHECK(launch.port >= 20000);
  CHECK(launch.port < 32768);
  CHECK(read(with(kMpirun, {{"OMPI_COMM_WORLD_RANK", "0"}})).port == launch.port);
  CHECK(read(with(kMpirun, {{"PMIX_NAMESPACE", "3735027714"}})).port != launch.port);
  CHECK(read(with(kMpirun, {{"MASTER_PORT", "4000"}})).port == 4000);
}

TEST_CASE("launch: srun serves the store on the first host of the step") {
  const mh::Launch launch = read(kSrun);
  CHECK(launch.launcher == "srun");
  CHECK(launch.rank == 5);
  CHECK(launch.size == 8);
  CHECK(launch.local_rank == 1);
  CHECK(launch.host == "gpu03");
  CHECK(launch.job == "77.0");
  CHECK(launch.port != read(with(kSrun, {{"SLURM_STEP_ID", "1"}})).port);
  CHECK(read(with(kSrun, {{"MASTER_ADDR", "gpu01"}})).host == "gpu01");
}

TEST_CASE("launch: a batch script of Slurm outside srun is one process") {
  CHECK(read({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "77"}}).size == 1);
}

TEST_CASE("launch: torchrun precedes mpirun, and mpirun precedes srun") {
  CHECK(read(with(with(kSrun, kMpirun), kTorchrun)).launcher == "torchrun");
  CHECK(read(with(kSrun, kMpirun)).launcher == "mpirun");
}

TEST_CASE("launch: a job of one process needs no address") {
  CHECK(read({{"WORLD_SIZE", "1"}}).rank == 0);
  CHECK(read({{"RANK", "3"}}).rank == 0);
  CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).host.empty());
}

TEST_CASE("launch: errors name the variable") {
  CHECK_THAT(refusal([] { read(without(kTorchrun, "RANK")); }), Contains("RANK: expected an integer"));
  CHECK_THAT(refusal([] { read(with(kTorchrun, {{"RANK", "8"}})); }), Contains("from 0 to 7; found '8'"));
  CHECK_THAT(refusal([] { read(with(kTorchrun, {{"WORLD_SIZE", "2x"}})); }), Contains("WORLD_SIZE"));
  CHECK_THAT(refusal([] { read(with(kTorchrun, {{"LOCAL_RANK", "2"}})); }), Contains("LOCAL_RANK"));
  CHECK_THAT(refusal([] { read(without(kTorchrun, "MASTER_ADDR")); }), Contains("MASTER_ADDR"));
  CHECK_THAT(refusal([] { read(without(kTorchrun, "MASTER_PORT")); }), Contains("MASTER_PORT"));
  CHECK_THAT(refusal([] { read(with(kTorchrun, {{"MASTER_PORT", "65536"}})); }), Contains("MASTER_PORT"));
  CHECK_THAT(refusal([] { read(with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "4"}})); }), Contains("MASTER_ADDR"));
}

TEST_CASE("launch: first host of a list of Slurm nodes") {
  CHECK(mh::first_slurm_host("node7") == "node7");
  CHECK(mh::first_slurm_host("a,b") == "a");
  CHECK(mh::first_slurm_host("node[07-09,12],login1") == "node07");
  CHECK(mh::first_slurm_host("node[3,5]") == "node3");
  CHECK(mh::first_slurm_host("rack[1-2]-eth,x") == "rack1-eth");
  CHECK(mh::first_slurm_host("node[08]") == "node08");
  CHECK(mh::first_slurm_host("rack[0-1]n[2-3]") == "rack0n2");
  CHECK(mh::first_slurm_host("").empty());
}
