#include "io/checkpoint.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "base/empty_input.h"
#include "base/error.h"
#include "base/json.h"
#include "base/json_types.h"
#include "base/text.h"
#include "io/shard_format.h"

namespace mh::io {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

struct TypeInfo {
  DType type;
  const char* name;
  size_t element_bytes;
};
constexpr TypeInfo kTypes[] = {{DType::f64, "F64", 8},     {DType::f32, "F32", 4}, {DType::f16, "F16", 2},
                               {DType::bf16, "BF16", 2},   {DType::i64, "I64", 8}, {DType::i32, "I32", 4},
                               {DType::i16, "I16", 2},     {DType::i8, "I8", 1},   {DType::u8, "U8", 1},
                               {DType::boolean, "BOOL", 1}};
// Key of the checksum of the header. The safetensors format reserves this name, so no tensor has it.
constexpr const char* kHeaderChecksumKey = "__metadata__";
constexpr const char* kDamagedAdvice =
    "the checkpoint is damaged; copy the file again, or use another checkpoint of the run";

const TypeInfo& find_type(DType type) {
  return *std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeInfo& t) { return t.type == type; });
}

uint64_t header_length(const uint8_t* bytes) {
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= uint64_t{bytes[i]} << (8 * i);
  return length;
}

// Returns the data of a tensor, which are valid until the next call for any tensor.
const void* data_of(const TensorView& tensor) { return tensor.produce ? tensor.produce() : tensor.data; }

std::string xxh64_text(const void* data, uint64_t bytes) { return hex64(XXH64(data, bytes, 0)); }

// Returns the checksum of the header: the names, types and shapes of the tensors, and the metadata without the
// checksums. The checksum does not depend on the order or the spacing of the JSON text in the file.
std::string header_checksum(const std::vector<TensorInfo>& tensor_infos, Metadata metadata) {
  metadata.erase(kChecksumsKey);
  json tensors = json::object();
  for (const TensorInfo& info : tensor_infos) tensors[info.name] = {name_of(info.type), info.shape};
  const std::string text = json{tensors, metadata}.dump();
  return xxh64_text(text.data(), text.size());
}

bool is_plausible_header(uint64_t length, uint8_t first_byte) {
  return length <= kMaxHeaderBytes && length >= 2 && first_byte == '{';
}

// Returns the number of bytes of tensor data that the header announces: the largest end among its valid `data_offsets`.
uint64_t announced_data_bytes(const json& header) {
  uint64_t end = 0;
  for (auto& [key, value] : header.items()) {
    if (key == kHeaderChecksumKey || !value.is_object()) continue;
    auto offsets = value.find("data_offsets");
    if (offsets != value.end() && offsets->is_array() && offsets->size() == 2 && (*offsets)[1].is_number_unsigned())
      end = std::max(end, (*offsets)[1].get<uint64_t>());
  }
  return end;
}

// Returns whether `array` is a JSON array of integers. Converting other numbers to integers would silently drop their
// fractions.
bool is_integer_array(const json& array) {
  return array.is_array() &&
         std::all_of(array.begin(), array.end(), [](const json& n) { return n.is_number_integer(); });
}

// Appends bytes of the source until `bytes` has the size `target_size` or the source ends.
void read_until_size(ByteSource& source, std::string& bytes, uint64_t target_size) {
  std::vector<char> buffer(1 << 16);
  while (bytes.size() < target_size) {
    size_t n = source.read(buffer.data(), std::min<uint64_t>(buffer.size(), target_size - bytes.size()));
    if (n == 0) return;
    bytes.append(buffer.data(), n);
  }
}

}  // namespace

const char* name_of(DType type) { return find_type(type).name; }
size_t element_bytes(DType type) { return find_type(type).element_bytes; }

uint64_t TensorInfo::num_bytes() const {
  uint64_t n = element_bytes(type);
  for (int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(n, static_cast<uint64_t>(dimension), &n) || n > INT64_MAX)
      throw std::overflow_error(name);
  }
  return n;
}

