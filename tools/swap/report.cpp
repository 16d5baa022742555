// mh-swap report MODEL… DATA: prints or plots the head discrepancy of each layer and its change relative to the first
// model.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "analysis/analysis_input.h"
#include "analysis/discrepancy.h"
#include "analysis/percent_change.h"
#include "base/error.h"
#include "base/json_types.h"
#include "base/plot.h"
#include "base/table.h"
#include "base/text.h"
#include "common/processes.h"
#include "common/shard_source.h"
#include "nn/ops.h"
#include "swap.h"

namespace mh::swap {

namespace {

using analysis::AttentionKind;
using analysis::DiscrepancyObserver;
using analysis::percent_change;
using nlohmann::ordered_json;
using Layers = std::map<AttentionKind, std::vector<DiscrepancyObserver::Layer>>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct ReportJob {
  std::shared_ptr<Arguments> args;
  std::vector<std::string> files;  // paths of the models, then of the shard
  std::string plot;                // value of --plot; "": no plot
  CLI::Option* format_option = nullptr;
};

void check_report(const ReportJob& job) {
  if (job.files.size() < 2)
    refuse_usage("report", "one or more models, then the data",
                 job.files.empty() ? "none" : str(job.files[0], ", without data"),
                 "usage: mh-swap report MODEL... DATA");
  refuse_repeated_standard_input("report", job.files);
  refuse_output_onto_input("-", job.files);
  if (job.plot == "-")
    refuse_options({job.format_option}, "a table with this option", "--plot -, which replaces the table");
  if (!job.plot.empty()) refuse_output_onto_input(job.plot, job.files);
}

// Returns the number of attention layers as text: "3" or, for several kinds of attention, "encoder.self 2, decoder.self
// 3, decoder.cross 3".
std::string layer_counts(const io::Checkpoint& checkpoint) {
  const model::ModelOptions options = model::config_of(checkpoint).model;
  const auto kinds = model::backbones().make(options.backbone, "model.backbone")->layer_counts(options);
  std::vector<std::string> texts;
  for (const auto& [kind, layers] : kinds)
    texts.push_back(kinds.size() == 1 ? str(layers) : str(name_of(kind), " ", layers));
  return join(texts, ", ");
}

// Prints two rows for each layer with heads: the discrepancy before and after the combiner, with the change relative to
// `baseline`, the layers of the first model.
void print_layers(Table& table, const ordered_json& settings, const std::string& model,
                  const DiscrepancyObserver& discrepancy, Layers& baseline) {
  for (const auto& [kind, layers] : discrepancy.layers())
    for (size_t layer = 0; layer < layers.size(); ++layer)
      for (auto [position, member] : {std::pair{"before", &DiscrepancyObserver::Layer::before_combiner},
                                      {"after", &DiscrepancyObserver::Layer::after_combiner}}) {
        const auto& sums = layers[layer].*member;
        if (sums.num_heads == 0) continue;             // all heads of the layer were pruned
        const auto& baseline_layers = baseline[kind];  // empty if all heads of this kind are pruned in the first model
        const auto baseline_sums =
            layer < baseline_layers.size() ? baseline_layers[layer].*member : DiscrepancyObserver::Sums{};
        auto mean = [&](double sum_over_pairs) {
          return sums.num_heads > 1 ? sum_over_pairs / sums.num_pairs() : kNaN;
        };
        ordered_json row{{"model", model},
                         {"kind", name_of(kind)},
                         {"layer", layer},
                         {"mixing", position},
                         {"heads", sums.num_heads},
                         {"cosine", sums.cosine},
                         {"cosine_mean", mean(sums.cosine)},
                         {"cosine_change", percent_change(sums.cosine, baseline_sums.cosine)},
                         {"euclidean", sums.euclidean},
                         {"euclidean_mean", mean(sums.euclidean)},
                         {"euclidean_change", percent_change(sums.euclidean, baseline_sums.euclidean)},
                         {"sequences", discrepancy.num_sequences()}};
        row.update(settings);
        table.print_row(row);
      }
}

// The plot of --plot: for each kind of attention a panel of the cosine distances and a panel of the Euclidean
// distances, with the layers on the x axis. The curves show the change of each other model relative to the first model
// in percent or, for a single model, the mean distance of its pairs of heads. A model whose combiner changes the
// distances has two curves.
class ReportPlot {
 public:
  // Throws the errors of Plot::Plot().
  explicit ReportPlot(const std::string& path) : plot_(path) {}
  void add(const std::string& model, const Layers& layers) { models_.push_back({model, layers}); }
  // Throws Error(usage) if no layer has a value.
  void draw() {
    for (const auto& kind_layers : models_.front().layers) {
      add_panel(kind_layers.first, "cosine", &DiscrepancyObserver::Sums::cosine);
      add_panel(kind_layers.first, "Euclidean", &DiscrepancyObserver::Sums::euclidean);
    }
    if (!has_panel_)
      refuse_usage("--plot",
                   shows_change() ? "layers whose heads differ in the first model" : "layers with several heads",
                   "no layer with a value to draw", "leave --plot out");
    plot_.draw();
  }

