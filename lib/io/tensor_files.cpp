#include "io/tensor_files.h"

#include <bit>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "base/json_types.h"
#include "base/text.h"
#include "io/pickle.h"

namespace mh::io {

namespace {

class Safetensors : public TensorFile {
 public:
  explicit Safetensors(const std::string& path) : file_(path) {}
  const std::vector<TensorInfo>& tensors() const override { return file_.tensors(); }
  std::vector<uint8_t> read_bytes(const std::string& name) const override {
    const auto* data = static_cast<const uint8_t*>(file_.data(name));
    std::vector<uint8_t> bytes(data, data + file_.find(name)->num_bytes());
    file_.require_full_size();  // the file of another program may lack checksums
    return bytes;
  }

 private:
  Checkpoint file_;
};

float from_half(uint16_t half) {
  const uint32_t sign = (half & 0x8000U) << 16, exponent = half >> 10 & 31U, fraction = half & 0x3FFU;
  if (exponent == 0) {  // zero and subnormal numbers
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const uint32_t float_exponent = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | float_exponent << 23 | fraction << 13);
}

template <class Number, class Convert>
std::vector<float> convert_elements(const std::vector<uint8_t>& bytes, const Convert& convert) {
  std::vector<float> out(bytes.size() / sizeof(Number));
  for (size_t i = 0; i < out.size(); ++i) {
    Number number;
    std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
    out[i] = convert(number);
  }
  return out;
}

// Reads the index of a Hugging Face folder: returns the names of its files, and inserts the names of its tensors into
// `tensor_names`.
std::set<std::string> files_of_index(const std::string& path, std::set<std::string>& tensor_names) {
  const char* advice = "download or copy the folder again";
  auto refuse = [&](const std::string& expected, const std::string& found) {
    refuse_input(path, expected, found, advice);
  };
  const std::string text = read_regular_file(path);
  require_sound_json(text, path, advice);
  const auto index = nlohmann::json::parse(text, nullptr, false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    refuse("JSON with a weight_map from tensors to files", "other text");
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
  if (file_names.empty()) refuse("a weight_map with tensors", "an empty weight_map");
  return file_names;
}

}  // namespace

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

std::vector<float> TensorFiles::read_fp32(const std::string& name) const {
  const Entry& entry = entries_.at(name);
  const std::vector<uint8_t> bytes = entry.file->read_bytes(name);
  switch (entry.info.type) {
    case DType::f64:
      return convert_elements<double>(bytes, [](double x) { return static_cast<float>(x); });
    case DType::f32:
      return convert_elements<float>(bytes, [](float x) { return x; });
    case DType::f16:
      return convert_elements<uint16_t>(bytes, from_half);
    case DType::bf16:
      return convert_elements<uint16_t>(bytes, [](uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); });
    default:
      refuse_input(entry.path + ": " + name, "floating-point numbers (F32, F16, BF16 or F64)",
                   str("the type ", name_of(entry.info.type)),
                   "copy the folder again; the tensor belongs to another model");
  }
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
