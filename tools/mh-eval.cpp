// Scores language models on a text, or lets them write one; scores text against references.
//
//   mh-eval run1/best.safetensors run2/best.safetensors test.mhs
//   mh-eval generate run1/best.safetensors --prompt "The history of" --length 50
//   mh-eval bleu hyp.en ref.en --format json
#include <algorithm>

#include "base/command_line.h"
#include "base/error.h"
#include "base/tool.h"
#include "eval.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool({"mh-eval",
             "Scores language models on a text: mh-eval MODEL... DATA. Its subcommands let them "
             "write one, and score text.",
             "  mh-eval run1/best.safetensors run2/best.safetensors test.mhs\n"
             "  cat test.mhs | mh-eval --format json --context 192 run1/best.safetensors -\n"
             "  mh-eval --block 64 --memory 640 --set attention.relative.clamp=400 run3/best.safetensors test.mhs\n"
             "  mh-eval generate run1/best.safetensors --prompt 'The history of' --length 50\n"
             "  mh-eval bleu --format json hyp.en ref.en"});
  eval::Arguments a;
  CLI::App& app = tool.app();
  app.add_option("files", a.files, "checkpoints, then a shard; one of them may be - for standard input")
      ->type_name("MODEL... DATA");
  app.add_option("--format", a.format, "table or json [table]")->type_name("WHAT")->check(one_of({"table", "json"}));
  app.add_option("--per-token", a.per_token, "write each token's log-probability (nats) to a table")->type_name("FILE");
  app.add_option("--set", a.sets, "change a key of the model that changes no parameter: model.same_length=true")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  add_model_options(app, a);
  task::ScoringOptions scoring;
  CommandLineFields scoring_fields(app);
  scoring_fields.declare(scoring);
  CLI::App* generate = app.add_subcommand("generate", "continue a prompt");
  generate->add_option("model", a.model, "checkpoint; - is standard input")->required()->type_name("MODEL");
  generate->add_option("--prompt", a.prompt, "text to continue [an empty line]")->type_name("TEXT");
  generate->add_option("--prompt-file", a.prompt_file, "continue this text instead; - is standard input")
      ->type_name("FILE")
      ->excludes("--prompt");
  // It scores nothing.
  for (const char* name :
       {"files", "--format", "--per-token", "--block", "--context", "--memory", "--streams", "--batch"})
    generate->excludes(app.get_option(name));
  task::GenerationOptions generation;
  CommandLineFields generation_fields(*generate);
  generation_fields.declare(generation);
  eval::BleuJob job;
  CLI::App* bleu = app.add_subcommand("bleu", "BLEU and chrF of plain text, a sentence a line");
  bleu->add_option("hypotheses", job.hypotheses, "what is scored; - is standard input")->required()->type_name("HYP");
  bleu->add_option("references", job.references, "what it should be")->required()->type_name("REF...");
  CommandLineFields bleu_fields(*bleu);
  bleu_fields.declare(job);
  const std::vector<std::string> shared{"--help", "--version", "--quiet", "--verbose", "--format"};
  for (CLI::Option* option : app.get_options())
    if (std::find(shared.begin(), shared.end(), option->get_name()) == shared.end()) bleu->excludes(option);
  return tool.run(argc, argv, [&] {
    scoring_fields.take(scoring);
    generation_fields.take(generation);
    model::prepare_cpu(a.threads);
    quietly([&] {
      if (bleu->parsed()) {
        bleu_fields.take(job);
        job.format = a.format;
        return eval::score_text(job);
      }
      if (generate->parsed()) eval::write_text(a, generation);
      else eval::score(a, scoring);
    });
  });
}
