#include "io/origin.h"

#include "base/error.h"
#include "base/json.h"
#include "base/json_types.h"

namespace mh::io {

void add_origin(Metadata& metadata, const std::string& file, const nlohmann::ordered_json& step) {
  std::string& text = metadata[kOriginKey];
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  if (!text.empty()) {
    require_sound_json(text, file + ": " + kOriginKey, "use another checkpoint");
    steps = nlohmann::ordered_json::parse(text, nullptr, false);
  }
  if (!steps.is_array())
    refuse_input(file + ": " + kOriginKey, "a JSON array",
                 steps.is_discarded() ? std::string("text that is not JSON") : str("a JSON ", steps.type_name()),
                 "use another checkpoint");
  steps.push_back(step);
  text = steps.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string last_origin_text(const Metadata& metadata, const std::string& key) {
  const auto entry = metadata.find(kOriginKey);
  if (entry == metadata.end() || entry->second.size() > kMaxUncheckedJsonBytes ||
      json_depth(entry->second) > kMaxJsonDepth)
    return "";
  const auto steps = nlohmann::ordered_json::parse(entry->second, nullptr, false);
  std::string text;
  if (!steps.is_array()) return text;
  for (const auto& step : steps)
    if (step.is_object() && step.contains(key) && step.at(key).is_string()) text = step.at(key).get<std::string>();
  return text;
}

}  // namespace mh::io
