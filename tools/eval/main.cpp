// mh-eval: scores models on texts, pairs or tasks, generates text and translations, and scores plain text against
// references; plots the logs of training runs.
//
//   mh-eval run1/best.safetensors run2/best.safetensors test.mhs
//   mh-eval generate run1/best.safetensors --prompt "The history of" --length 50
//   mh-eval translate mt/best.safetensors --beam 5 test.de
//   mh-eval bleu hyp.en ref.en --format json
#include "base/error.h"
#include "base/tool.h"
#include "eval.h"
#include "nn/ops.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool(
      {"mh-eval",
       "Scores models on text, translations or tasks: mh-eval MODEL... DATA. The subcommands generate text, "
       "translate, score translations, and plot the logs of training runs.",
       "  mh-eval run1/best.safetensors run2/best.safetensors test.mhs\n"
       "  cat test.mhs | mh-eval --format json --context 192 run1/best.safetensors -\n"
       "  mh-eval --sequence-length 64 --memory 640 --set attention.relative.clamp=400 run3/best.safetensors test.mhs\n"
       "  mh-eval generate run1/best.safetensors --prompt 'The history of' --length 50\n"
       "  mh-eval mt/best.safetensors test.mhs --beam 5 --hypotheses out.en\n"
       "  mh-eval mt1/best.safetensors mt2/best.safetensors test.mhs --ensemble --beam 5\n"
       "  mh-eval ft/seed1/best.safetensors test.mhs --predictions - > MRPC.tsv\n"
       "  mh-eval translate mt/best.safetensors --beam 5 --nbest 3 --scores test.de\n"
       "  mh-eval bleu --format json hyp.en ref.en\n"
       "  mh-eval curves --smooth 5 --plot curves.svg run*/log.jsonl"});
  const auto args = std::make_shared<eval::Arguments>();
  eval::SharedOptions shared_options;
  const Job score = eval::make_score_job(tool.app(), args, shared_options);
  Jobs jobs;
  eval::add_generate_subcommand(tool.app(), args, shared_options, jobs);
  eval::add_translate_subcommand(tool.app(), args, shared_options, jobs);
  eval::add_bleu_subcommand(tool.app(), args, shared_options, jobs);
  eval::add_curves_subcommand(tool.app(), args, shared_options, jobs);
  tool.run_and_exit(argc, argv, [&] {
    nn::prepare_cpu(args->threads);
    ignore_broken_pipe([&] {
      if (!run_selected(jobs)) score.run();
    });
  });
}
