// The jobs of a tool. A job is a subcommand, or the tool without a subcommand, and the function that runs it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/command_line.h"

namespace mh {

// A subcommand `app`, and the function `run` to call if the subcommand is on the command line. In the job without a
// subcommand, `app` is the tool, and `run` is called if no subcommand is on the command line.
struct Job {
  CLI::App* app;
  std::function<void()> run;
};
using Jobs = std::vector<Job>;

// Runs the job whose subcommand is on the command line; if there are several, runs only the last one in `jobs`. Returns
// false if no subcommand is on the command line.
bool run_selected(const Jobs& jobs);

// Throws Error(usage) if `model`, the first argument of a tool that needs no subcommand, is not a regular file but
// similar to the name of a subcommand of the tool.
void refuse_misspelling(const CLI::App& tool, const std::string& model);

// Adds a job that calls `run` for the subcommand `app`. The fields of `options` become command-line options of `app`,
// whose values are stored in `options` before `run` is called. Returns the command-line options.
template <class Options>
std::shared_ptr<const CommandLineFields> add_job(Jobs& jobs, CLI::App* app, const std::shared_ptr<Options>& options,
                                                 const std::function<void()>& run) {
  const auto fields = std::make_shared<CommandLineFields>(*app);
  fields->declare(*options);
  jobs.push_back({app, [=] {
                    fields->store_values(*options);
                    run();
                  }});
  return fields;
}

}  // namespace mh
