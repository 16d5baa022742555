#include "text/sentencepiece_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace mh::text {

namespace {

// Iterates over the fields of a message in the wire format of Protocol Buffers.
class ProtoFields {
 public:
  explicit ProtoFields(std::string_view bytes) : remaining_bytes_(bytes) {}
  // Reads the next field; `bytes` is empty for a numeric field. Returns false at the end and at an invalid field.
  bool read_field(uint64_t& number, std::string_view& bytes) {
    uint64_t key = 0, length = 0;
    bytes = {};
    if (remaining_bytes_.empty() || !read_varint(key)) return false;
    number = key >> 3;
    switch (key & 7) {
      case 0:
        return read_varint(length);
      case 1:
        return skip(8);
      case 5:
        return skip(4);
      case 2:
        if (!read_varint(length) || length > remaining_bytes_.size()) return false;
        bytes = remaining_bytes_.substr(0, length);
        return skip(length);
      default:
        return false;
    }
  }

 private:
  bool skip(size_t bytes) {
    if (bytes > remaining_bytes_.size()) return false;
    remaining_bytes_.remove_prefix(bytes);
    return true;
  }
  bool read_varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (remaining_bytes_.empty()) return false;
      const auto byte = static_cast<unsigned char>(remaining_bytes_[0]);
      remaining_bytes_.remove_prefix(1);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  std::string_view remaining_bytes_;
};

// A double-array trie of 32-bit units. The root is unit 0. The child of unit p by byte c is unit base(p) ^ c if that
// unit has the label c. If p ends a key, unit base(p) holds the key's value.
class DoubleArray {
 public:
  explicit DoubleArray(std::vector<uint32_t> units) : units_(std::move(units)) {}

  size_t size() const { return units_.size(); }
  bool is_value(size_t p) const { return units_[p] >> 31 != 0; }
  bool ends_key(size_t p) const { return (units_[p] >> 8 & 1) != 0; }
  uint32_t label(size_t p) const { return units_[p] & 0xFF; }
  size_t base(size_t p) const { return p ^ (units_[p] >> 10 << ((units_[p] & 1U << 9) >> 6)); }
  uint32_t value(size_t p) const { return units_[base(p)] & ~(1U << 31); }

 private:
  std::vector<uint32_t> units_;
};

// Maximum number of keys on a path of the trie; with more, the library reads past its array of results.
constexpr int kMaxKeysOnPath = 32;

// Returns a description of the first fault of a normalisation table; empty if the table has none.
std::string find_fault(std::string_view table) {
  uint32_t trie_bytes = 0;
  if (table.size() < sizeof trie_bytes) return "a table of " + std::to_string(table.size()) + " bytes";
  std::memcpy(&trie_bytes, table.data(), sizeof trie_bytes);
  table.remove_prefix(sizeof trie_bytes);
  if (trie_bytes < sizeof(uint32_t) || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes >= table.size())
    return str("a trie of ", trie_bytes, " bytes");
  std::vector<uint32_t> units(trie_bytes / sizeof(uint32_t));
  std::memcpy(units.data(), table.data(), trie_bytes);
  const DoubleArray trie(std::move(units));
  const std::string_view text = table.substr(trie_bytes);
  if (text.back() != '\0' || find_invalid_utf8(text) != text.npos) return "a text that is truncated or not UTF-8";

  // For each base b, a linked list of the children of the units with this base: `first_child[b]` is the head, and
  // `next_sibling[p]` follows p.
  constexpr uint32_t no_unit = UINT32_MAX;
  const size_t num_units = trie.size();
  std::vector<uint32_t> first_child(num_units, no_unit), next_sibling(num_units, no_unit);
  for (size_t p = 1; p < num_units; ++p) {
    const size_t base = p ^ trie.label(p);
    if (trie.is_value(p) || trie.label(p) == 0 || base >= num_units) continue;
    next_sibling[p] = first_child[base];
    first_child[base] = static_cast<uint32_t>(p);
  }
  // Depth-first search that visits each reachable unit once, although keys may share suffixes; an edge to a unit on the
  // current path closes a cycle.
  constexpr int unvisited = -1, on_path = -2;
  // For each unit: `unvisited`, `on_path` or, after the visit, the maximum number of keys on a path that starts at the
  // unit.
  std::vector<int> max_keys(num_units, unvisited);
  std::vector<uint32_t> stack{0};
  while (!stack.empty()) {
    const uint32_t p = stack.back();
    const size_t base = trie.base(p);
    if (max_keys[p] == unvisited) {
      if ((base | 0xFF) >= num_units) return str("a trie whose unit ", p, " points outside the trie");
      if (trie.ends_key(p) && (!trie.is_value(base) || trie.value(p) >= text.size()))
        return str("a trie whose unit ", p, " points outside the text");
      max_keys[p] = on_path;
      for (uint32_t child = first_child[base]; child != no_unit; child = next_sibling[child]) {
        if (max_keys[child] == on_path) return str("a trie whose unit ", p, " is part of a cycle");
        if (max_keys[child] == unvisited) stack.push_back(child);
      }
      continue;
    }
    stack.pop_back();
    if (max_keys[p] != on_path) continue;  // several parents pushed this unit, and it is already finished
    max_keys[p] = 0;
    for (uint32_t child = first_child[base]; child != no_unit; child = next_sibling[child])
      max_keys[p] = std::max(max_keys[p], max_keys[child]);
    max_keys[p] += trie.ends_key(p) ? 1 : 0;
    if (max_keys[p] > kMaxKeysOnPath) return str("a trie with more than ", kMaxKeysOnPath, " keys on a path");
  }
  return "";
}

}  // namespace

void check_sentencepiece_file(const std::string& bytes, const std::string& name) {
  // Field numbers of sentencepiece_model.proto.
  constexpr uint64_t normaliser_spec_field = 3, denormaliser_spec_field = 5, precompiled_charsmap_field = 2;
  uint64_t number = 0;
  std::string_view message;
  for (ProtoFields model(bytes); model.read_field(number, message);) {
    if (number != normaliser_spec_field && number != denormaliser_spec_field) continue;
    std::string_view table;
    for (ProtoFields fields(message); fields.read_field(number, table);) {
      if (number != precompiled_charsmap_field || table.empty()) continue;
      if (const std::string fault = find_fault(table); !fault.empty())
        refuse_input(name, "a SentencePiece model with an intact normalisation table", fault,
                     "the model is damaged; copy the file again, or train the model again with mh-prep vocab");
    }
  }
}

}  // namespace mh::text
