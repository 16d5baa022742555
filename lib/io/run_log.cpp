#include "io/run_log.h"

#include "base/error.h"
#include "base/json_types.h"
#include "base/text.h"

namespace mh::io {

std::string rewound_log(const std::string& text, int64_t update, bool is_complete, const std::string& name) {
  std::string lines;
  for (const std::string& line : split(text, '\n')) {
    const auto log_entry = nlohmann::json::parse(line, nullptr, false);
    if (!log_entry.is_object()) continue;
    const auto line_update = log_entry.find("update");
    if (line_update == log_entry.end() || !line_update->is_number_integer())
      throw Error(Exit::input, Problem{name, "an integer \"update\" in each line", line, "delete the line"});
    // Lines with the keys loss, returned_to or valid_… report the work after an update, which an incomplete checkpoint
    // leaves to the resumed run. Other lines (start of the program, procedures) stay.
    bool reports_work_after_update = log_entry.contains("loss") || log_entry.contains("returned_to");
    for (const auto& entry : log_entry.items())
      reports_work_after_update = reports_work_after_update || entry.key().starts_with("valid_");
    if (*line_update < update || (*line_update == update && (is_complete || !reports_work_after_update)))
      lines += line + "\n";
  }
  return lines;
}

}  // namespace mh::io
