// Log messages on stderr, with levels, and a progress line if stderr is a terminal. Results of tools are never written
// by these functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace mh {

enum class LogLevel { quiet, normal, verbose };

// Sets the log level of the process, as Tool::run() does for --quiet and --verbose.
void set_log_level(LogLevel level);
// Sets the name of the tool, such as "mh-prep", with which each message starts.
void set_log_name(const std::string& name);
const std::string& log_name();
// Sets the rank of this process in its job. Rank 0, the default, logs as a single process does. Any other rank only
// logs errors, which name the rank, and draws no progress line, since the messages of all ranks are alike.
void set_log_rank(int rank);

// A message is one line: control characters and line feeds in it are escaped.
void log_error(const std::string& message);    // shown at every level
void log_warning(const std::string& message);  // shown at every level, by rank 0
void log_info(const std::string& message);     // hidden by --quiet
void log_detail(const std::string& message);   // shown only with --verbose

bool stderr_is_terminal();
// Returns whether messages are coloured: stderr is a terminal, NO_COLOR is unset or empty, and TERM is set and is not
// "dumb".
bool stderr_has_colour();

// A progress line on stderr, rewritten in place:
//   train  45% [=====>    ] 1,350/3,000 updates  loss 5.123  2,650 tok/s  left 3m10s
// Draws at most ten times a second, except for the final count and the first count after clear(). Draws nothing with
// --quiet, if stderr is not a terminal, or in a process with a rank other than 0.
class ProgressLine {
 public:
  // `total`: number of units at the end. If it is 0 or less, the total is unknown, and the line shows the elapsed time
  // instead of the remaining time.
  ProgressLine(std::string label, int64_t total, std::string unit);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Draws the line. `num_done`: number of units so far; `note`: text after the count, such as the loss.
  void update(int64_t num_done, const std::string& note = "");
  // Sets the number of units done before this process started, so that the remaining time of a resumed run is estimated
  // from the speed of this process.
  void set_num_done_at_start(int64_t num_done_at_start);
  // Erases the line, so that the terminal can show text in its place; the next update() draws the line.
  void clear();

 private:
  std::string label_;
  int64_t total_;
  std::string unit_;
  int64_t num_done_at_start_ = 0;
  bool has_drawn_ = false;  // update() has drawn the line since the last clear()
  bool is_enabled_;         // stderr is a terminal, the process has rank 0, and the log level is not quiet
  std::chrono::steady_clock::time_point start_time_;
  std::chrono::steady_clock::time_point last_draw_time_;
};

}  // namespace mh
