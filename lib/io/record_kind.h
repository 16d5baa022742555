// What the runs of a shard's records are, by kind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace mh::io
