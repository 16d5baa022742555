// The jobs of mh-swap, and the options that they share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "common/job.h"
#include "common/model_options.h"
#include "task/token_score.h"

namespace mh::swap {

// The command-line options of data::ScoringOptions, and of its sample.
struct ScoringFields {
  explicit ScoringFields(CLI::App& app) : scoring_fields(app), sample_fields(app) {}
  CommandLineFields scoring_fields, sample_fields;
  void declare(data::ScoringOptions& options) {
    scoring_fields.declare(options), sample_fields.declare(options.sample);
  }
  void store_values(data::ScoringOptions& options) {
    scoring_fields.store_values(options), sample_fields.store_values(options.sample);
  }
};

// The options of mh-swap without a subcommand. The subcommand report accepts these options as well, except the options
// that it excludes.
struct Arguments : ModelArguments {
  Arguments() { precision = "fp32", attention_path = "auto"; }
  std::string format = "table";
  data::ScoringOptions scoring_options;
  std::unique_ptr<ScoringFields> fields;  // the command-line options of `scoring_options`
};

// Returns the job that writes the model with heads swapped or, with --dry-run, prints the pairs; it runs if the command
// line has no subcommand. Adds the options of this job to `app`; `swap_only_options` receives the options that the
// subcommand must exclude.
Job make_swap_job(CLI::App& app, const std::shared_ptr<Arguments>& args, std::vector<CLI::Option*>& swap_only_options);
// Adds the subcommand that reports the head discrepancy of models, layer by layer.
void add_report_subcommand(CLI::App& app, const std::shared_ptr<Arguments>& args,
                           const std::vector<CLI::Option*>& excluded_options, Jobs& jobs);

}  // namespace mh::swap
