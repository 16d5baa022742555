// Reads whole shards into memory, and verifies whole shards.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/shard.h"

namespace mh::text {

// The complete content of a shard, in memory.
struct WholeShard {
  io::ShardHeader header;
  io::ShardCounts counts;
  std::vector<int32_t> tokens;
  // End of each sequence, as an index in `tokens`. The sequences are the fields of the first record, then the fields of
  // the second record, and so on.
  std::vector<uint64_t> ends;

  size_t size() const { return ends.size() / header.field_names.size(); }  // number of records
  // Returns the tokens of a field of a record.
  std::span<const int32_t> sequence(size_t record, size_t field) const {
    const size_t i = record * header.field_names.size() + field;
    const uint64_t begin = i == 0 ? 0 : ends[i - 1];
    return std::span(tokens).subspan(begin, ends[i] - begin);
  }
};
// Reads a shard from a file or a pipe. Throws Error(input) for a kind other than `kind`, for sequences that violate the
// rules of the kind (a number outside its field's limit, an invalid length, or, in pairs, an end-of-line token that is
// missing or not at the end), and if the fingerprint or the size of the tokenizer differs from the header.
WholeShard read_whole_shard(const std::string& path, const std::string& kind);
WholeShard read_whole_shard(io::ShardStream& stream, const std::string& kind);  // `stream` must be at its start

// Reads a shard completely and verifies all checksums, and all sequences as read_whole_shard() does. Repeated calls for
// the same ShardFile do not read the tokens again.
void verify(const io::ShardFile& shard);

}  // namespace mh::text
