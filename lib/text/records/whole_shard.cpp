#include "text/records/whole_shard.h"

#include "io/shard_format.h"
#include "text/records/sequence_check.h"
#include "text/records/sequences.h"

namespace mh::text {

namespace {

std::vector<int32_t> read_all_tokens(io::ShardStream& stream) {
  std::vector<int32_t> tokens;
  size_t num_read = 0, num_new = 0;
  do {
    tokens.resize(num_read + io::kFrameTokens);
    num_new = stream.read(std::span(tokens).subspan(num_read));
    num_read += num_new;
  } while (num_new > 0);
  tokens.resize(num_read);
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
