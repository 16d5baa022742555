// Checkpoints (.safetensors) and plain safetensors files: header, metadata, origin, checksums and data of all tensors.
#include "io/checkpoint.h"

#include "base/error.h"
#include "base/json_types.h"
#include "fuzz/fuzz.h"
#include "io/origin.h"
#include "io/tensor_files.h"
#include "text/tokenizers.h"

using namespace mh;

namespace {

// Returns the bytes of a checkpoint with corrected checksums of header and tensors, since the reader refuses mutations
// with wrong checksums. Takes each checksum from the error message of the reader.
std::string correct_checksums(std::string bytes) {
  constexpr std::string_view kExpected = "the checksum ", kFound = "; found ";
  constexpr size_t kDigits = 16;
  constexpr int kMaxCorrections = 8;  // more than the 5 checksums of a corpus checkpoint: header and 4 tensors
  for (int i = 0; i < kMaxCorrections; ++i) {
    try {
      io::Checkpoint(fuzz::memory_file(bytes)).verify();
      break;
    } catch (const Error& error) {
      const std::string message = error.what();
      const size_t expected = message.find(kExpected), found = message.find(kFound, expected);
      if (expected == message.npos || found == message.npos) break;
      const size_t position = bytes.find(message.substr(expected + kExpected.size(), kDigits));
      if (position == bytes.npos) break;
      bytes.replace(position, kDigits, message, found + kFound.size(), kDigits);
    }
  }
  return bytes;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string& path = fuzz::memory_file(correct_checksums(std::string(fuzz::text_of(data, size))));
  bool has_valid_header = false;
  fuzz::check(size, fuzz::kBinaryFactor, [&] {
    const io::Checkpoint checkpoint(path);
    has_valid_header = true;
    checkpoint.verify();
    io::Metadata metadata = checkpoint.metadata();
    io::add_origin(metadata, path, {{"average", path}});
    if (metadata.count(io::kTokenizerKey) > 0) text::tokenizers_of(checkpoint);
  });
  if (!has_valid_header) return 0;  // open_safetensors() would refuse the same header
  fuzz::check(size, fuzz::kBinaryFactor, [&] {
    const auto tensors = io::open_safetensors(path);
    for (const io::TensorInfo& tensor : tensors->tensors()) tensors->read_bytes(tensor.name);
  });
  return 0;
}
