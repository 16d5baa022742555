// Generation of text, one token at a time, with the key/value cache. The caller receives each token before the next one
// is computed, so on a GPU the host waits for each token. The host reads the logits and their log-sum-exp, and draws
// the token from the logits; at temperature 0 the GPU selects the most probable token, and the host reads this token
// instead of the logits. If the text need not be displayed while it is generated, beam_search() (beam_search.h), which
// can also sample, is faster.
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
  void describe(Fields& f) {
    f.field("length", length, "number of tokens to generate", at_least(1));
    f.field("temperature", temperature, "softmax temperature of sampling; 0: always the likeliest token", at_least(0));
    f.field("top_k", top_k, "number of likeliest tokens from which sampling draws; 0: all tokens", at_least(0));
    f.field("seed", seed, "random seed", at_least(0));
    f.field("samples", samples, "number of texts to generate", at_least(1));
  }
};

// Generates at most options.length tokens that continue `prompt`, which must not be empty, and calls `on_token` with
// every new token; `on_token` returns false to end the text. `sample`: index of the text, which selects its random
// stream.
void generate(model::LanguageModel& model, const std::vector<int32_t>& prompt, const GenerationOptions& options,
              int64_t sample, const std::function<bool(int32_t)>& on_token);

}  // namespace mh::search
