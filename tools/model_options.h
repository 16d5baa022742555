// Options that every tool which runs a model takes: where, and how.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/command_line.h"

namespace mh {

// --precision and --attention are left empty where they set keys of the configuration (mh-train).
struct ModelArguments {
  std::string device = "auto", precision, attention;
  int threads = 0;
};

// Adds --device, --precision, --attention and --threads. `key`: what of the configuration the middle two set, such as
// "train."; "" where they are of this call alone. Returns --device.
inline CLI::Option* add_model_options(CLI::App& app, ModelArguments& a, const std::string& key = "") {
  auto choice = [&](const std::string& name, std::string& value, const std::string& help, const char* type,
                    const std::vector<std::string>& choices) {
    return app.add_option(name, value, help)->type_name(type)->check(one_of(choices));
  };
  const bool sets = !key.empty();
  CLI::Option* device = choice("--device", a.device, "auto, cpu or cuda [auto]", "WHERE", {"auto", "cpu", "cuda"});
  choice("--precision", a.precision,
         sets ? "fp32 or bf16; sets " + key + "precision" : "of matrix products: fp32 or bf16 [fp32]", "TYPE",
         {"fp32", "bf16"});
  choice("--attention", a.attention,
         "auto, composed or fused" + (sets ? "; sets " + key + "attention_path" : std::string(" [auto]")), "PATH",
         {"auto", "composed", "fused"});
  app.add_option("--threads", a.threads, "0: all cores [0]")->type_name("N")->check(CLI::Range(0, 1024));
  return device;
}

}  // namespace mh
