// Reads the pickle of a state dict written by torch.save, without executing Python code. A pickle is a program for a
// stack machine; this reader supports only the opcodes that torch.save writes for a state dict, and the Python names
// that such a pickle calls: collections.OrderedDict, torch._utils._rebuild_tensor_v2, torch._utils._rebuild_parameter
// and the storage classes. Any other name is an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace mh::io {

// A tensor as a strided view of a storage: element (i, j, …) is element number offset + i * strides[0] + j * strides[1]
// + … of the storage. Several tensors may share a storage.
struct StoredTensor {
  TensorInfo info;
  std::string storage_key;       // key of the storage in the archive
  int64_t storage_size = 0;      // in elements
  int64_t offset = 0;            // in elements
  std::vector<int64_t> strides;  // in elements
};

// Returns the tensors of a pickled dict from names to tensors, in the order of the dict. All tensors lie within their
// storages. `name`: name of the file for messages. Throws Error(input) with the byte offset for a damaged
// pickle, for unsupported values, Python names and opcodes, and for values that take too much memory.
std::vector<StoredTensor> read_state_dict(std::span<const uint8_t> pickle, const std::string& name);

// Advice in errors for files that this reader does not support.
constexpr const char* kSafetensorsAdvice =
    "save the model as safetensors: model.save_pretrained(FOLDER, safe_serialization=True) of transformers in Python";

}  // namespace mh::io
