// Checkpoints (.safetensors) and plain safetensors files: header, metadata, checksums and data of all tensors.
#include "io/checkpoint.h"

#include "fuzz/fuzz.h"
#include "io/tensor_files.h"
#include "text/tokenizers.h"

using namespace mh;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::check(size, fuzz::kBinaryFactor, [&] {
    const io::Checkpoint checkpoint(file.path());
    checkpoint.verify();
    if (checkpoint.metadata().count(io::kTokenizerKey) > 0) text::tokenizers_of(checkpoint);
  });
  fuzz::check(size, fuzz::kBinaryFactor, [&] {
    const auto tensors = io::open_safetensors(file.path());
    for (const io::TensorInfo& info : tensors->tensors()) tensors->bytes(info.name);
  });
  return 0;
}