void write_checkpoint(ByteSink& sink, const std::vector<TensorView>& tensors, Metadata metadata) {
  const auto require_length = [](uint64_t length) {
    if (length > kMaxHeaderBytes)
      throw Error(Exit::failed,
                  Problem{"checkpoint header", str("at most ", kMaxHeaderBytes, " bytes, the limit of the format"),
                          count_of(length, "byte"), "the header contains the vocabulary; use a smaller vocabulary"});
  };
  // Checked before the header is serialised, which takes several times its size.
  uint64_t metadata_length = 0;
  for (const auto& [key, value] : metadata) metadata_length += key.size() + value.size();
  require_length(metadata_length);
  json checksums = json::object();
  std::vector<TensorInfo> tensor_infos;
  for (const TensorView& t : tensors) {
    checksums[t.info.name] = xxh64_text(data_of(t), t.info.num_bytes());
    tensor_infos.push_back(t.info);
  }
  checksums[kHeaderChecksumKey] = header_checksum(tensor_infos, metadata);
  metadata[kChecksumsKey] = checksums.dump();
  ordered_json header;
  header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorView& t : tensors) {
    if (header.contains(t.info.name))
      throw Error(Exit::failed, "checkpoint: expected unique tensor names; found two tensors named " + t.info.name +
                                    "; rename one tensor");
    header[t.info.name] = {{"dtype", name_of(t.info.type)},
                           {"shape", t.info.shape},
                           {"data_offsets", {offset, offset + t.info.num_bytes()}}};
    offset += t.info.num_bytes();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data start at a multiple of 8 bytes
  uint64_t length = text.size();
  require_length(length);
  uint8_t length_bytes[8];
  for (int i = 0; i < 8; ++i) length_bytes[i] = static_cast<uint8_t>(length >> (8 * i));
  sink.write(length_bytes, 8);
  sink.write(std::string_view(text));
  for (const TensorView& t : tensors) sink.write(data_of(t), t.info.num_bytes());
}

struct Checkpoint::Header {
  uint64_t length = 0;
  json object;
};

Checkpoint::Checkpoint(const std::string& path) : name_(input_name(path)) {
  if (std::filesystem::is_directory(path))
    refuse_input(path, "a checkpoint", "a folder",
                 "name a file in the folder, such as best.safetensors of a run; mh-convert converts a "
                 "Hugging Face folder to a checkpoint");
  if (MappedFile::is_mappable(path)) {
    file_ = std::make_shared<const MappedFile>(path);
    bytes_ = file_->data();
    size_ = file_->size();
    parse(read_header());
    return;
  }
  // Reads at most one byte more than the header announces, so that an endless stream does not fill the memory.
  auto source = open_source(path);
  stream_bytes_ = std::make_shared<std::string>();
  auto read_up_to = [&](uint64_t target_size) {
    read_until_size(*source, *stream_bytes_, target_size);
    bytes_ = reinterpret_cast<const uint8_t*>(stream_bytes_->data());
    size_ = stream_bytes_->size();
  };
  read_up_to(9);
  if (size_ == 9 && is_plausible_header(header_length(bytes_), bytes_[8])) read_up_to(8 + header_length(bytes_));
  const Header header = read_header();
  uint64_t expected_bytes;
  if (__builtin_add_overflow(announced_data_bytes(header.object), 8 + header.length + 1, &expected_bytes))
    expected_bytes = INT64_MAX;
  read_up_to(expected_bytes);  // one more byte than announced detects trailing data
  parse(header);
}

Checkpoint::~Checkpoint() = default;

Error Checkpoint::format_error(const std::string& where, const std::string& expected, const std::string& found) const {
  return {Exit::input, Problem{name_ + where, expected, found, kDamagedAdvice}};
}

