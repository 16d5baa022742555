// The index of a model in several files, model.safetensors.index.json, in a folder without these files.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fuzz/fuzz.h"
#include "io/tensor_files.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string folder = "/dev/shm/multihead-fuzz-" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/model.safetensors.index.json", std::ios::binary) << fuzz::text_of(data, size);
  fuzz::check(size, fuzz::kTextFactor, [&] { mh::io::open_model_files(folder); });
  std::filesystem::remove_all(folder);
  return 0;
}
