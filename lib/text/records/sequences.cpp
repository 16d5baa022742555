#include "text/records/sequences.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "io/shard.h"
#include "text/records/whole_shard.h"

namespace mh::text {

std::vector<int32_t> Sequences::sequence(size_t sequence) const {
  std::vector<int32_t> tokens(static_cast<size_t>(length(sequence)));
  read(begin(sequence), tokens);
  return tokens;
}

std::vector<uint64_t> ends_of(const std::vector<uint32_t>& lengths) {
  std::vector<uint64_t> ends(lengths.size());
  std::inclusive_scan(lengths.begin(), lengths.end(), ends.begin(), std::plus<>(), uint64_t{0});
  return ends;
}

ReadTokens token_reader(const io::ShardFile& shard) {
  return [&shard](uint64_t first_token, std::span<int32_t> out) { shard.read(first_token, out); };
}

ReadTokens token_reader(const std::vector<int32_t>& tokens) {
  return [&tokens](uint64_t first_token, std::span<int32_t> out) {
    std::copy_n(tokens.begin() + static_cast<int64_t>(first_token), out.size(), out.begin());
  };
}

Sequences sequences_of(const io::ShardFile& shard) { return {ends_of(shard.sequence_lengths()), token_reader(shard)}; }
Sequences sequences_of(const WholeShard& shard) { return {shard.ends, token_reader(shard.tokens)}; }

}  // namespace mh::text
