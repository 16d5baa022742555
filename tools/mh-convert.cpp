// Makes checkpoints of checkpoints: the mean of several, and models whose combiners are folded.
//
//   mh-convert --average run1/checkpoints/*.safetensors > average.safetensors
//   mh-convert --fold run1/best.safetensors -o folded.safetensors
#include "base/tool.h"
#include "convert.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool({"mh-convert", "Makes a checkpoint of others: the mean of several, or one whose combiners are folded.",
             "  mh-convert --average run1/checkpoints/*.safetensors > average.safetensors\n"
             "  mh-convert --fold run1/best.safetensors -o folded.safetensors\n"
             "  mh-convert --average --fold run1/checkpoints/*.safetensors | mh-eval - test.mhs"});
  convert::Arguments a;
  CLI::App& app = tool.app();
  app.add_option("files", a.files, "checkpoints; one of them may be - for standard input")->type_name("MODEL...");
  app.add_flag("--average", a.average, "the arithmetic mean of the models' parameters");
  app.add_flag("--fold", a.fold,
               "fold combiners that are one matrix across heads, such as alphas, into the output projection");
  app.add_option("-o,--output", a.output, "the new checkpoint; - is standard output [-]")->type_name("FILE");
  app.add_option("--threads", a.threads, "0: all cores [0]")->type_name("N")->check(CLI::Range(0, 1024));
  return tool.run(argc, argv, [&] { convert::models(a); });
}
