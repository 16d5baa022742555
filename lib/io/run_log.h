// Reads log.jsonl of a run folder: the lines that a resumed run keeps, and the logged values as curves.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mh::io {

// Returns the lines of the log `text` that a run keeps when it resumes from the checkpoint after update number
// `update`. Drops the lines of later updates, which the run writes again, and lines that are not JSON objects, such as
// a truncated last line. `is_update_complete`: whether the run had finished the validation and the log of `update` when
// it saved the checkpoint (TrainState::is_complete); if false, also drops the lines about the loss, the validation and
// the return to the best weights after `update`, which the resumed run writes again. Throws Error(input), with the file
// `name`, for an object without the number of an update, and for a line of more than 1 MiB.
std::string rewind_log(const std::string& text, int64_t update, bool is_update_complete, const std::string& name);

// The values that a log has after an update.
struct LogPoint {
  int64_t update = 0;  // number of completed updates
  double epoch = 0;    // completed epochs; NaN: unknown
  // Targets since the start of the run. Between two lines with a number of targets, such as at a validation, linearly
  // interpolated; NaN: unknown, after the last such line.
  double tokens = 0;
  std::vector<std::pair<std::string, double>> values;  // by key, in the order of the log; NaN: null in the log
  // Returns the value of a key; null: the log has none after this update.
  const double* find(const std::string& key) const;
};

// Returns the values of training and validation in the log `text`, a point for each update that has any, in the order
// of the log. Leaves out the lines about starts of the program, procedures and returns to earlier weights, and values
// other than numbers: lists, objects and true/false. Warns about a last line that is truncated, such as after a full
// disk, and leaves it out. Throws Error(input), with `name` and the number of the line, for a line that is not a JSON
// object, or has no update or a text in place of a number; with `name` for a log without values.
std::vector<LogPoint> read_curves(const std::string& text, const std::string& name);

}  // namespace mh::io
