#include "train/process_checks.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace mh::train {

bool has_running_statistics(const nn::ParameterList& parameters) {
  return std::any_of(parameters.all().begin(), parameters.all().end(),
                     [](const nn::Parameter& p) { return p.traits().is_running_statistic; });
}

void check_processes(const RunConfig& run, int64_t num_processes, at::Device device) {
  if (num_processes == 1) return;
  const std::string job = str("a job of ", num_processes, " processes");
  if (run.train.cuda_graph)
    refuse_usage(job, "train.cuda_graph=false", "true", "leave train.cuda_graph out, or start one process");
  // The exchange of shards copies between tensors in main memory (train/shard_exchange.cpp).
  if (run.train.shard == "optimizer" && !device.is_cpu())
    refuse_usage(job + " on GPUs", "train.shard=none", "train.shard=optimizer",
                 "leave train.shard out, or pass --device cpu");
  if (run.train.shard == "optimizer")
    for (const auto& entry : run.procedures.entries())
      if (entry.plugin->moves_weights())
        refuse_usage(job,
                     str("train.shard=none with train.procedures.", entry.name, ", which moves weights and moments"),
                     "train.shard=optimizer", "leave train.shard out, or start one process");
}

}  // namespace mh::train
