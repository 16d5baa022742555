// Shards read whole into memory, and what the runs of a translation must be.
#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "io/shard_format.h"
#include "io/tokenizer.h"

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

PairText read_pairs(const std::string& path) {
  ShardStream stream(path);
  return read_pairs(stream);
}

PairText read_pairs(ShardStream& stream) {
  require_kind(stream.header(), stream.name(), kPairsKind);
  PairText text;
  text.header = stream.header();
  text.tokens = read_rest(stream);
  text.counts = stream.counts();
  const std::vector<uint32_t> lengths = stream.run_lengths();
  PairCheck(text.header, stream.name(), lengths).add(text.tokens);
  text.ends.resize(lengths.size());
  std::inclusive_scan(lengths.begin(), lengths.end(), text.ends.begin(), std::plus<>(), uint64_t{0});
  return text;
}

PairCheck::PairCheck(const ShardHeader& header, const std::string& name, const std::vector<uint32_t>& lengths)
    : name_(name), lengths_(lengths) {
  if (header.kind != kPairsKind) {
    run_ = lengths.size();
    return;
  }
  for (Side side : {Side::source, Side::target}) {
    const auto tokenizer = parse_tokenizer(header.tokenizer_of(side), name);
    require_vocabulary(header, name, *tokenizer, "its own tokenizer", side);
    vocabulary_[static_cast<int>(side)] = tokenizer->size();
    end_[static_cast<int>(side)] = tokenizer->end_of_line();
  }
  if (std::find(lengths.begin(), lengths.end(), 0U) != lengths.end())
    damaged(name, 0, "pairs whose sides have at least their end", "an empty side");
  if (!lengths.empty()) left_ = lengths[0];
}

void PairCheck::add(std::span<const int32_t> tokens) {
  if (run_ == lengths_.size()) return;
  for (int32_t token : tokens) {
    const size_t side = run_ % 2;
    --left_;
    if (token >= vocabulary_[side] || (token == end_[side]) != (left_ == 0))
      damaged(name_, 0,
              str("tokens below ", vocabulary_[side], " on the ", side == 0 ? "source" : "target", " side, the end ",
                  end_[side], " after the last one"),
              str(token, " in pair ", run_ / 2 + 1, ", ", left_, " before its end"));
    if (left_ == 0 && ++run_ < lengths_.size()) left_ = lengths_[run_];
  }
}

}  // namespace mh::io
