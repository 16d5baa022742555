#include "io/tensor_files.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "base/json_types.h"
#include "base/text.h"
#include "io/float_formats.h"
#include "io/pickle.h"

namespace mh::io {

namespace {

class Safetensors : public TensorFile {
 public:
  explicit Safetensors(const std::string& path) : file_(path) {}
  const std::vector<TensorInfo>& tensors() const override { return file_.tensors(); }
  std::span<const uint8_t> bytes(const std::string& name, std::vector<uint8_t>&) const override {
    return {static_cast<const uint8_t*>(file_.data(name)), file_.find(name)->num_bytes()};
  }
  void finish(const std::string& name) const override {
    file_.require_full_size();  // the file of another program may lack checksums
    file_.release(name);
  }

 private:
  Checkpoint file_;
};

// Reads the index of a Hugging Face folder: returns the names of its files, and inserts the names of its tensors into
// `tensor_names`.
std::set<std::string> files_of_index(const std::string& path, std::set<std::string>& tensor_names) {
  const char *expected = "JSON with a weight_map from tensors to files", *advice = "download or copy the folder again";
  const auto index = parse_json<nlohmann::json>(read_regular_file(path), path, expected, advice);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    refuse_input(path, expected, "JSON without such a weight_map", advice);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::set<std::string> file_names;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    std::error_code ignored_error;  // the reader of the file reports a missing file
    if (!file.is_string() || file.get<std::string>().find_first_of(std::string_view("/\0", 2)) != std::string::npos ||
        std::filesystem::is_directory(folder / file.get<std::string>(), ignored_error))
      refuse_input(path + ": weight_map, tensor " + tensor, "the name of a file in the same folder", file.dump(),
                   advice);
    tensor_names.insert(tensor);
    file_names.insert(file.get<std::string>());
  }
  if (file_names.empty()) refuse_input(path, "a weight_map with tensors", "an empty weight_map", advice);
  return file_names;
}

}  // namespace

std::vector<uint8_t> TensorFile::read_bytes(const std::string& name) const {
  std::vector<uint8_t> copied_bytes;
  const std::span<const uint8_t> tensor_bytes = bytes(name, copied_bytes);
  std::vector<uint8_t> result(tensor_bytes.begin(), tensor_bytes.end());
  finish(name);
  return result;
}

std::unique_ptr<TensorFile> open_safetensors(const std::string& path) { return std::make_unique<Safetensors>(path); }

void TensorFiles::add(const std::string& path, std::unique_ptr<TensorFile> file) {
  for (const TensorInfo& info : file->tensors()) {
    const auto [it, is_new] = entries_.emplace(info.name, Entry{info, file.get(), path});
    if (!is_new)
      refuse_input(path, "unique tensor names", info.name + ", which is also in " + it->second.path,
                   "copy the folder again");
  }
  files_.push_back(std::move(file));
}

const TensorFiles::Entry* TensorFiles::find(const std::string& name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : &it->second;
}

void TensorFiles::Reader::read(int64_t first, int64_t count, float* out) const {
  constexpr int64_t kBlock = 1 << 22;  // elements after which the pages of a long range are released
  const DType type = entry_->info.type;
  for (int64_t offset = 0; offset < count; offset += kBlock) {
    const auto num_elements = static_cast<size_t>(std::min(kBlock, count - offset));
    const uint8_t* bytes = bytes_.data() + static_cast<size_t>(first + offset) * element_bytes(type);
    to_fp32(type, bytes, num_elements, out + offset);
    if (count > kBlock) release_mapped_pages(bytes, num_elements * element_bytes(type));
  }
}

void TensorFiles::Reader::finish() const { entry_->file->finish(entry_->info.name); }

TensorFiles::Reader TensorFiles::open(const std::string& name) const {
  const Entry& entry = entries_.at(name);
  if (!is_floating_point(entry.info.type))
    refuse_input(entry.path + ": " + name, "floating-point numbers (F32, F16, BF16 or F64)",
                 str("the type ", name_of(entry.info.type)),
                 "copy the folder again; the tensor belongs to another model");
  Reader reader;
  reader.entry_ = &entry;
  reader.bytes_ = entry.file->bytes(name, reader.copied_bytes_);
  return reader;
}

std::vector<float> TensorFiles::read_fp32(const std::string& name) const {
  const Reader reader = open(name);
  std::vector<float> elements(reader.bytes_.size() / element_bytes(reader.entry_->info.type));
  reader.read(0, static_cast<int64_t>(elements.size()), elements.data());
  reader.finish();
  return elements;
}

bool TensorFiles::are_equal(const std::string& name, const std::string& other_name) const {
  const TensorInfo &a = entries_.at(name).info, &b = entries_.at(other_name).info;
  if (a.shape != b.shape) return false;
  const Reader a_reader = open(name), b_reader = open(other_name);
  bool are_equal = true;
  if (a.type == b.type) {
    are_equal = std::ranges::equal(a_reader.bytes_, b_reader.bytes_);
  } else {
    constexpr int64_t kBlock = 1 << 16;  // elements
    std::vector<float> a_elements(kBlock), b_elements(kBlock);
    const auto num_elements = static_cast<int64_t>(a_reader.bytes_.size() / element_bytes(a.type));
    for (int64_t first = 0; are_equal && first < num_elements; first += kBlock) {
      const int64_t count = std::min(kBlock, num_elements - first);
      a_reader.read(first, count, a_elements.data());
      b_reader.read(first, count, b_elements.data());
      are_equal = std::equal(a_elements.begin(), a_elements.begin() + count, b_elements.begin());
    }
  }
  a_reader.finish();
  b_reader.finish();
  return are_equal;
}

TensorFiles open_model_files(const std::string& folder) {
  struct FileFormat {
    const char* name;
    std::unique_ptr<TensorFile> (*open)(const std::string&);
  };
  constexpr FileFormat kFileFormats[] = {{"model.safetensors", open_safetensors},
                                         {"pytorch_model.bin", open_torch_file}};
  TensorFiles files;
  for (const FileFormat& format : kFileFormats) {
    const std::string path = folder + "/" + format.name, index = path + ".index.json";
    if (std::filesystem::exists(path)) {
      files.add(path, format.open(path));
      return files;
    }
    if (!std::filesystem::exists(index)) continue;
    std::set<std::string> tensor_names;
    for (const std::string& file : files_of_index(index, tensor_names)) {
      const std::string file_path = str(folder, "/", file);
      if (!std::filesystem::exists(file_path))
        refuse_input(index, str("the file ", file, ", which the index lists"), "no such file in the folder",
                     "copy the folder again with all its files");
      files.add(file_path, format.open(file_path));
    }
    for (const std::string& name : tensor_names)
      if (files.find(name) == nullptr)
        refuse_input(index, "a file that contains the tensor " + name, "none", "copy the folder again");
    return files;
  }
  refuse_input(
      folder, "model.safetensors or pytorch_model.bin", "neither",
      "copy the folder again; if the model has only weights of TensorFlow or Flax, load them with transformers "
      "in Python and save them with save_pretrained");
}

}  // namespace mh::io
