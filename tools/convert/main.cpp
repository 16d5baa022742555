// mh-convert: averages checkpoints, folds combiners, pads heads, and converts models from and to Hugging Face
// transformers.
//
//   mh-convert --average run1/checkpoints/*.safetensors > average.safetensors
//   mh-convert --fold run1/best.safetensors -o folded.safetensors
//   mh-convert --head-size 128 run1/best.safetensors > padded.safetensors
//   mh-convert bert-folder/ > bert.safetensors
//   mh-convert --to huggingface bert.safetensors new-folder/
#include <CLI/CLI.hpp>

#include "base/command_line.h"
#include "base/tool.h"
#include "convert.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool({"mh-convert",
             "Averages checkpoints, folds combiners, pads heads, and converts models from and to Hugging Face folders.",
             "  mh-convert --average run1/checkpoints/*.safetensors > average.safetensors\n"
             "  mh-convert --fold run1/best.safetensors -o folded.safetensors\n"
             "  mh-convert --average --fold run1/checkpoints/*.safetensors | mh-eval - test.mhs\n"
             "  mh-convert bert-folder/ > bert.safetensors\n"
             "  mh-convert --to huggingface bert.safetensors new-folder/\n"
             "  mh-convert --to huggingface --dtype bfloat16 llama.safetensors new-folder/"});
  convert::Arguments args;
  CLI::App& app = tool.app();
  app.add_option("files", args.files,
                 "checkpoints, or one Hugging Face folder; at most one checkpoint may be - for standard input")
      ->type_name("MODEL...");
  app.add_flag("--average", args.average, "average the parameters of the checkpoints");
  app.add_flag(
      "--fold", args.fold,
      "fold combiners that mix heads by one matrix for all inputs, such as alphas, into the output projection");
  args.head_size_option =
      app.add_option("--head-size", args.head_size,
                     "pad the queries, keys and values of every head with zeros to N elements, without a change of the "
                     "outputs")
          ->type_name("N")
          ->check(whole_number(1, 65536));
  app.add_option("--to", args.output_format,
                 "output format; huggingface: write the model of the first argument to a new Hugging Face folder with "
                 "the name of the second argument")
      ->type_name("FORMAT")
      ->check(one_of({"huggingface"}));
  app.add_option("--dtype", args.dtype,
                 "type of the tensors in the output checkpoint or folder: float32, bfloat16 or float16 [float32]")
      ->type_name("TYPE")
      ->check(one_of({"float32", "bfloat16", "float16"}));
  args.padded_vocabulary_option =
      app.add_flag("--padded-vocabulary", args.accepts_padding_rows,
                   "keep the embedding rows of a Hugging Face folder that are past the end of the vocabulary");
  args.seed_option = app.add_option("--seed", args.seed,
                                    "seed of the initial values of an output head that a Hugging Face folder lacks [1]")
                         ->type_name("N")
                         ->check(whole_number(0));
  args.output_option =
      app.add_option("-o,--output", args.output, "output checkpoint; - is standard output [-]")->type_name("FILE");
  app.add_option("--threads", args.threads, "number of CPU threads; 0: all cores [0]")
      ->type_name("N")
      ->check(whole_number(0, 1024));
  tool.run_and_exit(argc, argv, [&] {
    if (!args.output_format.empty()) convert::convert_to_huggingface(args);
    else if (convert::is_from_huggingface(args)) convert::convert_from_huggingface(args);
    else convert::convert_checkpoints(args);
  });
}
