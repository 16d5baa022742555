// Scoring protocols, which split a corpus into the rows on which a model is scored (n: tokens in a row,
// c: context tokens):
//
//   independent-blocks  Text: consecutive blocks of n tokens, each scored without context: the first input of a block
//                       is the token before it, and no earlier token is read.
//   context-window      Text: each row scores up to n - c tokens and has up to c preceding tokens as context, as in
//                       fairseq.
//   streams             Text: parallel contiguous streams, read in blocks of n tokens; the memory holds the preceding
//                       tokens of each stream, as in Transformer-XL.
//   sentences           Sentence pairs, each target given its source, or examples; rows are independent.
//
// Without a sample, every token of a text, and every known target of another corpus, is scored exactly once.
#pragma once

#include <cstdint>

#include "base/fields.h"

namespace mh::data {

// A uniform sample, without replacement, of the blocks of a text or of the rows of another corpus.
struct SampleOptions {
  int64_t blocks = 0;  // size of the sample in blocks or rows; 0: no sample, the whole corpus
  int64_t seed = 1;
  // Whether `blocks` is the default of a tool that samples by default; a sample of more blocks than exist then takes
  // all. Otherwise it is an error.
  bool is_default_sample = false;
  void describe(Fields& f) {
    f.field("blocks", blocks,
            "number of blocks (text), sentence pairs or examples in a random sample of the corpus; 0: the whole corpus",
            at_least(0));
    f.field("seed", seed, "seed of the random sample of blocks, sentence pairs or examples", at_least(0));
  }
};

struct ScoringOptions {
  int64_t block = 0;
  int64_t context = 0;
  int64_t memory = -1;
  int64_t streams = 0;
  int64_t batch = 0;
  SampleOptions sample;               // not in describe(): tools that support samples call sample.describe()
  bool has_independent_rows = false;  // whether rows are independent (protocol "sentences"); set by Corpus::resolve()
  void describe(Fields& f) {
    f.field("block", block, "sequence length for a text, in tokens, context included; 0: sequence length of training",
            at_least(0));
    f.field("context", context,
            "number of context tokens, which are not scored, at the start of each sequence of a text; 0: no context",
            at_least(0));
    f.field("memory", memory,
            "length of the Transformer-XL memory in tokens; -1: model.transformer-xl.memory, or 0 with --context",
            between(-1, 1 << 24));
    f.field(
        "streams", streams,
        "with a memory: number of parallel streams into which the text is divided, each with a memory of its own; 0: "
        "the default, 10 streams",
        between(0, 1 << 24));
    f.field("batch", batch,
            "batch size: number of sequences in a forward pass; affects speed, not results; 0: as many as fit in about "
            "4096 tokens",
            at_least(0));
  }
};

// Returns the name of the scoring protocol of resolved options.
inline const char* protocol_of(const ScoringOptions& resolved) {
  if (resolved.has_independent_rows) return "sentences";
  return resolved.memory > 0 ? "streams" : resolved.context > 0 ? "context-window" : "independent-blocks";
}

}  // namespace mh::data
