// Perplexity of a text: how it is cut, scored and reported (facts: independent blocks or a context window, as fairseq).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "io/tokenizer.h"
#include "model/language_model.h"

namespace mh::task {

struct ScoringOptions {
  int64_t block = 0;
  int64_t context = 0;
  int64_t batch = 0;
  void describe(Fields& f) {
    f.field("block", block, "tokens in one forward pass; 0: the model's block in training", at_least(0));
    f.field("context", context, "of them, tokens that are only context; 0: independent blocks", at_least(0));
    f.field("batch", batch, "forward passes at once; 0: about 4096 tokens. Changes speed, not the score", at_least(0));
  }
};

// One forward pass: tokens [first, first + length) are given as targets, of which those from `scored` on are counted.
struct Chunk {
  int64_t first, scored, length;
};

// Cuts `tokens` so that every one is scored exactly once: chunks of block - context scored tokens, each with the
// `context` tokens before it (fewer at the start). Error(usage) unless context < block.
std::vector<Chunk> make_chunks(int64_t tokens, int64_t block, int64_t context);

struct Score {
  double nll = 0;      // nats, summed
  int64_t tokens = 0;  // scored
};

// Scores the text; token i is predicted from those before it in its chunk and token i-1, the first from an
// end-of-line symbol. `each` (or none) is called once for each token in order with its log-probability.
using EachToken = std::function<void(int64_t index, int32_t token, double log_probability)>;
Score score_text(model::LanguageModel& model, const std::vector<int32_t>& tokens, int32_t end_of_line,
                 const ScoringOptions& options, const EachToken& each = {});

}  // namespace mh::task
