// Shards read whole into memory, or checked whole.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/shard.h"

namespace mh::text {

// All runs of a shard from a file or a pipe.
struct WholeShard {
  io::ShardHeader header;
  io::ShardCounts counts;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> ends;  // of each run, in `tokens`: the fields of the first record, of the second, …

  size_t size() const { return ends.size() / header.fields.size(); }  // records
  std::span<const int32_t> run(size_t record, size_t field) const {
    const size_t i = record * header.fields.size() + field;
    const uint64_t begin = i == 0 ? 0 : ends[i - 1];
    return std::span(tokens).subspan(begin, ends[i] - begin);
  }
};
// Error(input) for another kind than the one asked for, and for runs that it does not have: with numbers outside their
// field's limit, of another length than the kind says, of pairs with an end-of-line token elsewhere than at their end;
// and where the tokenizer is not the one that the header tells.
WholeShard read_whole_shard(const std::string& path, const std::string& kind);
WholeShard read_whole_shard(io::ShardStream& stream, const std::string& kind);  // nothing of it read yet

// Reads all of a shard and checks every sum, and all runs as read_whole_shard does; once for each ShardFile.
void verify(const io::ShardFile& shard);

}  // namespace mh::text
