// The check of the runs of a shard.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/shard.h"
#include "text/records/whole_shard.h"

namespace mh::text {

// Follows the tokens of a shard run by run and refuses what those of its kind must not be (read_whole_shard). `lengths`
// and `name` must outlive it.
class SequenceCheck {
 public:
  SequenceCheck(const io::ShardHeader& header, const std::string& name, const std::vector<uint32_t>& lengths);
  void add(std::span<const int32_t> tokens);

 private:
  struct Field {
    std::string name;
    int64_t limit;
    int32_t end;  // of a line, which closes the run and stands nowhere else in it; -1: there is none
  };
  [[noreturn]] void refuse(const Field& field, int32_t token) const;
  void skip_empty();

  const std::string& name_;
  const std::vector<uint32_t>& lengths_;
  std::vector<Field> fields_;  // none: nothing to refuse
  size_t run_ = 0;
  uint64_t left_ = 0;  // tokens of the run that are still to come
};

}  // namespace mh::text
