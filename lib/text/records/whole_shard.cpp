#include "text/records/whole_shard.h"

#include "io/shard_format.h"
#include "text/records/sequence_check.h"
#include "text/records/sequences.h"

namespace mh::text {

namespace {

std::vector<int32_t> read_rest(io::ShardStream& stream) {
  std::vector<int32_t> tokens;
  size_t used = 0, count = 0;
  do {
    tokens.resize(used + (1 << 18));
    count = stream.read(std::span(tokens).subspan(used));
    used += count;
  } while (count > 0);
  tokens.resize(used);
  return tokens;
}

}  // namespace

WholeShard read_whole_shard(const std::string& path, const std::string& kind) {
  io::ShardStream stream(path);
  return read_whole_shard(stream, kind);
}

WholeShard read_whole_shard(io::ShardStream& stream, const std::string& kind) {
  io::require_kind(stream.header(), stream.name(), kind);
  WholeShard text;
  text.header = stream.header();
  text.tokens = read_rest(stream);
  text.counts = stream.counts();
  const std::vector<uint32_t> lengths = stream.sequence_lengths();
  SequenceCheck(text.header, stream.name(), lengths).add(text.tokens);
  text.ends = ends_of(lengths);
  return text;
}

void verify(const io::ShardFile& shard) {
  SequenceCheck runs(shard.header(), shard.name(), shard.sequence_lengths());
  shard.verify([&](std::span<const int32_t> tokens) { runs.add(tokens); });
}

}  // namespace mh::text
