// The jobs of a tool: each adds its subcommand, in a file of its own.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "base/command_line.h"

namespace mh {

// A subcommand, and what runs where it was given.
struct Job {
  CLI::App* app;
  std::function<void()> run;
};
using Jobs = std::vector<Job>;

// Runs the job whose subcommand was given, of several the last in `jobs`; false: none was.
inline bool run_given(const Jobs& jobs) {
  for (auto job = jobs.rbegin(); job != jobs.rend(); ++job)
    if (job->app->parsed()) return job->run(), true;
  return false;
}

// Adds the job `run` of a subcommand, whose options are the fields of `options`; they are filled in before it runs.
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
