// Checks the sequences of a shard.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/shard.h"
#include "text/records/whole_shard.h"

namespace mh::text {

// Checks the tokens of a shard, sequence by sequence, by the rules of its kind; throws Error(input) (read_whole_shard).
// `lengths` and `name` must outlive this.
class SequenceCheck {
 public:
  SequenceCheck(const io::ShardHeader& header, const std::string& name, const std::vector<uint32_t>& lengths);
  void add(std::span<const int32_t> tokens);

 private:
  struct Field {
    std::string name;
    int64_t limit;
    int32_t end;  // end-of-line token, which ends the sequence and occurs nowhere else; -1: none
  };
  [[noreturn]] void refuse(const Field& field, int32_t token) const;
  void skip_empty();

  const std::string& name_;
  const std::vector<uint32_t>& lengths_;
  std::vector<Field> fields_;  // empty: no rules
  size_t run_ = 0;
  uint64_t left_ = 0;  // remaining tokens of the sequence
};

}  // namespace mh::text
