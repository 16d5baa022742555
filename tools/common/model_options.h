// Options that every tool which runs a model takes: where it runs, how, and with which keys changed.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace mh {

// --precision and --attention are left empty where they set keys of the configuration (mh-train).
struct ModelArguments {
  std::string device = "auto", precision, attention;
  int threads = 0;
};

struct ModelOptionSet {
  CLI::Option *device, *precision, *attention, *threads;
  std::vector<CLI::Option*> all() const { return {device, precision, attention, threads}; }
};

// Adds --device, --precision, --attention and --threads. `key`: what of the configuration the middle two set, such as
// "train."; "" where they are of this call alone.
ModelOptionSet add_model_options(CLI::App& app, ModelArguments& a, const std::string& key = "");

// Adds --set, for keys of a model that is loaded (load_as()).
CLI::Option* add_sets(CLI::App& app, std::vector<std::string>& sets);

}  // namespace mh
