#include "base/plot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>

#include "base/child.h"
#include "base/error.h"
#include "base/system_message.h"
#include "base/text.h"
#include "ceil_div.h"

namespace mh {

namespace {

// Returns the text after the last dot of the path; "" if there is no dot.
std::string suffix_of(const std::string& path) {
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
std::string gnuplot_string(const std::string& text) {
  std::string result = "'";
  for (char c : text) result += c == '\'' ? "''" : std::string(1, c == '\n' ? ' ' : c);
  return result + "'";
}

// Returns a text as a gnuplot string without control characters, since gnuplot itself prints plots to a terminal.
std::string gnuplot_label(const std::string& text) { return gnuplot_string(escape_controls(text)); }

std::string number_text(double x) { return std::isfinite(x) ? shortest_decimal(x) : "NaN"; }

// Returns the gnuplot commands that set the title and the axis labels of a panel.
std::string label_commands(const std::string& title, const std::string& x_label, const std::string& y_label) {
  return str("set title ", gnuplot_label(title), " noenhanced\nset xlabel ", gnuplot_label(x_label),
             " noenhanced\nset ylabel ", gnuplot_label(y_label), " noenhanced\n");
}

// Returns the gnuplot command that sets the file format and the size of the drawing.
std::string terminal_command(const std::string& path, size_t num_panels) {
  const int num_columns = num_panels > 1 ? 2 : 1;
  const int num_rows = ceil_div(static_cast<int>(num_panels), num_columns);
  if (path == "-") return str("set terminal dumb size 100,", 28 * static_cast<int>(num_panels), "\n");
  const std::string suffix = suffix_of(path);
  if (suffix == "svg")
    return str("set terminal svg size ", 640 * num_columns, ",", 440 * num_rows, " background 'white'\n");
  if (suffix == "png") return str("set terminal pngcairo size ", 960 * num_columns, ",", 660 * num_rows, "\n");
  return str("set terminal pdfcairo size ", 6 * num_columns, "in,", 4 * num_rows, "in\n");
}

[[noreturn]] void fail_to_plot(const char* action, int error_number) {
  throw Error(Exit::failed, str("--plot: cannot ", action, ": ", system_message(error_number),
                                "; run the command again, or leave --plot out"));
}

// An open file descriptor, or -1. The destructor closes it.
class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : descriptor_(number) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }
  int number() const { return descriptor_; }

 private:
  int descriptor_;
};

// A running gnuplot. posix_spawn() starts it instead of Child, since a process with threads of OpenMP must not fork.
class Gnuplot {
 public:
  // Starts gnuplot. `input` is its standard input; `output` is its standard output; -1: the standard output of this
  // process.
  Gnuplot(int input, int output) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    if (output >= 0) posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    const char* arguments[] = {"gnuplot", "-", nullptr};
    const int error_number = posix_spawnp(&pid_, "gnuplot", &actions, nullptr, const_cast<char**>(arguments), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error_number == 0) return;
    pid_ = -1;
    fail_to_plot("start gnuplot", error_number);
  }
  // Kills gnuplot if wait() has not been called, as after an error while its output is copied.
  ~Gnuplot() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    wait();
  }
  Gnuplot(const Gnuplot&) = delete;
  Gnuplot& operator=(const Gnuplot&) = delete;
  // Waits for the end of gnuplot. Returns whether its exit status is 0.
  bool wait() {
    const std::optional<int> status = wait_for_end(pid_);
    pid_ = -1;
    return status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
  }

 private:
  pid_t pid_ = -1;
};

// Returns the descriptor of a file in memory that contains `script`, at offset 0. With a pipe instead, this process
// would have to write the script while it reads the output of gnuplot.
int memory_file(const std::string& script) {
  const int descriptor = memfd_create("gnuplot", MFD_CLOEXEC);
  int error_number = descriptor < 0 ? errno : write_fully(descriptor, script);
  if (error_number == 0 && lseek(descriptor, 0, SEEK_SET) != 0) error_number = errno;
  if (error_number == 0) return descriptor;
  if (descriptor >= 0) close(descriptor);
  fail_to_plot("store the commands of gnuplot", error_number);
}

// Copies the bytes from a pipe to a sink until the pipe ends.
void copy_pipe(int descriptor, ByteSink& sink) {
  std::vector<char> buffer(1 << 16);
  for (;;) {
    const ssize_t n = read(descriptor, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_to_plot("read the output of gnuplot", errno);
    if (n == 0) return;
    sink.write(buffer.data(), static_cast<size_t>(n));
  }
}

// Runs gnuplot with `script` on its standard input and copies its standard output to `sink`, which the caller closes.
// Without a sink (null), gnuplot writes to the standard output of this process. Throws Error(failed) if gnuplot fails
// or writes nothing to the sink.
void run_gnuplot(const std::string& script, ByteSink* sink) {
  const FileDescriptor script_file(memory_file(script));
  int pipe_ends[2] = {-1, -1};
  if (sink != nullptr && pipe2(pipe_ends, O_CLOEXEC) != 0) fail_to_plot("create a pipe from gnuplot", errno);
  const FileDescriptor read_end(pipe_ends[0]);
  FileDescriptor write_end(pipe_ends[1]);
  Gnuplot gnuplot(script_file.number(), write_end.number());
  write_end.close();  // the pipe ends when gnuplot has ended
  if (sink != nullptr) copy_pipe(read_end.number(), *sink);
  if (!gnuplot.wait())
    throw Error(
        Exit::failed,
        "--plot: expected gnuplot to draw the plot; found a failure of gnuplot; see the messages of gnuplot above");
  if (sink != nullptr && sink->bytes_written() == 0)
    throw Error(Exit::failed,
                "--plot: expected gnuplot to draw the plot; found an empty picture; see the messages of gnuplot above");
}

}  // namespace

