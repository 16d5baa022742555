// What mh-spectrum writes of spectra: rows, the table of curves, pictures.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/spectrum_figures.h"
#include "base/file.h"
#include "base/plot.h"
#include "base/table.h"

namespace mh::spectrum {

// Which of them, and where to.
struct Output {
  std::string of, format, curves, plot;
  bool summary = false;
  bool by_share = false;  // curves are of matrices of several sizes
  size_t models = 1;
};

using Places = std::vector<std::unique_ptr<analysis::PlaceSpectra>>;

class Rows {
 public:
  // Refuses a picture that cannot be drawn, before there is work.
  explicit Rows(Output output);
  // Opens the table of curves; before the first model.
  void open_curves();
  // Of a model: `name` in rows, `title` in pictures; `settings`: columns at the end of each row.
  void write(const std::string& name, const std::string& title, const Places& places,
             const nlohmann::ordered_json& settings);
  void close();

 private:
  using Curves = std::vector<std::pair<std::string, analysis::SpectrumFigures>>;
  void write_row(const nlohmann::ordered_json& row);
  void write_curves(const std::string& name, const analysis::PlaceSpectra& place,
                    const std::vector<analysis::SpectrumFigures>& heads);
  void draw(const std::string& title, const Places& places);

  Output output_;
  Table table_;
  std::unique_ptr<ByteSink> curves_;
  std::optional<Plot> plot_;
  std::map<std::string, Curves> summaries_;  // by kind, of several models
};

}  // namespace mh::spectrum
