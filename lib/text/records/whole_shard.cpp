#include "text/records/whole_shard.h"

#include <deque>

#include "io/shard_format.h"
#include "text/records/sequence_check.h"
#include "text/records/sequences.h"

namespace mh::text {

namespace {

// Reads the tokens in chunks first: a single vector that doubles when it is full would take three times its size while
// it copies its tokens to the new memory.
std::vector<int32_t> read_all_tokens(io::ShardStream& stream) {
  std::deque<std::vector<int32_t>> chunks;
  size_t num_tokens = 0, num_read = 0;
  do {
    std::vector<int32_t>& chunk = chunks.emplace_back(io::kFrameTokens);
    num_read = stream.read(chunk);
    chunk.resize(num_read);
    num_tokens += num_read;
  } while (num_read > 0);
  std::vector<int32_t> tokens;
  tokens.reserve(num_tokens);
  for (; !chunks.empty(); chunks.pop_front()) tokens.insert(tokens.end(), chunks.front().begin(), chunks.front().end());
  return tokens;
}

}  // namespace

WholeShard read_whole_shard(const std::string& path, const std::string& kind) {
  io::ShardStream stream(path);
  return read_whole_shard(stream, kind);
}

WholeShard read_whole_shard(io::ShardStream& stream, const std::string& kind) {
  io::require_kind(stream.header(), stream.name(), kind);
  WholeShard shard;
  shard.header = stream.header();
  shard.tokens = read_all_tokens(stream);
  shard.counts = stream.counts();
  const std::vector<uint32_t> lengths = stream.sequence_lengths();
  SequenceCheck(shard.header, stream.name(), lengths).add(shard.tokens);
  shard.ends = ends_of(lengths);
  return shard;
}

void verify(const io::ShardFile& shard) {
  SequenceCheck check(shard.header(), shard.name(), shard.sequence_lengths());
  shard.verify([&](std::span<const int32_t> tokens) { check.add(tokens); });
}

}  // namespace mh::text
