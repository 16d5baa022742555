// Spectra of attention: how many directions a model's matrices really have.
//
//   mh-spectrum run1/best.safetensors valid.mhs --blocks 64 > spectrum.tsv
//   mh-spectrum run1/best.safetensors --of output-value
//   mh-spectrum experts run1/best.safetensors valid.mhs --show tokens
#include <CLI/CLI.hpp>
#include <algorithm>

#include "analysis/spectrum_source.h"
#include "base/command_line.h"
#include "base/error.h"
#include "base/text.h"
#include "base/tool.h"
#include "nn/device.h"
#include "spectrum.h"

using namespace mh;

int main(int argc, char** argv) {
  Tool tool({"mh-spectrum",
             "Shows the singular values of a model's matrices, layer by layer and head by head: mh-spectrum MODEL... "
             "[DATA].\nA row for each: cumulative values c_k = sum of the first k / sum of all (c_first: k = 1, c_10: "
             "the first 10%, …),\narea (mean of c_k), effective and stable rank, entropy; every k with --curves. Its "
             "subcommand shows experts.",
             "  mh-spectrum run1/best.safetensors valid.mhs --blocks 64 > spectrum.tsv\n"
             "  mh-spectrum run1/best.safetensors run2/best.safetensors valid.mhs --summary | column -t\n"
             "  mh-spectrum run1/best.safetensors valid.mhs --plot spectrum.svg --curves curves.tsv\n"
             "  mh-spectrum run1/best.safetensors --of alphas --plot alphas.pdf\n"
             "  mh-spectrum run1/best.safetensors --of weight:decoder.layers.0.self.query.weight\n"
             "  mh-spectrum experts run1/best.safetensors valid.mhs --show tokens"});
  spectrum::Arguments a;
  CLI::App& app = tool.app();
  const auto choice = [](CLI::App& to, const char* name, std::string& value, const char* help,
                         const std::vector<std::string>& choices) {
    to.add_option(name, value, help)->type_name("WHAT")->check(one_of(choices));
  };
  const auto add_sets = [&](CLI::App& to) {
    to.add_option("--set", a.sets,
                  "change a key that changes no parameter, of the model or of squad: model.same_length=true")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
  };
  app.add_option("files", a.files, "checkpoints, then a shard unless --of asks for parameters; one of them may be -")
      ->type_name("MODEL... [DATA]");
  app.add_option("--of", a.of,
                 "attention, before-mixing, logits or mixing, of a text; alphas, output-value or weight:NAME, of the "
                 "model alone [attention]")
      ->type_name("MATRICES");
  app.add_option("--kind", a.kinds, "these kinds of attention only, such as decoder.cross [all]")
      ->type_name("KIND,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  choice(app, "--format", a.format, "table or json [table]", {"table", "json"});
  app.add_flag("--summary", a.summary, "a row for each model and kind of attention: means over layers");
  app.add_option("--curves", a.curves, "write c_k for every k, with percentiles over blocks or sentences, to a table")
      ->type_name("FILE");
  app.add_option("--plot", a.plot, "draw curves by layer, or heat maps: .svg, .png, .pdf; - in the terminal, no table")
      ->type_name("FILE");
  app.add_option("--dump", a.dump, "write the attention matrices of the sample as .safetensors")->type_name("FILE");
  add_sets(app);
  add_model_options(app, a);
  task::ScoringOptions scoring;
  scoring.sample.blocks = 64;
  const std::vector<CLI::Option*> others = app.get_options();
  CommandLineFields fields(app);
  scoring.describe(fields), fields.declare(scoring.sample);
  std::vector<CLI::Option*> of_text = app.get_options();
  std::erase_if(of_text, [&](CLI::Option* o) { return std::find(others.begin(), others.end(), o) != others.end(); });
  CLI::App* experts = app.add_subcommand("experts", "what the experts of a mixture do");
  experts->add_option("model", a.model, "checkpoint")->required()->type_name("MODEL");
  experts->add_option("data", a.data, "shard")->required()->type_name("DATA");
  choice(*experts, "--show", a.show,
         "gates: entropy and shares of units; tokens: those with the highest mutual information; scores: perplexity "
         "with each unit's own expert alone, and with random ones [gates]",
         {"gates", "tokens", "scores"});
  experts->add_option("--tokens", a.tokens, "of each expert, for --show tokens [10]")
      ->type_name("N")
      ->check(whole_number(1, 1 << 30));
  experts->add_option("--least", a.least, "times that an expert has seen a token that is shown [5]")
      ->type_name("N")
      ->check(whole_number(1, 1 << 30));
  experts->add_option("--random", a.random, "runs with random experts, for --show scores [5]")
      ->type_name("N")
      ->check(whole_number(1, 1000));
  choice(*experts, "--format", a.format, "table or json [table]", {"table", "json"});
  add_sets(*experts);
  add_model_options(*experts, a);
  CommandLineFields experts_fields(*experts);
  scoring.describe(experts_fields), experts_fields.declare(scoring.sample);
  Metric metric;
  metric.add_to(*experts);
  for (const char* name : {"files", "--of", "--summary", "--curves", "--plot", "--dump"})
    experts->excludes(app.get_option(name));
  const auto only_for = [&](const std::string& option, const std::string& show) {
    if (experts->count(option) > 0 && a.show != show)
      throw Error(Exit::usage, Problem{option, str("--show ", show, ", which it is for"), "--show " + a.show, ""});
  };
  return tool.run(argc, argv, [&] {
    for (const char* option : {"--tokens", "--least"}) only_for(option, "tokens");
    only_for("--random", "scores");
    for (CommandLineFields* each : {&fields, &experts_fields}) each->take(scoring), each->take(scoring.sample);
    metric.take();
    if (!experts->parsed() && !analysis::source_named(a.of, "--of").source->reads_text())
      for (const CLI::Option* option : of_text)
        if (option->count() > 0)
          throw Error(Exit::usage, Problem{option->get_name(), "matrices of a text, of which it is", "--of " + a.of,
                                           "leave it out"});
    scoring.sample.at_most = app.count("--blocks") + experts->count("--blocks") == 0;
    nn::prepare_cpu(a.threads);
    quietly([&] {
      if (experts->parsed()) spectrum::show_experts(a, scoring, metric);
      else spectrum::show(a, scoring);
    });
  });
}
