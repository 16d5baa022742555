// What a model loses without each of its heads: one head at a time, all heads of a layer but one, or a whole layer.
//
// The loss of a head is the change of a metric: perplexity, for which all cases are scored in one pass over the text
// (ablation.h), or any other, for which the model runs once for each case.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "analysis/ablation.h"
#include "analysis/subject.h"

namespace mh::analysis {

enum class ScanMode { head, all_but_one, layer };
const char* name_of(ScanMode mode);  // "head", "all-but-one", "layer"

// One masked model.
struct ScanCase {
  ScanMode mode = ScanMode::head;
  Kind kind = Kind::decoder_self;
  int64_t layer = 0;
  int64_t head = 0;  // the masked head; all_but_one: the head that stays; layer: -1
  HeadSet masked;
};

struct ScanOptions {
  HeadSet heads;             // the heads to scan; each must exist (check_heads())
  bool layers = false;       // each of their layers without all of its heads too
  bool all_but_one = false;  // each head alone in its layer too
};

// The cases by kind, layer and head; a layer comes before its heads. `kinds`: those whose heads a layer case masks.
std::vector<ScanCase> scan_cases(model::LanguageModel& model, Side side, const Kinds& kinds,
                                 const ScanOptions& options);

// The metric of the model with the heads that are masked now; `progress` counts rows.
using Judge = std::function<double(const std::function<void(int64_t done, int64_t all)>& progress)>;

// The values of the cases that belong to one layer and mode.
using ScanLayer = std::tuple<Kind, int64_t, ScanMode>;

struct Scan {
  std::vector<ScanCase> cases;
  // The whole model, then each case: the metric, and with perplexity the sums it follows from (else empty sums).
  std::vector<double> values;
  std::vector<task::Score> scores;
  std::map<ScanLayer, std::vector<double>> by_layer;  // values of cases

  double full() const { return values[0]; }
  double value(size_t c) const { return values[c + 1]; }
  const task::Score& score(size_t c) const { return scores[c + 1]; }
  // The sample standard deviation over the cases of the same layer and mode.
  double layer_deviation(size_t c) const;
};

// Scores the model without the heads of each case. `judge`: the metric; none: perplexity. Progress is that of the
// subject, over all cases. Error(usage) as score_without().
Scan scan_heads(const Subject& subject, std::vector<ScanCase> cases, const Judge& judge = {});

// The values of one layer and mode against the value of the whole model.
struct LayerLoss {
  double difference = 0;  // the mean value less that of the whole model
  double relative = 0;    // the same in percent of the whole model's
  double deviation = 0;   // the sample standard deviation of the values
};
LayerLoss layer_loss(double full, const std::vector<double>& values);

}  // namespace mh::analysis
