// A shard of pairs read once from start to end, from a file or a pipe, pair by pair.
#pragma once

#include "io/shard.h"
#include "text/records/whole_shard.h"
#include "text/tokenizer.h"

namespace mh::text {

// Holds one pair and all lengths in memory. Each side ends with its end token; the lengths in the trailer must agree.
// Throws the errors of read_whole_shard().
class PairStream {
 public:
  explicit PairStream(io::ShardStream& stream);  // nothing of it read yet
  // Reads the next pair, ends included; returns false at the end, after all checksums are verified.
  bool next(std::vector<int32_t>& source, std::vector<int32_t>& target);
  const Tokenizer& tokenizer(io::Side side) const { return *tokenizers_[static_cast<int>(side)]; }

 private:
  bool next_side(io::Side side, std::vector<int32_t>& tokens);

  io::ShardStream& stream_;
  std::unique_ptr<Tokenizer> tokenizers_[2];  // of source and target
  std::vector<int32_t> buffer_;
  size_t at_ = 0, held_ = 0;       // position in the buffer, tokens in the buffer
  std::vector<uint32_t> lengths_;  // lengths of the sides so far
};

}  // namespace mh::text
