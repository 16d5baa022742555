// mh-eval curves LOG…: prints and plots the losses, scores and learning rates in the logs of training runs.
#include <algorithm>
#include <cmath>

#include "base/command_line.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/plot.h"
#include "base/table.h"
#include "base/text.h"
#include "eval.h"
#include "io/log_quantities.h"
#include "io/run_log.h"

namespace mh::eval {

using nlohmann::ordered_json;

namespace {

enum class Axis { updates, epochs, tokens };

const std::vector<std::pair<Axis, std::string>>& axis_names() {
  static const std::vector<std::pair<Axis, std::string>> names{
      {Axis::updates, "updates"}, {Axis::epochs, "epochs"}, {Axis::tokens, "tokens"}};
  return names;
}

struct CurvesJob {
  std::vector<std::string> log_paths, quantities;
  std::string plot_path, format;
  Axis axis = Axis::updates;
  int64_t smoothing = 1;
  CLI::Option* format_option = nullptr;
  std::shared_ptr<const CommandLineFields> fields;
  void describe(Fields& f) {
    f.choice("x", axis, axis_names(), "horizontal axis of the plot");
    f.field(
        "smooth", smoothing,
        "window, in logged values, of the moving average of training values in table and plot; values of validations "
        "and learning rates are not smoothed; 1: no smoothing",
        between(1, 10000));
  }
};

struct RunCurves {
  std::string name;  // name in the table
  std::vector<io::LogPoint> points;
};

// Returns all keys of the logs, in the order of their first lines.
std::vector<std::string> all_keys(const std::vector<RunCurves>& runs) {
  std::vector<std::string> keys;
  for (const RunCurves& run : runs)
    for (const io::LogPoint& point : run.points)
      for (const auto& [key, value] : point.values)
        if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  return keys;
}

bool contains(const std::vector<std::string>& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

// Returns the quantities to show: those of --show or, without the option, the main quantities of the logs. Throws
// Error(usage) for a quantity that no log has or that --show repeats.
std::vector<std::string> shown_quantities(const CurvesJob& job, const std::vector<std::string>& keys) {
  const std::vector<std::string> available = io::quantities_of(keys);
  for (const std::string& quantity : job.quantities) {
    if (std::ranges::count(job.quantities, quantity) > 1)
      refuse_usage("--show", "each value once", quantity + " more than once", "leave the repetition out");
    if (!contains(available, quantity))
      refuse_usage("--show", "a value in one of the logs: " + join(available, ", "), quantity,
                   did_you_mean(quantity, available, "choose another value, or leave --show out"));
  }
  return job.quantities.empty() ? io::main_quantities(keys) : job.quantities;
}

double x_of(const io::LogPoint& point, Axis axis) {
  return axis == Axis::updates ? static_cast<double>(point.update) : axis == Axis::epochs ? point.epoch : point.tokens;
}

// Returns whether the log has a value of one of the keys after an update.
bool has_value(const io::LogPoint& point, const std::vector<std::string>& keys) {
  return std::ranges::any_of(keys, [&](const std::string& key) { return point.find(key) != nullptr; });
}

// Prints a row for each update of each run that has a value of one of the keys.
void print_table(const CurvesJob& job, const std::vector<RunCurves>& runs, const std::vector<std::string>& keys) {
  Table table(Table::format_named(job.format), !job.plot_path.empty());
  for (const RunCurves& run : runs)
    for (const io::LogPoint& point : run.points) {
      if (!has_value(point, keys)) continue;
      ordered_json row{{"run", run.name},
                       {"update", point.update},
                       {"epoch", point.epoch},
                       {"tokens", point.tokens},
                       {"smooth", job.smoothing}};
      for (const std::string& key : keys) {
        const double* value = point.find(key);
        row[key] = value != nullptr ? *value : NAN;
      }
      table.print_row(row);
    }
}

const std::string& name_of(Axis axis) {
  return std::ranges::find(axis_names(), axis, &std::pair<Axis, std::string>::first)->second;
}

// Throws Error(input) for a run without any position on the horizontal axis of the plot, and warns about the updates
// without a position, whose values the plot leaves out.
void check_positions(const RunCurves& run, const std::vector<std::string>& keys, Axis axis) {
  int64_t num_points = 0, num_missing = 0;
  for (const io::LogPoint& point : run.points) {
    if (!has_value(point, keys)) continue;
    ++num_points;
    num_missing += std::isnan(x_of(point, axis));
  }
  if (num_missing == 0) return;
  if (num_missing == num_points)
    refuse_input(run.name, str("a logged number of ", name_of(axis), ", the horizontal axis of --x"), "none",
                 "set --x updates");
  log_warning(str(run.name, ": the plot leaves out the values of ", count_of(num_missing, "update"),
                  " for which the log has no number of ", name_of(axis)));
}

// Returns the chart of a quantity: a curve for each run and key.
Chart chart_of(const CurvesJob& job, const std::vector<RunCurves>& runs, const std::vector<std::string>& names,
               const std::string& quantity) {
  Chart chart{"", name_of(job.axis), quantity, {}};
  for (size_t i = 0; i < runs.size(); ++i)
    for (const std::string& key : io::keys_of_quantity(quantity)) {
      Curve curve{runs.size() > 1 ? str(names[i], ", ", key) : key, {}, {}};
      for (const io::LogPoint& point : runs[i].points) {
        const double* value = point.find(key);
        const double x = x_of(point, job.axis);
        if (value == nullptr || std::isnan(x)) continue;
        curve.x.push_back(x);
        curve.y.push_back(*value);
      }
      if (curve.x.empty()) continue;
      if (job.smoothing > 1 && io::is_smoothed(key))
        chart.title = str("training: mean of ", job.smoothing, " logged values");
      chart.curves.push_back(std::move(curve));
    }
  return chart;
}

void show_curves(const CurvesJob& job) {
  refuse_repeated_standard_input("curves", job.log_paths);
  if (job.plot_path.empty())
    refuse_options({job.fields->option("x")}, "--plot with this option", "no --plot", "add --plot FILE");
  if (job.plot_path == "-")
    refuse_options({job.format_option}, "a table with this option", "--plot -, which replaces the table");
  std::unique_ptr<Plot> plot;
  if (!job.plot_path.empty()) {
    refuse_output_onto_input(job.plot_path, job.log_paths);
    plot = std::make_unique<Plot>(job.plot_path);
  }
  std::vector<RunCurves> runs;
  for (const std::string& path : job.log_paths) {
    const std::string name = input_name(path);
    runs.push_back({name, io::read_curves(read_text_file(path), name)});
  }
  const std::vector<std::string> logged_keys = all_keys(runs);
  const std::vector<std::string> quantities = shown_quantities(job, logged_keys);
  std::vector<std::string> keys;
  for (const std::string& quantity : quantities)
    for (const std::string& key : io::keys_of_quantity(quantity))
      if (contains(logged_keys, key) && !contains(keys, key)) keys.push_back(key);
  if (std::ranges::none_of(keys, io::is_smoothed))
    refuse_options({job.fields->option("smooth")}, "a value of training other than lr with this option",
                   "only " + join(keys, ", "), "add such a value to --show");
  if (plot != nullptr)
    for (const RunCurves& run : runs) check_positions(run, keys, job.axis);
  for (RunCurves& run : runs) io::smooth(run.points, keys, job.smoothing);
  if (job.plot_path != "-") print_table(job, runs, keys);
  if (plot == nullptr) return;
  std::vector<std::string> names;
  for (const RunCurves& run : runs) names.push_back(run.name);
  names = short_names(names);
  for (const std::string& quantity : quantities) plot->add(chart_of(job, runs, names, quantity));
  plot->draw();
}

}  // namespace

void add_curves_subcommand(CLI::App& app, const std::shared_ptr<Arguments>& args, const SharedOptions& shared_options,
                           Jobs& jobs) {
  const auto job = std::make_shared<CurvesJob>();
  CLI::App* sub =
      app.add_subcommand("curves", "print and plot losses, scores and learning rates in the logs of training runs");
  sub->add_option("logs", job->log_paths, "log.jsonl files of run folders; - is standard input")
      ->required()
      ->type_name("LOG...");
  add_list(*sub, "--show", job->quantities,
           "logged values to show, such as loss, bleu or gradient_norm, each with its value in validations [loss, "
           "perplexity, scores of validations, lr]",
           "NAME,...");
  sub->add_option(
         "--plot", job->plot_path,
         "output file of a plot (.svg, .png or .pdf); - draws the plot in the terminal instead of printing the table")
      ->type_name("FILE");
  exclude(*sub, shared_options.scoring_options);
  exclude(*sub, shared_options.model_options);  // the subcommand runs no model
  job->format_option = shared_options.format;
  job->fields = add_job(jobs, sub, job, [=] {
    job->format = args->format;
    show_curves(*job);
  });
}

}  // namespace mh::eval
