// What the runs of a shard's records are, by kind, and the check of all of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/shard.h"

namespace mh::io {

struct RecordKind {
  std::string name;
  std::vector<std::string> fields;
  size_t
      of_tokens;  // so many fields, the first ones, hold tokens of the vocabulary; the others have limits of their own
  std::string rule;  // what lengths runs have, for messages
  // Whether a run of this length may stand in the nth field behind one of the length `before` (0 for the first run).
  bool (*fits)(size_t field, uint64_t length, uint64_t before);
  bool closed = false;  // the last run of all is empty
};
// nullptr for a kind that is not one of shard.h, whose runs may be anything.
const RecordKind* record_kind(const std::string& name);

// Follows the tokens of a shard run by run and refuses what those of its kind must not be (read_runs). `lengths` and
// `name` must outlive it.
class RunCheck {
 public:
  RunCheck(const ShardHeader& header, const std::string& name, const std::vector<uint32_t>& lengths);
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

}  // namespace mh::io
