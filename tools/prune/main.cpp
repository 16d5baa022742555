// mh-prune: measures the importance of heads, and writes models without unimportant heads.
//
//   mh-prune scan run1/best.safetensors test.mhs
//   mh-prune rank --by taylor run1/best.safetensors valid.mhs
//   mh-prune curve --by taylor,random run1/best.safetensors test.mhs --plot curve.svg
//   mh-prune cut run1/best.safetensors --by taylor --data valid.mhs --fraction 30% -o small.safetensors
#include "base/tool.h"
#include "prune.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool(
      {"mh-prune", "Ablates, ranks and prunes the attention heads of models.",
       "  mh-prune scan run1/best.safetensors test.mhs > heads.tsv\n"
       "  mh-prune scan --summary run1/best.safetensors run2/best.safetensors test.mhs\n"
       "  mh-prune rank --by taylor --plot heads.svg run1/best.safetensors valid.mhs\n"
       "  mh-prune curve --by taylor,random --step 10% --plot curve.svg run1/best.safetensors test.mhs\n"
       "  mh-prune cut run1/best.safetensors --heads 0:1,0:3,5:7 -o small.safetensors\n"
       "  mh-prune cut run1/best.safetensors --by taylor --data valid.mhs --fraction 30% -o - | mh-eval - test.mhs"});
  tool.app().require_subcommand(1);
  Jobs jobs;
  prune::add_scan_subcommand(tool.app(), jobs);
  prune::add_rank_subcommand(tool.app(), jobs);
  prune::add_curve_subcommand(tool.app(), jobs);
  prune::add_cut_subcommand(tool.app(), jobs);
  tool.run_and_exit(argc, argv, [&] { run_selected(jobs); });
}
