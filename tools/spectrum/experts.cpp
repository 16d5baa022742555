// mh-spectrum experts MODEL DATA: reports the specialisation of the experts of a mixture of attentive experts.

#include "analysis/experts_report.h"
#include "base/error.h"
#include "base/json_types.h"
#include "base/table.h"
#include "common/metric.h"
#include "nn/ops.h"
#include "spectrum.h"

namespace mh::spectrum {

using nlohmann::ordered_json;

namespace {

struct Experts {
  std::shared_ptr<Arguments> shared;
  std::string model, data, show = "gates";
  int64_t tokens = 10, min_count = 5, num_random = 5;
  Metric metric;
};

using Print = std::function<void(ordered_json row)>;

// Prints perplexity, or the metric, with the model's own gates, with specialised gates and with random gates.
void show_scores(const Experts& e, model::LoadedModel& m, const task::Dataset& dataset,
                 const analysis::AnalysisInput& input, const Print& print) {
  std::function<double(attention::Observer*)> evaluate;
  if (!e.metric.is_perplexity())
    evaluate = [&](attention::Observer* observer) {
      return e.metric.compute(m, dataset, progress_bar(e.show, "rows"), observer);
    };
  for (const auto& s : analysis::evaluate_experts(input, e.num_random, evaluate)) {
    ordered_json row{{"model", m.name},
                     {"gates", s.gates},
                     {e.metric.name(), s.score},
                     {"deviation", s.deviation},
                     {"runs", s.num_evaluations}};
    row.update(e.metric.protocol());
    print(std::move(row));
  }
}

// Prints the tokens with the highest PMI of each expert.
void show_tokens(const analysis::ExpertReport& report, const model::LoadedModel& m, const Print& print) {
  const text::Tokenizer& pieces = report.is_source ? m.tokenizers.of_source() : *m.tokenizers.target;
  for (const auto& t : report.tokens)
    print({{"model", m.name},
           {"side", report.is_source ? "source" : "target"},
           {"expert", t.expert},
           {"token", t.token},
           {"piece", text::escape_piece(pieces.piece(t.token))},
           {"count", t.count},
           {"pmi", t.pmi}});
}

// Prints the entropy of each layer's gates, and the percentage of units of each expert.
void show_gates(const analysis::ExpertReport& report, const model::LoadedModel& m, const Print& print) {
  const auto means = analysis::mean_entropies(report.layers);
  for (const auto& layer : report.layers)
    for (size_t e = 0; e < layer.counts.size(); ++e)
      print({{"model", m.name},
             {"kind", name_of(layer.kind)},
             {"layer", layer.layer},
             {"unit", layer.by_position ? "position" : "row"},
             {"units", layer.units},
             {"entropy", layer.entropy / static_cast<double>(layer.units)},
             {"entropy_of_kind", means.at(layer.kind)},
             {"expert", e},
             {"percent", 100 * static_cast<double>(layer.counts[e]) / static_cast<double>(layer.units)}});
}

void show_experts(const Experts& e) {
  const Arguments& a = *e.shared;
  if (!e.metric.is_perplexity() && e.show != "scores")
    throw Error(Exit::usage, Problem{"--metric", "--show scores with this option", "--show " + e.show,
                                     "pass --show scores, or leave --metric out"});
  if (e.model == "-" && e.data == "-")
    throw Error(Exit::usage, Problem{"mh-spectrum", "standard input (-) for at most one file", "- twice", ""});
  refuse_output_onto_input("-", {e.model, e.data});
  const io::Checkpoint checkpoint(e.model);
  const TextSource data(e.data);
  data.require_for(checkpoint);
  model::LoadedModel m = load_with_options(a, checkpoint, a.sets);
  const analysis::Kinds kinds = analysis::kinds_named(a.kinds, m.model->parameters(), "--kind");
  const auto dataset = data.dataset_for(m);
  analysis::require_experts(*m.model, kinds);
  analysis::AnalysisInput input{*m.model, dataset->corpus(), scoring_for(m, a.scoring, *dataset)};
  input.kinds = kinds;
  input.progress = progress_bar(e.show, "rows");
  Table table(Table::format_named(a.format));
  const Print print = [&](ordered_json row) {
    add_settings(row, a, input.scoring);
    table.row(row);
  };
  if (e.show == "scores") {
    e.metric.check(m, *dataset, data.name(), a.scoring);
    return show_scores(e, m, *dataset, input, print);
  }
  const auto report = analysis::report_experts(input, e.tokens, e.min_count);
  if (e.show == "tokens") show_tokens(report, m, print);
  else show_gates(report, m, print);
}

// Throws Error(usage) if `option`, which applies only to --show `show`, is used with another value of --show.
void require_show(const Experts& e, const CLI::Option* option, const char* show) {
  if (option->count() > 0 && e.show != show)
    throw Error(Exit::usage, Problem{option->get_name(), str("--show ", show, " with this option"), "--show " + e.show,
                                     str("pass --show ", show, ", or leave ", option->get_name(), " out")});
}

}  // namespace

void add_experts(CLI::App& app, const std::shared_ptr<Arguments>& a, const std::vector<CLI::Option*>& excluded,
                 Jobs& jobs) {
  const auto e = std::make_shared<Experts>();
  e->shared = a;
  CLI::App* sub = app.add_subcommand("experts", "describe the experts of a mixture of attentive experts");
  sub->add_option("model", e->model, "checkpoint")->required()->type_name("MODEL");
  sub->add_option("data", e->data, "shard")->required()->type_name("DATA");
  sub->add_option(
         "--show", e->show,
         "table to print: gates (entropy of the gates, and percentage of positions whose largest gate belongs to each "
         "expert; of sequences, if the gates do not depend on the position), tokens (the tokens with the highest "
         "pointwise mutual information with each expert), scores (perplexity with the model's own gates, with only the "
         "expert of the largest gate, and with random experts) [gates]")
      ->type_name("WHAT")
      ->check(one_of({"gates", "tokens", "scores"}));
  const auto number = [&](const char* name, int64_t& value, const char* help, int64_t max_value) {
    return sub->add_option(name, value, help)->type_name("N")->check(whole_number(1, max_value));
  };
  auto* tokens = number("--tokens", e->tokens, "maximum number of tokens per expert, with --show tokens [10]", 1 << 30);
  auto* min_count = number("--least", e->min_count,
                           "minimum number of occurrences of a token with an expert, with --show tokens [5]", 1 << 30);
  auto* num_random =
      number("--random", e->num_random, "number of evaluations with random experts, with --show scores [5]", 1000);
  add_format(*sub, a->format);
  add_sets(*sub, a->sets);
  add_model_options(*sub, *a);
  const std::shared_ptr<CommandLineFields> fields = a->declare(*sub);
  e->metric.add_to(*sub);
  for (CLI::Option* option : excluded) sub->excludes(option);
  jobs.push_back({sub, [=] {
                    require_show(*e, tokens, "tokens");
                    require_show(*e, min_count, "tokens");
                    require_show(*e, num_random, "scores");
                    e->shared->store_values(fields.get());
                    e->metric.store_values();
                    nn::prepare_cpu(e->shared->threads);
                    ignore_broken_pipe([&] { show_experts(*e); });
                  }});
}

}  // namespace mh::spectrum
