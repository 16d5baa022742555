// Lists and evaluates the cases of an ablation scan.
#include "analysis/scan.h"

#include <limits>
#include <set>
#include <utility>

#include "analysis/percent_change.h"

namespace mh::analysis {

namespace {

// Returns, for each set of heads in `masked_sets`, the metric of the model with this set masked. Evaluates the model
// once per set.
std::vector<double> evaluate_ablations(const AnalysisInput& input, const std::vector<HeadSet>& masked_sets,
                                       const MetricFunction& metric) {
  const auto num_models = static_cast<int64_t>(masked_sets.size());
  std::vector<double> values;
  for (int64_t i = 0; i < num_models; ++i) {
    const HeadMaskGuard mask_guard(input.model, input.side, masked_sets[static_cast<size_t>(i)]);
    values.push_back(metric([&](int64_t num_completed, int64_t total) {
      if (input.progress) input.progress(i * total + num_completed, num_models * total);
    }));
  }
  return values;
}

}  // namespace

const char* name_of(ScanMode mode) {
  return mode == ScanMode::head          ? "head"
         : mode == ScanMode::group       ? "group"
         : mode == ScanMode::all_but_one ? "all-but-one"
                                         : "layer";
}

std::vector<ScanCase> scan_cases(model::LanguageModel& model, SideSelection side, const Kinds& kinds,
                                 const ScanOptions& options) {
  std::vector<ScanCase> cases;
  const bool has_groups = options.unit == HeadUnit::group;
  const HeadSet units = has_groups ? all_groups(model, kinds) : all_heads(model, side, kinds);
  const auto masked_heads = [&](AttentionKind kind, const std::set<Head>& masked_units) {
    const HeadSet head_set{{kind, masked_units}};
    return has_groups ? heads_of_groups(model, head_set, "--heads") : head_set;
  };
  for (const auto& [kind, heads] : options.heads) {
    std::map<int64_t, std::set<Head>> layers;
    for (const Head& head : units.at(kind)) layers[head.layer].insert(head);
    int64_t previous_layer = -1;
    for (const Head& head : heads) {
      if (options.add_layers && head.layer != previous_layer)
        cases.push_back({ScanMode::layer, kind, head.layer, -1, masked_heads(kind, layers[head.layer])});
      previous_layer = head.layer;
      cases.push_back(
          {has_groups ? ScanMode::group : ScanMode::head, kind, head.layer, head.head, masked_heads(kind, {head})});
      if (!options.add_all_but_one) continue;
      std::set<Head> other_heads = layers[head.layer];
      other_heads.erase(head);
      cases.push_back({ScanMode::all_but_one, kind, head.layer, head.head, masked_heads(kind, other_heads)});
    }
  }
  return cases;
}

double Scan::layer_deviation(size_t c) const {
  return sample_deviation(values_by_layer.at({cases[c].kind, cases[c].layer, cases[c].mode}));
}

HeadDifferences Scan::head_differences() const {
  HeadDifferences differences;
  for (size_t c = 0; c < cases.size(); ++c) {
    if (cases[c].mode == ScanMode::layer) continue;
    auto& rows = differences[{cases[c].kind, cases[c].mode}];
    const auto layer = static_cast<size_t>(cases[c].layer), head = static_cast<size_t>(cases[c].head);
    if (rows.size() <= layer) rows.resize(layer + 1);
    if (rows[layer].size() <= head) rows[layer].resize(head + 1, std::numeric_limits<double>::quiet_NaN());
    rows[layer][head] = value(c) - full_value();
  }
  return differences;
}

Scan scan_heads(const AnalysisInput& input, std::vector<ScanCase> cases, const MetricFunction& metric,
                LossValue loss_value) {
  std::vector<HeadSet> masked_sets{{}};
  for (const ScanCase& c : cases) masked_sets.push_back(c.masked_heads);
  Scan scan;
  scan.cases = std::move(cases);
  scan.scores.resize(masked_sets.size());
  if (metric) {
    scan.values = evaluate_ablations(input, masked_sets, metric);
  } else {
    scan.scores = score_ablations(input, masked_sets);
    for (const task::NllSum& score : scan.scores) scan.values.push_back(value_of(loss_value, score));
  }
  for (size_t c = 0; c < scan.cases.size(); ++c)
    scan.values_by_layer[{scan.cases[c].kind, scan.cases[c].layer, scan.cases[c].mode}].push_back(scan.value(c));
  return scan;
}

LayerComparison compare_layer(double full_value, const std::vector<double>& values) {
  LayerComparison comparison;
  double mean_value = 0;
  for (double value : values) mean_value += value / static_cast<double>(values.size());
  comparison.difference = mean_value - full_value;
  comparison.percent_difference = percent_change(mean_value, full_value);
  comparison.deviation = sample_deviation(values);
  return comparison;
}

}  // namespace mh::analysis
