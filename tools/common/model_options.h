// Options that every tool which runs a model takes: where, and how.
#pragma once

#include <string>

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

// Adds --device, --precision, --attention and --threads. `key`: what of the configuration the middle two set, such as
// "train."; "" where they are of this call alone. Returns --device.
CLI::Option* add_model_options(CLI::App& app, ModelArguments& a, const std::string& key = "");

}  // namespace mh
