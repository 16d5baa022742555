// The scoring protocols: how a corpus is split into rows on which a model is scored.
//
//   independent-blocks  blocks of n tokens, each without context
//   context-window      chunks of n - c tokens, each after the c tokens before it (fairseq)
//   streams             contiguous parallel streams, block by block, each after a memory of the blocks before it
//                       (Transformer-XL)
//   sentences           independent rows: each target of a pair after its source, each example
//
// Every token, or every known target of a row, is scored exactly once.
#pragma once

#include <cstdint>

#include "base/fields.h"

namespace mh::data {

// A uniform sample, without replacement, of a text's blocks or of independent rows.
struct Sample {
  int64_t blocks = 0;
  int64_t seed = 1;
  bool at_most = false;  // a corpus with fewer blocks is taken whole; otherwise that is an error
  void describe(Fields& f) {
    f.field("blocks", blocks, "size of a random sample of the text's whole blocks, or of pairs; 0: all", at_least(0));
    f.field("seed", seed, "seed of the sample", at_least(0));
  }
};

struct ScoringOptions {
  int64_t block = 0;
  int64_t context = 0;
  int64_t memory = -1;
  int64_t streams = 0;
  int64_t batch = 0;
  Sample sample;           // described separately by tools that take a sample
  bool sentences = false;  // independent rows; set by Corpus::resolve()
  void describe(Fields& f) {
    f.field("block", block, "text: tokens in a row of a forward pass; 0: the block size of training", at_least(0));
    f.field("context", context, "text: tokens of a row that are context and not scored; 0: none", at_least(0));
    f.field("memory", memory, "length of the Transformer-XL memory in tokens; -1: as in the model, or 0 with --context",
            between(-1, 1 << 24));
    f.field("streams", streams, "with a memory: number of parallel streams of the text; 0: 10", between(0, 1 << 24));
    f.field("batch", batch, "rows in a forward pass; 0: about 4096 tokens. Changes speed, not the score", at_least(0));
  }
};

// Returns the protocol of resolved options, by the names above.
inline const char* protocol_of(const ScoringOptions& resolved) {
  if (resolved.sentences) return "sentences";
  return resolved.memory > 0 ? "streams" : resolved.context > 0 ? "context-window" : "independent-blocks";
}

}  // namespace mh::data
