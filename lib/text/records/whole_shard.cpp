#include "text/records/whole_shard.h"

#include "io/shard_format.h"
#include "text/records/run_check.h"
#include "text/records/runs.h"

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

RunText read_runs(const std::string& path, const std::string& kind) {
  io::ShardStream stream(path);
  return read_runs(stream, kind);
}

RunText read_runs(io::ShardStream& stream, const std::string& kind) {
  io::require_kind(stream.header(), stream.name(), kind);
  RunText text;
  text.header = stream.header();
  text.tokens = read_rest(stream);
  text.counts = stream.counts();
  const std::vector<uint32_t> lengths = stream.run_lengths();
  RunCheck(text.header, stream.name(), lengths).add(text.tokens);
  text.ends = ends_of(lengths);
  return text;
}

void verify(const io::ShardFile& shard) {
  RunCheck runs(shard.header(), shard.name(), shard.run_lengths());
  shard.verify([&](std::span<const int32_t> tokens) { runs.add(tokens); });
}

}  // namespace mh::text
