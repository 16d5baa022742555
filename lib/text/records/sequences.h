// Consecutive token sequences, such as the fields of a shard's records, read on demand from a shard or a vector that
// must outlive the Sequences object.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace mh::io {
class ShardFile;
}

namespace mh::text {

struct WholeShard;  // whole_shard.h

// Reads tokens [first_token, first_token + out.size()) of the concatenated sequences into `out`.
using ReadTokens = std::function<void(uint64_t first_token, std::span<int32_t> out)>;

struct Sequences {
  std::vector<uint64_t> ends;  // end of each sequence in the concatenated tokens
  ReadTokens read;

  uint64_t begin(size_t sequence) const { return sequence == 0 ? 0 : ends[sequence - 1]; }
  int64_t length(size_t sequence) const { return static_cast<int64_t>(ends[sequence] - begin(sequence)); }
  std::vector<int32_t> sequence(size_t sequence) const;  // tokens of a sequence
};

// Returns the ends of consecutive sequences, which are the inclusive prefix sums of `lengths`.
std::vector<uint64_t> ends_of(const std::vector<uint32_t>& lengths);
// Return a function that reads tokens from the argument; the argument must outlive the function.
ReadTokens token_reader(const io::ShardFile& shard);
ReadTokens token_reader(const std::vector<int32_t>& tokens);

// Return the token sequences of a shard; the shard must outlive the result.
Sequences sequences_of(const io::ShardFile& shard);
Sequences sequences_of(const WholeShard& shard);

}  // namespace mh::text
