// mh-spectrum: singular values and effective ranks of attention matrices and parameters.
//
//   mh-spectrum run1/best.safetensors valid.mhs --blocks 64 > spectrum.tsv
//   mh-spectrum run1/best.safetensors --of output-value
//   mh-spectrum experts run1/best.safetensors valid.mhs --show tokens
#include "base/tool.h"
#include "common/processes.h"
#include "spectrum.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool(
      {"mh-spectrum",
       "Shows the singular values of a model's matrices, layer by layer and head by head: mh-spectrum MODEL... "
       "[DATA].\nEach table row describes one head or one parameter: c_k = sum of the k largest singular values / sum "
       "of "
       "all\n(c_first: k = 1, c_10: the first 10%, …), area (mean of c_k), effective rank, stable rank and entropy; "
       "--curves writes every c_k.\nThe subcommand experts describes a mixture of attentive experts.",
       "  mh-spectrum run1/best.safetensors valid.mhs --blocks 64 > spectrum.tsv\n"
       "  mh-spectrum run1/best.safetensors run2/best.safetensors valid.mhs --summary | column -t\n"
       "  mh-spectrum run1/best.safetensors valid.mhs --plot spectrum.svg --curves curves.tsv\n"
       "  mh-spectrum run1/best.safetensors --of alphas --plot alphas.pdf\n"
       "  mh-spectrum run1/best.safetensors --of weight:decoder.layers.0.self.query.weight\n"
       "  mh-spectrum experts run1/best.safetensors valid.mhs --show tokens"});
  const auto args = std::make_shared<spectrum::Arguments>();
  std::vector<CLI::Option*> spectra_options;
  const Job spectra = spectrum::make_spectra_job(tool.app(), args, spectra_options);
  Jobs jobs;
  spectrum::add_experts_subcommand(tool.app(), args, spectra_options, jobs);
  tool.run_and_exit(argc, argv, [&] {
    start_process();  // before the checks, so that errors name the rank
    if (!run_selected(jobs)) spectra.run();
  });
}
