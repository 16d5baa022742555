// Consecutive sequences (runs) of tokens, such as the fields of a shard's records, read on demand from a source that
// must outlive them.
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

// Reads tokens [first, first + out.size()) of the concatenated sequences.
using ReadTokens = std::function<void(uint64_t first, std::span<int32_t> out)>;

struct Sequences {
  std::vector<uint64_t> ends;  // end of each sequence in the concatenated tokens
  ReadTokens read;

  uint64_t begin(size_t run) const { return run == 0 ? 0 : ends[run - 1]; }
  int64_t length(size_t run) const { return static_cast<int64_t>(ends[run] - begin(run)); }
  std::vector<int32_t> run(size_t run) const;
};

// Returns the ends of consecutive sequences with these lengths.
std::vector<uint64_t> ends_of(const std::vector<uint32_t>& lengths);
// Return a function that reads the tokens of its argument, which must outlive it.
ReadTokens token_reader(const io::ShardFile& shard);
ReadTokens token_reader(const std::vector<int32_t>& tokens);

// Return the sequences of a shard, which must outlive them.
Sequences sequences_of(const io::ShardFile& shard);
Sequences sequences_of(const WholeShard& text);

}  // namespace mh::text
