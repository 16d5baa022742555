// Exchanges heads between layers of a model, or says how much the heads of a layer differ.
//
//   mh-swap run1/best.safetensors --pairs decoder.self:1.0-5.3,decoder.self:1.1-5.2 -o swapped.safetensors
//   mh-swap run1/best.safetensors --mode soft --k 3 --data valid.mhs -o - | mh-eval - test.mhs
//   mh-swap report run1/best.safetensors swapped.safetensors valid.mhs
#include <CLI/CLI.hpp>

#include "analysis/importance.h"
#include "base/command_line.h"
#include "base/error.h"
#include "base/tool.h"
#include "nn/ops.h"
#include "swap.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool(
      {"mh-swap",
       "Exchanges heads between layers of a model: mh-swap MODEL -o FILE. Its subcommand says how much heads differ.",
       "  mh-swap run1/best.safetensors --pairs decoder.self:1.0-5.3,decoder.self:1.1-5.2 -o swapped.safetensors\n"
       "  mh-swap run1/best.safetensors --mode soft --k 3 --data valid.mhs -o - | mh-eval - test.mhs\n"
       "  mh-swap run1/best.safetensors --mode hard --k 4 --data valid.mhs --dry-run\n"
       "  mh-swap run1/last.safetensors --mode random --with output,stages,optimizer -o moved.safetensors\n"
       "  mh-swap report run1/best.safetensors swapped.safetensors valid.mhs --blocks 64"});
  swap::Arguments a;
  CLI::App& app = tool.app();
  auto word_of = [](CLI::Option* option, const char* type, const std::vector<std::string>& choices) {
    return option->type_name(type)->check(one_of(choices));
  };
  app.add_option("model", a.model, "checkpoint; - is standard input")->type_name("MODEL");
  auto* pairs =
      app.add_option("--pairs", a.pairs, "these heads, counted from 0: KIND:LAYER.HEAD-LAYER.HEAD,...")->delimiter(',');
  pairs->type_name("PAIRS")->allow_extra_args(false);
  word_of(app.add_option("--mode", a.mode,
                         "hard: the k most important heads with the k least; soft: the k least of opposite layers; "
                         "released: k layers as the published code; random: k pairs"),
          "HOW", {"hard", "soft", "released", "random"})
      ->excludes(pairs);
  app.add_option("--k", a.k, "pairs; soft: heads of each layer; released: pairs of layers [3]")
      ->type_name("N")
      ->check(whole_number(1, 1 << 24))
      ->needs("--mode");
  app.add_option("--t-max", a.t_max, "soft: pairs of opposite layers, the outermost first; 0: all of them [0]")
      ->type_name("N")
      ->check(whole_number(0, 1 << 24))
      ->needs("--mode");
  app.add_option("--data", a.data, "shard to rank heads on; - is standard input")->type_name("FILE");
  word_of(app.add_option("--by", a.by, "what makes a head important [avg-l2]"), "MEASURE",
          analysis::importances().names())
      ->needs("--data");
  app.add_option("--kind", a.kinds, "kinds of attention, each by itself, such as decoder.self [all of the model]")
      ->type_name("KINDS")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->needs("--mode");
  word_of(
      app.add_option("--with", a.with,
                     "what else goes with a head: output (its columns of the output projection), stages (its gates, "
                     "alphas and the like), optimizer (its moments, in a training state)"),
      "PARTS", {"output", "stages", "optimizer"})
      ->delimiter(',')
      ->allow_extra_args(false);
  auto* output = app.add_option("-o,--output", a.output, "the new checkpoint; - is standard output");
  output->type_name("FILE");
  app.add_flag("--dry-run", a.dry_run, "print the pairs and their scores instead")->excludes(output);
  word_of(app.add_option("--format", a.format, "of tables: table or json [table]"), "WHAT", {"table", "json"});
  add_model_options(app, a);
  task::ScoringOptions scoring;
  CommandLineFields fields(app), sample_fields(app);
  fields.declare(scoring);
  sample_fields.declare(scoring.sample);
  CLI::App* report = app.add_subcommand("report", "head discrepancy of models, layer by layer");
  CommandLineFields report_fields(*report), report_sample_fields(*report);
  report_fields.declare(scoring);
  report_sample_fields.declare(scoring.sample);
  add_model_options(*report, a);
  word_of(report->add_option("--format", a.format, "table or json [table]"), "WHAT", {"table", "json"});
  report->add_option("files", a.files, "checkpoints, then a shard; one of them may be - for standard input")
      ->type_name("MODEL... DATA");
  for (const char* name :
       {"model", "--pairs", "--mode", "--k", "--t-max", "--by", "--kind", "--with", "--data", "--output"})
    report->excludes(app.get_option(name));
  report->excludes(app.get_option("--dry-run"));
  return tool.run(argc, argv, [&] {
    fields.take(scoring);
    sample_fields.take(scoring.sample);
    report_fields.take(scoring);
    report_sample_fields.take(scoring.sample);
    nn::prepare_cpu(a.threads);
    if (report->parsed()) return quietly([&] { swap::report(a, scoring); });
    if (a.data.empty())
      for (const char* name : {"--block", "--context", "--memory", "--streams", "--batch", "--blocks"})
        if (app.get_option(name)->count() > 0)
          throw Error(Exit::usage, Problem{name, "--data, which it is about", "none", ""});
    if (a.data.empty() && a.mode != "random" && app.get_option("--seed")->count() > 0)
      throw Error(Exit::usage, Problem{"--seed", "something to draw: --mode random, or --data", "none", ""});
    if (!a.dry_run) return swap::exchange(a, scoring);
    quietly([&] { swap::exchange(a, scoring); });
  });
}
