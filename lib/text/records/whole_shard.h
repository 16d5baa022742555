// Whole shards in memory, and checks of whole shards.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/shard.h"

namespace mh::text {

// A shard in memory.
struct WholeShard {
  io::ShardHeader header;
  io::ShardCounts counts;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> ends;  // end of each sequence in `tokens`: the fields of the first record, of the second, …

  size_t size() const { return ends.size() / header.fields.size(); }  // records
  std::span<const int32_t> run(size_t record, size_t field) const {
    const size_t i = record * header.fields.size() + field;
    const uint64_t begin = i == 0 ? 0 : ends[i - 1];
    return std::span(tokens).subspan(begin, ends[i] - begin);
  }
};
// Reads a shard from a file or a pipe. Throws Error(input) for another kind than `kind`, and for sequences that violate
// its rules: with numbers outside their field's limit, of an invalid length, of pairs with an end-of-line token
// elsewhere than at their end; and if the tokenizer is not the one in the header.
WholeShard read_whole_shard(const std::string& path, const std::string& kind);
WholeShard read_whole_shard(io::ShardStream& stream, const std::string& kind);  // not read before

// Reads all of a shard and verifies every checksum, and all sequences as read_whole_shard() does; once for each
// ShardFile.
void verify(const io::ShardFile& shard);

}  // namespace mh::text