 private:
  using Place = DiscrepancyObserver::Sums DiscrepancyObserver::Layer::*;  // before_combiner or after_combiner
  using Distance = double DiscrepancyObserver::Sums::*;
  struct Model {
    std::string name;
    Layers layers;
  };

  bool shows_change() const { return models_.size() > 1; }

  // Returns the value of each layer of a kind of attention in a model; NaN for a layer without a value.
  std::vector<double> values(const Model& model, AttentionKind kind, Place place, Distance distance) const {
    std::vector<double> layer_values;
    const auto entry = model.layers.find(kind);
    if (entry == model.layers.end()) return layer_values;
    const std::vector<DiscrepancyObserver::Layer>& baseline = models_.front().layers.at(kind);
    for (size_t layer = 0; layer < entry->second.size(); ++layer) {
      const DiscrepancyObserver::Sums& sums = entry->second[layer].*place;
      double value = kNaN;
      if (sums.num_heads > 1 && !shows_change()) value = sums.*distance / sums.num_pairs();
      if (sums.num_heads > 0 && shows_change() && layer < baseline.size())
        value = percent_change(sums.*distance, baseline[layer].*place.*distance);
      layer_values.push_back(value);
    }
    return layer_values;
  }

  void add_panel(AttentionKind kind, const std::string& distance_name, Distance distance) {
    Chart chart{str(name_of(kind), ", ", distance_name, " distance of heads"),
                "layer",
                shows_change() ? str("change from ", models_.front().name, ", %") : "mean of pairs of heads",
                {}};
    const auto add_curve = [&](const std::string& title, const std::vector<double>& y) {
      if (y.empty()) return;  // no layer of this kind has heads; gnuplot does not count a data set without points
      Curve curve{title, {}, y};
      for (size_t layer = 0; layer < y.size(); ++layer) curve.x.push_back(static_cast<double>(layer));
      chart.curves.push_back(std::move(curve));
    };
    for (size_t i = shows_change() ? 1 : 0; i < models_.size(); ++i) {
      const auto before = values(models_[i], kind, &DiscrepancyObserver::Layer::before_combiner, distance),
                 after = values(models_[i], kind, &DiscrepancyObserver::Layer::after_combiner, distance);
      const bool are_equal = std::equal(before.begin(), before.end(), after.begin(), after.end(),
                                        [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); });
      if (are_equal) {
        add_curve(models_[i].name, before);
      } else {
        add_curve(models_[i].name + ", before mixing", before);
        add_curve(models_[i].name + ", after mixing", after);
      }
    }
    const bool has_value = std::any_of(chart.curves.begin(), chart.curves.end(), [](const Curve& curve) {
      return std::any_of(curve.y.begin(), curve.y.end(), [](double y) { return std::isfinite(y); });
    });
    if (!has_value) return;  // gnuplot fails for a panel without points
    plot_.add(chart);
    has_panel_ = true;
  }

