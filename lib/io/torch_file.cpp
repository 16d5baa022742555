#include <cstring>

#include "base/text.h"
#include "io/pickle.h"
#include "io/tensor_files.h"
#include "io/zip.h"

namespace mh::io {

namespace {

class TorchFile : public TensorFile {
 public:
  explicit TorchFile(const std::string& path) : archive_(path) {
    const std::string pickle_entry = archive_.find_by_suffix("/data.pkl");
    if (pickle_entry.empty())
      refuse_input(path, "an archive of torch.save, with one data.pkl", "an archive with no data.pkl, or with several",
                   kSafetensorsAdvice);
    const std::string folder = pickle_entry.substr(0, pickle_entry.rfind('/') + 1);
    if (const std::string byte_order_entry = folder + "byteorder"; archive_.has(byte_order_entry)) {
      const auto bytes = archive_.data(byte_order_entry);
      if (const std::string text(bytes.begin(), bytes.end()); text != "little")
        refuse_input(path, "data of the byte order little-endian", text, kSafetensorsAdvice);
    }
    for (StoredTensor& tensor : read_state_dict(archive_.data(pickle_entry), path + ": " + pickle_entry)) {
      tensor_infos_.push_back(tensor.info);
      tensor.storage_key = folder + "data/" + tensor.storage_key;
      tensors_.emplace(tensor.info.name, std::move(tensor));
    }
  }
  const std::vector<TensorInfo>& tensors() const override { return tensor_infos_; }

  std::span<const uint8_t> bytes(const std::string& name, std::vector<uint8_t>& copied_bytes) const override {
    const StoredTensor& t = tensors_.at(name);
    const size_t element_size = element_bytes(t.info.type);
    const auto storage = storage_of(t);
    const uint64_t first = static_cast<uint64_t>(t.offset) * element_size;
    if (t.info.num_bytes() == 0) return {};
    if (is_contiguous(t)) return storage.subspan(first, t.info.num_bytes());
    copied_bytes.resize(t.info.num_bytes());
    uint8_t* destination = copied_bytes.data();
    copy(t, 0, storage.data() + first, element_size, destination);
    return copied_bytes;
  }
  void finish(const std::string& name) const override {
    archive_.require_full_size();  // data() checks the CRC-32 before the caller reads the bytes, or not at all
    archive_.release(archive_.data(tensors_.at(name).storage_key));
  }

 private:
  std::span<const uint8_t> storage_of(const StoredTensor& t) const {
    const size_t element_size = element_bytes(t.info.type);
    const auto storage = archive_.data(t.storage_key);
    if (storage.size() / element_size != static_cast<uint64_t>(t.storage_size) || storage.size() % element_size != 0)
      refuse_input(
          str(archive_.name(), ": ", t.storage_key),
          str(count_of(t.storage_size, "element"), " of ", t.info.name, " (", count_of(element_size, "byte"), " each)"),
          count_of(storage.size(), "byte"), "the file is damaged; copy the file again");
    return storage;
  }
  // Returns whether the elements of the tensor are adjacent in its storage, in row-major order.
  static bool is_contiguous(const StoredTensor& t) {
    int64_t expected_stride = 1;
    for (size_t axis = t.strides.size(); axis-- > 0;) {
      if (t.info.shape[axis] != 1 && t.strides[axis] != expected_stride) return false;
      expected_stride *= t.info.shape[axis];
    }
    return true;
  }
  // Copies the elements indexed by `axis` and all later axes, in row-major order. `source`: the first of these
  // elements; `element_size`: bytes of an element; `destination`: receives the elements, and is advanced past them.
  static void copy(const StoredTensor& t, size_t axis, const uint8_t* source, size_t element_size,
                   uint8_t*& destination) {
    if (axis == t.strides.size()) {
      std::memcpy(destination, source, element_size);
      destination += element_size;
      return;
    }
    const int64_t dimension = t.info.shape[axis], stride = t.strides[axis];
    if (axis + 1 == t.strides.size() && stride == 1) {
      std::memcpy(destination, source, static_cast<size_t>(dimension) * element_size);
      destination += static_cast<size_t>(dimension) * element_size;
      return;
    }
    for (int64_t i = 0; i < dimension; ++i)
      copy(t, axis + 1, source + static_cast<uint64_t>(i * stride) * element_size, element_size, destination);
  }

  ZipArchive archive_;
  std::vector<TensorInfo> tensor_infos_;
  std::map<std::string, StoredTensor> tensors_;
};

// Throws Error(input) for a file of torch.save before PyTorch 1.6, which wrote several pickles, one after another.
void reject_legacy_format(const std::string& path) {
  constexpr uint8_t kMagic[] = {0x80, 0x02, 0x8A, 0x0A, 0x6C, 0xFC, 0x9C, 0x46, 0xF9, 0x20, 0x6A, 0xA8, 0x50, 0x19};
  uint8_t first_bytes[sizeof kMagic];
  if (!open_source(path)->read_exactly(first_bytes, sizeof first_bytes) ||
      std::memcmp(first_bytes, kMagic, sizeof first_bytes) != 0)
    return;
  refuse_input(path, "the format of torch.save since PyTorch 1.6", "the format of earlier versions",
               kSafetensorsAdvice);
}

}  // namespace

std::unique_ptr<TensorFile> open_torch_file(const std::string& path) {
  reject_legacy_format(path);
  return std::make_unique<TorchFile>(path);
}

}  // namespace mh::io
