// Shards read whole into memory.
#include <functional>
#include <numeric>

#include "io/run_check.h"

namespace mh::io {

namespace {

std::vector<int32_t> read_rest(ShardStream& stream) {
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
  ShardStream stream(path);
  return read_tokens(stream);
}

TokenText read_tokens(ShardStream& stream) {
  require_kind(stream.header(), stream.name(), kTextKind);
  std::vector<int32_t> tokens = read_rest(stream);
  return {stream.header(), stream.counts(), std::move(tokens)};
}

RunText read_runs(const std::string& path, const std::string& kind) {
  ShardStream stream(path);
  return read_runs(stream, kind);
}

RunText read_runs(ShardStream& stream, const std::string& kind) {
  require_kind(stream.header(), stream.name(), kind);
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

PairText read_pairs(const std::string& path) { return {read_runs(path, kPairsKind)}; }
PairText read_pairs(ShardStream& stream) { return {read_runs(stream, kPairsKind)}; }

}  // namespace mh::io
