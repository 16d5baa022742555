// Messages on stderr with a level, and a progress line if stderr is a terminal. Data never go through here.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace mh {

enum class LogLevel { quiet, normal, verbose };

// Sets the level of the process; called once by the tool's main for --quiet and -v.
void set_log_level(LogLevel level);
LogLevel log_level();
// Sets the name before each message ("mh-prep").
void set_log_name(const std::string& name);
const std::string& log_name();

void log_error(const std::string& message);    // always shown
void log_warning(const std::string& message);  // always shown
void log_info(const std::string& message);     // not with --quiet
void log_detail(const std::string& message);   // only with -v

// Return whether stderr is a terminal, and whether colours are wanted there (a terminal, NO_COLOR unset or empty, TERM
// not dumb).
bool stderr_is_terminal();
bool stderr_has_colour();

// A progress line, rewritten in place: "train  45% [=====>    ] 1,350/3,000 updates  loss 5.123  2,650 tok/s  left
// 3m10s". Draws at most ten times a second, and nothing with --quiet or if stderr is no terminal.
class Progress {
 public:
  // total <= 0: unknown, only counts are shown.
  Progress(std::string label, int64_t total, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` units so far; `note` is free text after the count. The first call sets the start, so that a resumed run
  // estimates the time left from its own speed.
  void update(int64_t done, const std::string& note = "");
  void set_start(int64_t start);
  // Erases the line, so that ordinary messages can be printed; the next update draws it again.
  void clear();

 private:
  std::string label_;
  int64_t total_;
  std::string unit_;
  int64_t start_ = 0;
  bool drawn_ = false;
  bool active_;
  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace mh
