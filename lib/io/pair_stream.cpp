#include "io/pair_stream.h"

#include "base/error.h"
#include "io/shard_format.h"

namespace mh::io {

PairStream::PairStream(ShardStream& stream) : stream_(stream), buffer_(1 << 14) {
  const ShardHeader& header = stream.header();
  require_kind(header, stream.name(), kPairsKind);
  for (Side side : {Side::source, Side::target}) {
    auto parsed = parse_tokenizer(header.tokenizer_of(side), stream.name());
    require_vocabulary(header, stream.name(), *parsed, "its own tokenizer", side);
    tokenizers_[static_cast<int>(side)] = std::move(parsed);
  }
}

bool PairStream::next_side(Side side, std::vector<int32_t>& tokens) {
  const int64_t vocabulary = tokenizer(side).size();
  const int32_t end = tokenizer(side).end_of_line();
  tokens.clear();
  do {
    if (at_ == held_) {
      at_ = 0;
      held_ = stream_.read(buffer_);
      if (held_ == 0) break;
    }
    tokens.push_back(buffer_[at_++]);
    if (tokens.back() >= vocabulary)
      damaged(stream_.name(), 0,
              str("tokens below ", vocabulary, " on the ", side == Side::source ? "source" : "target", " side"),
              str(tokens.back(), " in pair ", lengths_.size() / 2 + 1));
  } while (tokens.back() != end);
  if (tokens.empty() || tokens.back() != end) return false;
  lengths_.push_back(static_cast<uint32_t>(tokens.size()));
  return true;
}

bool PairStream::next(std::vector<int32_t>& source, std::vector<int32_t>& target) {
  if (next_side(Side::source, source) && next_side(Side::target, target)) return true;
  if (lengths_ != stream_.run_lengths())
    damaged(stream_.name(), 0, "pairs whose sides end as the trailer says", "others");
  return false;
}

}  // namespace mh::io
