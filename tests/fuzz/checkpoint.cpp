// Checkpoints (.safetensors) and plain safetensors files: header, metadata, checksums and data of all tensors.
#include "io/checkpoint.h"

#include "fuzz/fuzz.h"
#include "io/tensor_files.h"
#include "text/tokenizers.h"

using namespace mh;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string& path = fuzz::memory_file(fuzz::text_of(data, size));
  bool has_valid_header = false;
  fuzz::check(size, fuzz::kBinaryFactor, [&] {
    const io::Checkpoint checkpoint(path);
    has_valid_header = true;
    checkpoint.verify();
    if (checkpoint.metadata().count(io::kTokenizerKey) > 0) text::tokenizers_of(checkpoint);
  });
  if (!has_valid_header) return 0;  // the next reader reads the header with the same class
  fuzz::check(size, fuzz::kBinaryFactor, [&] {
    const auto tensors = io::open_safetensors(path);
    for (const io::TensorInfo& info : tensors->tensors()) tensors->bytes(info.name);
  });
  return 0;
}
