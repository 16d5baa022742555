// mh-swap MODEL: writes the checkpoint with heads swapped; only their values and checksums change.
#include <algorithm>
#include <iterator>
#include <limits>

#include "analysis/groups.h"
#include "analysis/importance.h"
#include "analysis/swap_checkpoint.h"
#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/table.h"
#include "base/text.h"
#include "common/shard_source.h"
#include "nn/ops.h"
#include "swap.h"

namespace mh::swap {

namespace {

using analysis::AttentionKind;
using analysis::HeadPair;
using analysis::PairSelection;
using nlohmann::ordered_json;

struct SwapJob {
  const CLI::App* tool = nullptr;
  std::shared_ptr<Arguments> args;
  std::string model, mode, measure = "avg-l2", data, output, unit = "head";
  std::vector<std::string> pairs, kinds, swapped_parameters;
  int64_t k = analysis::kDefaultK, t_max = 0;
  bool dry_run = false;
  // Options that have an effect only with others.
  CLI::Option *format_option = nullptr, *unit_option = nullptr, *t_max_option = nullptr;
  ModelOptionSet model_options = {};
};

bool contains(const std::vector<std::string>& words, const char* word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool has_groups(const SwapJob& job) { return analysis::head_unit_named(job.unit) == analysis::HeadUnit::group; }

bool uses_importance(const SwapJob& job) {
  return !job.mode.empty() && analysis::uses_importance(analysis::pair_selection_named(job.mode));
}

// Returns the modes that rank heads as text: "--mode hard, soft, released or in-layer".
std::string ranking_modes_text() {
  std::vector<std::string> names;
  for (const analysis::PairSelectionName& selection : analysis::kPairSelections)
    if (analysis::uses_importance(selection.selection)) names.emplace_back(selection.name);
  return "--mode " + join_alternatives(names);
}

// Returns the option that chooses the pairs as text, for the part `found` of an error.
std::string chosen_pairs_text(const SwapJob& job) { return job.mode.empty() ? "--pairs" : "--mode " + job.mode; }

// Throws Error(usage) for invalid arguments. Called before any file is opened.
void check_arguments(const SwapJob& job) {
  if (job.model.empty()) refuse_usage("", "a model", "none", "mh-swap --help shows all options");
  refuse_misspelling(*job.tool, job.model);
  if (job.pairs.empty() && job.mode.empty())
    refuse_usage("", "--pairs or --mode", "neither",
                 "for example --mode soft --k 3 --data valid.mhs -o swapped.safetensors");
  if (job.output.empty() && !job.dry_run)
    refuse_usage("--output", "a file for the new checkpoint", "none", "use -o FILE, or -o - for standard output");
  if (!job.dry_run)
    refuse_options({job.format_option}, "--dry-run or the subcommand report, which print tables", "neither");
  if (!job.mode.empty())
    refuse_options({job.unit_option}, "--pairs with this option, since --mode pairs single heads",
                   "--mode " + job.mode);
  if (analysis::pair_selection_named(job.mode) != PairSelection::soft)
    refuse_options({job.t_max_option}, "--mode soft with this option", "--mode " + job.mode,
                   job.mode == "released" ? "set --k, the number of pairs of layers" : "pass --mode soft");
  if (uses_importance(job) && job.data.empty())
    refuse_usage("--data", str("a shard to rank heads on, for --mode ", job.mode), "none",
                 "pass --data, or use --mode random, which needs no data");
  if (!uses_importance(job) && !job.data.empty() && !job.dry_run)
    refuse_usage("--data", ranking_modes_text() + ", which rank heads, or --dry-run", chosen_pairs_text(job),
                 "leave --data out");
  refuse_repeated_standard_input("", {job.model, job.data});
  std::vector<std::string> inputs{job.model};
  if (!job.data.empty()) inputs.push_back(job.data);
  refuse_output_onto_input(job.dry_run ? "-" : job.output, inputs);
}

// The pairs to swap, and the importance scores of heads.
struct PairChoice {
  std::vector<HeadPair> pairs;
  std::map<AttentionKind, analysis::LayerScores> scores;  // empty without --data
  data::ScoringOptions scoring_options;
};

// Measures the importance of the heads of all kinds of attention in choice.pairs and `head_counts` (number of heads of
// each layer), and stores the scores in `choice`.
void score_heads(const SwapJob& job, const model::LoadedModel& model, const ShardSource& shard,
                 const std::map<AttentionKind, std::vector<int64_t>>& head_counts, PairChoice& choice) {
  const auto dataset = shard.labelled_dataset_for(model);
  analysis::Kinds kinds;  // kinds of the swapped heads
  for (const auto& [kind, layers] : head_counts) kinds.insert(kind);
  for (const HeadPair& pair : choice.pairs) kinds.insert(pair.kind);
  analysis::check_importance(job.measure, "--by", *model.model, analysis::SideSelection::whole, kinds);
  choice.scoring_options = resolved_scoring_options(model, job.args->scoring_options, *dataset);
  choice.scores =
      analysis::importance_of(job.measure, {*model.model, dataset->corpus(), choice.scoring_options,
                                            analysis::SideSelection::whole, progress_bar("rank", "rows"), kinds});
}

// Prints a table row for each pair that would be swapped without --dry-run.
void print_pairs(const SwapJob& job, const std::string& model, const PairChoice& choice) {
  Table table(Table::format_named(job.args->format));
  // Without --data, the columns of scoring options are NaN. The seed is NaN if neither --data nor --mode random uses
  // a seed.
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const bool has_scores = !job.data.empty(), uses_seed = has_scores || !job.mode.empty();
  auto score = [&](AttentionKind kind, const analysis::Head& head) {
    return has_scores ? choice.scores.at(kind)[static_cast<size_t>(head.layer)][static_cast<size_t>(head.head)] : kNaN;
  };
  for (const HeadPair& pair : choice.pairs) {
    ordered_json row{{"model", model},
                     {"kind", name_of(pair.kind)},
                     {"pair", to_string(pair)},
                     {"mode", job.mode.empty() ? "pairs" : job.mode},
                     {"measure", has_scores ? job.measure : ""},
                     {"score", score(pair.kind, pair.a)},
                     {"other_score", score(pair.kind, pair.b)}};
    row.update(settings_of(choice.scoring_options, job.args->precision));
    for (const char* data_option : {"block", "context", "memory", "blocks"})
      if (!has_scores) row[data_option] = kNaN;
    if (!uses_seed) row["seed"] = kNaN;
    table.print_row(row);
  }
}

void run_swap(const SwapJob& job) {
  check_arguments(job);
  const io::Checkpoint checkpoint(job.model);
  const auto shard = job.data.empty() ? nullptr : std::make_unique<ShardSource>(job.data);
  const model::LoadedModel model = load_with_options(*job.args, checkpoint, model::Masters::present);
  nn::ParameterList& parameters = model.model->parameters();
  analysis::SwapOptions options{contains(job.swapped_parameters, "output"), contains(job.swapped_parameters, "stages")};
  const auto moments = contains(job.swapped_parameters, "optimizer")
                           ? std::make_unique<analysis::OptimizerMoments>(checkpoint, parameters, "--with optimizer")
                           : nullptr;
  PairChoice choice;
  choice.scoring_options = job.args->scoring_options;
  std::map<AttentionKind, std::vector<int64_t>> head_counts;  // heads of each layer, by kind; empty without --mode
  const PairSelection selection = analysis::pair_selection_named(job.mode);
  if (job.mode.empty()) {
    for (const std::string& text : job.pairs) choice.pairs.push_back(analysis::parse_pair(text, "--pairs"));
    if (has_groups(job)) options.group_size = analysis::group_size_of(*model.model, choice.pairs, "--pairs");
    analysis::check_swap(parameters, choice.pairs, options, "--pairs");
  } else {
    head_counts = analysis::head_counts_for_pairing(parameters, selection, job.k, job.t_max, job.kinds, options,
                                                    [](const char* name) { return field_name("", name); });
  }
  const auto sink = job.dry_run ? nullptr : open_sink(job.output);  // opened early, so that errors precede the ranking
  if (shard != nullptr) score_heads(job, model, *shard, head_counts, choice);
  if (has_groups(job)) choice.scores = analysis::sum_by_group(*model.model, choice.scores);
  const auto seed = static_cast<uint64_t>(job.args->scoring_options.sample.seed);
  const auto mode_pairs = analysis::choose_pairs({selection, job.k, job.t_max, seed}, head_counts, choice.scores);
  choice.pairs.insert(choice.pairs.end(), mode_pairs.begin(), mode_pairs.end());
  if (const std::string layers = analysis::differing_layers_text(*model.model, choice.pairs); !layers.empty())
    log_warning("swapped heads compute with the attention options of their new layers, which differ: " + layers);
  if (job.dry_run) return print_pairs(job, model.name, choice);
  const analysis::ExtraTensors optimizer_moments = [&](const nn::Parameter& p) { return moments->moments_of(p); };
  analysis::swap_heads(parameters, choice.pairs, options, "--pairs",
                       moments != nullptr ? optimizer_moments : analysis::ExtraTensors{});
  analysis::rewrite_checkpoint(*sink, checkpoint, parameters,
                               moments != nullptr ? moments->all() : std::map<std::string, at::Tensor>{});
  const std::string choice_text = shard != nullptr       ? measurement_text(job.measure, choice.scoring_options)
                                  : job.mode == "random" ? str("; seed ", choice.scoring_options.sample.seed)
                                                         : "";
  log_info(str("swapped ", job.unit, "s: ", join(analysis::to_strings(choice.pairs), " "), choice_text));
}

// Throws Error(usage) for options of scoring and of the model's passes without --data, and for a --seed that no sample
// and no random choice uses.
void check_scoring(const SwapJob& job, const ScoringFields& fields) {
  if (!job.data.empty()) {
    if (job.mode != "random") refuse_unused_seed(fields.sample_fields, job.args->scoring_options.sample, {job.measure});
    return;
  }
  CLI::Option *blocks = fields.sample_fields.option("blocks"), *seed = fields.sample_fields.option("seed");
  std::vector<CLI::Option*> data_options = fields.scoring_fields.options();
  data_options.insert(data_options.end(), {blocks, job.model_options.precision, job.model_options.attention});
  const bool has_pairs = !job.pairs.empty() || !job.mode.empty();
  if (has_pairs && !uses_importance(job) && !job.dry_run)  // check_arguments() would refuse --data
    refuse_options(data_options, ranking_modes_text() + ", or --dry-run, with a shard as --data",
                   chosen_pairs_text(job));
  refuse_options(data_options, "--data, on which heads are ranked", "no --data", "pass --data");
  if (job.mode != "random") refuse_options({seed}, "--mode random or --data, which use the seed", "neither");
}

}  // namespace

Job make_swap_job(CLI::App& app, const std::shared_ptr<Arguments>& args, std::vector<CLI::Option*>& swap_only_options) {
  const auto job = std::make_shared<SwapJob>();
  job->tool = &app;
  job->args = args;
  const auto add = [&](CLI::Option* option, const char* type) {
    if (type != nullptr) option->type_name(type);
    swap_only_options.push_back(option);
    return option;
  };
  add(app.add_option("model", job->model, "checkpoint; - is standard input"), "MODEL");
  auto* pairs =
      add(add_list(app, "--pairs", job->pairs,
                   "pairs of heads to swap, or of groups with --unit group, as "
                   "KIND:LAYER.HEAD-LAYER.HEAD,..., such as decoder.self:1.0-5.3; layers and heads are counted "
                   "from 0",
                   "PAIRS"),
          nullptr);
  job->unit_option =
      add(app.add_option(
              "--unit", job->unit,
              "unit to swap with --pairs: head, or group (the query heads that read one key/value head, with its "
              "keys and values) [head]"),
          "UNIT")
          ->check(one_of({std::begin(analysis::kHeadUnitNames), std::end(analysis::kHeadUnitNames)}));
  std::vector<std::string> selections, summaries;
  for (const analysis::PairSelectionName& selection : analysis::kPairSelections) {
    selections.emplace_back(selection.name);
    summaries.push_back(str(selection.name, " (", selection.summary, ")"));
  }
  auto* mode =
      add(app.add_option("--mode", job->mode, "rule that chooses the pairs: " + join_alternatives(summaries)), "HOW");
  mode->check(one_of(selections))->excludes(pairs);
  add(app.add_option("--k", job->k,
                     "number of pairs of heads; with --mode soft: number of pairs of heads in each pair of layers; "
                     "with --mode in-layer: number of pairs of heads in each layer; with --mode released: number of "
                     "pairs of layers [3]"),
      "N")
      ->check(whole_number(1, 1 << 24))
      ->needs(mode);
  job->t_max_option =
      add(app.add_option("--t-max", job->t_max,
                         "number of pairs of layers that swap heads with --mode soft, counted from the outermost pair "
                         "(first and last layer) inwards; 0: all pairs [0]"),
          "N")
          ->check(whole_number(0, 1 << 24))
          ->needs(mode);
  auto* data_option =
      add(app.add_option("--data", job->data, "shard on which heads are ranked; - is standard input"), "FILE");
  const std::vector<std::string> measures = analysis::importance_measures().names();
  add(app.add_option("--by", job->measure,
                     "measure of importance that ranks the heads: " + join(measures, ", ") + " [avg-l2]"),
      "MEASURE")
      ->check(one_of(measures))
      ->needs(data_option);
  add(add_list(app, "--kind", job->kinds,
               "kinds of attention whose heads are swapped, such as decoder.self; heads are swapped only within a kind "
               "[all]",
               "KINDS"),
      nullptr)
      ->needs(mode);
  add(add_list(app, "--with", job->swapped_parameters,
               "parameters to swap in addition to the query, key and value projections: output (the head's columns of "
               "the output projection), stages (the head's gates, alphas and similar parameters), optimizer (the "
               "optimiser's moments, for a checkpoint with a training state)",
               "PARTS"),
      nullptr)
      ->check(one_of({"output", "stages", "optimizer"}));
  auto* output = add(app.add_option("-o,--output", job->output, "output checkpoint; - is standard output"), "FILE");
  add(app.add_flag("--dry-run", job->dry_run, "print the pairs and their scores without writing a checkpoint"), nullptr)
      ->excludes(output);
  job->format_option = add_format_option(app, args->format, "of tables");
  job->model_options = add_model_options(app, *args);
  args->fields = std::make_unique<ScoringFields>(app);
  args->fields->declare(args->scoring_options);
  args->fields->sample_fields.option("seed")->description(
      "seed of the random sample of blocks, sentence pairs or examples, and of the pairs that --mode random chooses "
      "[1]");
  return {&app, [job] {
            Arguments& tool_args = *job->args;
            tool_args.fields->store_values(tool_args.scoring_options);
            nn::prepare_cpu(tool_args.threads);
            check_scoring(*job, *tool_args.fields);
            if (!job->dry_run) return run_swap(*job);
            ignore_broken_pipe([&] { run_swap(*job); });
          }};
}

}  // namespace mh::swap
