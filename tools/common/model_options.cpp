// Adds the options of tools that run a model.
#include "common/model_options.h"

#include <CLI/CLI.hpp>

#include "base/command_line.h"
#include "base/text.h"
#include "task/task.h"

namespace mh {

ModelOptionSet add_model_options(CLI::App& app, ModelArguments& args, const std::string& key_prefix) {
  auto add_choice = [&](const std::string& name, std::string& value, const std::string& help, const char* type,
                        const std::vector<std::string>& choices) {
    return app.add_option(name, value, help)->type_name(type)->check(one_of(choices));
  };
  const bool sets_keys = !key_prefix.empty();
  ModelOptionSet options{};
  options.device = add_choice("--device", args.device,
                              "device of the model: cpu, cuda, or auto, which is cuda if a GPU is usable [auto]",
                              "WHERE", {"auto", "cpu", "cuda"});
  options.precision =
      add_choice("--precision", args.precision,
                 sets_keys ? "precision of matrix products: fp32 or bf16; sets " + key_prefix + "precision"
                           : "precision of matrix products: fp32 or bf16 [fp32]",
                 "TYPE", {"fp32", "bf16"});
  options.attention = add_choice("--attention", args.attention_path,
                                 "attention implementation: composed (separate operations), fused (one kernel), or "
                                 "auto, which is fused where possible" +
                                     (sets_keys ? "; sets " + key_prefix + "attention_path" : std::string(" [auto]")),
                                 "PATH", {"auto", "composed", "fused"});
  options.threads = app.add_option("--threads", args.threads, "number of CPU threads; 0: all cores [0]")
                        ->type_name("N")
                        ->check(whole_number(0, 1024));
  return options;
}

CLI::Option* add_set_option(CLI::App& app, std::vector<std::string>& assignments) {
  std::vector<std::string> sections{"[model]", "[attention]"};
  for (const std::string& name : task::tasks().names())
    if (const auto task = task::tasks().make(name, "task"); task->options_affect_scores())
      sections.push_back(str("[", task->section(), "]"));
  return app
      .add_option(
          "--set", assignments,
          "new value of a configuration key in " + join_alternatives(sections) +
              ", such as "
              "model.transformer-xl.same_length=true; keys that would change the parameters of the model are refused")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

}  // namespace mh
