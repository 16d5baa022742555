// mh-finetune: trains all or some parameters of a checkpoint on new data, in a new run folder.
//
//   mh-finetune --init mt/best.safetensors --train-only gates --train new.mhs --valid v.mhs --out ft
//   mh-finetune --resume --out ft
#include <CLI/CLI.hpp>

#include "base/command_line.h"
#include "base/error.h"
#include "base/tool.h"
#include "common/train_setup.h"
#include "seeds.h"
#include "train/trainable_filter.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool(
      {"mh-finetune", "Trains all or some parameters of a checkpoint on new data.",
       "  mh-finetune --init mt/best.safetensors --train new.mhs --valid v.mhs --out ft\n"
       "  mh-finetune --init mt/best.safetensors --train-only gates,output --train new.mhs --valid v.mhs --out ft "
       "--set train.length=1000u\n"
       "  mh-finetune --config glue-mrpc.toml --init bert.safetensors --train mrpc.mhs --valid dev.mhs --out ft "
       "--seeds "
       "5\n"
       "  mh-finetune --resume --out ft --set train.length=2000u"});
  train_setup::Arguments args;
  args.inherits_training = true;
  CLI::App& app = tool.app();
  train_setup::add_options(app, args, "--init", "checkpoint to start from");
  add_list(app, "--train-only", args.trainable_names,
           str("parameters to train: patterns of parameter names, such as decoder.layers.0.*, or words that mh-train "
               "--list trainable explains: ",
               train::trainable_words_text(), "; all other parameters are frozen; sets train.trainable [all]"),
           "WHICH,...");
  args.seeds_option =
      app.add_option(
             "--seeds", args.num_seeds,
             "number of runs with consecutive seeds from --seed on, each in a folder of --out that is named after "
             "its seed, such as OUT/seed1; prints the scores of the best model of each run, their mean and their "
             "sample standard deviation; with --resume: resumes the runs that have begun, and begins the others "
             "from --init; without --seeds: one run in OUT")
          ->type_name("N")
          ->check(whole_number(1, 1 << 20));
  tool.run_and_exit(argc, argv, [&] {
    if (args.resume && !args.checkpoint_path.empty() && args.num_seeds == 0)
      refuse_usage("--resume", "no --init together with --resume, except with --seeds", "both",
                   "leave --resume or --init out");
    if (args.checkpoint_path.empty() && !args.resume)
      refuse_usage("--init", "a checkpoint to start from, or --resume", "neither",
                   "pass --init FILE or --resume; mh-train trains without a checkpoint");
    if (args.num_seeds > 0 && !args.dry_run) train_setup::run_seeds(args, tool);
    else train_setup::run(args, tool);
  });
}
