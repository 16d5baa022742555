// Encodes pairs of lines to a translation shard with several threads, in the order of the pairs, and filters pairs by
// length.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "base/fields.h"
#include "io/shard.h"
#include "text/records/translation/pair_batches.h"
#include "text/tokenizer.h"

namespace mh::text {

struct PairFilters {
  int64_t min_length = 0;
  int64_t max_length = 0;
  double max_ratio = 0;
  std::string empty = "refuse";
  void describe(Fields& f) {
    f.field("min_length", min_length,
            "minimum number of tokens of each side, end token excluded; pairs with a shorter side are dropped",
            at_least(0));
    f.field(
        "max_length", max_length,
        "maximum number of tokens of each side, end token excluded; pairs with a longer side are dropped; 0: no limit",
        at_least(0));
    f.field(
        "max_ratio", max_ratio,
        "maximum ratio of the tokens of the longer side to those of the shorter; other pairs are dropped; 0: no limit",
        at_least(0));
    f.field("empty", empty, "treatment of pairs with an empty side", {"refuse", "drop"});
  }
  // Throws Error(usage) for bounds that no pair can satisfy.
  void check() const;
  // Returns why a pair with these numbers of tokens is dropped: the first of "empty", "short", "long" and "ratio" that
  // applies; null if the pair is kept.
  const char* why_dropped(size_t source, size_t target) const;
};

struct PairSummary {
  uint64_t pairs = 0;                       // number of kept pairs
  std::map<std::string, uint64_t> dropped;  // dropped pairs by reason
  std::array<uint64_t, 2> tokens{};         // tokens of source and target, end-of-line tokens included
  std::array<uint64_t, 2> unknown{};        // unknown tokens among them
  uint64_t bytes = 0;                       // bytes read, of both sides
  double seconds = 0;
};

// Writes every pair that the filters keep as a record. Each side must be UTF-8 text, and ends in its end-of-line token
// with every type of vocabulary. Throws Error(input), with file and line, for a side whose text contains that token
// (the word <eos>), and for an empty side unless filters.empty is "drop". The shard's trailer counts the dropped pairs.
PairSummary encode_pairs(PairBatches& text, const Tokenizer& source, const Tokenizer& target,
                         const PairFilters& filters, int threads, io::ShardWriter& writer);

}  // namespace mh::text