Plot::Plot(std::string path) : path_(std::move(path)) {
  const std::string suffix = suffix_of(path_);
  if (path_ != "-" && suffix != "svg" && suffix != "png" && suffix != "pdf")
    refuse_usage("--plot", "a file name that ends in .svg, .png or .pdf, or - for standard output", path_,
                 "choose a file name with one of these endings");
  if (!is_gnuplot_installed())
    throw Error(Exit::failed, Problem{"--plot", "gnuplot, which draws the plots", "none on PATH",
                                      "install the package gnuplot-nox, or omit --plot"});
  if (path_ != "-") sink_ = open_sink(path_);
}

void Plot::add(const Chart& chart) {
  const std::string data_name = str("$data", panels_.size());
  std::string data_block = data_name + " << EOD\n", command = "plot ";
  bool has_points = false;  // whether a curve has a point of finite numbers
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const Curve& curve = chart.curves[i];
    for (size_t k = 0; k < curve.x.size(); ++k) {
      data_block += number_text(curve.x[k]) + " " + number_text(curve.y[k]) + "\n";
      has_points = has_points || (std::isfinite(curve.x[k]) && std::isfinite(curve.y[k]));
    }
    data_block += "\n\n";  // starts the next data set (`index` of gnuplot)
    command +=
        str(i > 0 ? ", " : "", data_name, " index ", i, " using 1:2 with ", curve.x.size() > 1 ? "lines" : "points",
            " lw ", curve.is_bold ? 4 : 1.5, curve.is_bold ? " lc rgb 'black'" : "", " ",
            curve.title.empty() ? "notitle" : "title " + gnuplot_label(curve.title) + " noenhanced");
  }
  // gnuplot fails if it must choose the range of an axis of a panel without points.
  panels_.push_back(str("reset\nset key outside right\nset grid\n",
                        has_points ? "" : "set xrange [0:1]\nset yrange [0:1]\n",
                        label_commands(chart.title, chart.x_label, chart.y_label), data_block, "EOD\n",
                        chart.curves.empty() ? "plot NaN notitle" : command, "\n"));
}

void Plot::add(const HeatMap& map) {
  const std::string data_name = str("$data", panels_.size());
  size_t num_columns = 1;
  std::string data_block = data_name + " << EOD\n";
  for (size_t y = 0; y < map.rows.size(); ++y) {
    num_columns = std::max(num_columns, map.rows[y].size());
    for (size_t x = 0; x < map.rows[y].size(); ++x)
      data_block += str(x, " ", y, " ", number_text(map.rows[y][x]), "\n");
  }
  const auto upper_limit = [](size_t n) { return shortest_decimal(static_cast<double>(std::max<size_t>(n, 1)) - 0.5); };
  // A plot of characters cannot show shades, so its cells show numbers.
  const char* cell_style = path_ == "-" ? " using 1:2:(sprintf('%.3g', $3)) with labels"
                                        : " using 1:2:(0.5):(0.5):3 with boxxyerror fillstyle solid linecolor palette";
  panels_.push_back(
      str("reset\nset palette defined (0 'white', 1 'dark-blue')\nset xrange [-0.5:", upper_limit(num_columns),
          "]\nset yrange [", upper_limit(map.rows.size()), ":-0.5]\nset xtics 1\nset ytics 1\n",
          label_commands(map.title, map.x_label, map.y_label), data_block, "EOD\n",
          map.rows.empty() ? "plot NaN" : "plot " + data_name + cell_style, " notitle\n"));
}

void Plot::draw() {
  std::string script = terminal_command(path_, panels_.size());
  const bool is_text_plot = sink_ == nullptr;
  // Selects standard output, even if a start-up file of gnuplot names an output. gnuplot never receives the path of the
  // plot, since gnuplot would run a path that begins with '|' as a program.
  script += "set output\n";
  // On standard output panels are stacked; in a file two panels share a row.
  if (panels_.size() > 1)
    script += is_text_plot ? str("set multiplot layout ", panels_.size(), ",1\n")
                           : str("set multiplot layout ", ceil_div(panels_.size(), 2), ",2\n");
  for (const std::string& panel : panels_) script += panel;
  if (panels_.size() > 1) script += "unset multiplot\n";
  script += "unset output\n";
  run_gnuplot(script, sink_.get());
  if (sink_ != nullptr) sink_->close();
}

std::vector<std::string> short_names(const std::vector<std::string>& paths) {
  std::vector<std::vector<std::string>> components;
  components.reserve(paths.size());
  for (const std::string& path : paths) components.push_back(split(path, '/'));
  const auto count_common =
      [&](auto component_at) {  // component_at(p, i): component i of a path, counted from the start or from the end
        size_t i = 0;
        while (std::all_of(components.begin(), components.end(), [&](const auto& p) {
          return i + 1 < p.size() && i + 1 < components[0].size() &&
                 component_at(p, i) == component_at(components[0], i);
        }))
          ++i;
        return i;
      };
  size_t num_common_leading = count_common([](const auto& p, size_t i) { return p[i]; });
  size_t num_common_trailing = count_common([](const auto& p, size_t i) { return p[p.size() - 1 - i]; });
  std::vector<std::string> names;
  for (size_t i = 0; i < components.size(); ++i) {
    const auto& p = components[i];
    if (components.size() < 2 || num_common_leading + num_common_trailing >= p.size()) names.push_back(paths[i]);
    else
      names.push_back(join({p.begin() + static_cast<std::ptrdiff_t>(num_common_leading),
                            p.end() - static_cast<std::ptrdiff_t>(num_common_trailing)},
                           "/"));
  }
  return names;
}

}  // namespace mh
