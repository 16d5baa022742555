// Values on the stack of the pickle reader (pickle.cpp), and the Python names that the pickle of a state dict may
// contain.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "io/pickle.h"

namespace mh::io::pickle {

constexpr const char* kDict = "collections.OrderedDict";
constexpr const char* kTensor = "torch._utils._rebuild_tensor_v2";
constexpr const char* kParameter = "torch._utils._rebuild_parameter";

constexpr std::pair<const char*, DType> kStorages[] = {
    {"torch.FloatStorage", DType::f32},   {"torch.HalfStorage", DType::f16}, {"torch.BFloat16Storage", DType::bf16},
    {"torch.DoubleStorage", DType::f64},  {"torch.LongStorage", DType::i64}, {"torch.IntStorage", DType::i32},
    {"torch.ShortStorage", DType::i16},   {"torch.CharStorage", DType::i8},  {"torch.ByteStorage", DType::u8},
    {"torch.BoolStorage", DType::boolean}};

inline std::optional<DType> storage_type(std::string_view global) {
  for (const auto& [name, type] : kStorages)
    if (global == name) return type;
  return std::nullopt;
}

// Returns the name of a Python global that the pickle of a state dict may contain, in static memory, or null for any
// other name.
inline const char* known_global(const std::string& name) {
  for (const char* known : {kDict, kTensor, kParameter})
    if (name == known) return known;
  for (const auto& [known, type] : kStorages)
    if (name == known) return known;
  return nullptr;
}

struct Value;
using Values = std::vector<Value>;

// A value is two words, since the pickle can repeat it with two bytes. The machine owns what it refers to.
struct None {};
struct MarkOnStack {};
struct String {
  const std::string* text;
};
struct Global {
  const char* name;
};
struct StorageId {
  DType type;
  const std::string* key;
  int64_t size;  // in elements
};
struct Storage {
  const StorageId* id;
};
struct Tuple {
  const Values* items;
};
struct Dict {
  std::vector<std::pair<Value, Value>>* items;
};
struct Tensor {
  const StoredTensor* tensor;
};
struct Value : std::variant<None, MarkOnStack, bool, int64_t, String, Global, Storage, Tuple, Dict, Tensor> {
  using variant::variant;
  const char* kind() const {
    constexpr const char* names[] = {"None",      "a mark",  "a boolean", "a number", "text", "a Python global",
                                     "a storage", "a tuple", "a dict",    "a tensor"};
    return names[index()];
  }
};

}  // namespace mh::io::pickle
