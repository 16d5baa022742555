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
  std::string empty_handling = "refuse";
  void describe(Fields& f) {
    f.field("min_length", min_length,
            "minimum number of tokens of source and of target, end-of-line token excluded; other pairs are dropped",
            at_least(0));
    f.field("max_length", max_length,
            "maximum number of tokens of source and of target, end-of-line token excluded; other pairs are dropped; 0: "
            "no limit",
            at_least(0));
    f.field("max_ratio", max_ratio,
            "maximum ratio of the numbers of tokens of the longer and the shorter side; other pairs are dropped; 0: no "
            "limit",
            at_least(0));
    f.field("empty", empty_handling,
            "treatment of pairs with an empty source or target; refuse: stop with an error; drop: leave the pair out",
            {"refuse", "drop"});
  }
  // Throws Error(usage) if no pair can satisfy the limits.
  void check() const;
  // Returns why a pair of `source_length` and `target_length` tokens is dropped: the first of "empty", "short", "long"
  // and "ratio" that applies; null if the filters accept the pair.
  const char* drop_reason(size_t source_length, size_t target_length) const;
};

struct PairSummary {
  uint64_t num_pairs = 0;                       // number of pairs written
  std::map<std::string, uint64_t> num_dropped;  // number of dropped pairs by reason
  std::array<uint64_t, 2> num_tokens{};         // tokens of source and target, end-of-line tokens included
  std::array<uint64_t, 2> num_unknown{};        // unknown tokens of source and target
  uint64_t num_bytes = 0;                       // bytes read, source and target together
  double seconds = 0;
};

// Writes every pair that the filters accept as a record. Source and target must be UTF-8 text; the tokens of a source
// and of a target end with the end-of-line token, whatever the type of vocabulary. Throws Error(input), with file and
// line, if a line contains the end-of-line token as text (the word <eos>), and for an empty source or target unless
// filters.empty_handling is "drop". The shard's trailer counts the dropped pairs.
PairSummary encode_pairs(PairBatches& text, const Tokenizer& source, const Tokenizer& target,
                         const PairFilters& filters, int num_threads, io::ShardWriter& writer);

}  // namespace mh::text
