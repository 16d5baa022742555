// Options of the rows of an update: [train.batch].
#pragma once

#include <cstdint>

#include "base/fields.h"

namespace mh::data {

enum class Batching { blocks, streams };

struct BatchOptions {
  Batching order = Batching::blocks;
  int64_t block = 512;
  int64_t tokens = 4096;
  int64_t rows = 0;
  int64_t micro_tokens = 0;
  int64_t bucket_updates = 1;
  int64_t long_block = 0;
  Length long_from{0, Length::Unit::updates};
  void check() const;
  void describe(Fields& f) {
    f.choice(
        "order", order, {{Batching::blocks, "blocks"}, {Batching::streams, "streams"}},
        "Order of the rows. blocks: shuffled blocks of a text, or shuffled pairs of similar length. streams: rows in "
        "the order of the text, which a memory requires");
    f.field("block", block, "Tokens in a row; of pairs the largest length of the longer side.", between(1, 1 << 20));
    f.field("tokens", tokens, "Maximum number of tokens in an update, padding included.", between(1, 1 << 30));
    f.field("rows", rows, "Rows in an update of examples, in place of tokens; 0: tokens / block.", between(0, 1 << 24));
    f.field("micro_tokens", micro_tokens, "Maximum number of tokens in a micro-batch; 0: the whole update.",
            between(0, 1 << 30))
        .changeable();
    f.field("bucket_updates", bucket_updates,
            "Length bucketing of examples: the rows of this many updates are sorted by length and divided among the "
            "updates; 1: no bucketing.",
            between(1, 1 << 16));
    f.field("long_block", long_block, "Tokens in a row of examples from long_from on; 0: block.", between(0, 1 << 20));
    f.field("long_from", long_from, "Update from which on rows of examples have long_block tokens.");
  }
};

}  // namespace mh::data
