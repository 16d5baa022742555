#include "text/records/whole_shard.h"

#include <functional>
#include <numeric>

#include "base/error.h"
#include "io/shard_format.h"
#include "text/records/run_check.h"

namespace mh::text {

namespace {

std::vector<int32_t> read_rest(io::ShardStream& stream) {
  std::vector<int32_t> tokens;
  size_t used = 0;
  do {
    tokens.resize(used + (1 << 18));
    size_t n = stream.read(std::span(tokens).subspan(used));
    used += n;
    if (n == 0) break;
  } while (true);
  tokens.resize(used);
  return tokens;
}

}  // namespace

TokenText read_tokens(const std::string& path) {
  io::ShardStream stream(path);
  return read_tokens(stream);
}

TokenText read_tokens(io::ShardStream& stream) {
  io::require_kind(stream.header(), stream.name(), io::kTextKind);
  std::vector<int32_t> tokens = read_rest(stream);
  return {stream.header(), stream.counts(), std::move(tokens)};
}

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
  text.ends.resize(lengths.size());
  std::inclusive_scan(lengths.begin(), lengths.end(), text.ends.begin(), std::plus<>(), uint64_t{0});
  return text;
}

PairText read_pairs(const std::string& path) { return {read_runs(path, io::kPairsKind)}; }
PairText read_pairs(io::ShardStream& stream) { return {read_runs(stream, io::kPairsKind)}; }

void verify(const io::ShardFile& shard) {
  RunCheck runs(shard.header(), shard.name(), shard.run_lengths());
  shard.verify([&](std::span<const int32_t> tokens) { runs.add(tokens); });
}

}  // namespace mh::text
