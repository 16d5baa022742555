// Reads the named tensors of a model that another program saved, in one file or several: safetensors, or torch.save of
// PyTorch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace mh::io {

class TensorFile {
 public:
  virtual ~TensorFile() = default;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // Returns the bytes of a tensor of this file, row-major and little-endian. Throws Error(input) for damaged data.
  virtual std::vector<uint8_t> read_bytes(const std::string& name) const = 0;
};

// Opens a state dict that torch.save wrote in PyTorch 1.6 or later: a zip archive (zip.h) with a pickle (pickle.h).
// Throws Error(input) for other files, including those of earlier versions.
std::unique_ptr<TensorFile> open_torch_file(const std::string& path);
// Opens a safetensors file. Throws Error(input) for other files.
std::unique_ptr<TensorFile> open_safetensors(const std::string& path);

// The tensors of several files, by name.
class TensorFiles {
 public:
  // Adds a file with all its tensors. Throws Error(input) if an earlier file has a tensor of the same name.
  void add(const std::string& path, std::unique_ptr<TensorFile> file);
  struct Entry {
    TensorInfo info;
    const TensorFile* file;
    std::string path;
  };
  const std::map<std::string, Entry>& entries() const { return entries_; }
  // Returns null if no file has a tensor of this name.
  const Entry* find(const std::string& name) const;
  // Returns the elements of a tensor, whose name must exist, as fp32 in row-major order. Throws Error(input) for a
  // tensor of integers or booleans.
  std::vector<float> read_fp32(const std::string& name) const;

 private:
  std::vector<std::unique_ptr<TensorFile>> files_;
  std::map<std::string, Entry> entries_;
};

// Opens the weights in a Hugging Face folder: the first that exists of model.safetensors, the files that
// model.safetensors.index.json lists, pytorch_model.bin, and the files that pytorch_model.bin.index.json lists. Throws
// Error(input) if none exists, or if an index lists a tensor that no file has.
TensorFiles open_model_files(const std::string& folder);

}  // namespace mh::io
