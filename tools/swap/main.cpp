// mh-swap: swaps heads between layers of a model, or reports how much the heads of a layer differ.
//
//   mh-swap run1/best.safetensors --pairs decoder.self:1.0-5.3,decoder.self:1.1-5.2 -o swapped.safetensors
//   mh-swap run1/best.safetensors --mode soft --k 3 --data valid.mhs -o - | mh-eval - test.mhs
//   mh-swap report run1/best.safetensors swapped.safetensors valid.mhs
#include "base/tool.h"
#include "swap.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool(
      {"mh-swap",
       "Swaps heads between layers of a model: mh-swap MODEL -o FILE. The subcommand report prints how much the heads "
       "of layers differ.",
       "  mh-swap run1/best.safetensors --pairs decoder.self:1.0-5.3,decoder.self:1.1-5.2 -o swapped.safetensors\n"
       "  mh-swap run1/best.safetensors --mode soft --k 3 --data valid.mhs -o - | mh-eval - test.mhs\n"
       "  mh-swap run1/best.safetensors --mode hard --k 4 --data valid.mhs --dry-run\n"
       "  mh-swap run1/last.safetensors --mode random --with output,stages,optimizer -o moved.safetensors\n"
       "  mh-swap report run1/best.safetensors swapped.safetensors valid.mhs --blocks 64"});
  const auto args = std::make_shared<swap::Arguments>();
  std::vector<CLI::Option*> swap_only_options;
  const Job swap_job = swap::make_swap_job(tool.app(), args, swap_only_options);
  Jobs jobs;
  swap::add_report_subcommand(tool.app(), args, swap_only_options, jobs);
  tool.run_and_exit(argc, argv, [&] {
    if (!run_selected(jobs)) swap_job.run();
  });
}
