// The JSON entry of a training state in last.safetensors, and the states of procedures in it, which are JSON texts of
// their own.
#include "base/error.h"
#include "fuzz/fuzz.h"
#include "train/procedures/procedure_states.h"
#include "train/train_state.h"

using namespace mh::train;

namespace {

void check_procedure_state(const std::string& text) {
  fuzz::check(text.size(), fuzz::kTextFactor, [&] { to_json(parse_skip_retain_state(text)); });
  fuzz::check(text.size(), fuzz::kTextFactor, [&] { to_json(parse_head_rotation_state(text)); });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::text_of(data, size));
  std::map<std::string, std::string> procedure_states;
  fuzz::check(size, fuzz::kTextFactor,
              [&] { procedure_states = parse_train_state(text, "last.safetensors").procedure_states; });
  for (const auto& [name, state] : procedure_states) check_procedure_state(state);
  check_procedure_state(text);
  return 0;
}
