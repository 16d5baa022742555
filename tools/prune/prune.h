// The jobs of mh-prune.
#pragma once

#include "common/job.h"

namespace mh::prune {

void add_scan_subcommand(CLI::App& app, Jobs& jobs);
void add_rank_subcommand(CLI::App& app, Jobs& jobs);
void add_curve_subcommand(CLI::App& app, Jobs& jobs);
void add_cut_subcommand(CLI::App& app, Jobs& jobs);

}  // namespace mh::prune
