#include "base/launch.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"

namespace mh {

namespace {

constexpr int kMaxProcesses = 1 << 20;
// Ports derived from a job id: below the ephemeral ports of Linux, which start at 32768.
constexpr int kFirstPort = 20000, kNumPorts = 12000;

class Variables {
 public:
  explicit Variables(const EnvironmentReader& read) : read_(read) {}

  // Returns the value of a variable; "" if it is unset.
  std::string text(const char* name) const {
    const char* value = read_(name);
    return value == nullptr ? "" : value;
  }
  bool has(const char* name) const { return !text(name).empty(); }
  // Returns the value of a variable as an integer in [min, max]. Throws Error(usage) for any other value.
  int integer(const char* name, int min, int max) const {
    const std::string value = text(name);
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < min || number > max)
      refuse_usage(name, str("an integer from ", min, " to ", max), value.empty() ? "no value" : quote_start(value),
                   str("set the environment variable ", name,
                       " in the launcher of the job; for a job of one process, unset the "
                       "variables of torchrun, mpirun and srun"));
    return number;
  }
  // Returns the value of the first of the variables that is set; "" if none is.
  std::string first_value(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (has(name)) return text(name);
    return "";
  }

 private:
  const EnvironmentReader& read_;
};

// Environment variables of a launcher, and the name of the launcher.
struct VariableNames {
  const char *launcher, *rank, *size, *local_rank, *local_size;
};
constexpr VariableNames kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr VariableNames kMpirun{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                "OMPI_COMM_WORLD_LOCAL_SIZE"};
// Slurm sets SLURM_NTASKS and SLURM_PROCID also in a batch script that runs outside srun, but sets SLURM_STEP_NUM_TASKS
// only in the tasks of srun. Slurm has no variable with the number of tasks on this machine.
constexpr VariableNames kSrun{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""};

// Returns the launcher, and the index of this process and the number of processes in the job and on this machine,
// without the address of the store and the id of the job.
Launch read_ranks(const Variables& variables, const VariableNames& names) {
  Launch launch;
  launch.launcher = names.launcher;
  launch.size = variables.integer(names.size, 1, kMaxProcesses);
  if (launch.size > 1 || variables.has(names.rank)) launch.rank = variables.integer(names.rank, 0, launch.size - 1);
  if (variables.has(names.local_size)) launch.local_size = variables.integer(names.local_size, 1, launch.size);
  else if (launch.size == 1) launch.local_size = 1;
  if (variables.has(names.local_rank))
    launch.local_rank = variables.integer(names.local_rank, 0, launch.local_size.value_or(launch.size) - 1);
  return launch;
}

// Returns a port that depends only on `job`, so that all processes of a job derive the same port.
int port_of(const std::string& job) {
  return kFirstPort + static_cast<int>(XXH3_64bits(job.data(), job.size()) % kNumPorts);
}

// Returns the host of the store, for a launcher that does not set MASTER_ADDR.
std::string derived_host(const Variables& variables, const Launch& launch) {
  if (launch.launcher == "srun" && variables.has("SLURM_STEP_NODELIST"))
    return first_slurm_host(variables.text("SLURM_STEP_NODELIST"));
  if (launch.launcher == "mpirun" && launch.local_size == launch.size) return "127.0.0.1";
  refuse_usage("MASTER_ADDR", "the host name or address of the machine that runs rank 0",
               str("no value in a job of ", launch.size, " processes started by ", launch.launcher),
               "set the environment variable MASTER_ADDR to the same value for all processes of the job");
}

void read_address(const Variables& variables, Launch& launch) {
  launch.host = variables.has("MASTER_ADDR") ? variables.text("MASTER_ADDR") : derived_host(variables, launch);
  if (variables.has("MASTER_PORT") || launch.job.empty()) launch.port = variables.integer("MASTER_PORT", 1, 65535);
  else launch.port = port_of(launch.job);
}

}  // namespace

std::string first_slurm_host(const std::string& list) {
  // Replaces each list in brackets by its first number, and ends at the first comma outside brackets.
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t number_end = std::min(list.find_first_of("-,]", i), list.size());
    host += list.substr(i + 1, number_end - i - 1);
    i = std::min(list.find(']', i), list.size());
  }
  return host;
}

Launch read_launch(const EnvironmentReader& environment) {
  const Variables variables(environment);
  Launch launch;
  if (variables.has(kTorchrun.size)) {
    launch = read_ranks(variables, kTorchrun);
    launch.job = variables.text("TORCHELASTIC_RUN_ID");
    launch.attempt = variables.text("TORCHELASTIC_RESTART_COUNT");
    launch.launcher_serves_store = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  } else if (variables.has(kMpirun.size)) {
    launch = read_ranks(variables, kMpirun);
    launch.job = variables.first_value({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  } else if (variables.has(kSrun.size)) {
    launch = read_ranks(variables, kSrun);
    launch.job = variables.text("SLURM_JOB_ID") + "." + variables.text("SLURM_STEP_ID");
  }
  if (launch.size > 1) read_address(variables, launch);
  return launch;
}

Launch read_launch() {
  return read_launch([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace mh
