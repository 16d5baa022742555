// mh-prune cut: writes a checkpoint of the model without some of its heads.
#include <algorithm>

#include "analysis/groups.h"
#include "analysis/importance.h"
#include "analysis/prune.h"
#include "attention/layer.h"
#include "base/command_line.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "common/shard_source.h"
#include "nn/ops.h"
#include "prune.h"
#include "session.h"
#include "train/derived_metadata.h"

namespace mh::prune {

using analysis::AttentionKind;
using attention::HeadSide;

namespace {

struct Arguments : ModelArguments {
  Arguments() { precision = "fp32", attention_path = "auto"; }
  std::string model, measure, data, fraction, side = "whole", unit = "head", output;
  std::vector<std::string> heads, kinds;
  int64_t count = 0;
  bool per_layer = false;
  data::ScoringOptions scoring_options;
};

// Returns whether a measure of importance reads the shard of --data.
bool reads_data(const std::string& measure) {
  return analysis::importance_measures().make(measure, "--by")->reads_data();
}

// Returns the names of the measures that read no data.
std::vector<std::string> measures_without_data() {
  std::vector<std::string> names;
  for (const std::string& name : analysis::importance_measures().names())
    if (!reads_data(name)) names.push_back(name);
  return names;
}

// Throws Error(usage) for invalid arguments. Called before any file is read.
void check_arguments(const Arguments& args) {
  if (args.heads.empty() == args.measure.empty())
    refuse_usage(
        "cut", "either --heads or --by", args.heads.empty() ? "neither" : "both",
        args.heads.empty() ? "for example --by taylor --data valid.mhs --fraction 30%" : "leave --heads or --by out");
  if (args.output.empty())
    refuse_usage("--output", "a file for the new checkpoint", "none", "use -o FILE, or -o - for standard output");
  if (!args.measure.empty()) {
    if (args.data.empty() && reads_data(args.measure))
      refuse_usage("--data", "a shard on which --by measures importance", "none", "add --data SHARD");
    if (args.fraction.empty() == (args.count == 0))
      refuse_usage("--by", "either --fraction or --count, for the number of heads to prune",
                   args.count == 0 ? "neither" : "both",
                   args.count == 0 ? "for example --fraction 30%" : "leave --fraction or --count out");
    refuse_repeated_standard_input("cut", {args.model, args.data});
  }
  analysis::check_unit(analysis::head_unit_named(args.unit), analysis::side_named(args.side), "--unit");
  refuse_output_onto_input(args.output,
                           args.data.empty() ? std::vector{args.model} : std::vector{args.model, args.data});
}

// The heads to prune, and how their importance was measured.
struct HeadChoice {
  analysis::HeadSet heads;
  std::string measurement;  // the end of a message, such as " by random; seed 1"; "" for heads from --heads
};

// The scores of all heads, and how they were measured.
struct MeasuredScores {
  std::map<AttentionKind, analysis::LayerScores> scores;
  std::string measurement;  // like HeadChoice::measurement
};

// Measures the importance of the heads by --by. `shard`: the shard of --data; null for a measure that reads no data.
MeasuredScores measure_heads(const Arguments& args, const model::LoadedModel& model, const ShardSource* shard,
                             const analysis::Kinds& kinds) {
  const analysis::SideSelection side = analysis::side_named(args.side);
  if (shard == nullptr) {
    const int64_t seed = args.scoring_options.sample.seed;
    const bool uses_seed = analysis::importance_measures().make(args.measure, "--by")->uses_seed();
    return {analysis::importance_without_data(args.measure, *model.model, side, kinds, seed),
            str(" by ", args.measure, uses_seed ? str("; seed ", seed) : "")};
  }
  const auto dataset = shard->labelled_dataset_for(model);
  const data::ScoringOptions scoring_options = resolved_scoring_options(model, args.scoring_options, *dataset);
  return {analysis::importance_of(args.measure, {*model.model, dataset->corpus(), scoring_options, side,
                                                 progress_bar("measure", "rows"), kinds}),
          measurement_text(args.measure, scoring_options)};
}

HeadChoice select_heads(const Arguments& args, const model::LoadedModel& model, const ShardSource* shard) {
  const analysis::Kinds kinds = analysis::kinds_named(args.kinds, model.model->parameters(), "--kind");
  const bool has_groups = analysis::head_unit_named(args.unit) == analysis::HeadUnit::group;
  if (!args.heads.empty()) {
    std::vector<AttentionKind> all_kinds;
    for (const auto& [kind, layers] : analysis::head_counts_of(model.model->parameters()))
      if (analysis::contains(kinds, kind)) all_kinds.push_back(kind);
    const analysis::HeadSet units = analysis::parse_heads(args.heads, all_kinds, "--heads", !args.kinds.empty());
    return {has_groups ? analysis::heads_of_groups(*model.model, units, "--heads") : units, ""};
  }
  const analysis::PruneAmount amount =
      args.fraction.empty() ? analysis::PruneAmount{args.count, 0}
                            : analysis::PruneAmount{0, analysis::parse_fraction(args.fraction, "--fraction")};
  const std::string where = args.fraction.empty() ? "--count" : "--fraction";
  const analysis::SideSelection side = analysis::side_named(args.side);
  analysis::check_prune_amount(*model.model, side, kinds, amount, args.per_layer, where, has_groups);
  analysis::check_importance(args.measure, "--by", *model.model, side, kinds);
  const auto [scores, measurement] = measure_heads(args, model, shard, kinds);
  const analysis::HeadSet units = analysis::least_important_heads(
      has_groups ? analysis::sum_by_group(*model.model, scores) : scores, amount, args.per_layer, where);
  return {has_groups ? analysis::heads_of_groups(*model.model, units, "--by") : units, measurement};
}

// Returns the numbers of heads on `side` in the layers of a kind as text, such as "8 8 6".
std::string head_counts_text(model::LanguageModel& model, AttentionKind kind, HeadSide side) {
  std::vector<std::string> counts;
  for (const attention::AttentionLayer* layer : model.attention_layers())
    if (layer->layer_spec().kind == kind) counts.push_back(std::to_string(layer->layer_spec().num_heads_of(side)));
  return join(counts, " ");
}

void log_pruning(const Arguments& args, const HeadChoice& choice, model::LanguageModel& original_model,
                 model::LanguageModel& pruned_model, uint64_t file_bytes) {
  std::vector<std::string> names;
  for (const auto& [kind, heads] : choice.heads)
    for (const analysis::Head& head : heads) names.push_back(str(name_of(kind), ":", head.layer, ":", head.head));
  log_info(str("pruned heads, side ", args.side, ": ", join(names, " "), choice.measurement));
  for (const auto& [kind, layers] : analysis::head_counts_of(original_model.parameters())) {
    if (const std::string counts = head_counts_text(original_model, kind, HeadSide::key_value);
        counts.find_first_not_of("0 ") != std::string::npos)
      log_info(str(name_of(kind), ": key/value heads per layer ", counts, " -> ",
                   head_counts_text(pruned_model, kind, HeadSide::key_value)));
    const std::pair<HeadSide, const char*> sides[] = {
        {HeadSide::score, "score"}, {HeadSide::value, "value"}, {HeadSide::output, "output"}};
    std::set<std::string> distinct_counts;
    for (const auto& [side, name] : sides) distinct_counts.insert(head_counts_text(pruned_model, kind, side));
    for (const auto& [side, name] : sides) {
      if (distinct_counts.size() == 1 && side != HeadSide::value) continue;
      log_info(str(name_of(kind), distinct_counts.size() == 1 ? "" : str(", ", name), ": heads per layer ",
                   head_counts_text(original_model, kind, side), " -> ", head_counts_text(pruned_model, kind, side)));
    }
  }
  const auto layers = pruned_model.attention_layers();
  if (std::all_of(layers.begin(), layers.end(), [](const auto* layer) { return layer->layer_spec().heads == 0; }))
    log_warning("no attention layer has a head left, so no position reads another position");
  log_info(str("parameters ", with_commas(original_model.parameters().num_trainable_elements()), " -> ",
               with_commas(pruned_model.parameters().num_trainable_elements()), "; ", human_bytes(file_bytes)));
}

void prune_checkpoint(const Arguments& args) {
  check_arguments(args);
  const io::Checkpoint checkpoint(args.model);
  const auto shard = args.data.empty() ? nullptr : std::make_unique<ShardSource>(args.data);
  const model::LoadedModel model = load_with_options(args, checkpoint, model::Masters::present);
  train::RunConfig run_config = train::RunConfig::parse(model.toml, model.name);
  auto sink = open_sink(args.output);  // opened before the ranking, so that errors appear early
  const HeadChoice choice = select_heads(args, model, shard.get());
  const analysis::RemainingHeadsByLayer remaining_heads = analysis::heads_after_pruning(
      *model.model, choice.heads, analysis::side_named(args.side), args.heads.empty() ? "--by" : "--heads");
  const analysis::PrunedModel pruned_model = analysis::prune_heads(model.config, *model.model, remaining_heads);
  io::Metadata metadata = train::derived_metadata(checkpoint);
  train::set_model(metadata, std::move(run_config), pruned_model.config);
  model::write_parameters(*sink, pruned_model.model->parameters(), std::move(metadata));
  log_pruning(args, choice, *model.model, *pruned_model.model, sink->bytes_written());
}

}  // namespace

void add_cut_subcommand(CLI::App& app, Jobs& jobs) {
  CLI::App* sub = app.add_subcommand("cut", "prune heads: write a smaller, faster checkpoint without the pruned heads");
  auto args = std::make_shared<Arguments>();
  sub->add_option("model", args->model, "checkpoint; - is standard input")->required()->type_name("MODEL");
  auto add_option = [&](const char* name, std::string& value, const char* help, const char* type) {
    return sub->add_option(name, value, help)->type_name(type);
  };
  add_list(*sub, "--heads", args->heads,
           "heads to prune, or groups with --unit group, as LAYER:HEAD or KIND:LAYER:HEAD, counted from 0, such as "
           "0:1,0:3,5:7 or decoder.self:0:1",
           "LAYER:HEAD,...");
  const std::string measures = "measure of importance by which the least important heads are pruned: " +
                               join(analysis::importance_measures().names(), ", ");
  auto* by_option = add_option("--by", args->measure, measures.c_str(), "MEASURE")
                        ->check(one_of(analysis::importance_measures().names()));
  const std::string data_help = str("shard on which importance is measured; - is standard input; optional with --by ",
                                    join_alternatives(measures_without_data()));
  add_option("--data", args->data, data_help.c_str(), "SHARD")->needs(by_option);
  add_option("--fraction", args->fraction,
             "percentage of the heads to prune with --by; the number of heads is rounded down", "P%")
      ->needs(by_option);
  sub->add_option("--count", args->count, "number of heads to prune with --by")
      ->type_name("N")
      ->check(whole_number(1, 1 << 24))
      ->needs(by_option);
  sub->add_flag("--per-layer", args->per_layer,
                "apply --fraction or --count to each layer instead of to all layers together")
      ->needs(by_option);
  add_list(*sub, "--kind", args->kinds,
           "kinds of attention whose heads are analysed or pruned, such as decoder.cross [all]", "KIND,...");
  add_side_option(*sub, args->side);
  add_unit_option(*sub, args->unit);
  add_option("-o,--output", args->output, "output checkpoint; - is standard output", "FILE");
  const ModelOptionSet model_options = add_model_options(*sub, *args);
  model_options.precision->needs(by_option);
  model_options.attention->needs(by_option);
  auto scoring_fields = std::make_shared<CommandLineFields>(*sub),
       sample_fields = std::make_shared<CommandLineFields>(*sub);
  scoring_fields->declare(args->scoring_options);
  sample_fields->declare(args->scoring_options.sample);
  for (const CommandLineFields* fields : {scoring_fields.get(), sample_fields.get()})
    for (CLI::Option* option : fields->options()) option->needs(by_option);
  jobs.push_back(
      {sub, [args, model_options, scoring_fields, sample_fields] {
         scoring_fields->store_values(args->scoring_options);
         sample_fields->store_values(args->scoring_options.sample);
         if (!args->measure.empty() && args->data.empty() && !reads_data(args->measure)) {
           std::vector<CLI::Option*> data_options = scoring_fields->options();
           data_options.insert(data_options.end(),
                               {sample_fields->option("blocks"), model_options.precision, model_options.attention});
           refuse_options(data_options, "--data, on which importance is measured", "no --data", "pass --data");
         }
         refuse_unused_seed(*sample_fields, args->scoring_options.sample, {args->measure});
         nn::prepare_cpu(args->threads);
         prune_checkpoint(*args);
       }});
}

}  // namespace mh::prune
