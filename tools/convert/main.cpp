// mh-convert: averages checkpoints, folds combiners, and converts models from and to Hugging Face transformers.
//
//   mh-convert --average run1/checkpoints/*.safetensors > average.safetensors
//   mh-convert --fold run1/best.safetensors -o folded.safetensors
//   mh-convert bert-folder/ > bert.safetensors
//   mh-convert --to huggingface bert.safetensors new-folder/
#include <CLI/CLI.hpp>

#include "base/command_line.h"
#include "base/tool.h"
#include "convert.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool({"mh-convert", "Makes a checkpoint of others, or of a folder of Hugging Face, and such a folder.",
             "  mh-convert --average run1/checkpoints/*.safetensors > average.safetensors\n"
             "  mh-convert --fold run1/best.safetensors -o folded.safetensors\n"
             "  mh-convert --average --fold run1/checkpoints/*.safetensors | mh-eval - test.mhs\n"
             "  mh-convert bert-folder/ > bert.safetensors\n"
             "  mh-convert --to huggingface bert.safetensors new-folder/"});
  convert::Arguments a;
  CLI::App& app = tool.app();
  app.add_option("files", a.files, "checkpoints, one of which may be - for standard input; or a folder of Hugging Face")
      ->type_name("MODEL...");
  app.add_flag("--average", a.average, "the arithmetic mean of the models' parameters");
  app.add_flag("--fold", a.fold,
               "fold combiners that are one matrix across heads, such as alphas, into the output projection");
  app.add_option("--to", a.to, "write the second name, a new folder, in the form of Hugging Face")
      ->type_name("huggingface")
      ->check(CLI::IsMember({"huggingface"}));
  app.add_flag("--padded-vocabulary", a.padded,
               "of a folder: keep rows of the embedding that are more than the vocabulary's entries");
  app.add_option("--seed", a.seed, "of a folder: of the first values of a head that it lacks [1]")
      ->type_name("N")
      ->check(whole_number(0));
  app.add_option("-o,--output", a.output, "the new checkpoint; - is standard output [-]")->type_name("FILE");
  app.add_option("--threads", a.threads, "number of CPU threads; 0: all cores [0]")
      ->type_name("N")
      ->check(whole_number(0, 1024));
  tool.run_and_exit(argc, argv, [&] {
    if (!a.to.empty()) convert::to_huggingface(a);
    else if (convert::is_from_huggingface(a)) convert::from_huggingface(a);
    else convert::models(a);
  });
}
