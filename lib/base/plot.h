// Pictures, drawn by gnuplot: curves and heat maps, one below the other or side by side.
//
// A file's ending says its kind: .svg, .png, .pdf; "-" draws with characters on standard output.
#pragma once

#include <string>
#include <vector>

namespace mh {

struct Curve {
  std::string title;  // of the key; "" leaves it out
  std::vector<double> x, y;
  bool bold = false;
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;
};

struct HeatMap {
  std::string title, x_label, y_label;
  std::vector<std::vector<double>> rows;  // of one length each, or shorter ones, drawn empty; row 0 on top
};

// Paths as short as tells them apart: without the folders in front and the names at the end that all have.
std::vector<std::string> short_names(const std::vector<std::string>& paths);

class Plot {
 public:
  // Before any work: Error(usage) for an ending that is not known, Error(failed) where gnuplot is not installed or the
  // file cannot be written.
  explicit Plot(std::string path);
  void add(const Chart& chart);
  void add(const HeatMap& map);
  // Whole or not at all: the file is put under its name when gnuplot is done.
  void draw() const;

 private:
  std::string path_;
  std::vector<std::string> panels_;  // each a piece of a gnuplot script, data included
};

}  // namespace mh
