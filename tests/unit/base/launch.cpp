// read_launch(): rank, size and address of a process from the variables of torchrun, mpirun and srun.
#include "base/launch.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "fixtures/status.h"

using Catch::Contains;

namespace {

using Environment = std::map<std::string, std::string>;

mh::Launch launch_of(const Environment& environment) {
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

// Returns the environment with changed or additional variables.
Environment with_variables(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}
Environment without_variable(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

// Returns the error text for the variables `environment`; "" without an error.
std::string refusal_of(const Environment& environment) {
  return refusal([&] { launch_of(environment); });
}

}  // namespace

TEST_CASE("launch: without a launcher a job has one process") {
  const mh::Launch launch = launch_of({});
  CHECK(launch.launcher.empty());
  CHECK(launch.size == 1);
  CHECK(launch.rank == 0);
  CHECK(launch.host.empty());
}

TEST_CASE("launch: rank, size, address and job come from the variables of torchrun") {
  const mh::Launch launch = launch_of(with_variables(
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
  CHECK_FALSE(launch_of(kTorchrun).launcher_serves_store);
  CHECK_FALSE(launch_of(without_variable(kTorchrun, "LOCAL_WORLD_SIZE")).local_size.has_value());
  CHECK_FALSE(launch_of(without_variable(kTorchrun, "LOCAL_RANK")).local_rank.has_value());
}

TEST_CASE("launch: processes of mpirun on one machine use 127.0.0.1 and a port that depends on the job") {
  const mh::Launch launch = launch_of(kMpirun);
  CHECK(launch.launcher == "mpirun");
  CHECK(launch.rank == 1);
  CHECK(launch.host == "127.0.0.1");
  CHECK(launch.port >= 20000);
  CHECK(launch.port < 32768);
  CHECK(launch_of(with_variables(kMpirun, {{"OMPI_COMM_WORLD_RANK", "0"}})).port == launch.port);
  CHECK(launch_of(with_variables(kMpirun, {{"PMIX_NAMESPACE", "3735027714"}})).port != launch.port);
  CHECK(launch_of(with_variables(kMpirun, {{"MASTER_PORT", "4000"}})).port == 4000);
}

TEST_CASE("launch: processes of srun connect to the first host of the step") {
  const mh::Launch launch = launch_of(kSrun);
  CHECK(launch.launcher == "srun");
  CHECK(launch.rank == 5);
  CHECK(launch.size == 8);
  CHECK(launch.local_rank == 1);
  CHECK(launch.host == "gpu03");
  CHECK(launch.job == "77.0");
  CHECK(launch.port != launch_of(with_variables(kSrun, {{"SLURM_STEP_ID", "1"}})).port);
  CHECK(launch_of(with_variables(kSrun, {{"MASTER_ADDR", "gpu01"}})).host == "gpu01");
}

TEST_CASE("launch: a batch script of Slurm that is not started by srun runs as one process") {
  CHECK(launch_of({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "77"}}).size == 1);
}

TEST_CASE("launch: the variables of torchrun take precedence over mpirun, and mpirun over srun") {
  CHECK(launch_of(with_variables(with_variables(kSrun, kMpirun), kTorchrun)).launcher == "torchrun");
  CHECK(launch_of(with_variables(kSrun, kMpirun)).launcher == "mpirun");
}

TEST_CASE("launch: a job of one process needs no address") {
  CHECK(launch_of({{"WORLD_SIZE", "1"}}).rank == 0);
  CHECK(launch_of({{"RANK", "3"}}).rank == 0);
  CHECK(launch_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).host.empty());
}

TEST_CASE("launch: the error about a missing or invalid variable names the variable") {
  CHECK_THAT(refusal_of(without_variable(kTorchrun, "RANK")), Contains("RANK: expected an integer"));
  CHECK_THAT(refusal_of(with_variables(kTorchrun, {{"RANK", "8"}})), Contains("from 0 to 7; found '8'"));
  CHECK_THAT(refusal_of(with_variables(kTorchrun, {{"WORLD_SIZE", "2x"}})), Contains("WORLD_SIZE"));
  CHECK_THAT(refusal_of(with_variables(kTorchrun, {{"LOCAL_RANK", "2"}})), Contains("LOCAL_RANK"));
  CHECK_THAT(refusal_of(without_variable(kTorchrun, "MASTER_ADDR")), Contains("MASTER_ADDR"));
  CHECK_THAT(refusal_of(without_variable(kTorchrun, "MASTER_PORT")), Contains("MASTER_PORT"));
  CHECK_THAT(refusal_of(with_variables(kTorchrun, {{"MASTER_PORT", "65536"}})), Contains("MASTER_PORT"));
  CHECK_THAT(refusal_of(with_variables(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "4"}})), Contains("MASTER_ADDR"));
}

TEST_CASE("launch: first_slurm_host() returns the first host of a list of Slurm nodes") {
  CHECK(mh::first_slurm_host("node7") == "node7");
  CHECK(mh::first_slurm_host("a,b") == "a");
  CHECK(mh::first_slurm_host("node[07-09,12],login1") == "node07");
  CHECK(mh::first_slurm_host("node[3,5]") == "node3");
  CHECK(mh::first_slurm_host("rack[1-2]-eth,x") == "rack1-eth");
  CHECK(mh::first_slurm_host("node[08]") == "node08");
  CHECK(mh::first_slurm_host("rack[0-1]n[2-3]") == "rack0n2");
  CHECK(mh::first_slurm_host("").empty());
}
