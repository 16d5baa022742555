// Perplexity of a text, or of targets behind their sources: how it is cut, scored and reported.
//
//   independent-blocks  blocks of n tokens, each alone
//   context-window      chunks of n - c tokens, each behind the c tokens before it (fairseq)
//   streams             contiguous streams side by side, block after block, each behind a memory of those before it
//                       (Transformer-XL)
//   sentences           of pairs: each target behind its source, alone; of examples: each row
//
// Every token, or what is known of each row, is scored exactly once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "model/language_model.h"
#include "task/rows.h"

namespace mh::task {

// Some of a text's blocks, or of pairs, drawn evenly without repeats, in place of all.
struct Sample {
  int64_t blocks = 0;
  int64_t seed = 1;
  bool at_most = false;  // all there are where they are fewer, which else is refused
  void describe(Fields& f) {
    f.field("blocks", blocks, "look at so many of the text's whole blocks, or of pairs, drawn evenly; 0: at all",
            at_least(0));
    f.field("seed", seed, "of the draw", at_least(0));
  }
};

struct ScoringOptions {
  int64_t block = 0;
  int64_t context = 0;
  int64_t memory = -1;
  int64_t streams = 0;
  int64_t batch = 0;
  Sample sample;           // listed by itself, where a tool takes one
  bool sentences = false;  // of pairs; resolve() says it
  void describe(Fields& f) {
    f.field("block", block, "text: tokens in a row of a forward pass; 0: the model's block in training", at_least(0));
    f.field("context", context, "of them, tokens that are only context; 0: none", at_least(0));
    f.field("memory", memory, "positions kept from block to block; -1: as the model was trained, but 0 with --context",
            between(-1, 1 << 24));
    f.field("streams", streams, "with a memory: parts of the text that are read side by side; 0: 10",
            between(0, 1 << 24));
    f.field("batch", batch, "forward passes at once; 0: about 4096 tokens. Changes speed, not the score", at_least(0));
  }
};

// The options with every default filled in for a model and what it is asked about; of a text, block must be set. For
// pairs, block becomes the longest side, and batch says how many such pairs a pass has room for. Error(usage) for what
// makes no sense together or in this model, and for a sample of more blocks or pairs than there are.
ScoringOptions resolve(const ScoringOptions& given, model::LanguageModel& model, const Corpus& corpus);
// The name, as above, of what resolved options do.
const char* protocol_of(const ScoringOptions& resolved);

// Cuts `tokens` so that every one is scored exactly once: chunks of block - context scored tokens, each with the
// `context` tokens before it (fewer at the start). Error(usage) unless context < block.
std::vector<Row> make_chunks(int64_t tokens, int64_t block, int64_t context);

// A forward pass over rows of the corpus.
struct Pass {
  const std::vector<Row>& rows;
  const Batch& batch;
  const at::Tensor& hidden;  // (B, n, d), last hidden states
  // Rows of one lane follow each other from pass to pass; pairs have a lane each.
  int64_t first_lane;
  bool last;  // what comes next stands behind all of these lanes
  int64_t lane(size_t row) const {
    return rows[row].pair >= 0 ? rows[row].pair : first_lane + static_cast<int64_t>(row);
  }
};

struct Walk {
  attention::Observer* observer = nullptr;  // of the passes that are visited; told of their lengths
  std::function<void(const Pass&)> visit;
  std::function<void(int64_t done, int64_t all)> progress;  // in rows; may be left out
};

// Runs a model over a corpus as `options` say, rows that only fill a memory unvisited; pairs of like length go
// together. With gradients where the caller has them on; memories never carry them. Ends early where a signal asks the
// process to stop (base/signals.h). Error(usage) as resolve().
void walk(model::LanguageModel& model, const Corpus& corpus, const ScoringOptions& options, const Walk& walk);

struct Score {
  double nll = 0;      // nats, summed
  int64_t tokens = 0;  // scored
};

// What is told while a corpus is scored; each may be left out.
struct Listener {
  // Once for each target, in their order.
  std::function<void(int64_t index, int32_t token, double log_probability)> each;
  std::function<void(int64_t done, int64_t all)> progress;  // in rows
  attention::Observer* observer = nullptr;                  // of every forward pass
};

// Ends early, with what it has, where a signal asks the process to stop (base/signals.h).
Score score(model::LanguageModel& model, const Corpus& corpus, const ScoringOptions& options,
            const Listener& listener = {});

}  // namespace mh::task
