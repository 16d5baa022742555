// Reads the named tensors of a model that another program saved, in one file or several: safetensors, or torch.save of
// PyTorch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace mh::io {

class TensorFile {
 public:
  virtual ~TensorFile() = default;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // Returns the bytes of a tensor of this file, row-major and little-endian: a range of the mapped file, or, if the
  // file does not store the elements in this order, a copy in `copied_bytes`. Throws Error(input) for damaged data.
  virtual std::span<const uint8_t> bytes(const std::string& name, std::vector<uint8_t>& copied_bytes) const = 0;
  // Releases the memory of the mapped bytes of a tensor, which the next call of bytes() reads from the file again.
  // Callers call this function after they have read the bytes. Throws Error(input) if another program has shortened the
  // file, so that the bytes may be wrong.
  virtual void finish(const std::string& name) const = 0;
  // Returns a copy of the bytes of a tensor. Throws Error(input) for damaged data.
  std::vector<uint8_t> read_bytes(const std::string& name) const;
};

// Opens a state dict that torch.save wrote in PyTorch 1.6 or later: a zip archive (zip.h) with a pickle (pickle.h).
// Throws Error(input) for other files, including files of earlier versions.
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
  // A tensor that is being read. Elements are numbered in row-major order.
  class Reader {
   public:
    Reader(Reader&&) = default;
    Reader(const Reader&) = delete;
    // Converts the elements first, …, first + count - 1 to fp32. Releases the mapped pages of a long range while it
    // converts them, so that only a block of the range is in memory.
    void read(int64_t first, int64_t count, float* out) const;
    // Ends the reading: TensorFile::finish().
    void finish() const;

   private:
    friend class TensorFiles;
    Reader() = default;
    const Entry* entry_ = nullptr;
    std::vector<uint8_t> copied_bytes_;
    std::span<const uint8_t> bytes_;
  };
  // Opens a tensor, whose name must exist. Throws Error(input) for a tensor of integers or booleans.
  Reader open(const std::string& name) const;
  // Returns the elements of a tensor, whose name must exist, as fp32. Throws Error(input) for a tensor of integers or
  // booleans.
  std::vector<float> read_fp32(const std::string& name) const;
  // Returns whether two tensors, whose names must exist, have the same shape and the same numbers. NaN equals NaN of
  // the same bits if both tensors have one type.
  bool are_equal(const std::string& name, const std::string& other_name) const;

 private:
  std::vector<std::unique_ptr<TensorFile>> files_;
  std::map<std::string, Entry> entries_;
};

// Opens the weights in a Hugging Face folder: the first that exists of model.safetensors, the files that
// model.safetensors.index.json lists, pytorch_model.bin, and the files that pytorch_model.bin.index.json lists. Throws
// Error(input) if none exists, or if an index lists a tensor that no file has.
TensorFiles open_model_files(const std::string& folder);

}  // namespace mh::io
