// Reads a translation shard from a file or a pipe, pair by pair.
#pragma once

#include "io/shard.h"
#include "text/records/whole_shard.h"
#include "text/tokenizer.h"

namespace mh::text {

// Reads one pair at a time, and keeps only this pair and the lengths of all sources and targets in memory. A source or
// target ends at its end-of-line token, and its length must equal the length in the shard's trailer. Throws the errors
// of read_whole_shard().
class PairStream {
 public:
  explicit PairStream(io::ShardStream& stream);  // `stream` must be at its start
  // Reads the next pair, end-of-line tokens included. Returns false at the end, after all checksums are verified.
  bool next(std::vector<int32_t>& source, std::vector<int32_t>& target);
  const Tokenizer& tokenizer(io::Side side) const { return *tokenizers_[static_cast<int>(side)]; }

 private:
  bool read_sequence(io::Side side, std::vector<int32_t>& tokens);

  io::ShardStream& stream_;
  std::unique_ptr<Tokenizer> tokenizers_[2];  // indexed by io::Side
  std::vector<int32_t> buffer_;
  size_t buffer_position_ = 0, num_buffered_tokens_ = 0;  // read position and number of tokens in `buffer_`
  std::vector<uint32_t> lengths_;                         // lengths of the sources and targets read so far
};

}  // namespace mh::text
