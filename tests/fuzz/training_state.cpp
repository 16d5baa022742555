// The JSON entry of a training state in last.safetensors.
#include "fuzz/fuzz.h"
#include "train/train_state.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::check(size, fuzz::kTextFactor,
              [&] { mh::train::parse_train_state(std::string(fuzz::text_of(data, size)), "last.safetensors"); });
  return 0;
}
