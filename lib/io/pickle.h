// What torch.save pickles of a state dict, read without executing anything: Python's pickle is a program for a machine
// with a stack, of which only the instructions are known here that such a file has, and only the names of Python's that
// it calls: collections.OrderedDict, torch._utils._rebuild_tensor_v2, torch._utils._rebuild_parameter and the classes
// of storages. Anything else is refused by its name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace mh::io {

// A tensor and where its numbers are: number (i, j, …) is number offset + i * strides[0] + j * strides[1] + … of the
// storage, which several tensors may share.
struct StoredTensor {
  TensorInfo info;
  std::string storage;       // its key in the archive
  int64_t storage_size = 0;  // in numbers
  int64_t offset = 0;
  std::vector<int64_t> strides;
};

// The tensors of a dict from names to tensors, in its order, none of which reaches beyond its storage. `name` stands in
// messages. Error(input), with the byte, for other contents, names and instructions.
std::vector<StoredTensor> read_state_dict(std::span<const uint8_t> pickle, const std::string& name);

// What to do about a file that is not read.
constexpr const char* kSaveAsSafetensors =
    "save it as safetensors: model.save_pretrained(FOLDER, safe_serialization=True) of transformers in Python";

}  // namespace mh::io
