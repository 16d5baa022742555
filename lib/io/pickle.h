// Reads the pickle of a state dict written by torch.save, without executing anything. Python's pickle is a program for
// a stack machine; this reader knows only the instructions of such a file, and the Python names that it calls:
// collections.OrderedDict, torch._utils._rebuild_tensor_v2, torch._utils._rebuild_parameter and the classes of
// storages. Any other name is an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace mh::io {

// A tensor and the place of its elements: element (i, j, …) is element offset + i * strides[0] + j * strides[1] + … of
// the storage, which several tensors may share.
struct StoredTensor {
  TensorInfo info;
  std::string storage;       // key of the storage in the archive
  int64_t storage_size = 0;  // in elements
  int64_t offset = 0;
  std::vector<int64_t> strides;
};

// Returns the tensors of a dict from names to tensors, in its order, all within their storages. `name`: name of the
// file for messages. Throws Error(input), with the byte, for other contents, names and instructions.
std::vector<StoredTensor> read_state_dict(std::span<const uint8_t> pickle, const std::string& name);

// Advice for files that cannot be read.
constexpr const char* kSaveAsSafetensors =
    "save it as safetensors: model.save_pretrained(FOLDER, safe_serialization=True) of transformers in Python";

}  // namespace mh::io
