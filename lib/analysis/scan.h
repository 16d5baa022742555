// Ablation scans: the change of a metric if a model loses a single head or a group of heads, all heads of a layer
// except one head or group, or all heads of a layer.
//
// If the metric is the loss or its perplexity, a pass over the text scores several cases together (ablation.h); for
// other metrics the model is evaluated once per case.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/ablation.h"
#include "analysis/analysis_input.h"
#include "analysis/groups.h"

namespace mh::analysis {

enum class ScanMode { head, group, all_but_one, layer };
const char* name_of(ScanMode mode);  // "head", "group", "all-but-one", "layer"

// One ablated model of a scan.
struct ScanCase {
  ScanMode mode = ScanMode::head;
  AttentionKind kind = AttentionKind::decoder_self;
  int64_t layer = 0;
  int64_t head = 0;  // index of the masked head or group; all_but_one: of the head or group that remains; layer: -1
  HeadSet masked_heads;
};

struct ScanOptions {
  // The heads to scan, or the groups if `unit` is `group`; each must exist (check_heads(), heads_of_groups()).
  HeadSet heads;
  bool add_layers = false;       // whether to add a case for each layer, in which all heads of the layer are masked
  bool add_all_but_one = false;  // whether to add a case for each head, in which all other heads of its layer are
                                 // masked
  HeadUnit unit = HeadUnit::head;
};

// Returns the cases, ordered by kind, layer and head; the case of a layer precedes the cases of its heads. `kinds`:
// kinds of attention to scan, which must include the kinds of options.heads; empty: all kinds.
std::vector<ScanCase> scan_cases(model::LanguageModel& model, SideSelection side, const Kinds& kinds,
                                 const ScanOptions& options);

// Returns the metric of the model with its currently masked heads; calls `progress` with numbers of batch rows.
using MetricFunction = std::function<double(const std::function<void(int64_t num_completed, int64_t total)>& progress)>;

// The key of the cases of one layer and mode.
using ScanLayerKey = std::tuple<AttentionKind, int64_t, ScanMode>;

// Differences of the metric from the full model, by layer (rows) and head or group (columns), for each kind of
// attention and each mode except `layer`. NaN: the head has no case.
using HeadDifferences = std::map<std::pair<AttentionKind, ScanMode>, std::vector<std::vector<double>>>;

struct Scan {
  std::vector<ScanCase> cases;
  // Element 0 is the full model, element c + 1 is case c. `values`: the metric, or the loss value without a metric.
  // `scores`: the sums from which the loss value is computed; zeros with a metric.
  std::vector<double> values;
  std::vector<task::NllSum> scores;
  std::map<ScanLayerKey, std::vector<double>> values_by_layer;  // metric of each case, by layer and mode

  double full_value() const { return values[0]; }
  double value(size_t c) const { return values[c + 1]; }
  const task::NllSum& score(size_t c) const { return scores[c + 1]; }
  // Returns the sample standard deviation of the metric over all cases with the same layer and mode as case c.
  double layer_deviation(size_t c) const;
  // Returns the differences of `values` from the value of the full model.
  HeadDifferences head_differences() const;
};

// Evaluates the full model, and for each case the model with the heads of the case masked. `metric`: evaluates the
// model; empty: `loss_value`, which covers only the data evaluated so far if a signal asks the process to stop. Calls
// input.progress with the progress over all cases. Throws Error(usage) like score_ablations().
Scan scan_heads(const AnalysisInput& input, std::vector<ScanCase> cases, const MetricFunction& metric = {},
                LossValue loss_value = LossValue::perplexity);

// The metric of the cases of one layer and mode, compared with the metric of the full model.
struct LayerComparison {
  double difference = 0;          // mean over the cases minus the value of the full model
  double percent_difference = 0;  // percent_change() from the value of the full model to the mean
  double deviation = 0;           // sample standard deviation over the cases
};
// `full_value`: metric of the full model; `values`: metric of each case.
LayerComparison compare_layer(double full_value, const std::vector<double>& values);

}  // namespace mh::analysis
