// Checkpoints (.safetensors): named tensors with a header of text entries, described byte by byte in mh-checkpoint(5).
// The format is that of Python's `safetensors`; our entries are in its metadata. Independent of the tensor library:
// data are bytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace mh::io {

enum class DType { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };
const char* name_of(DType type);  // "F32", as the format writes it
size_t bytes_of(DType type);

struct TensorInfo {
  std::string name;
  DType type = DType::f32;
  std::vector<int64_t> shape;
  uint64_t bytes() const;  // throws std::overflow_error beyond 2^63
};

// A tensor to write: contiguous, row-major, little-endian; the data must exist until write_checkpoint() returns.
struct TensorView {
  TensorInfo info;
  const void* data = nullptr;
};

using Metadata = std::map<std::string, std::string>;  // text entries; ours start with "multihead."

inline constexpr uint64_t kLargestHeader = 100'000'000;  // bytes; limit of the format

// Metadata keys.
inline constexpr const char* kFormatKey = "multihead.format";           // "1"
inline constexpr const char* kConfigKey = "multihead.config";           // resolved configuration, TOML
inline constexpr const char* kTokenizerKey = "multihead.tokenizer";     // serialised, base64
inline constexpr const char* kFingerprintKey = "multihead.vocabulary";  // fingerprint of the tokenizer
// The same for the source, if it has a vocabulary of its own.
inline constexpr const char* kSourceTokenizerKey = "multihead.source_tokenizer";
inline constexpr const char* kSourceFingerprintKey = "multihead.source_vocabulary";
inline constexpr const char* kTrainingKey =
    "multihead.training";                                      // JSON: progress of training; only in training states
inline constexpr const char* kOriginKey = "multihead.origin";  // JSON: inputs of mh-convert
inline constexpr const char* kSumsKey =
    "multihead.xxh64";  // JSON: checksums by tensor and of the header, added by the writer

// Writes a checkpoint in one pass, tensors in the given order; does not close the sink.
void write_checkpoint(ByteSink& sink, const std::vector<TensorView>& tensors, Metadata metadata);

// A checkpoint to read: a mapped file, or a pipe for "-", held in memory up to the size in its header. The constructor
// checks the whole header and its checksum; the first access to a tensor checks the tensor's checksum. Throws
// Error(input) with the place of any fault. Files without our entries are read as plain tensors; files with some must
// have the checksums.
class Checkpoint {
 public:
  explicit Checkpoint(const std::string& path);
  ~Checkpoint();
  const std::string& name() const { return name_; }
  const std::vector<TensorInfo>& tensors() const { return infos_; }
  const TensorInfo* find(const std::string& name) const;
  // Returns the data of a tensor, valid as long as this object; alignment to the type is not guaranteed.
  const void* data(const std::string& name) const;
  const Metadata& metadata() const { return metadata_; }
  // Returns the entry; throws Error(input) naming the missing entry and the tools that write it.
  const std::string& entry(const char* key) const;
  void verify() const;

 private:
  struct Header;
  Error bad(const std::string& place, const std::string& expected, const std::string& found) const;
  Header read_header() const;
  void parse(const Header& header);
  std::string name_;
  std::unique_ptr<MappedFile> file_;
  std::string piped_;
  const uint8_t* bytes_ = nullptr;
  uint64_t size_ = 0;
  std::vector<TensorInfo> infos_;
  std::map<std::string, std::pair<size_t, uint64_t>> places_;  // index in infos_, offset in the file
  std::map<std::string, std::string> sums_;
  mutable std::map<std::string, bool> checked_;
  Metadata metadata_;
};

std::string base64(const std::string& bytes);
std::string from_base64(const std::string& text);  // throws std::invalid_argument

}  // namespace mh::io
