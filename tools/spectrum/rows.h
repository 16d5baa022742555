// The output of mh-spectrum: a table of ranks and entropies, a table of curves, and plots.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/spectrum_statistics.h"
#include "base/file.h"
#include "base/plot.h"
#include "base/table.h"

namespace mh::spectrum {

// The options of the output: the files of --curves and --plot, and the form of the table.
struct OutputOptions {
  std::string source_name, format;     // the values of --of and --format
  std::string curves_path, plot_path;  // paths of the files of --curves and --plot; "": no such file
  bool is_summary = false;  // whether the table has a row per model and kind of attention instead of a row per head
  // Whether the x axis of curves is k / n instead of k, because the matrices differ in their smaller dimension n.
  bool uses_relative_index = false;
  size_t num_models = 1;
};

using SpectraEntries = std::vector<std::unique_ptr<analysis::SpectraEntry>>;

class SpectraWriter {
 public:
  // Throws Error if the plot cannot be drawn, so that the error precedes the computation.
  explicit SpectraWriter(OutputOptions options);
  // Opens the file of --curves. Must be called before the first write().
  void open_curves_file();
  // Writes the spectra of a model. `name`: the model's name in the table; `title`: the model's name in plots;
  // `settings`: columns at the end of each table row.
  void write(const std::string& name, const std::string& title, const SpectraEntries& entries,
             const nlohmann::ordered_json& settings);
  // Draws the plot and closes all files.
  void close();

 private:
  using NamedCurves = std::vector<std::pair<std::string, analysis::SpectrumStatistics>>;
  void write_row(const nlohmann::ordered_json& row);
  void write_curves(const std::string& name, const analysis::SpectraEntry& entry,
                    const std::vector<analysis::SpectrumStatistics>& head_statistics);
  void draw(const std::string& title, const SpectraEntries& entries);

  OutputOptions options_;
  Table table_;
  std::unique_ptr<ByteSink> curves_sink_;
  std::optional<Plot> plot_;
  // For each kind of attention and each model: the mean of the curves c_k over the layers. Empty for a single model.
  std::map<std::string, NamedCurves> summaries_;
};

}  // namespace mh::spectrum
