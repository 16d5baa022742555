// The jobs of a tool. A job is a subcommand and the function that runs it; each job has its own source file.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "base/command_line.h"

namespace mh {

// A subcommand, and the function to call if the subcommand is on the command line.
struct Job {
  CLI::App* app;
  std::function<void()> run;
};
using Jobs = std::vector<Job>;

// Runs the job whose subcommand is on the command line; of several, only the last one in `jobs`. Returns false if no
// subcommand is on the command line.
inline bool run_selected(const Jobs& jobs) {
  for (auto job = jobs.rbegin(); job != jobs.rend(); ++job)
    if (job->app->parsed()) return job->run(), true;
  return false;
}

// Adds a job that calls `run` for the subcommand `app`. The fields of `options` become command-line options of `app`,
// whose values are stored in `options` before `run` is called.
template <class Options>
void add_job(Jobs& jobs, CLI::App* app, const std::shared_ptr<Options>& options, const std::function<void()>& run) {
  const auto fields = std::make_shared<CommandLineFields>(*app);
  fields->declare(*options);
  jobs.push_back({app, [=] {
                    fields->store_values(*options);
                    run();
                  }});
}

}  // namespace mh
