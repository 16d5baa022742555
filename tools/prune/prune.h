// The jobs of mh-prune.
#pragma once

#include "common/job.h"

namespace mh::prune {

void add_scan(CLI::App& app, Jobs& jobs);
void add_rank(CLI::App& app, Jobs& jobs);
void add_curve(CLI::App& app, Jobs& jobs);
void add_cut(CLI::App& app, Jobs& jobs);

}  // namespace mh::prune
