// The jobs of mh-spectrum.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/metric.h"
#include "common/model_options.h"
#include "common/subject.h"

namespace mh::spectrum {

struct Arguments : ModelArguments {
  Arguments() { precision = "fp32", attention = "auto"; }
  std::vector<std::string> files, sets, kinds;
  std::string of = "attention", format = "table", curves, plot, dump;
  bool summary = false;
  // Of experts.
  std::string model, data, show = "gates";
  int64_t tokens = 10, least = 5, random = 5;
};

void show(const Arguments& a, const task::ScoringOptions& given);
void show_experts(const Arguments& a, const task::ScoringOptions& given, const Metric& metric);

// What of the options changes figures, for every row.
void add_settings(nlohmann::ordered_json& row, const Arguments& a, const task::ScoringOptions& how);

}  // namespace mh::spectrum
