// The options of all tools that run a model: device, precision, attention path, threads and overridden keys.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace mh {

// The values of --device, --precision, --attention and --threads. `precision` and `attention_path` are empty by default
// in tools whose --precision and --attention set configuration keys (mh-train, mh-finetune).
struct ModelArguments {
  std::string device = "auto", precision, attention_path;
  int threads = 0;
};

struct ModelOptionSet {
  CLI::Option *device, *precision, *attention, *threads;
  std::vector<CLI::Option*> all() const { return {device, precision, attention, threads}; }
};

// Adds --device, --precision, --attention and --threads. `key_prefix`: prefix of the configuration keys that
// --precision and --attention set, such as "train."; "": the two options set no keys.
ModelOptionSet add_model_options(CLI::App& app, ModelArguments& args, const std::string& key_prefix = "");

// Adds --set, which overrides configuration keys of a loaded model (load_with_options()).
CLI::Option* add_set_option(CLI::App& app, std::vector<std::string>& assignments);

}  // namespace mh
