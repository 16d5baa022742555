// The figures of mh-spectrum's rows and pictures.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "analysis/spectrum_source.h"
#include "base/plot.h"

namespace mh::spectrum {

// What a row says of a head, or of the mean of several. NaN: not defined.
struct Figures {
  double area = 0, effective = 0, rank_share = 0, stable = 0, entropy = 0, entropy_share = 0;
  std::vector<double> parts;  // c_first, c_10 … c_90
  std::vector<double> curve;  // c_k; none for the mean of curves of several lengths
};

// By head.
std::vector<Figures> figures_of(const analysis::PlaceSpectra& place);
Figures mean_of(const std::vector<Figures>& all);
void add_figures(nlohmann::ordered_json& row, const Figures& f);

// Curves by name, and the mean of all where it is asked for. `by_share`: over k / n.
Chart chart_of(const std::string& title, const std::vector<std::pair<std::string, Figures>>& curves, bool with_mean,
               bool by_share);
// Paths as short as tells them apart: without the folders in front and the names at the end that all have.
std::vector<std::string> short_names(const std::vector<std::string>& paths);

std::vector<double> numbers(const at::Tensor& x);  // fp64 on the CPU
std::vector<std::vector<double>> rows_of(const at::Tensor& x);

}  // namespace mh::spectrum
