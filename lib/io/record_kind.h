// The kinds of shard records: their fields, the rules for their sequences, and the commands that make them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mh::io {

struct RecordKind {
  std::string name;
  std::vector<std::string> preparations;  // subcommands of mh-prep that make shards of this kind
  std::vector<std::string> field_names;
  size_t num_token_fields;  // number of leading fields that contain tokens; later fields contain other numbers
  std::string length_rule;  // rule for the lengths of sequences, for messages
  std::string meaning;      // content of the fields and of the header's `task`, for `--list records` and mh-shard(5)
  // Returns whether a sequence of `length` numbers is valid for the field with index `field`. `previous_length`: length
  // of the preceding sequence in the shard, 0 for the first sequence.
  bool (*allows_length)(size_t field, uint64_t length, uint64_t previous_length);
  bool allows_any_tokens = false;         // whether a sequence may have any length and any tokens of the vocabulary
  bool ends_with_empty_sequence = false;  // whether the last sequence of a shard must be empty
  // Whether each sequence of tokens ends with the end-of-line token, which occurs nowhere else.
  bool ends_with_end_of_line = false;
};
// Returns all record kinds that shard.h defines, in the order of mh-shard(5).
const std::vector<RecordKind>& record_kinds();
// Returns the record kind `name`, or null if shard.h does not define it; the fields of an undefined kind are not
// checked.
const RecordKind* record_kind(const std::string& name);
// Returns the commands that make shards of a kind, such as "mh-prep glue or mh-prep examples"; "mh-prep" for a kind
// that shard.h does not define.
std::string prep_commands_for(const std::string& kind);
// Throws Error(input) about the shard `name`, whose kind shard.h does not define.
[[noreturn]] void refuse_unknown_kind(const std::string& kind, const std::string& name);

}  // namespace mh::io
