// Beam search over the cache of a model: the likeliest continuations that it finds, of many sentences at once.
//
// A hypothesis y_1 … y_n, whose last token is the end, has the score Σ log p(y_t | …) / n^length_penalty. In each step
// the 2·beam likeliest ways to go on are looked at; those that end among the first `beam` of them are finished, and the
// first `beam` that do not end go on. A sentence is done once it has `beam` finished ones (fairseq's rule), or all have
// met the maximum length, at which every hypothesis must end; the finished ones then compete by their scores. A beam of
// 1 is greedy search.
//
// Of candidates with equal scores the one of the better hypothesis comes first, then the smaller token, whatever else
// is in the batch. What a sentence becomes is the same alone and in any batch, bit for bit (model::DecodingProducts),
// where all layers take the fused path through the project's own kernel (attention/fused/fused_cpu.h: on a CPU, heads
// of a multiple of 16 numbers) and no sentence has more rows, of its beam or its samples, than kernels::kFewQueries.
// Rows are queries of one source: of more, prefixes and samples that end leave a few here and many there, which
// attention takes another way. Then, and on the composed path, whose products have the shape of the longest sentence of
// the batch, scores agree to about 2e-7 of themselves, and tokens unless two ways to go on are as near as that.
//
// On a GPU the steps are operations on tensors alone (device_search.h), and the host looks at what they have seen every
// few of them; where an observer sees the passes, which is told of no hypothesis that is none, it looks at each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/fields.h"
#include "model/language_model.h"

namespace mh::search {

struct SearchOptions {
  int64_t beam = 5;
  double length_penalty = 1;
  double max_length_a = 0;
  int64_t max_length_b = 200;
  int64_t min_length = 1;
  bool no_unknown = false;
  void describe(Fields& f) {
    f.field("beam", beam, "hypotheses that go on side by side; 1: greedy", between(1, 1 << 16));
    f.field("length_penalty", length_penalty,
            "scores are divided by the length, its end included, to this power; above 1 favours long ones",
            between(-10, 10));
    f.field("max_length_a", max_length_a, "tokens at most: this for each of the source, its end included,",
            between(0, 1000));
    f.field("max_length_b", max_length_b, "and these, the translation's end not counted", between(0, 1 << 20));
    f.field("min_length", min_length, "tokens at least, the end not counted; no more than the most of its source",
            between(0, 1 << 20));
    f.field("no_unknown", no_unknown, "never write the unknown token");
  }
  // Error(usage) for a beam wider than the vocabulary, and a least length above every greatest one.
  void check(model::LanguageModel& model) const;
};

// Draws in place of a search: each token from the model's distribution.
struct SamplingOptions {
  int64_t samples = 0;
  double temperature = 1;
  int64_t top_k = 0;
  int64_t seed = 1;
  void describe(Fields& f) {
    f.field("samples", samples, "draw so many translations of each sentence instead; 0: search", between(0, 1 << 16));
    f.field("temperature", temperature, "samples: below 1: nearer to the likeliest; 0: always the likeliest",
            at_least(0));
    f.field("top_k", top_k, "samples: choose among the k likeliest tokens only; 0: among all", at_least(0));
    f.field("seed", seed, "samples: the same seed gives the same ones", at_least(0));
  }
};

// What is to be continued.
struct Sentence {
  std::vector<int32_t> source;  // with its end; empty for a model without an encoder
  std::vector<int32_t> prefix;  // what the answer must begin with
  int64_t number = 0;           // what its random numbers follow from
};

struct Hypothesis {
  std::vector<int32_t> tokens;  // the last is the end
  double log_probability = 0;   // nats, summed over all tokens, the end and a forced prefix included
  double score = 0;
};

// Of the vocabulary that is written: the token that ends a hypothesis, from which the first is predicted too, and the
// unknown one (-1: none).
struct EndTokens {
  int32_t end = 0, unknown = -1;
};

// The most tokens of a hypothesis for a source of so many, the end not counted: as the options say, and no more than
// the model's positions.
int64_t longest_hypothesis(const SearchOptions& options, model::LanguageModel& model, int64_t source);

// Of each sentence its hypotheses, best first, at most `beam` and all different; or where `sampling` asks for samples
// these, in the order in which they were drawn. Sentences leave the batch as they are done. A signal that asks the
// process to stop (base/signals.h) ends it early: what is then not done is empty. Error(usage) for a prefix longer than
// a hypothesis may be, and where options and model do not go together; Error(failed) where a distribution is not
// finite. `observer` sees each pass, and may be null.
std::vector<std::vector<Hypothesis>> beam_search(model::LanguageModel& model, const std::vector<Sentence>& sentences,
                                                 const EndTokens& ends, const SearchOptions& options,
                                                 const SamplingOptions& sampling = {},
                                                 attention::Observer* observer = nullptr);

}  // namespace mh::search
