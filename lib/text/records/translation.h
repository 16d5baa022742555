// Pairs of lines to a translation shard, in parallel and in order, by filters of their lengths.
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
    f.field("min_length", min_length, "drop pairs with a side of fewer tokens, its end not counted", at_least(0));
    f.field("max_length", max_length, "drop pairs with a side of more tokens; 0: no bound", at_least(0));
    f.field("max_ratio", max_ratio,
            "drop pairs whose longer side has more than so many times the tokens of the shorter; "
            "0: no bound",
            at_least(0));
    f.field("empty", empty, "a pair with an empty side", {"refuse", "drop"});
  }
  // Refuses bounds that nothing fits. Error(usage).
  void check() const;
  // Why a pair of sides of so many tokens is dropped: "empty", "short", "long" or "ratio", the first that holds;
  // nullptr where it is kept.
  const char* against(size_t source, size_t target) const;
};

struct PairSummary {
  uint64_t pairs = 0;  // kept
  std::map<std::string, uint64_t> dropped;
  std::array<uint64_t, 2> tokens{};   // of source and target, their ends included
  std::array<uint64_t, 2> unknown{};  // of these
  uint64_t bytes = 0;                 // read, both sides
  double seconds = 0;
};

// Every pair that the filters keep becomes a record; either side ends in its end-of-line token, whatever the
// vocabulary, and is UTF-8 text. Error(input), with file and line, for a side that holds that token otherwise (the word
// <eos>), and for an empty one unless filters.empty says to drop it. What was dropped stands in the shard's trailer.
PairSummary encode_pairs(PairBatches& text, const Tokenizer& source, const Tokenizer& target,
                         const PairFilters& filters, int threads, io::ShardWriter& writer);

}  // namespace mh::text
