// Checkpoints: files in the safetensors format with named tensors and metadata, where multihead stores the
// configuration and the tokenizer as text; mh-checkpoint(5) describes every byte. This code does not depend on
// LibTorch: the data of tensors are bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace mh::io {

enum class DType { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };
// Returns the name of the type in the safetensors format, such as "F32".
const char* name_of(DType type);
// Returns the size of an element in bytes.
size_t element_bytes(DType type);

struct TensorInfo {
  std::string name;
  DType type = DType::f32;
  std::vector<int64_t> shape;
  // Returns the size of the data in bytes. Throws std::overflow_error for a negative dimension and for 2^63 bytes or
  // more.
  uint64_t num_bytes() const;
};

// A tensor to write. The data are contiguous, row-major and little-endian, and must exist until write_checkpoint()
// returns.
struct TensorView {
  TensorInfo info;
  const void* data = nullptr;
  // If set, returns the data instead of `data`, so that the tensors of a checkpoint need not be in memory at the same
  // time. The data must exist until the next call of `produce` of any tensor. write_checkpoint() calls `produce` of all
  // tensors kNumProductions times, each time in the order of the tensors: for the checksums in the header, then for the
  // data. All calls must return the same bytes.
  std::function<const void*()> produce = {};
};
inline constexpr int kNumProductions = 2;

using Metadata = std::map<std::string, std::string>;  // texts by key; the keys of multihead start with "multihead."

// Advice in errors of the configuration of a checkpoint.
inline constexpr const char* kEditedCheckpointAdvice =
    "the checkpoint is damaged or was edited; use another checkpoint";

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // bytes; limit of the safetensors format

// Metadata keys of checkpoints; the comment on each key describes the text stored under the key.
inline constexpr const char* kFormatKey = "multihead.format";           // version of the format, "1"
inline constexpr const char* kConfigKey = "multihead.config";           // resolved configuration, TOML
inline constexpr const char* kTokenizerKey = "multihead.tokenizer";     // vocabulary file, base64
inline constexpr const char* kFingerprintKey = "multihead.vocabulary";  // fingerprint of the tokenizer
// Vocabulary file (base64) and fingerprint of the source tokenizer, if source and target have separate vocabularies.
inline constexpr const char* kSourceTokenizerKey = "multihead.source_tokenizer";
inline constexpr const char* kSourceFingerprintKey = "multihead.source_vocabulary";
inline constexpr const char* kTrainingKey = "multihead.training";  // JSON: state of the run; only in training states
inline constexpr const char* kOriginKey = "multihead.origin";      // JSON: steps by which mh-convert made the file
// JSON: parts of the Hugging Face folder that multihead does not use (huggingface/companion_files.h).
inline constexpr const char* kHuggingFaceKey = "multihead.huggingface";
inline constexpr const char* kChecksumsKey = "multihead.xxh64";  // JSON: checksums, which write_checkpoint() adds

// Writes a checkpoint sequentially, with the tensors in the given order, and adds the checksums to the metadata. Does
// not close the sink. Throws Error(failed) for two tensors of the same name and for a header larger than
// kMaxHeaderBytes.
void write_checkpoint(ByteSink& sink, const std::vector<TensorView>& tensors, Metadata metadata);

// Reads a checkpoint. A regular file is mapped into memory; from a pipe or standard input ("-"), the constructor reads
// as many bytes as the header announces. The constructor checks the header and its checksum; the first access to a
// tensor checks the checksum of the tensor. Throws Error(input) for any fault. A file without metadata of multihead is
// read as plain tensors; a file with metadata of multihead must have checksums.
class Checkpoint {
 public:
  explicit Checkpoint(const std::string& path);
  ~Checkpoint();
  const std::string& name() const { return name_; }
  const std::vector<TensorInfo>& tensors() const { return tensor_infos_; }
  // Returns name, type and shape of a tensor; null if the file has no tensor of this name.
  const TensorInfo* find(const std::string& name) const;
  // Returns the data of a tensor of this file, valid for the lifetime of this object or of data_owner(). The address
  // may be unaligned for the type of the tensor.
  const void* data(const std::string& name) const;
  const Metadata& metadata() const { return metadata_; }
  // Returns the metadata text with this key. Throws Error(input) if the key is missing.
  const std::string& metadata_entry(const char* key) const;
  // Verifies the checksums of all tensors, if the file has checksums. Throws Error(input) for a wrong checksum.
  void verify() const;
  // Throws Error(input) if another program has shortened the file, see MappedFile::require_full_size(). A caller that
  // has read the data of tensors calls this function afterwards, since data() checks a checksum only before the first
  // read, and a file of another program lacks checksums.
  void require_full_size() const;
  // Releases the memory of the mapped pages of a tensor of this file. data() stays valid, and reads the file again.
  void release(const std::string& name) const;
  // Returns the mapped file; null if the checkpoint was read from a pipe.
  const std::shared_ptr<const MappedFile>& mapped_file() const { return file_; }
  // Returns an owner of the data of all tensors: while it exists, the results of data() stay valid without this object.
  std::shared_ptr<const void> data_owner() const;

 private:
  struct Header;
  Error format_error(const std::string& where, const std::string& expected, const std::string& found) const;
  Header read_header() const;
  void parse(const Header& header);
  std::string name_;
  std::shared_ptr<const MappedFile> file_;     // null for a pipe
  std::shared_ptr<std::string> stream_bytes_;  // content of a pipe; null for a mapped file
  const uint8_t* bytes_ = nullptr;
  uint64_t size_ = 0;
  std::vector<TensorInfo> tensor_infos_;
  // By tensor name: index in `tensor_infos_`, and offset of the data in the file.
  std::map<std::string, std::pair<size_t, uint64_t>> locations_;
  // Hexadecimal XXH64 of each tensor under its name, and of the header under "__metadata__".
  std::map<std::string, std::string> checksums_;
  mutable std::mutex mutex_;                                   // guards `has_verified_checksum_`
  mutable std::map<std::string, bool> has_verified_checksum_;  // by tensor name: whether the checksum was verified
  Metadata metadata_;
};

std::string to_base64(const std::string& bytes);
std::string from_base64(const std::string& text);  // throws std::invalid_argument

}  // namespace mh::io
