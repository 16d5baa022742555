// Shards read whole into memory, or checked whole.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/shard.h"

namespace mh::text {

// All tokens of a language-model shard from a file or a pipe.
struct TokenText {
  io::ShardHeader header;
  io::ShardCounts counts;
  std::vector<int32_t> tokens;
};
TokenText read_tokens(const std::string& path);
TokenText read_tokens(io::ShardStream& stream);  // nothing of it read yet. Error(input) for another kind

// All runs of a shard from a file or a pipe.
struct RunText {
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
RunText read_runs(const std::string& path, const std::string& kind);
RunText read_runs(io::ShardStream& stream, const std::string& kind);  // nothing of it read yet

// The same of a translation shard.
struct PairText : RunText {
  // A side of pair i, its end included.
  std::span<const int32_t> source(size_t i) const { return run(i, 0); }
  std::span<const int32_t> target(size_t i) const { return run(i, 1); }
};
PairText read_pairs(const std::string& path);
PairText read_pairs(io::ShardStream& stream);

// Reads all of a shard and checks every sum, and all runs as read_runs does; once for each ShardFile.
void verify(const io::ShardFile& shard);

}  // namespace mh::text
