#include "io/run_log.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/json_types.h"

namespace mh::io {

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

}  // namespace mh::io
