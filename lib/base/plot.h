// Plots by gnuplot: curves and heat maps, in a column or side by side.
//
// The suffix of the file chooses the format: .svg, .png, .pdf; "-" draws with characters on standard output.
#pragma once

#include <string>
#include <vector>

namespace mh {

struct Curve {
  std::string title;  // title in the key; "" leaves it out
  std::vector<double> x, y;
  bool bold = false;
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;
};

struct HeatMap {
  std::string title, x_label, y_label;
  std::vector<std::vector<double>> rows;  // rows of equal length; shorter ones are drawn with empty cells; row 0 on top
};

// Returns the shortest distinct forms of paths, without common leading folders and trailing names.
std::vector<std::string> short_names(const std::vector<std::string>& paths);

class Plot {
 public:
  // Checks the path before any work. Throws Error(usage) for an unknown suffix, Error(failed) if gnuplot is not
  // installed or the file cannot be written.
  explicit Plot(std::string path);
  void add(const Chart& chart);
  void add(const HeatMap& map);
  // Draws the file, whole or not at all: it is renamed to its name once gnuplot has finished.
  void draw() const;

 private:
  std::string path_;
  std::vector<std::string> panels_;  // parts of a gnuplot script, with data
};

}  // namespace mh
