// Tensors that others saved, by name: safetensors and the files of torch.save, a model in one file or in several.
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
  // Row-major and little-endian, of a tensor that is there. Error(input) where the data are damaged.
  virtual std::vector<uint8_t> bytes(const std::string& name) const = 0;
};

// A state dict in the form of torch.save since PyTorch 1.6, a zip archive (zip.h, pickle.h). Error(input) for other
// files, the older form included.
std::unique_ptr<TensorFile> open_torch_file(const std::string& path);
std::unique_ptr<TensorFile> open_safetensors(const std::string& path);

class TensorFiles {
 public:
  // Error(input) for a tensor that another file has.
  void add(const std::string& path, std::unique_ptr<TensorFile> file);
  struct Entry {
    TensorInfo info;
    const TensorFile* file;
    std::string path;
  };
  const std::map<std::string, Entry>& all() const { return entries_; }
  const Entry* find(const std::string& name) const;
  // As single precision, of a tensor that is there; Error(input) for one that holds no fractions.
  std::vector<float> floats(const std::string& name) const;

 private:
  std::vector<std::unique_ptr<TensorFile>> files_;
  std::map<std::string, Entry> entries_;
};

// The model of a folder in the form of Hugging Face: model.safetensors, or pytorch_model.bin, or the files that
// either's index names (model.safetensors.index.json); the first of these that is there. Error(input) where none is,
// and where an index names a tensor that no file has.
TensorFiles open_model_files(const std::string& folder);

}  // namespace mh::io
