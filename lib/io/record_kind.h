// The fields of a shard's records, by kind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mh::io {

struct RecordKind {
  std::string name;
  std::vector<std::string> fields;
  size_t of_tokens;  // number of leading fields that hold tokens of the vocabulary; the others have limits of their own
  std::string rule;  // rule of the lengths, for messages
  // Returns whether field `field` may have this length if the field before it has the length `before` (0 for the
  // first).
  bool (*fits)(size_t field, uint64_t length, uint64_t before);
  bool closed = false;  // the last field of the shard is empty
};
// Returns null for a kind that is not in shard.h; its fields may hold anything.
const RecordKind* record_kind(const std::string& name);

}  // namespace mh::io
