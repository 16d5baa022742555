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

constexpr const char* kOrderedDict = "collections.OrderedDict";
constexpr const char* kRebuildTensor = "torch._utils._rebuild_tensor_v2";
constexpr const char* kRebuildParameter = "torch._utils._rebuild_parameter";

constexpr std::pair<const char*, DType> kStorageTypes[] = {
    {"torch.FloatStorage", DType::f32},   {"torch.HalfStorage", DType::f16}, {"torch.BFloat16Storage", DType::bf16},
    {"torch.DoubleStorage", DType::f64},  {"torch.LongStorage", DType::i64}, {"torch.IntStorage", DType::i32},
    {"torch.ShortStorage", DType::i16},   {"torch.CharStorage", DType::i8},  {"torch.ByteStorage", DType::u8},
    {"torch.BoolStorage", DType::boolean}};

inline std::optional<DType> storage_type(std::string_view global) {
  for (const auto& [name, type] : kStorageTypes)
    if (global == name) return type;
  return std::nullopt;
}

// Returns a copy of `name` in static memory if the pickle of a state dict may contain the Python global of this name;
// otherwise null.
inline const char* known_global(const std::string& name) {
  for (const char* known_name : {kOrderedDict, kRebuildTensor, kRebuildParameter})
    if (name == known_name) return known_name;
  for (const auto& [known_name, type] : kStorageTypes)
    if (name == known_name) return known_name;
  return nullptr;
}

struct Value;
using Values = std::vector<Value>;

// A value has only 16 bytes, since a pickle can copy a value by an instruction of two bytes (kBinGet), and each copy
// takes memory. PickleMachine (pickle.cpp) owns the data that values point to, except for the names of globals, which
// are in static memory.
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
  const char* kind_name() const {
    constexpr const char* names[] = {"None",      "a mark",  "a boolean", "a number", "text", "a Python global",
                                     "a storage", "a tuple", "a dict",    "a tensor"};
    return names[index()];
  }
};

}  // namespace mh::io::pickle
