// The jobs of mh-swap.
#pragma once

#include <string>
#include <vector>

#include "common/model_options.h"
#include "task/scoring.h"

namespace mh::swap {

struct Arguments : ModelArguments {
  Arguments() { precision = "fp32", attention = "auto"; }
  std::string format = "table";
  // Of an exchange.
  std::string model, mode, by = "avg-l2", data, output;
  std::vector<std::string> pairs, kinds, with;
  int64_t k = 3, t_max = 0;
  bool dry_run = false;
  // Of a report.
  std::vector<std::string> files;
};

// Writes the model with its heads exchanged, or, in a dry run, what would be exchanged.
void exchange(const Arguments& a, const task::ScoringOptions& scoring);
// Head discrepancy of models, layer by layer.
void report(const Arguments& a, const task::ScoringOptions& scoring);

}  // namespace mh::swap
