#include "base/plot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace mh {

namespace {

std::string ending_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(dot + 1);
}

bool is_gnuplot_installed() {
  const char* folders = std::getenv("PATH");
  if (folders == nullptr) return false;
  for (const std::string& folder : split(folders, ':'))
    if (access((folder + "/gnuplot").c_str(), X_OK) == 0) return true;
  return false;
}

// Returns a gnuplot string in single quotes, in which a quote is doubled; a line feed becomes a space.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (char c : text) result += c == '\'' ? "''" : std::string(1, c == '\n' ? ' ' : c);
  return result + "'";
}

std::string number(double x) { return std::isfinite(x) ? shortest(x) : "NaN"; }

std::string labels(const std::string& title, const std::string& x, const std::string& y) {
  return str("set title ", quoted(title), " noenhanced\nset xlabel ", quoted(x), " noenhanced\nset ylabel ", quoted(y),
             " noenhanced\n");
}

std::string terminal(const std::string& path, size_t panels) {
  const int columns = panels > 1 ? 2 : 1, rows = (static_cast<int>(panels) + columns - 1) / columns;
  if (path == "-") return str("set terminal dumb size 100,", 28 * static_cast<int>(panels), "\n");
  const std::string ending = ending_of(path);
  if (ending == "svg") return str("set terminal svg size ", 640 * columns, ",", 440 * rows, " background 'white'\n");
  if (ending == "png") return str("set terminal pngcairo size ", 960 * columns, ",", 660 * rows, "\n");
  return str("set terminal pdfcairo size ", 6 * columns, "in,", 4 * rows, "in\n");
}

// Runs gnuplot with `script` on its standard input. `silent`: discards its standard output.
void run_gnuplot(const std::string& script, bool silent) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(Exit::failed, "cannot create a pipe to gnuplot");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[0], 0);
  if (silent) posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  const char* arguments[] = {"gnuplot", "-", nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "gnuplot", &actions, nullptr, const_cast<char**>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[0]);
  if (failed == 0) {
    auto sink = sink_of_descriptor(ends[1], "gnuplot");
    try {
      sink->write(script);
      sink->close();
    } catch (const Error&) {
      // The exit status of gnuplot, checked below, is more informative.
    }
  }
  close(ends[1]);
  int status = 0;
  if (failed != 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw Error(Exit::failed, "gnuplot failed; see the messages of gnuplot above");
}

}  // namespace

Plot::Plot(std::string path) : path_(std::move(path)) {
  const std::string ending = ending_of(path_);
  if (path_ != "-" && ending != "svg" && ending != "png" && ending != "pdf")
    throw Error(Exit::usage,
                Problem{"--plot", "a file name that ends in .svg, .png or .pdf, or - for standard output", path_, ""});
  if (!is_gnuplot_installed())
    throw Error(Exit::failed, Problem{"--plot", "gnuplot, which draws the plots", "none on PATH",
                                      "install the package gnuplot-nox, or omit --plot"});
  if (path_ != "-") open_sink(path_);  // throws if the folder is not writable; without close() no file appears
}

void Plot::add(const Chart& chart) {
  const std::string data = str("$data", panels_.size());
  std::string text = data + " << EOD\n", command = "plot ";
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const Curve& curve = chart.curves[i];
    for (size_t k = 0; k < curve.x.size(); ++k) text += number(curve.x[k]) + " " + number(curve.y[k]) + "\n";
    text += "\n\n";  // starts the next data set (`index` of gnuplot)
    command += str(i > 0 ? ", " : "", data, " index ", i, " using 1:2 with ", curve.x.size() > 1 ? "lines" : "points",
                   " lw ", curve.bold ? 4 : 1.5, curve.bold ? " lc rgb 'black'" : "", " ",
                   curve.title.empty() ? "notitle" : "title " + quoted(curve.title) + " noenhanced");
  }
  panels_.push_back(str("reset\nset key outside right\nset grid\n", labels(chart.title, chart.x_label, chart.y_label),
                        text, "EOD\n", chart.curves.empty() ? "plot NaN notitle" : command, "\n"));
}

void Plot::add(const HeatMap& map) {
  const std::string data = str("$data", panels_.size());
  size_t columns = 1;
  std::string text = data + " << EOD\n";
  for (size_t y = 0; y < map.rows.size(); ++y) {
    columns = std::max(columns, map.rows[y].size());
    for (size_t x = 0; x < map.rows[y].size(); ++x) text += str(x, " ", y, " ", number(map.rows[y][x]), "\n");
  }
  const auto last = [](size_t n) { return shortest(static_cast<double>(std::max<size_t>(n, 1)) - 0.5); };
  // Characters cannot show shades, so on standard output the cells show numbers.
  const char* cells = path_ == "-" ? " using 1:2:(sprintf('%.3g', $3)) with labels"
                                   : " using 1:2:(0.5):(0.5):3 with boxxyerror fillstyle solid linecolor palette";
  panels_.push_back(str("reset\nset palette defined (0 'white', 1 'dark-blue')\nset xrange [-0.5:", last(columns),
                        "]\nset yrange [", last(map.rows.size()), ":-0.5]\nset xtics 1\nset ytics 1\n",
                        labels(map.title, map.x_label, map.y_label), text, "EOD\n",
                        map.rows.empty() ? "plot NaN" : "plot " + data + cells, " notitle\n"));
}

void Plot::draw() const {
  std::string script = terminal(path_, panels_.size());
  const bool characters = path_ == "-";
  const std::string temporary = characters ? "" : str(path_, ".", getpid(), ".tmp");
  if (!characters) script += "set output " + quoted(temporary) + "\n";
  // On standard output panels are stacked; in a file two panels share a row.
  if (panels_.size() > 1)
    script += characters ? str("set multiplot layout ", panels_.size(), ",1\n")
                         : str("set multiplot layout ", (panels_.size() + 1) / 2, ",2\n");
  for (const std::string& panel : panels_) script += panel;
  if (panels_.size() > 1) script += "unset multiplot\n";
  script += "unset output\n";
  try {
    run_gnuplot(script, !characters);
    if (!characters && rename(temporary.c_str(), path_.c_str()) != 0)
      throw Error(Exit::failed, path_ + ": cannot be written");
  } catch (...) {
    if (!characters) unlink(temporary.c_str());
    throw;
  }
}

std::vector<std::string> short_names(const std::vector<std::string>& paths) {
  std::vector<std::vector<std::string>> parts;
  parts.reserve(paths.size());
  for (const std::string& path : paths) parts.push_back(split(path, '/'));
  const auto common = [&](auto part) {  // part(p, i): component i of a path, counted from the start or from the end
    size_t i = 0;
    while (std::all_of(parts.begin(), parts.end(), [&](const auto& p) {
      return i + 1 < p.size() && i + 1 < parts[0].size() && part(p, i) == part(parts[0], i);
    }))
      ++i;
    return i;
  };
  size_t front = common([](const auto& p, size_t i) { return p[i]; });
  size_t back = common([](const auto& p, size_t i) { return p[p.size() - 1 - i]; });
  std::vector<std::string> names;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& p = parts[i];
    if (parts.size() < 2 || front + back >= p.size()) names.push_back(paths[i]);
    else
      names.push_back(
          join({p.begin() + static_cast<std::ptrdiff_t>(front), p.end() - static_cast<std::ptrdiff_t>(back)}, "/"));
  }
  return names;
}

}  // namespace mh