  Plot plot_;
  std::vector<Model> models_;
  bool has_panel_ = false;
};

void report(const ReportJob& job) {
  start_process();  // before the checks, so that errors name the rank
  check_report(job);
  const Arguments& args = *job.args;
  const distributed::Group& group = join_evaluation(job.files, args);
  std::optional<ReportPlot> plot;  // created early, so that errors precede the computation
  if (!job.plot.empty()) plot.emplace(job.plot);
  std::vector<std::unique_ptr<io::Checkpoint>> checkpoints;
  for (size_t i = 0; i + 1 < job.files.size(); ++i)
    checkpoints.push_back(std::make_unique<io::Checkpoint>(job.files[i]));
  const ShardSource shard(job.files.back());
  const std::string expected_layer_counts = layer_counts(*checkpoints[0]);
  std::vector<data::ScoringOptions> scoring_options_by_model;
  for (const auto& checkpoint : checkpoints) {
    shard.require_readable_by(*checkpoint);
    if (const std::string model_layer_counts = layer_counts(*checkpoint); model_layer_counts != expected_layer_counts)
      refuse_usage(checkpoint->name(),
                   str("the number of layers of ", checkpoints[0]->name(), ", ", expected_layer_counts),
                   model_layer_counts, "compare models with equal numbers of layers");
    const model::LoadedModel model =
        load_with_options(args, *checkpoint, model::Masters::absent, {}, checkpoints.size() > 1);
    scoring_options_by_model.push_back(
        resolved_scoring_options(model, args.scoring_options, *shard.dataset_for(model)));
  }
  const std::vector<std::string> titles = short_names({job.files.begin(), job.files.end() - 1});
  Table table(Table::format_named(args.format), plot.has_value());
  Layers baseline;
  for (size_t i = 0; i < checkpoints.size(); ++i) {
    const model::LoadedModel model =
        load_with_options(args, *checkpoints[i], model::Masters::absent, {}, checkpoints.size() > 1);
    const auto dataset = shard.dataset_for(model);
    const data::ScoringOptions& scoring_options = scoring_options_by_model[i];
    DiscrepancyObserver discrepancy;
    analysis::run_with_observer({*model.model,
                                 dataset->corpus(),
                                 scoring_options,
                                 analysis::SideSelection::whole,
                                 progress_bar("report", "rows"),
                                 {},
                                 &group},
                                discrepancy);
    model.require_unchanged_file();
    if (baseline.empty()) baseline = discrepancy.layers();
    if (plot) plot->add(titles[i], discrepancy.layers());
    if (job.plot != "-")
      print_layers(table, settings_of(scoring_options, args.precision), model.name, discrepancy, baseline);
  }
  if (plot) plot->draw();
}

}  // namespace

void add_report_subcommand(CLI::App& app, const std::shared_ptr<Arguments>& args,
                           const std::vector<CLI::Option*>& excluded_options, Jobs& jobs) {
  const auto job = std::make_shared<ReportJob>();
  job->args = args;
  CLI::App* sub = app.add_subcommand("report", "print or plot the head discrepancy of each layer of the models");
  const auto fields = std::make_shared<ScoringFields>(*sub);
  fields->declare(args->scoring_options);
  add_model_options(*sub, *args);
  job->format_option = add_format_option(*sub, args->format);
  sub->add_option(
         "--plot", job->plot,
         "output file of a plot (.svg, .png or .pdf) of the discrepancies, or of their changes, over layers; - "
         "draws the plot in the terminal instead of printing the table")
      ->type_name("FILE");
  sub->add_option("files", job->files, "checkpoints, then a shard; one of these files may be - for standard input")
      ->type_name("MODEL... DATA");
  for (CLI::Option* option : excluded_options) sub->excludes(option);
  jobs.push_back({sub, [job, fields] {
                    Arguments& tool_args = *job->args;
                    tool_args.fields->store_values(tool_args.scoring_options);
                    fields->store_values(tool_args.scoring_options);
                    for (const ScoringFields* scoring_fields : {tool_args.fields.get(), fields.get()})
                      refuse_unused_seed(scoring_fields->sample_fields, tool_args.scoring_options.sample);
                    nn::prepare_cpu(tool_args.threads);
                    ignore_broken_pipe([&] { report(*job); });
                  }});
}

}  // namespace mh::swap
