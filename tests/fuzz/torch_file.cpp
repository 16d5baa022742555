// Files of torch.save: the zip archive, its pickle, and the bytes of all tensors.
#include "fuzz/fuzz.h"
#include "io/tensor_files.h"

using namespace mh;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string& path = fuzz::memory_file(fuzz::text_of(data, size));
  fuzz::check(size, fuzz::kBinaryFactor, [&] {
    const auto tensors = io::open_torch_file(path);
    for (const io::TensorInfo& tensor : tensors->tensors()) tensors->read_bytes(tensor.name);
  });
  return 0;
}
