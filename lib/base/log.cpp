#include "base/log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "base/text.h"

namespace mh {

namespace {

LogLevel process_log_level = LogLevel::normal;
std::string tool_name = "mh";
int process_rank = 0;
std::mutex mutex;
bool is_progress_drawn = false;  // whether the terminal shows a progress line; a message erases it first

void print(const char* kind, const char* colour, const std::string& message) {
  std::lock_guard lock(mutex);
  std::string line;
  if (is_progress_drawn) line += "\r\033[K";
  is_progress_drawn = false;
  line += tool_name + ": ";
  if (process_rank > 0) line += "rank " + std::to_string(process_rank) + ": ";
  if (*kind != '\0') line += stderr_has_colour() ? std::string(colour) + kind + "\033[0m: " : std::string(kind) + ": ";
  line += escape_message(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void set_log_level(LogLevel level) { process_log_level = level; }
void set_log_name(const std::string& name) { tool_name = name; }
const std::string& log_name() { return tool_name; }
void set_log_rank(int rank) { process_rank = rank; }

void log_error(const std::string& message) { print("error", "\033[1;31m", message); }
void log_warning(const std::string& message) {
  if (process_rank == 0) print("warning", "\033[1;33m", message);
}
void log_info(const std::string& message) {
  if (process_rank == 0 && process_log_level != LogLevel::quiet) print("", "", message);
}
void log_detail(const std::string& message) {
  if (process_rank == 0 && process_log_level == LogLevel::verbose) print("", "", message);
}

bool stderr_is_terminal() {
  static const bool is_terminal = isatty(STDERR_FILENO) == 1;
  return is_terminal;
}

bool stderr_has_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return stderr_is_terminal() && (no_colour == nullptr || *no_colour == '\0') && term != nullptr &&
         std::string(term) != "dumb";
}

ProgressLine::ProgressLine(std::string label, int64_t total, std::string unit)
    : label_(std::move(label)),
      total_(total),
      unit_(std::move(unit)),
      is_enabled_(stderr_is_terminal() && process_rank == 0 && process_log_level != LogLevel::quiet),
      start_time_(std::chrono::steady_clock::now()) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::set_num_done_at_start(int64_t num_done_at_start) { num_done_at_start_ = num_done_at_start; }

void ProgressLine::update(int64_t num_done, const std::string& note) {
  if (!is_enabled_) return;
  auto now = std::chrono::steady_clock::now();
  if (has_drawn_ && now - last_draw_time_ < std::chrono::milliseconds(100) && num_done != total_) return;
  last_draw_time_ = now;
  has_drawn_ = true;
  double seconds = std::chrono::duration<double>(now - start_time_).count();
  std::string line = label_ + "  ";
  std::string suffix = note.empty() ? "" : "  " + escape_message(note);
  if (total_ > 0) {
    double fraction = std::clamp(static_cast<double>(num_done) / static_cast<double>(total_), 0.0, 1.0);
    char percent[8];
    std::snprintf(percent, sizeof percent, "%3.0f%%", 100 * fraction);
    const int width = 20;
    int num_filled = static_cast<int>(fraction * width);
    line += std::string(percent) + " [" + std::string(num_filled, '=') + (num_filled < width ? ">" : "") +
            std::string(std::max(0, width - num_filled - 1), ' ') + "] " + with_commas(num_done) + "/" +
            with_commas(total_) + " " + unit_;
    if (num_done > num_done_at_start_ && num_done < total_)
      suffix += "  left " + human_seconds(seconds * static_cast<double>(total_ - num_done) /
                                          static_cast<double>(num_done - num_done_at_start_));
  } else {
    line += with_commas(num_done) + " " + unit_ + "  " + human_seconds(seconds);
  }
  line += suffix;
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 && line.size() >= size.ws_col)
    line.resize(size.ws_col - 1);
  std::lock_guard lock(mutex);
  std::string out = "\r\033[K" + line;
  std::fwrite(out.data(), 1, out.size(), stderr);
  is_progress_drawn = true;
}

void ProgressLine::clear() {
  std::lock_guard lock(mutex);
  if (is_progress_drawn) std::fputs("\r\033[K", stderr);
  is_progress_drawn = false;
  has_drawn_ = false;
}

}  // namespace mh
