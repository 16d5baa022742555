// The jobs of mh-prune: each adds its subcommand, in a file of its own.
#pragma once

#include <functional>
#include <vector>

namespace CLI {
class App;
}

namespace mh::prune {

// A subcommand, and what to do where it is the one that was asked for.
struct Job {
  CLI::App* app;
  std::function<void()> run;
};
using Jobs = std::vector<Job>;

void add_scan(CLI::App& app, Jobs& jobs);
void add_rank(CLI::App& app, Jobs& jobs);
void add_curve(CLI::App& app, Jobs& jobs);
void add_cut(CLI::App& app, Jobs& jobs);

}  // namespace mh::prune
