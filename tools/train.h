// The jobs of mh-train, each as its main calls it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "io/checkpoint.h"
#include "model_options.h"

namespace mh::tool_train {

struct Arguments : ModelArguments {
  std::vector<std::string> configs, sets;
  std::string train, valid, out, list, from, format = "table";
  bool resume = false, dry_run = false;
  int64_t seed = -1;
};

// The checkpoint that the run begins with, or null.
std::unique_ptr<io::Checkpoint> beginning(const Arguments& a);
// The configuration that the options make: the model of that checkpoint, files, then single keys, later ones winning.
// Error(usage) where it no longer has the checkpoint's parameters.
Config configuration(const Arguments& a, const io::Checkpoint* from);

// Prints what can be chosen: "stages", "keys" or "backbones".
void list(const std::string& what);
// Prints what a configuration would build. Needs data only where it does not say how large the vocabulary is.
void dry_run(const Arguments& a);

}  // namespace mh::tool_train
