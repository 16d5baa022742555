#include "io/run_log.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/json_types.h"

namespace mh::io {

namespace {

// Maximum size of a line, bytes. A JSON value takes up to 40 times the size of its text in memory.
constexpr size_t kMaxLineBytes = size_t{1} << 20;

}  // namespace

std::string rewound_log(const std::string& text, int64_t update, bool is_complete, const std::string& name) {
  std::string lines;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.size() > kMaxLineBytes)
      throw Error(Exit::input, Problem{name, str("lines of at most ", kMaxLineBytes, " bytes"), str(line.size()),
                                       "delete the line"});
    const auto log_entry = nlohmann::json::parse(line, nullptr, false);
    if (!log_entry.is_object()) continue;
    const auto line_update = log_entry.find("update");
    if (line_update == log_entry.end() || !line_update->is_number_integer())
      throw Error(Exit::input,
                  Problem{name, "an integer \"update\" in each line", std::string(line), "delete the line"});
    // Lines with the keys loss, returned_to or valid_… report the work after an update, which an incomplete checkpoint
    // leaves to the resumed run. Other lines (start of the program, procedures) stay.
    bool reports_work_after_update = log_entry.contains("loss") || log_entry.contains("returned_to");
    for (const auto& entry : log_entry.items())
      reports_work_after_update = reports_work_after_update || entry.key().starts_with("valid_");
    if (*line_update < update || (*line_update == update && (is_complete || !reports_work_after_update)))
      lines.append(line) += '\n';
  }
  return lines;
}

}  // namespace mh::io
