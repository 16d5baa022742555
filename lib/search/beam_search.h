// Beam search over the key/value cache of a model, for many sentences at once.
//
// A hypothesis y_1 … y_n, whose last token is the end, has the score Σ log p(y_t | …) / n^length_penalty. Each step
// takes the 2·beam likeliest extensions; those among the first `beam` that end are finished, and the first `beam` that
// do not end stay live. A sentence is done once it has `beam` finished hypotheses (fairseq's rule), or all have met the
// maximum length, at which every hypothesis must end; the finished hypotheses then compete by their scores. A beam of 1
// is greedy search.
//
// Among candidates with equal scores the extension of the better hypothesis comes first, then the smaller token,
// whatever else is in the batch. The result of a sentence is the same alone and in any batch, bit for bit
// (model::DecodingProducts), if all layers take the fused path through our kernel (attention/fused/fused_cpu.h: on a
// CPU, head sizes that are multiples of 16) and no sentence has more rows, of its beam or its samples, than
// kernels::kMaxDecodeQueries. Rows are queries of one source: with more, prefixes and finished samples leave few rows
// in some sentences, for which attention uses another kernel that rounds differently. Then, and on the composed path,
// whose products have the shape of the longest sentence of the batch, scores agree to a relative error of about 2e-7,
// and tokens agree unless two extensions are that close.
//
// On a GPU the steps are tensor operations (device_search.h), and the host reads their results every few steps. If an
// observer, which must see real hypotheses only, observes the passes, the host reads the results of each step.
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
    f.field("beam", beam, "beam size; 1: greedy search", between(1, 1 << 16));
    f.field("length_penalty", length_penalty,
            "exponent of the length, end token included, by which scores are divided; above 1 favours long hypotheses",
            between(-10, 10));
    f.field("max_length_a", max_length_a,
            "a in the maximum length ax + b of a hypothesis in tokens, end token excluded; x: source length, end token "
            "included",
            between(0, 1000));
    f.field("max_length_b", max_length_b,
            "b in the maximum length ax + b of a hypothesis in tokens, end token excluded", between(0, 1 << 20));
    f.field("min_length", min_length, "minimum length, end token excluded; limited by the maximum length",
            between(0, 1 << 20));
    f.field("no_unknown", no_unknown, "whether the unknown token is banned");
  }
  // Throws Error(usage) for a beam wider than the vocabulary, and a minimum length above every maximum.
  void check(model::LanguageModel& model) const;
};

// Options of sampling, which replaces the search: each token is drawn from the model's distribution.
struct SamplingOptions {
  int64_t samples = 0;
  double temperature = 1;
  int64_t top_k = 0;
  int64_t seed = 1;
  void describe(Fields& f) {
    f.field("samples", samples, "number of samples of each sentence; 0: beam search", between(0, 1 << 16));
    f.field("temperature", temperature, "samples: temperature of the softmax; 0: always the likeliest token",
            at_least(0));
    f.field("top_k", top_k, "samples: number of likeliest tokens to sample from; 0: all", at_least(0));
    f.field("seed", seed, "samples: random seed", at_least(0));
  }
};

// The input of a search.
struct Sentence {
  std::vector<int32_t> source;  // with its end; empty for a model without an encoder
  std::vector<int32_t> prefix;  // first tokens of every hypothesis
  int64_t number = 0;           // number of its random stream
};

struct Hypothesis {
  std::vector<int32_t> tokens;  // the last token is the end
  double log_probability = 0;   // nats, summed over all tokens, the end and a forced prefix included
  double score = 0;
};

// Special tokens of the target vocabulary: the token that ends a hypothesis, from which the first token is predicted,
// and the unknown token (-1: none).
struct EndTokens {
  int32_t end = 0, unknown = -1;
};

// Returns the maximum number of tokens of a hypothesis for a source of `source` tokens, without the end: by the
// options, and at most the positions of the model.
int64_t longest_hypothesis(const SearchOptions& options, model::LanguageModel& model, int64_t source);

// Returns the hypotheses of each sentence, best first, at most `beam` and all different; with sampling, its samples in
// the order in which they were drawn. Finished sentences leave the batch. A signal that asks the process to stop
// (base/signals.h) ends the search early; sentences that are not finished then have no hypotheses. Throws Error(usage)
// for a prefix longer than a hypothesis may be, and for options that the model does not support; Error(failed) if a
// distribution is not finite. `observer` observes each pass; may be null.
std::vector<std::vector<Hypothesis>> beam_search(model::LanguageModel& model, const std::vector<Sentence>& sentences,
                                                 const EndTokens& ends, const SearchOptions& options,
                                                 const SamplingOptions& sampling = {},
                                                 attention::Observer* observer = nullptr);

}  // namespace mh::search
