#include "train/procedures/procedure_states.h"

#include "base/error.h"
#include "base/json.h"
#include "base/json_integer.h"
#include "base/json_types.h"

namespace mh::train {

namespace {

constexpr const char* kAdvice = "resume from an unmodified training state";

std::string where_of(const char* procedure) { return str("the state of ", procedure, " in last.safetensors"); }

[[noreturn]] void refuse(const char* procedure, const std::string& found) {
  refuse_input(where_of(procedure), str("the JSON object that ", procedure, " writes"), found, kAdvice);
}

// Parses the JSON text and returns parse(value). Throws Error(input) if the text is not JSON, or if `parse` throws.
template <class Parse>
auto parse_state(const char* procedure, const std::string& json, const Parse& parse) {
  require_sound_json(json, where_of(procedure), kAdvice);
  try {
    return parse(nlohmann::json::parse(json));
  } catch (const nlohmann::json::exception& error) {
    refuse(procedure, json_error_text(error.what()));
  } catch (const Error& error) {  // thrown by parse_pair()
    refuse_input(where_of(procedure), error.problem().expected, error.problem().found, kAdvice);
  }
}

std::vector<analysis::HeadPair> pairs_of(const nlohmann::json& texts) {
  std::vector<analysis::HeadPair> pairs;
  for (const auto& text : texts)
    pairs.push_back(analysis::parse_pair(text.get<std::string>(), "train.procedures.head-rotation"));
  return pairs;
}

}  // namespace

std::string to_json(const SkipRetainState& state) { return nlohmann::json{{"stalled", state.has_stalled}}.dump(); }

std::string to_json(const HeadRotationState& state) {
  return nlohmann::json{{"begun", state.last_begun_epoch},
                        {"swapped_at", state.swap_epoch},
                        {"active", analysis::to_strings(state.swapped_pairs)},
                        {"planned", analysis::to_strings(state.next_pairs)}}
      .dump();
}

SkipRetainState parse_skip_retain_state(const std::string& json) {
  return parse_state("skip-retain", json,
                     [](const nlohmann::json& value) { return SkipRetainState{value.value("stalled", false)}; });
}

HeadRotationState parse_head_rotation_state(const std::string& json) {
  return parse_state("head-rotation", json, [](const nlohmann::json& value) {
    return HeadRotationState{integer_of<int64_t>(value.at("begun")), integer_of<int64_t>(value.at("swapped_at")),
                             pairs_of(value.at("active")), pairs_of(value.at("planned"))};
  });
}

}  // namespace mh::train
