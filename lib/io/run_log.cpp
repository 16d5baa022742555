#include "io/run_log.h"

#include "base/error.h"
#include "base/json_types.h"
#include "base/text.h"

namespace mh::io {

std::string rewound_log(const std::string& text, int64_t update, bool is_complete, const std::string& name) {
  std::string lines;
  for (const std::string& line : split(text, '\n')) {
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (!parsed.is_object()) continue;
    const auto number = parsed.find("update");
    if (number == parsed.end() || !number->is_number_integer())
      throw Error(Exit::input, Problem{name, "an integer \"update\" in each line", line, "delete the line"});
    // Lines with these keys are written after the update. Lines without them (start of the program, procedures) are
    // written before the next update and stay.
    bool is_written_after_checkpoint = parsed.contains("loss") || parsed.contains("returned_to");
    for (const auto& entry : parsed.items())
      is_written_after_checkpoint = is_written_after_checkpoint || entry.key().starts_with("valid_");
    if (*number < update || (*number == update && (is_complete || !is_written_after_checkpoint))) lines += line + "\n";
  }
  return lines;
}

}  // namespace mh::io
