// Checks the token sequences of a shard while the shard is read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/shard.h"
#include "text/records/whole_shard.h"

namespace mh::text {

// Checks that the token sequences of a shard follow the rules of its kind, which read_whole_shard() lists, and throws
// Error(input) otherwise. `name` is the shard's name, and `lengths` the numbers of tokens of all sequences; both must
// outlive this object.
class SequenceCheck {
 public:
  SequenceCheck(const io::ShardHeader& header, const std::string& name, const std::vector<uint32_t>& lengths);
  // Checks the tokens that follow the tokens of the previous call.
  void add(std::span<const int32_t> tokens);

 private:
  struct Field {
    std::string name;
    int64_t limit;           // numbers are in [0, limit)
    int32_t end_of_line_id;  // end-of-line token, which ends the sequence and occurs nowhere else; -1: none
  };
  [[noreturn]] void refuse(const Field& field, int32_t token) const;
  void skip_empty_sequences();

  const std::string& name_;
  const std::vector<uint32_t>& lengths_;
  std::vector<Field> fields_;          // fields of a record; empty: the kind is unknown or allows any tokens
  size_t sequence_ = 0;                // index of the current sequence
  uint64_t num_remaining_tokens_ = 0;  // remaining tokens of the current sequence
};

}  // namespace mh::text
