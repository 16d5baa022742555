// The kinds of shard records: their fields and the rules for the lengths of the fields.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mh::io {

struct RecordKind {
  std::string name;
  std::vector<std::string> fields;
  size_t num_token_fields;  // number of leading fields that contain tokens; the others contain other numbers
  std::string rule;         // rule for the lengths of sequences, for messages
  // Returns whether a sequence of `length` numbers is valid for the field with index `field`. `previous_length`: length
  // of the preceding sequence in the shard, 0 for the first sequence.
  bool (*allows_length)(size_t field, uint64_t length, uint64_t previous_length);
  bool ends_with_empty_sequence = false;  // whether the last sequence of a shard must be empty
};
// Returns the record kind `name`, or null if shard.h does not define it; the fields of an undefined kind are not
// checked.
const RecordKind* record_kind(const std::string& name);

}  // namespace mh::io
