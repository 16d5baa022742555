// The jobs of a tool. Each job adds its subcommand and lives in its own file.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "base/command_line.h"

namespace mh {

// A subcommand and the function to run if it is on the command line.
struct Job {
  CLI::App* app;
  std::function<void()> run;
};
using Jobs = std::vector<Job>;

// Runs the job whose subcommand is on the command line, or the last of them in `jobs` if there are several. Returns
// false if there is none.
inline bool run_selected(const Jobs& jobs) {
  for (auto job = jobs.rbegin(); job != jobs.rend(); ++job)
    if (job->app->parsed()) return job->run(), true;
  return false;
}

// Adds the job `run` of a subcommand. The fields of `options` become command-line options, and are filled in before
// `run`.
template <class Options>
void add_job(Jobs& jobs, CLI::App* app, const std::shared_ptr<Options>& options, const std::function<void()>& run) {
  const auto fields = std::make_shared<CommandLineFields>(*app);
  fields->declare(*options);
  jobs.push_back({app, [=] {
                    fields->take(*options);
                    run();
                  }});
}

}  // namespace mh
