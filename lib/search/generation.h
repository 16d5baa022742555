// Generation of text: continues prompts by one token per forward pass, with the key/value cache.
//
// Texts whose prompts have the same number of tokens are generated together, as the rows of a batch. Such a batch needs
// no padding, and all its rows are at the same position, so that every attention stage and position encoding computes
// the same result as for a batch of one text. The first forward pass reads each prompt once; its row is then repeated
// for the samples of the prompt. Each of the following passes reads the weights once for all rows. A finished text
// leaves the batch.
//
// The tokens of a text do not depend on the other texts of its batch: the random stream depends only on the seed and
// the sample number, and on a CPU the logits have the same bits in every batch (nn::DecodingProducts), if all layers
// take the fused path of the project's CPU kernel (attention/fused/fused_cpu.h: head sizes that are multiples of 16)
// and, in bf16, the processor has bf16 instructions (nn/packed_weights.h). Otherwise logits agree up to rounding, and a
// token is the same unless two candidates are that close.
//
// The host reads the tokens of each step before the next step. On a GPU, beam_search() (beam_search.h), which can also
// sample, waits less often.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/fields.h"
#include "model/language_model.h"

namespace mh::search {

struct GenerationOptions {
  int64_t length = 100;
  double temperature = 1;
  int64_t top_k = 0;
  int64_t seed = 1;
  int64_t samples = 1;
  bool stop_at_end = false;
  int64_t batch = 16;
  void describe(Fields& f) {
    f.field("length", length, "number of tokens to generate", at_least(1));
    f.field("temperature", temperature, "softmax temperature of sampling; 0: greedy decoding", at_least(0));
    f.field("top_k", top_k, "number of likeliest tokens from which sampling draws; 0: all tokens", at_least(0));
    f.field("seed", seed, "random seed", at_least(0));
    f.field("samples", samples, "number of texts to generate for each prompt", at_least(1));
    f.field(
        "stop_at_end", stop_at_end,
        "end a text at its first end token: the end-of-line token, or a token that ends a text of a published model, "
        "such as </s>; otherwise a text continues after this token");
    f.field("batch", batch,
            "maximum number of texts that are generated together; only texts whose prompts have the same number of "
            "tokens are; affects speed and memory",
            between(1, 1 << 16));
  }
};

// Receives the generated tokens of a text, without its prompt. `prompt`: index of the prompt.
using GeneratedTextCallback = std::function<void(size_t prompt, const std::vector<int32_t>& tokens)>;

// Generates `options.samples` texts for each prompt and calls `on_text` for each text, in the order of the prompts and
// then of the sample numbers, which select the random streams. A text has options.length tokens; with stop_at_end, it
// has fewer if it ends with one of `end_ids`. No prompt may be empty. Throws Error(usage) if the model does not support
// incremental decoding; Error(failed) if a distribution is not finite.
void generate(model::LanguageModel& model, const std::vector<std::vector<int32_t>>& prompts,
              const std::vector<int32_t>& end_ids, const GenerationOptions& options,
              const GeneratedTextCallback& on_text);

}  // namespace mh::search
