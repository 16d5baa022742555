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

}  // namespace mh::io
