#include "io/run_log.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"

namespace mh::io {

namespace {

constexpr const char* kCurveAdvice = "delete the line, or resume the run, which drops a truncated last line";

// Collects the points of the curves from the lines of a log.
class CurveReader {
 public:
  explicit CurveReader(std::string name) : name_(std::move(name)) {}

  // Adds a line, without its line feed. `line_number`: from 1.
  void add(std::string_view line, int64_t line_number) {
    const std::string location = str(name_, ":", line_number);
    if (line.size() > kMaxUncheckedJsonBytes)
      refuse_input(location, str("a line of at most ", kMaxUncheckedJsonBytes, " bytes"), str(line.size()),
                   "delete the line");
    const auto log_entry = parse_json_object<nlohmann::ordered_json>(line, location, kCurveAdvice);
    const auto update = log_entry.find("update");
    if (update == log_entry.end() || !update->is_number_unsigned() ||
        update->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
      refuse_input(location, "the number of completed updates, the key \"update\"",
                   update == log_entry.end() ? "none" : quote_start(update->dump()), "delete the line");
    if (log_entry.contains("started")) {
      if (const auto length = log_entry.find("updates_per_epoch"); length != log_entry.end() && length->is_number())
        updates_per_epoch_ = length->get<double>();
    } else if (!log_entry.contains("returned_to")) {
      add_values(log_entry, update->get<int64_t>(), location);
    }
  }

  // Returns the points, with interpolated numbers of tokens.
  std::vector<LogPoint> take_points() {
    if (points_.empty())
      refuse_input(name_, "a loss, a score or another logged value", "no line with a value",
                   "name the log of a run that has completed an update");
    // Update and tokens of the last point with a number of tokens. `first`: index of the first point after it.
    double last_update = 0, last_tokens = 0;
    size_t first = 0;
    for (size_t i = 0; i < points_.size(); ++i) {
      if (std::isnan(points_[i].tokens)) continue;
      const double update = static_cast<double>(points_[i].update), tokens = points_[i].tokens;
      for (; first < i; ++first)
        points_[first].tokens = last_tokens + (tokens - last_tokens) *
                                                  (static_cast<double>(points_[first].update) - last_update) /
                                                  (update - last_update);
      last_update = update, last_tokens = tokens, first = i + 1;
    }
    return std::move(points_);
  }

 private:
  // Adds the numbers of a line about training or validation to the point of their update.
  void add_values(const nlohmann::ordered_json& log_entry, int64_t update, const std::string& location) {
    std::vector<std::pair<std::string, double>> values;
    double epoch = NAN, tokens = NAN;
    for (const auto& entry : log_entry.items()) {
      const nlohmann::ordered_json& value = entry.value();
      if (entry.key() == "update" || value.is_boolean() || value.is_array() || value.is_object()) continue;
      if (value.is_string())
        refuse_input(location, str("a number for ", quote_start(entry.key())), quote_start(value.dump()),
                     "delete the line");
      const double number = value.is_null() ? NAN : value.get<double>();
      if (entry.key() == "epoch") epoch = number;
      else if (entry.key() == "tokens") tokens = number;
      else values.emplace_back(entry.key(), number);
    }
    if (values.empty()) return;
    if (!points_.empty() && update < points_.back().update)
      refuse_input(location, str("an update of at least ", points_.back().update, ", as in the line before"),
                   str(update), "name the log of one run");
    if (points_.empty() || points_.back().update != update)
      points_.push_back(
          {update, updates_per_epoch_ > 0 ? static_cast<double>(update) / updates_per_epoch_ : NAN, NAN, {}});
    LogPoint& point = points_.back();
    if (!std::isnan(epoch)) point.epoch = epoch;
    if (!std::isnan(tokens)) point.tokens = tokens;
    point.values.insert(point.values.end(), values.begin(), values.end());
  }

  std::string name_;
  double updates_per_epoch_ = 0;  // 0: unknown
  std::vector<LogPoint> points_;
};

}  // namespace

std::string rewind_log(const std::string& text, int64_t update, bool is_update_complete, const std::string& name) {
  std::string lines;
  for (std::string_view remaining_text = text; !remaining_text.empty();) {
    const std::string_view line = remaining_text.substr(0, remaining_text.find('\n'));
    remaining_text.remove_prefix(std::min(line.size() + 1, remaining_text.size()));
    if (line.size() > kMaxUncheckedJsonBytes)
      refuse_input(name, str("lines of at most ", kMaxUncheckedJsonBytes, " bytes"),
                   str("a line of ", line.size(), " bytes"), "delete the line");
    const auto log_entry = nlohmann::json::parse(line, nullptr, false);
    if (!log_entry.is_object()) continue;
    const auto line_update = log_entry.find("update");
    if (line_update == log_entry.end() || !line_update->is_number_integer())
      refuse_input(name, "an integer \"update\" in each line", std::string(line), "delete the line");
    // Lines with the keys `loss`, `valid_…` or `returned_to` report the loss, the validation or the return to the best
    // weights after an update. After an incomplete checkpoint, the resumed run writes these lines again. Lines with
    // other keys (start of the program, procedures) stay.
    bool reports_work_after_update = log_entry.contains("loss") || log_entry.contains("returned_to");
    for (const auto& entry : log_entry.items())
      reports_work_after_update = reports_work_after_update || entry.key().starts_with("valid_");
    if (*line_update < update || (*line_update == update && (is_update_complete || !reports_work_after_update)))
      lines.append(line) += '\n';
  }
  return lines;
}

const double* LogPoint::find(const std::string& key) const {
  const auto entry = std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == key; });
  return entry == values.end() ? nullptr : &entry->second;
}

std::vector<LogPoint> read_curves(const std::string& text, const std::string& name) {
  CurveReader reader(name);
  int64_t line_number = 0;
  for (std::string_view remaining_text = text; !remaining_text.empty();) {
    const size_t line_end = remaining_text.find('\n');
    const std::string_view line = remaining_text.substr(0, line_end);
    ++line_number;
    if (line_end == std::string_view::npos && line.size() <= kMaxUncheckedJsonBytes && !nlohmann::json::accept(line)) {
      log_warning(str(name, ":", line_number, ": the last line is truncated and is left out"));
      break;
    }
    reader.add(line, line_number);
    remaining_text.remove_prefix(std::min(line.size() + 1, remaining_text.size()));
  }
  return reader.take_points();
}

}  // namespace mh::io
