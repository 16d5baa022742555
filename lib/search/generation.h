// Generation of text, one token at a time over the cache. Each token is drawn on the host and reported at once, so on a
// GPU each costs a round trip: of the logits, or of the token alone if it is the likeliest (temperature 0). Beam search
// (beam_search.h) is faster if the text need not appear while it is written.
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
    f.field("temperature", temperature, "temperature of the softmax; 0: always the likeliest token", at_least(0));
    f.field("top_k", top_k, "number of likeliest tokens to sample from; 0: all", at_least(0));
    f.field("seed", seed, "random seed", at_least(0));
    f.field("samples", samples, "number of texts", at_least(1));
  }
};

// Continues `prompt`, which is not empty. `each` receives every new token; it returns false to end the text. `sample`
// numbers the texts of one call: each has its own random stream.
void generate(model::LanguageModel& model, const std::vector<int32_t>& prompt, const GenerationOptions& options,
              int64_t sample, const std::function<bool(int32_t)>& each);

}  // namespace mh::search
