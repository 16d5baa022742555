// Line charts and heat maps, drawn by gnuplot.
//
// The suffix of the path chooses the file format: .svg, .png or .pdf. The path "-" draws with characters on standard
// output. Several panels are arranged in two columns in a file, and one below another on standard output.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"

namespace mh {

struct Curve {
  std::string title;  // name in the legend; "" omits the entry
  std::vector<double> x, y;
  bool is_bold = false;
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;
};

struct HeatMap {
  std::string title, x_label, y_label;
  std::vector<std::vector<double>> rows;  // cell values, row 0 at the top; missing cells of short rows are empty
};

// Returns each path without the leading folders and the trailing components that all paths share: "a" and "b" for
// "runs/a/log" and "runs/b/log". A path of which nothing would remain, or a single path, is returned unchanged.
std::vector<std::string> short_names(const std::vector<std::string>& paths);

class Plot {
 public:
  // Opens the output (open_sink()) and checks that gnuplot is installed. Throws Error(usage) for an unknown suffix, and
  // Error(failed) if gnuplot is not installed or the file cannot be written.
  explicit Plot(std::string path);
  // Adds a panel with curves. A point with NaN or infinity interrupts its curve; a chart without points is empty.
  void add(const Chart& chart);
  void add(const HeatMap& map);
  // Draws all panels; must be called once. A file appears, or replaces an existing file, only after gnuplot has
  // succeeded. Throws Error(failed) if gnuplot fails or the file cannot be written.
  void draw();

 private:
  std::string path_;
  std::unique_ptr<ByteSink> sink_;   // the file; null for standard output
  std::vector<std::string> panels_;  // gnuplot script of each panel, with its data
};

}  // namespace mh
