// mh-spectrum experts MODEL DATA: reports the specialisation of the experts of a mixture of attentive experts.

#include "analysis/experts_report.h"
#include "base/error.h"
#include "base/json_types.h"
#include "base/table.h"
#include "common/metric_option.h"
#include "common/processes.h"
#include "nn/ops.h"
#include "spectrum.h"
#include "task/task.h"

namespace mh::spectrum {

using nlohmann::ordered_json;

namespace {

constexpr const char* kDefaultShow = "gates";

struct ExpertsJob {
  std::shared_ptr<Arguments> args;
  std::string model, data, show = kDefaultShow;
  int64_t max_tokens = 10, min_count = 5, num_random = 5;
  MetricOption metric;
};

using PrintRow = std::function<void(ordered_json row)>;

// Prints the value of the loss, or the metric, with the model's own gates, with specialised gates (only the expert of
// the largest gate) and with random gates.
void show_scores(const ExpertsJob& job, model::LoadedModel& model, const task::Dataset& dataset,
                 const analysis::AnalysisInput& input, const PrintRow& print_row) {
  const analysis::LossValue loss_value = analysis::loss_value_of(*task::task_of(model.config.model));
  std::function<double(attention::Observer*)> evaluate;
  if (!job.metric.is_perplexity())
    evaluate = [&](attention::Observer* observer) {
      return job.metric.compute(model, dataset, progress_bar(job.show, "rows"), observer);
    };
  for (const auto& s : analysis::evaluate_experts(input, job.num_random, evaluate, loss_value)) {
    ordered_json row{{"model", model.name},
                     {"gates", s.gate_mode},
                     {job.metric.is_perplexity() ? analysis::name_of(loss_value) : job.metric.name(), s.score},
                     {"deviation", s.deviation},
                     {"runs", s.num_evaluations}};
    row.update(job.metric.protocol());
    print_row(std::move(row));
  }
}

// Prints, for each expert, the tokens with the highest pointwise mutual information (PMI) with the expert.
void show_tokens(const analysis::ExpertReport& report, const model::LoadedModel& model, const PrintRow& print_row) {
  const text::Tokenizer& tokenizer =
      report.has_source_tokens ? model.tokenizers.source_or_target() : *model.tokenizers.target;
  for (const auto& t : report.tokens)
    print_row({{"model", model.name},
               {"side", report.has_source_tokens ? "source" : "target"},
               {"expert", t.expert},
               {"token", t.token_id},
               {"piece", text::escape_piece(tokenizer.piece(t.token_id))},
               {"count", t.count},
               {"pmi", t.pmi}});
}

// Prints the mean entropy of each layer's gates, in nats, and the percentage of units (positions or rows) whose largest
// gate belongs to each expert.
void show_gates(const analysis::ExpertReport& report, const model::LoadedModel& model, const PrintRow& print_row) {
  const auto means = analysis::mean_entropies(report.layers);
  for (const auto& layer : report.layers)
    for (size_t e = 0; e < layer.unit_counts.size(); ++e)
      print_row({{"model", model.name},
                 {"kind", name_of(layer.kind)},
                 {"layer", layer.layer},
                 {"unit", layer.is_per_position ? "position" : "row"},
                 {"units", layer.num_units},
                 {"entropy", layer.entropy_sum / static_cast<double>(layer.num_units)},
                 {"entropy_of_kind", means.at(layer.kind)},
                 {"expert", e},
                 {"percent", 100 * static_cast<double>(layer.unit_counts[e]) / static_cast<double>(layer.num_units)}});
}

// Returns the option --show with its value, for the part `found` of an error.
std::string show_text(const ExpertsJob& job) {
  return found_value(str("--show ", job.show), str("--show ", kDefaultShow));
}

void show_experts(const ExpertsJob& job) {
  if (start_process().rank > 0) return;  // in a job of several processes, rank 0 computes the results
  const Arguments& args = *job.args;
  refuse_repeated_standard_input("", {job.model, job.data});
  refuse_output_onto_input("-", {job.model, job.data});
  const io::Checkpoint checkpoint(job.model);
  const ShardSource shard(job.data);
  shard.require_readable_by(checkpoint);
  model::LoadedModel model = load_with_options(args, checkpoint, model::Masters::absent, args.assignments);
  const analysis::Kinds kinds = analysis::kinds_named(args.kinds, model.model->parameters(), "--kind");
  const auto dataset = shard.dataset_for(model);
  analysis::require_experts(*model.model, kinds);
  analysis::AnalysisInput input{*model.model, dataset->corpus(),
                                resolved_scoring_options(model, args.scoring_options, *dataset)};
  input.kinds = kinds;
  input.progress = progress_bar(job.show, "rows");
  Table table(Table::format_named(args.format));
  const PrintRow print_row = [&](ordered_json row) {
    model.require_unchanged_file();
    add_settings(row, args, input.scoring_options);
    table.print_row(row);
  };
  if (job.show == "scores") {
    job.metric.check(model, *dataset, shard.name(), args.scoring_options);
    return show_scores(job, model, *dataset, input, print_row);
  }
  const auto report = analysis::report_experts(input, job.max_tokens, job.min_count);
  if (job.show == "tokens") show_tokens(report, model, print_row);
  else show_gates(report, model, print_row);
}

// Throws Error(usage) if `option`, which applies only to --show `show`, is used with another value of --show.
void require_show(const ExpertsJob& job, CLI::Option* option, const char* show) {
  if (job.show != show)
    refuse_options({option}, str("--show ", show, " with this option"), show_text(job), str("pass --show ", show));
}

}  // namespace

void add_experts_subcommand(CLI::App& app, const std::shared_ptr<Arguments>& args,
                            const std::vector<CLI::Option*>& excluded_options, Jobs& jobs) {
  const auto job = std::make_shared<ExpertsJob>();
  job->args = args;
  CLI::App* sub = app.add_subcommand("experts", "describe the experts of a mixture of attentive experts");
  sub->add_option("model", job->model, "checkpoint")->required()->type_name("MODEL");
  sub->add_option("data", job->data, "shard")->required()->type_name("DATA");
  sub->add_option(
         "--show", job->show,
         "table to print: gates (entropy of the gates, and for each expert the percentage of positions at which its "
         "gate is the largest, or of sequences if the gates do not depend on the position), tokens (the tokens with "
         "the highest pointwise mutual information with each expert), scores (perplexity with the model's own gates, "
         "with only the expert of the largest gate, and with random experts) [gates]")
      ->type_name("WHAT")
      ->check(one_of({"gates", "tokens", "scores"}));
  const auto add_number = [&](const char* name, int64_t& value, const char* help, int64_t max_value) {
    return sub->add_option(name, value, help)->type_name("N")->check(whole_number(1, max_value));
  };
  auto* tokens_option =
      add_number("--tokens", job->max_tokens, "with --show tokens: maximum number of tokens per expert [10]", 1 << 30);
  auto* min_count_option =
      add_number("--least", job->min_count,
                 "with --show tokens: minimum number of occurrences of a token with the expert [5]", 1 << 30);
  auto* num_random_option = add_number("--random", job->num_random,
                                       "with --show scores: number of evaluations with random experts [5]", 1000);
  add_format_option(*sub, args->format);
  add_set_option(*sub, args->assignments);
  add_model_options(*sub, *args);
  const std::shared_ptr<CommandLineFields> fields = args->declare(*sub);
  job->metric.add_to(*sub);
  for (CLI::Option* option : excluded_options) sub->excludes(option);
  jobs.push_back({sub, [=] {
                    require_show(*job, tokens_option, "tokens");
                    require_show(*job, min_count_option, "tokens");
                    require_show(*job, num_random_option, "scores");
                    require_show(*job, job->metric.option(), "scores");
                    for (CLI::Option* option : job->metric.decoding_options()) require_show(*job, option, "scores");
                    job->args->store_values(fields.get());
                    job->metric.store_values();
                    nn::prepare_cpu(job->args->threads);
                    ignore_broken_pipe([&] { show_experts(*job); });
                  }});
}

}  // namespace mh::spectrum
