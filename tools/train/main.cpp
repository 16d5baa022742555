// mh-train: trains a model from a configuration, or resumes a run exactly.
//
//   mh-train --config wikitext2-small.toml --train train.mhs --valid valid.mhs --out run1 --set train.length=300u
//   mh-train --resume --out run1
//   mh-train --from swapped.safetensors --train train.mhs --out run2 --set train.length=100u
#include <CLI/CLI.hpp>

#include "base/command_line.h"
#include "base/error.h"
#include "base/text.h"
#include "base/tool.h"
#include "common/train_setup.h"
#include "list.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool({"mh-train", "Trains a model from a configuration, or resumes a run exactly where it stopped.",
             "  mh-train --config configs/recipes/wikitext2-small.toml --train train.mhs --valid valid.mhs --out run1\n"
             "  mh-train --resume --out run1 --set train.length=400u\n"
             "  mh-train --from swapped.safetensors --train train.mhs --out run2 --set train.length=100u"});
  train_setup::Arguments args;
  std::string table;
  CLI::App& app = tool.app();
  const size_t num_shared_options = app.get_options().size();  // options of every tool, which --list allows: --quiet, …
  train_setup::add_options(app, args, "--from", "checkpoint whose parameters and model configuration start a new run");
  const std::vector<CLI::Option*> options = app.get_options();
  app.add_option("--list", table, "table to print instead of training: " + join(train_setup::list_names(), ", "))
      ->type_name("WHAT")
      ->check(one_of(train_setup::list_names()));
  tool.run_and_exit(argc, argv, [&] {
    if (!table.empty()) {
      for (size_t i = num_shared_options; i < options.size(); ++i)
        if (options[i]->count() > 0)
          refuse_usage("--list", "no other option together with --list", options[i]->get_name(),
                       str("leave ", options[i]->get_name(), " out"));
      return ignore_broken_pipe([&] { train_setup::print_list(table); });
    }
    train_setup::run(args, tool);
  });
}
