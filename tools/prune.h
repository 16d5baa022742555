// The jobs of mh-prune: each adds its subcommand, in a file of its own.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

namespace mh::prune {

// A subcommand, and what to do where it is the one that was asked for.
struct Job {
  CLI::App* app;
  std::function<void()> run;
};
using Jobs = std::vector<Job>;

void add_cut(CLI::App& app, Jobs& jobs);

}  // namespace mh::prune
