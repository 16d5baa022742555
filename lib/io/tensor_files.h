// Named tensors saved by other programs: safetensors and the files of torch.save, one file or several.
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
  // Returns the bytes of an existing tensor, row-major and little-endian. Throws Error(input) for damaged data.
  virtual std::vector<uint8_t> bytes(const std::string& name) const = 0;
};

// Opens a state dict in the form of torch.save since PyTorch 1.6, a zip archive (zip.h, pickle.h). Throws Error(input)
// for other files, including the older form.
std::unique_ptr<TensorFile> open_torch_file(const std::string& path);
std::unique_ptr<TensorFile> open_safetensors(const std::string& path);

class TensorFiles {
 public:
  // Adds a file. Throws Error(input) for a tensor that another file has.
  void add(const std::string& path, std::unique_ptr<TensorFile> file);
  struct Entry {
    TensorInfo info;
    const TensorFile* file;
    std::string path;
  };
  const std::map<std::string, Entry>& all() const { return entries_; }
  const Entry* find(const std::string& name) const;
  // Returns an existing tensor in single precision. Throws Error(input) for a tensor of integers.
  std::vector<float> floats(const std::string& name) const;

 private:
  std::vector<std::unique_ptr<TensorFile>> files_;
  std::map<std::string, Entry> entries_;
};

// Opens the model of a folder of Hugging Face: the first that exists of model.safetensors, pytorch_model.bin, and the
// files listed by either's index (model.safetensors.index.json). Throws Error(input) if none exists, and if an index
// lists a tensor that no file has.
TensorFiles open_model_files(const std::string& folder);

}  // namespace mh::io