Checkpoint::Header Checkpoint::read_header() const {
  if (size_ == 0) throw empty_input_error(name_, "a checkpoint (.safetensors)", kDamagedAdvice);
  if (size_ < 9)
    throw format_error("", "a checkpoint (.safetensors)",
                       str("a file of ", count_of(size_, "byte"), ", too short for the header of a checkpoint"));
  const uint64_t length = header_length(bytes_);
  if (!is_plausible_header(length, bytes_[8]))
    throw Error(
        Exit::input,
        has_shard_magic({reinterpret_cast<const char*>(bytes_), size_})
            ? Problem{name_, "a checkpoint (.safetensors)", "a shard (.mhs)",
                      "name a checkpoint instead; if the command reads checkpoints and a shard, name the shard last"}
            : Problem{name_, "a checkpoint (.safetensors)", "a file without the header of a checkpoint",
                      "use a checkpoint that mh-train wrote"});
  if (length > size_ - 8)
    throw format_error(": byte 0", str("a header of ", count_of(length, "byte")),
                       str("a truncated file of ", count_of(size_, "byte")));
  const std::string_view text(reinterpret_cast<const char*>(bytes_) + 8, length);
  require_sound_json(text, name_ + ": header", kDamagedAdvice);
  Header header{length, json::parse(text, nullptr, false)};
  if (!header.object.is_object()) throw format_error(": byte 8", "a JSON object", "other text");
  return header;
}

void Checkpoint::parse(const Header& header) {
  const uint64_t length = header.length;

  struct Span {
    uint64_t begin, end;
    std::string name;
  };
  std::vector<Span> spans;
  for (auto& [key, value] : header.object.items()) {
    try {
      if (key == "__metadata__") {
        metadata_ = value.get<Metadata>();
        continue;
      }
      TensorInfo info;
      info.name = key;
      auto type_name = value.at("dtype").get<std::string>();
      auto type =
          std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeInfo& t) { return type_name == t.name; });
      if (type == std::end(kTypes))
        throw format_error(": " + key, "one of the dtypes F64, F32, F16, BF16, I64, I32, I16, I8, U8 and BOOL",
                           type_name);
      info.type = type->type;
      for (const char* field : {"shape", "data_offsets"})
        if (!is_integer_array(value.at(field)))
          throw format_error(": " + key, str("a list of integers as ", field), value.at(field).dump());
      info.shape = value.at("shape").get<std::vector<int64_t>>();
      auto offsets = value.at("data_offsets").get<std::vector<uint64_t>>();
      if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > size_ - 8 - length)
        throw format_error(": " + key,
                           str("data_offsets within the ", count_of(size_ - 8 - length, "byte"), " of tensor data"),
                           value.at("data_offsets").dump());
      if (info.num_bytes() != offsets[1] - offsets[0])
        throw format_error(": " + key,
                           str("data_offsets of ", count_of(info.num_bytes(), "byte"), ", as dtype and shape require"),
                           count_of(offsets[1] - offsets[0], "byte"));
      locations_[key] = {tensor_infos_.size(), 8 + length + offsets[0]};
      spans.push_back({offsets[0], offsets[1], key});
      tensor_infos_.push_back(std::move(info));
    } catch (const json::exception& error) {
      throw format_error(": " + key,
                         key == "__metadata__" ? "a JSON object of texts" : "the keys dtype, shape and data_offsets",
                         json_error_text(error.what()));
    } catch (const std::overflow_error&) {
      throw format_error(": " + key, "a shape of less than 2^63 bytes", value.at("shape").dump());
    }
  }
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  uint64_t offset = 0;
  for (const Span& s : spans) {
    if (s.begin != offset)
      throw format_error(": " + s.name, str("data_offsets from ", offset, ", the end of the preceding tensor"),
                         str("data_offsets from ", s.begin));
    offset = s.end;
  }
  if (offset != size_ - 8 - length)
    throw format_error("", str(count_of(offset, "byte"), " of tensor data, as the header states"),
                       count_of(size_ - 8 - length, "byte"));
  auto checksums = metadata_.find(kChecksumsKey);
  if (checksums != metadata_.end()) {
    require_sound_json(checksums->second, name_ + ": metadata " + kChecksumsKey, kDamagedAdvice);
    json checksums_json = json::parse(checksums->second, nullptr, false);
    try {
      checksums_ = checksums_json.get<std::map<std::string, std::string>>();
    } catch (const json::exception& error) {
      throw format_error(": metadata", "a JSON object of checksums by tensor", json_error_text(error.what()));
    }
    for (const TensorInfo& info : tensor_infos_)
      if (checksums_.count(info.name) == 0) throw format_error(": metadata", "a checksum of " + info.name, "none");
    const std::string stored_checksum = checksums_[kHeaderChecksumKey];
    const std::string computed_checksum = header_checksum(tensor_infos_, metadata_);
    if (stored_checksum.empty()) throw format_error(": metadata", "a checksum of the header", "none");
    if (stored_checksum != computed_checksum)
      throw format_error(": header", "the checksum " + stored_checksum, computed_checksum);
  } else {
    for (const auto& [key, text] : metadata_)
      if (key.rfind("multihead.", 0) == 0)
        throw format_error(": metadata", str("checksums under ", kChecksumsKey), "none");
  }
}

