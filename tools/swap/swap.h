// The jobs of mh-swap.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "common/job.h"
#include "common/model_options.h"
#include "task/token_score.h"

namespace mh::swap {

// The options of scoring: those of a pass, and those of a sample.
struct ScoringFields {
  explicit ScoringFields(CLI::App& app) : scoring(app), sample(app) {}
  CommandLineFields scoring, sample;
  void declare(data::ScoringOptions& options) { scoring.declare(options), sample.declare(options.sample); }
  void take(data::ScoringOptions& options) { scoring.take(options), sample.take(options.sample); }
};

// Options of mh-swap itself, which hold for its subcommand too unless that excludes them.
struct Arguments : ModelArguments {
  Arguments() { precision = "fp32", attention = "auto"; }
  std::string format = "table";
  data::ScoringOptions scoring;
  std::unique_ptr<ScoringFields> fields;  // of `scoring`
};

// Of no subcommand: writes the model with its heads exchanged, or, in a dry run, prints what would be exchanged.
// `own`: receives the options that its subcommand excludes.
Job add_exchange(CLI::App& app, const std::shared_ptr<Arguments>& a, std::vector<CLI::Option*>& own);
// Head discrepancy of models, layer by layer.
void add_report(CLI::App& app, const std::shared_ptr<Arguments>& a, const std::vector<CLI::Option*>& excluded,
                Jobs& jobs);

}  // namespace mh::swap
