// The index of a model in several files, model.safetensors.index.json, in a folder without these files.
#include "fuzz/fuzz.h"
#include "io/tensor_files.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static constexpr const char* kNames[] = {"model.safetensors.index.json"};
  const std::string texts[] = {std::string(fuzz::text_of(data, size))};
  const std::string& folder = fuzz::memory_folder(kNames, texts);
  fuzz::check(size, fuzz::kTextFactor, [&] { mh::io::open_model_files(folder); });
  return 0;
}
