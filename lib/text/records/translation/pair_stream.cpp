#include "text/records/translation/pair_stream.h"

#include "base/error.h"
#include "io/shard_format.h"
#include "text/tokenizers.h"

namespace mh::text {

PairStream::PairStream(io::ShardStream& stream) : stream_(stream), buffer_(1 << 14) {
  const io::ShardHeader& header = stream.header();
  io::require_kind(header, stream.name(), io::kPairsKind);
  for (io::Side side : {io::Side::source, io::Side::target}) {
    auto side_tokenizer = parse_tokenizer(header.tokenizer_of(side), stream.name());
    require_vocabulary(header, stream.name(), *side_tokenizer, "the tokenizer stored in the shard", side);
    tokenizers_[static_cast<int>(side)] = std::move(side_tokenizer);
  }
}

bool PairStream::read_sequence(io::Side side, std::vector<int32_t>& tokens) {
  const int64_t vocabulary_size = tokenizer(side).size();
  const int32_t end = tokenizer(side).end_of_line_id();
  tokens.clear();
  do {
    if (buffer_position_ == num_buffered_tokens_) {
      buffer_position_ = 0;
      num_buffered_tokens_ = stream_.read(buffer_);
      if (num_buffered_tokens_ == 0) break;
    }
    tokens.push_back(buffer_[buffer_position_++]);
    if (tokens.back() >= vocabulary_size)
      io::throw_damaged(
          stream_.name(),
          str("token ids below ", vocabulary_size, " in the ", side == io::Side::source ? "source" : "target", " text"),
          str(tokens.back(), " in pair ", lengths_.size() / 2 + 1));
  } while (tokens.back() != end);
  if (tokens.empty() || tokens.back() != end) return false;
  lengths_.push_back(static_cast<uint32_t>(tokens.size()));
  return true;
}

bool PairStream::next(std::vector<int32_t>& source, std::vector<int32_t>& target) {
  if (read_sequence(io::Side::source, source) && read_sequence(io::Side::target, target)) return true;
  if (lengths_ != stream_.sequence_lengths())
    io::throw_damaged(stream_.name(), "sources and targets with the lengths in the trailer", "other lengths");
  return false;
}

}  // namespace mh::text
