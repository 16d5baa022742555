// Checks the sequences of a shard while its tokens are read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/shard.h"
#include "text/records/whole_shard.h"

namespace mh::text {

// Checks that the sequences of a shard follow the rules of its kind, which read_whole_shard() lists; throws
// Error(input). `name` and `lengths`, the numbers of tokens of all sequences, must outlive this object.
class SequenceCheck {
 public:
  SequenceCheck(const io::ShardHeader& header, const std::string& name, const std::vector<uint32_t>& lengths);
  // Checks the next tokens of the shard.
  void add(std::span<const int32_t> tokens);

 private:
  struct Field {
    std::string name;
    int64_t limit;  // numbers are in [0, limit)
    int32_t end;    // end-of-line token, which ends the sequence and occurs nowhere else; -1: none
  };
  [[noreturn]] void refuse(const Field& field, int32_t token) const;
  void skip_empty();

  const std::string& name_;
  const std::vector<uint32_t>& lengths_;
  std::vector<Field> fields_;  // empty: the kind has no rules
  size_t run_ = 0;
  uint64_t remaining_ = 0;  // remaining tokens of the current sequence
};

}  // namespace mh::text
