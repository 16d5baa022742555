#include "text/records/sequences.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "io/shard.h"
#include "text/records/whole_shard.h"

namespace mh::text {

std::vector<int32_t> Sequences::run(size_t run) const {
  std::vector<int32_t> tokens(static_cast<size_t>(length(run)));
  read(begin(run), tokens);
  return tokens;
}

std::vector<uint64_t> ends_of(const std::vector<uint32_t>& lengths) {
  std::vector<uint64_t> ends(lengths.size());
  std::inclusive_scan(lengths.begin(), lengths.end(), ends.begin(), std::plus<>(), uint64_t{0});
  return ends;
}

ReadTokens token_reader(const io::ShardFile& shard) {
  return [&shard](uint64_t first, std::span<int32_t> out) { shard.read(first, out); };
}

ReadTokens token_reader(const std::vector<int32_t>& tokens) {
  return [&tokens](uint64_t first, std::span<int32_t> out) {
    std::copy_n(tokens.begin() + static_cast<int64_t>(first), out.size(), out.begin());
  };
}

Sequences sequences_of(const io::ShardFile& shard) { return {ends_of(shard.sequence_lengths()), token_reader(shard)}; }
Sequences sequences_of(const WholeShard& text) { return {text.ends, token_reader(text.tokens)}; }

}  // namespace mh::text
