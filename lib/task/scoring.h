// Perplexity of a text: how it is cut, scored and reported.
//
//   independent-blocks  blocks of n tokens, each alone
//   context-window      chunks of n - c tokens, each behind the c tokens before it (fairseq)
//   streams             contiguous streams side by side, block after block, each behind a memory of those before it
//                       (Transformer-XL)
//
// Every token is scored exactly once.
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

struct ScoringOptions {
  int64_t block = 0;
  int64_t context = 0;
  int64_t memory = -1;
  int64_t streams = 0;
  int64_t batch = 0;
  void describe(Fields& f) {
    f.field("block", block, "tokens in one forward pass; 0: the model's block in training", at_least(0));
    f.field("context", context, "of them, tokens that are only context; 0: none", at_least(0));
    f.field("memory", memory, "positions kept from block to block; -1: as the model was trained, but 0 with --context",
            between(-1, 1 << 24));
    f.field("streams", streams, "with a memory: parts of the text that are read side by side; 0: 10",
            between(0, 1 << 24));
    f.field("batch", batch, "forward passes at once; 0: about 4096 tokens. Changes speed, not the score", at_least(0));
  }
};

// The options with every default filled in for a model and the length of a text; block must be set. Error(usage) for
// what makes no sense together or in this model.
ScoringOptions resolve(const ScoringOptions& given, model::LanguageModel& model, int64_t tokens);
// The name, as above, of what resolved options do.
const char* protocol_of(const ScoringOptions& resolved);

// Cuts `tokens` so that every one is scored exactly once: chunks of block - context scored tokens, each with the
// `context` tokens before it (fewer at the start). Error(usage) unless context < block.
std::vector<Row> make_chunks(int64_t tokens, int64_t block, int64_t context);

struct Score {
  double nll = 0;      // nats, summed
  int64_t tokens = 0;  // scored
};

// What is told while a text is scored; each may be left out.
struct Listener {
  // Once for each token, in the order of the text.
  std::function<void(int64_t index, int32_t token, double log_probability)> each;
  std::function<void(int64_t done, int64_t all)> progress;  // in rows
  attention::Observer* observer = nullptr;                  // of every forward pass
};

// Ends early, with what it has, where a signal asks the process to stop (base/signals.h).
Score score_text(model::LanguageModel& model, const Text& text, const ScoringOptions& options,
                 const Listener& listener = {});

}  // namespace mh::task
