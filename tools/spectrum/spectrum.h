// The jobs of mh-spectrum.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "common/job.h"
#include "common/model_options.h"
#include "common/subject.h"

namespace mh::spectrum {

// Options of mh-spectrum itself, which hold for its subcommand too unless that excludes them.
struct Arguments : ModelArguments {
  Arguments() { precision = "fp32", attention = "auto", scoring.sample.blocks = 64; }
  std::vector<std::string> sets, kinds;
  std::string format = "table";
  data::ScoringOptions scoring;
  std::unique_ptr<CommandLineFields> fields;  // of `scoring`

  // Declares the fields of `scoring` and its sample, as main does for itself.
  std::unique_ptr<CommandLineFields> declare(CLI::App& app);
  // Fills `scoring` with what main was given, then with what its subcommand was, if there is one. Blocks that nobody
  // asked for are no more than there are.
  void take(CommandLineFields* of_subcommand);
};

// Of no subcommand: spectra as rows, curves and pictures. `own`: receives the options that its subcommand excludes.
Job add_spectra(CLI::App& app, const std::shared_ptr<Arguments>& a, std::vector<CLI::Option*>& own);
// What the experts of a mixture do.
void add_experts(CLI::App& app, const std::shared_ptr<Arguments>& a, const std::vector<CLI::Option*>& excluded,
                 Jobs& jobs);

// Adds the columns of options that change figures, for every row.
void add_settings(nlohmann::ordered_json& row, const Arguments& a, const data::ScoringOptions& how);

}  // namespace mh::spectrum