const TensorInfo* Checkpoint::find(const std::string& name) const {
  auto it = locations_.find(name);
  return it == locations_.end() ? nullptr : &tensor_infos_[it->second.first];
}

const void* Checkpoint::data(const std::string& name) const {
  auto location = locations_.at(name);
  const uint8_t* data = bytes_ + location.second;
  auto checksum = checksums_.find(name);
  const std::lock_guard lock(mutex_);
  if (checksum != checksums_.end() && !has_verified_checksum_[name]) {
    std::string computed_checksum = xxh64_text(data, tensor_infos_[location.first].num_bytes());
    if (computed_checksum != checksum->second)
      refuse_input(str(name_, ": ", name, " at byte ", location.second), "the checksum " + checksum->second,
                   computed_checksum, kDamagedAdvice);
    has_verified_checksum_[name] = true;
  }
  return data;
}

const std::string& Checkpoint::metadata_entry(const char* key) const {
  auto it = metadata_.find(key);
  if (it == metadata_.end())
    refuse_input(name_, str("the metadata key ", key, ", which mh-train and mh-convert write"), "no such key",
                 "use a checkpoint that mh-train or mh-convert wrote");
  return it->second;
}

void Checkpoint::verify() const {
  for (const TensorInfo& info : tensor_infos_) data(info.name);
}

void Checkpoint::require_full_size() const {
  if (file_ != nullptr) file_->require_full_size();
}

void Checkpoint::release(const std::string& name) const {
  const auto [index, offset] = locations_.at(name);
  if (file_ != nullptr) file_->release(offset, tensor_infos_[index].num_bytes());
}

std::shared_ptr<const void> Checkpoint::data_owner() const {
  if (file_ != nullptr) return file_;
  return stream_bytes_;
}

std::string to_base64(const std::string& bytes) {
  static const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t v = 0;
    size_t n = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) v = v << 8 | (k < n ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k) text += k <= n ? digits[v >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::string from_base64(const std::string& text) {
  std::string bytes;
  uint32_t v = 0;
  int bits = 0;
  size_t padding_begin = text.find('=');
  if (text.size() % 4 != 0 || (padding_begin != text.npos && text.size() - padding_begin > 2))
    throw std::invalid_argument("base64");
  for (size_t i = 0; i < std::min(padding_begin, text.size()); ++i) {
    char c = text[i];
    int d = c >= 'A' && c <= 'Z'   ? c - 'A'
            : c >= 'a' && c <= 'z' ? c - 'a' + 26
            : c >= '0' && c <= '9' ? c - '0' + 52
            : c == '+'             ? 62
            : c == '/'             ? 63
                                   : -1;
    if (d < 0) throw std::invalid_argument("base64");
    v = v << 6 | static_cast<uint32_t>(d);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += static_cast<char>(v >> bits);
    }
  }
  return bytes;
}

}  // namespace mh::io
