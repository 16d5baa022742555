// Checkpoints (.safetensors): named tensors with a header of text entries, byte by byte in mhc(5). The format is the
// one that Python's `safetensors` reads; what is ours stands in its metadata. Knows no tensor library: data are bytes.
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

// A tensor to write: contiguous, row-major, little-endian; the data must stay until write_checkpoint returns.
struct TensorView {
  TensorInfo info;
  const void* data = nullptr;
};

using Metadata = std::map<std::string, std::string>;  // text entries; ours start with "multihead."

inline constexpr uint64_t kLargestHeader = 100'000'000;  // bytes, the format's own bound

// Metadata keys.
inline constexpr const char* kFormatKey = "multihead.format";           // "1"
inline constexpr const char* kConfigKey = "multihead.config";           // resolved configuration, TOML
inline constexpr const char* kTokenizerKey = "multihead.tokenizer";     // serialised, base64
inline constexpr const char* kFingerprintKey = "multihead.vocabulary";  // fingerprint of the tokenizer
// The same of what is read in front, where that has a vocabulary of its own.
inline constexpr const char* kSourceTokenizerKey = "multihead.source_tokenizer";
inline constexpr const char* kSourceFingerprintKey = "multihead.source_vocabulary";
inline constexpr const char* kTrainingKey =
    "multihead.training";                                      // JSON: where a training stands; training states only
inline constexpr const char* kOriginKey = "multihead.origin";  // JSON: what mh-convert made it of
inline constexpr const char* kSumsKey =
    "multihead.xxh64";  // JSON: checksums by tensor and of the header, added by the writer

// Writes everything in one pass, tensors in the order given; does not close the sink.
void write_checkpoint(ByteSink& sink, const std::vector<TensorView>& tensors, Metadata metadata);

// A checkpoint to read: a file (mapped), or a pipe for "-" (held in memory, no more than its header announces). The
// header is checked as a whole at once, its checksum included; a tensor's checksum at the first access to it.
// Error(input) with the place for anything wrong. Files without our entries are read as plain tensors; with some, they
// must have the checksums.
class Checkpoint {
 public:
  explicit Checkpoint(const std::string& path);
  ~Checkpoint();
  const std::string& name() const { return name_; }
  const std::vector<TensorInfo>& tensors() const { return infos_; }
  const TensorInfo* find(const std::string& name) const;
  // The data of a tensor; aligned to its type or not, valid as long as this object.
  const void* data(const std::string& name) const;
  const Metadata& metadata() const { return metadata_; }
  // The entry, or Error(input) saying what the file lacks and what made such a file.
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
