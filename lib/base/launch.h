// The processes of a job, as the launcher of the job describes them to each process in environment variables.
//
// Launchers, in order of precedence:
//
//   torchrun  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID,
//             TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_USE_AGENT_STORE; a user may set the first six without torchrun
//   mpirun    OMPI_COMM_WORLD_RANK, …_SIZE, …_LOCAL_RANK, …_LOCAL_SIZE; PMIX_NAMESPACE or OMPI_MCA_ess_base_jobid
//   srun      SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_NODELIST, SLURM_JOB_ID, SLURM_STEP_ID
//
// MASTER_ADDR and MASTER_PORT replace the address that is derived from the variables of mpirun and srun.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace mh {

// One process of a job.
struct Launch {
  std::string launcher;             // "torchrun", "mpirun" or "srun"; "" for a process that no launcher started
  int rank = 0, size = 1;           // index of the process in the job; number of processes of the job
  std::optional<int> local_rank{};  // index of the process on its machine; nullopt: unknown
  std::optional<int> local_size{};  // number of processes of the job on this machine; nullopt: unknown
  // Address at which rank 0, or the launcher, serves the key-value store of the job. `host` is empty and `port` is 0 if
  // `size` is 1.
  std::string host;
  int port = 0;
  bool launcher_serves_store = false;  // the launcher, instead of rank 0, serves the store
  std::string job;                     // identifies the job among jobs with the same address; may be empty
  std::string attempt;                 // number of restarts of the job, if the launcher counts them; may be empty
};

// Returns the value of an environment variable; null if it is unset.
using EnvironmentReader = std::function<const char*(const char* name)>;

// Returns the description of this process. Without the variables of any launcher, returns a job of one process. Throws
// Error(usage), which names the variable, if a variable is missing or invalid, if a rank is not below the size, or if
// the address of the store is unknown because mpirun started processes on several machines without MASTER_ADDR.
Launch read_launch(const EnvironmentReader& environment);
Launch read_launch();  // reads the environment of this process

// Returns the first host name of a Slurm list of nodes: "node07" for "node[07-09,12],login1".
std::string first_slurm_host(const std::string& list);

}  // namespace mh
