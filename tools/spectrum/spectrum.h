// The jobs of mh-spectrum, and the options that they share.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "common/job.h"
#include "common/model_options.h"
#include "common/shard_source.h"

namespace mh::spectrum {

// The options of mh-spectrum without a subcommand. The subcommand experts accepts these options as well, except those
// that it excludes.
struct Arguments : ModelArguments {
  Arguments() { precision = "fp32", attention_path = "auto", scoring_options.sample.blocks = 64; }
  std::vector<std::string> assignments, kinds;
  std::string format = "table";
  data::ScoringOptions scoring_options;
  std::unique_ptr<CommandLineFields> fields;  // the command-line options of `scoring_options`

  // Adds the options of `scoring_options` and scoring_options.sample to `app`, the tool or its subcommand.
  std::unique_ptr<CommandLineFields> declare(CLI::App& app);
  // Fills `scoring_options` from the options of the tool, then from `subcommand_fields`, the options of the subcommand
  // (null without a subcommand). The default number of blocks is only an upper limit; an explicit --blocks larger than
  // the corpus is an error. Throws Error(usage) for a --seed without a sample.
  void store_values(CommandLineFields* subcommand_fields);
};

// Returns the job that writes spectra as tables and plots, which runs if the command line has no subcommand. Adds the
// options of this job to `app`; `spectra_options` receives the options that the subcommand must exclude.
Job make_spectra_job(CLI::App& app, const std::shared_ptr<Arguments>& args, std::vector<CLI::Option*>& spectra_options);
// Adds the subcommand that reports the specialisation of experts.
void add_experts_subcommand(CLI::App& app, const std::shared_ptr<Arguments>& args,
                            const std::vector<CLI::Option*>& excluded_options, Jobs& jobs);

// Adds the options that affect results as columns to a table row.
void add_settings(nlohmann::ordered_json& row, const Arguments& args, const data::ScoringOptions& scoring_options);

}  // namespace mh::spectrum
