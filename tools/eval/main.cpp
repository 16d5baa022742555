// Scores models on a text or on pairs, or lets them write; scores text against references.
//
//   mh-eval run1/best.safetensors run2/best.safetensors test.mhs
//   mh-eval generate run1/best.safetensors --prompt "The history of" --length 50
//   mh-eval translate mt/best.safetensors --beam 5 test.de
//   mh-eval bleu hyp.en ref.en --format json
#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/command_line.h"
#include "base/error.h"
#include "base/tool.h"
#include "eval.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool({"mh-eval",
             "Scores models on a text, on translations or on a task: mh-eval MODEL... DATA. Its subcommands let them "
             "write, and score text.",
             "  mh-eval run1/best.safetensors run2/best.safetensors test.mhs\n"
             "  cat test.mhs | mh-eval --format json --context 192 run1/best.safetensors -\n"
             "  mh-eval --block 64 --memory 640 --set attention.relative.clamp=400 run3/best.safetensors test.mhs\n"
             "  mh-eval generate run1/best.safetensors --prompt 'The history of' --length 50\n"
             "  mh-eval mt/best.safetensors test.mhs --beam 5 --hypotheses out.en\n"
             "  mh-eval ft/seed1/best.safetensors test.mhs --predictions - > MRPC.tsv\n"
             "  mh-eval translate mt/best.safetensors --beam 5 --nbest 3 --scores test.de\n"
             "  mh-eval bleu --format json hyp.en ref.en"});
  eval::Arguments a;
  CLI::App& app = tool.app();
  app.add_option("files", a.files, "checkpoints, then a shard; one of them may be - for standard input")
      ->type_name("MODEL... DATA");
  app.add_option("--format", a.format, "table or json [table]")->type_name("WHAT")->check(one_of({"table", "json"}));
  app.add_option("--per-token", a.per_token, "write each token's log-probability (nats) to a table")->type_name("FILE");
  app.add_option("--set", a.sets,
                 "change a key that changes no parameter, of the model or of squad: model.same_length=true")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  eval::ExamplesJob of_examples;
  app.add_option("--predictions", of_examples.predictions,
                 "classes, numbers or answers: write them as GLUE's server or SQuAD's script takes them; - is standard "
                 "output, without the scores")
      ->type_name("FILE");
  app.add_option("--best-answers", of_examples.best, "questions: write the best answers of each, with their scores")
      ->type_name("FILE");
  add_model_options(app, a);
  task::ScoringOptions scoring;
  CommandLineFields scoring_fields(app);
  scoring_fields.declare(scoring);
  // Any of these asks for translations.
  const std::vector<CLI::Option*> others = app.get_options();
  eval::DecodeJob decoding;
  app.add_option("--hypotheses", decoding.hypotheses, "pairs: translate the sources to this file, and print BLEU")
      ->type_name("FILE");
  app.add_option("--references", decoding.references, "compare with these lines [the shard's targets, decoded]")
      ->type_name("FILE");
  CommandLineFields decoding_fields(app);
  decoding_fields.declare(decoding);
  std::vector<CLI::Option*> for_decoding = app.get_options();
  std::erase_if(for_decoding, [&](auto* o) { return std::find(others.begin(), others.end(), o) != others.end(); });
  CLI::App* generate = app.add_subcommand("generate", "continue a prompt");
  generate->add_option("model", a.model, "checkpoint; - is standard input")->required()->type_name("MODEL");
  generate->add_option("--prompt", a.prompt, "text to continue [an empty line]")->type_name("TEXT");
  generate->add_option("--prompt-file", a.prompt_file, "continue this text instead; - is standard input")
      ->type_name("FILE")
      ->excludes("--prompt");
  // It scores nothing.
  for (const char* name : {"files", "--format", "--per-token", "--predictions", "--best-answers", "--block",
                           "--context", "--memory", "--streams", "--batch"})
    generate->excludes(app.get_option(name));
  for (CLI::Option* option : for_decoding) generate->excludes(option);
  search::GenerationOptions generation;
  CommandLineFields generation_fields(*generate);
  generation_fields.declare(generation);
  eval::TranslateJob translation;
  CLI::App* translate = app.add_subcommand("translate", "translate lines of text");
  translate->add_option("model", translation.model, "checkpoint; - is standard input")->required()->type_name("MODEL");
  translate->add_option("text", translation.files, "a sentence a line; - is standard input")
      ->required()
      ->type_name("FILE...");
  translate->add_option("--prefix-file", translation.prefix_file, "what each line's translation must begin with")
      ->type_name("FILE");
  CommandLineFields translation_fields(*translate);
  translation_fields.declare(translation);
  const std::vector<std::string> of_models{"--set", "--device", "--precision", "--attention", "--threads"};
  eval::BleuJob job;
  CLI::App* bleu = app.add_subcommand("bleu", "BLEU and chrF of plain text, a sentence a line");
  bleu->add_option("hypotheses", job.hypotheses, "what is scored; - is standard input")->required()->type_name("HYP");
  bleu->add_option("references", job.references, "what it should be")->required()->type_name("REF...");
  CommandLineFields bleu_fields(*bleu);
  bleu_fields.declare(job);
  const std::vector<std::string> shared{"--help", "--version", "--quiet", "--verbose", "--format"};
  const auto among = [](const std::vector<std::string>& names, const CLI::Option* option) {
    return std::find(names.begin(), names.end(), option->get_name()) != names.end();
  };
  for (CLI::Option* option : app.get_options()) {
    if (!among(shared, option)) bleu->excludes(option);
    if (option->get_name() == "--format" || !(among(shared, option) || among(of_models, option)))
      translate->excludes(option);
  }
  return tool.run(argc, argv, [&] {
    scoring_fields.take(scoring);
    generation_fields.take(generation);
    nn::prepare_cpu(a.threads);
    quietly([&] {
      if (bleu->parsed()) {
        bleu_fields.take(job);
        job.format = a.format;
        return eval::score_text(job);
      }
      if (translate->parsed()) {
        translation_fields.take(translation);
        return eval::translate_lines(a, translation);
      }
      if (generate->parsed()) return eval::write_text(a, generation);
      decoding_fields.take(decoding);
      for (const CLI::Option* option : for_decoding) decoding.wanted = decoding.wanted || option->count() > 0;
      eval::score(a, scoring, decoding, of_examples);
    });
  });
}
