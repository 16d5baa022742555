// Writes the table, the curves and the plots of mh-spectrum.
#include "rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json_types.h"
#include "base/text.h"

namespace mh::spectrum {

using analysis::SpectraEntry;
using analysis::SpectrumStatistics;
using nlohmann::ordered_json;

namespace {

// Returns x, or NaN for a missing layer or head (x < 0), which keeps the column numeric.
ordered_json number_or_nan(int64_t x) {
  return x < 0 ? ordered_json(std::numeric_limits<double>::quiet_NaN()) : ordered_json(x);
}

// Returns the end of a chart's title: the kind of attention, or "others" for parameters outside attention layers; "" if
// there is only one kind.
std::string kind_suffix(const std::string& kind, size_t num_kinds) {
  return num_kinds > 1 ? str(", ", kind.empty() ? "others" : kind) : "";
}

// Returns the smaller dimension of the matrices as an integer; if the dimension varies from matrix to matrix, returns
// the mean dimension.
ordered_json mean_size_of(const analysis::SpectrumMeans& spectra) {
  return spectra.has_varying_size() ? ordered_json(spectra.mean_size())
                                    : ordered_json(std::llround(spectra.mean_size()));
}

// Returns the x value of point `index` of a curve c_k: the number k = index + 1 of singular values, or, if the matrices
// differ in size, the fraction k / n at this point of the grid.
std::string index_text(const analysis::SpectrumMeans& spectra, size_t index) {
  return spectra.has_varying_size() ? shortest_decimal(static_cast<double>(index + 1) / analysis::kGridPoints)
                                    : str(index + 1);
}

void add_statistics(ordered_json& row, const SpectrumStatistics& statistics) {
  row["area"] = statistics.area;
  row["effective_rank"] = statistics.effective_rank;
  row["rank_share"] = statistics.rank_share;
  row["stable_rank"] = statistics.stable_rank;
  row["entropy"] = statistics.entropy;
  row["entropy_share"] = statistics.entropy_share;
  for (size_t i = 0; i < statistics.sampled_curve.size(); ++i)
    row[i == 0 ? "c_first" : str("c_", 10 * i)] = statistics.sampled_curve[i];
}

// Returns a chart of named curves. `has_mean`: whether the chart also has the mean of the curves;
// `uses_relative_index`: whether the x axis is k / n instead of k.
Chart chart_of(const std::string& title, const std::vector<std::pair<std::string, SpectrumStatistics>>& curves,
               bool has_mean, bool uses_relative_index) {
  Chart chart{title, uses_relative_index ? "k / n, n the smaller dimension" : "k", "c_k", {}};
  const auto add = [&](const std::string& name, const std::vector<double>& y, bool is_bold) {
    Curve curve{name, {}, y, is_bold};
    for (size_t k = 0; k < y.size(); ++k)
      curve.x.push_back(static_cast<double>(k + 1) / (uses_relative_index ? static_cast<double>(y.size()) : 1));
    chart.curves.push_back(curve);
  };
  std::vector<SpectrumStatistics> statistics;
  for (const auto& [name, curve_statistics] : curves)
    add(name, curve_statistics.curve, false), statistics.push_back(curve_statistics);
  if (!has_mean || statistics.size() < 2) return chart;
  if (const SpectrumStatistics mean = mean_of(statistics); !mean.curve.empty()) add("mean", mean.curve, true);
  return chart;
}

}  // namespace

SpectraWriter::SpectraWriter(OutputOptions options)
    : options_(std::move(options)),
      table_(Table::format_named(options_.format), !options_.curves_path.empty() || !options_.plot_path.empty()) {
  if (!options_.plot_path.empty()) plot_.emplace(options_.plot_path);
}

void SpectraWriter::open_curves_file() {
  if (options_.curves_path.empty()) return;
  curves_sink_ = open_sink(options_.curves_path);
  curves_sink_->write("model\tof\tname\thead\tk\tmean\tp10\tp50\tp90\n");
}

void SpectraWriter::write(const std::string& name, const std::string& title, const SpectraEntries& entries,
                          const ordered_json& settings) {
  std::map<std::string, std::vector<SpectrumStatistics>> layers;  // by kind of attention
  for (const auto& entry : entries) {
    const auto head_statistics = statistics_of(*entry);
    layers[entry->attention_kind].push_back(mean_of(head_statistics));
    if (curves_sink_ != nullptr) write_curves(name, *entry, head_statistics);
    if (options_.is_summary) continue;
    for (size_t head = 0; head < head_statistics.size(); ++head) {
      ordered_json row{{"model", name},
                       {"of", entry->matrix_kind},
                       {"name", entry->name},
                       {"kind", entry->attention_kind},
                       {"layer", number_or_nan(entry->layer)},
                       {"head", number_or_nan(entry->has_matrix_per_head ? static_cast<int64_t>(head) : -1)},
                       {"matrices", entry->spectra.num_blocks()},
                       {"n", mean_size_of(entry->spectra)}};
      add_statistics(row, head_statistics[head]);
      row.update(settings);
      write_row(row);
    }
  }
  for (const auto& [kind, layer_statistics] : layers) {
    if (!options_.is_summary) break;
    ordered_json row{
        {"model", name}, {"of", options_.source_name}, {"kind", kind}, {"layers", layer_statistics.size()}};
    add_statistics(row, mean_of(layer_statistics));
    row.update(settings);
    write_row(row);
  }
  if (plot_) draw(title, entries);
}

void SpectraWriter::close() {
  if (curves_sink_ != nullptr) curves_sink_->close();
  if (!plot_) return;
  for (const auto& [kind, curves] : summaries_)
    plot_->add(chart_of(str(options_.source_name, kind_suffix(kind, summaries_.size()), ", mean over layers"), curves,
                        false, options_.uses_relative_index));
  plot_->draw();
}

// Writes a table row. With --plot -, the plot in the terminal replaces the table, and no row is written.
void SpectraWriter::write_row(const ordered_json& row) {
  if (options_.plot_path != "-") table_.print_row(row);
}

void SpectraWriter::write_curves(const std::string& name, const SpectraEntry& entry,
                                 const std::vector<SpectrumStatistics>& head_statistics) {
  const analysis::CurvePercentiles percentiles = percentiles_of(entry);
  for (size_t h = 0; h < head_statistics.size(); ++h) {
    const std::vector<double>&p10 = percentiles.p10[h], &p50 = percentiles.p50[h], &p90 = percentiles.p90[h];
    const std::string head = entry.has_matrix_per_head ? str(h) : "nan";
    for (size_t k = 0; k < p10.size(); ++k)
      curves_sink_->write(str(table_field(name), '\t', entry.matrix_kind, '\t', entry.name, '\t', head, '\t',
                              index_text(entry.spectra, k), '\t', shortest_decimal(head_statistics[h].curve[k]), '\t',
                              shortest_decimal(p10[k]), '\t', shortest_decimal(p50[k]), '\t', shortest_decimal(p90[k]),
                              '\n'));
  }
}

void SpectraWriter::draw(const std::string& title, const SpectraEntries& entries) {
  std::map<std::string, NamedCurves> layers;  // by kind of attention
  for (const auto& entry : entries) {
    if (entry->mean_matrix.defined())
      plot_->add(HeatMap{str(title, ": ", entry->name), "head (second axis)", "head (first axis)",
                         analysis::rows_of(entry->mean_matrix)});
    layers[entry->attention_kind].emplace_back(entry->layer >= 0 ? str("layer ", entry->layer) : entry->name,
                                               mean_of(statistics_of(*entry)));
  }
  for (const auto& [kind, curves] : layers) {
    plot_->add(chart_of(str(title, ": ", options_.source_name, kind_suffix(kind, layers.size())), curves, true,
                        options_.uses_relative_index));
    std::vector<SpectrumStatistics> statistics;
    for (const auto& [layer, layer_statistics] : curves) statistics.push_back(layer_statistics);
    if (options_.num_models > 1) summaries_[kind].emplace_back(title, mean_of(statistics));
  }
}

}  // namespace mh::spectrum
