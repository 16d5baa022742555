// Interface and registry of the kinds of shard records: their fields, the rules for their sequences, and the commands
// that make them. Each kind is defined and registered beside the other code of its records, in lib/text/records/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/registry.h"

namespace mh::io {

class RecordKind {
 public:
  virtual ~RecordKind() = default;
  // Returns the position of the kind in lists, such as the list in mh-shard(5), from 1. Kinds of equal positions are
  // in the order of their names.
  virtual int list_position() const = 0;
  // Returns the subcommands of mh-prep that make shards of this kind.
  virtual std::vector<std::string> preparations() const = 0;
  virtual std::vector<std::string> field_names() const = 0;
  // Returns the number of leading fields that contain tokens; later fields contain other numbers.
  virtual size_t num_token_fields() const = 0;
  // Returns the number of leading fields whose tokens belong to the source vocabulary (Side::source).
  virtual size_t num_source_fields() const { return 0; }
  // Returns the rule for the lengths of sequences, for messages.
  virtual const char* length_rule() const { return "sequences of any length"; }
  // Returns whether a sequence of `length` numbers is valid for the field with index `field`. `previous_length`: length
  // of the preceding sequence in the shard, 0 for the first sequence.
  virtual bool allows_length(size_t /*field*/, uint64_t /*length*/, uint64_t /*previous_length*/) const { return true; }
  // Returns whether a sequence may have any length and any tokens of the vocabulary.
  virtual bool allows_any_tokens() const { return false; }
  // Returns whether the last sequence of a shard must be empty.
  virtual bool ends_with_empty_sequence() const { return false; }
  // Returns whether each sequence of tokens ends with the end-of-line token, which occurs nowhere else.
  virtual bool ends_with_end_of_line() const { return false; }
};
// Returns the registry of record kinds. The help of an entry is the content of the fields and of the header's `task`,
// for `--list records` and mh-shard(5).
Registry<RecordKind>& record_kinds();
// Returns the names of all record kinds, in the order of mh-shard(5).
std::vector<std::string> record_kind_names();
// Returns the record kind `name`, or null for an unknown kind, whose fields are not checked.
const RecordKind* record_kind(const std::string& name);
// Returns the commands that make shards of a kind, such as "mh-prep glue or mh-prep examples"; "mh-prep" for an unknown
// kind.
std::string prep_commands_for(const std::string& kind);
// Throws Error(input) about the shard `name`, whose kind is unknown.
[[noreturn]] void refuse_unknown_kind(const std::string& kind, const std::string& name);

}  // namespace mh::io
