// The jobs of a tool: each adds its subcommand, in a file of its own.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

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

}  // namespace mh
