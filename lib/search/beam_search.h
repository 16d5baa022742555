// Beam search, and sampling, with the key/value cache of a model, for many sentences at once.
//
// A hypothesis y_1 … y_n, whose last token is the end token, has the score Σ log p(y_t | …) / n^length_penalty. Each
// step considers the 2·`beam` most probable extensions of the live hypotheses of a sentence. Of the first `beam`
// extensions, those by the end token become finished hypotheses; the first `beam` extensions by another token become
// the live hypotheses. The search for a sentence ends as soon as the sentence has `beam` finished hypotheses (the rule
// of fairseq), or when its hypotheses reach the maximum length, at which the end token is forced. The finished
// hypotheses are then sorted by score. A beam of 1 is greedy search.
//
// Among extensions with equal log-probabilities, the extension of the better hypothesis comes first; of two extensions
// of one hypothesis, the extension with the smaller token. The order does not depend on the other sentences of the
// batch. The result of a sentence is the same, bit for bit, in every batch (nn::DecodingProducts), if all layers take
// the fused path of the project's CPU kernel (attention/fused/fused_cpu.h: head sizes that are multiples of 16), and if
// no sentence has more rows (beam size or number of samples) than attention::max_decode_queries(). Otherwise, the
// scores of a sentence in different batches agree to a relative error of about 2e-7, and the tokens agree unless the
// scores of two extensions are that close. The reasons: on the composed path, the shape of the products depends on the
// longest sentence of the batch; on the fused path, cross-attention computes the rows of a sentence as queries of one
// source. Forced prefixes and finished samples reduce the number of these queries, and for max_decode_queries() queries
// or fewer another kernel is used, which rounds differently.
//
// On a GPU the steps are tensor operations (device_search.h), and the host reads their results every few steps. With an
// observer, the host reads the results of each step and removes finished sentences from the batch, so that the observer
// does not receive the rows of finished sentences.
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
            "length penalty p: the log-probability of a hypothesis is divided by length^p, where the length includes "
            "the end token; values above 1 favour long hypotheses",
            between(-10, 10));
    f.field("max_length_a", max_length_a,
            "factor a of the maximum hypothesis length ax + b in tokens, end token excluded, for a source of x tokens, "
            "end token included",
            between(0, 1000));
    f.field(
        "max_length_b", max_length_b,
        "constant b of the maximum hypothesis length ax + b in tokens, end token excluded, for a source of x tokens, "
        "end token included",
        between(0, 1 << 20));
    f.field("min_length", min_length,
            "minimum length of a hypothesis in tokens, end token excluded; the maximum length takes precedence",
            between(0, 1 << 20));
    f.field("no_unknown", no_unknown, "forbid the unknown token in hypotheses");
  }
  // Throws Error(usage) if the beam size exceeds the size of the vocabulary, or if the minimum length exceeds the
  // longest hypothesis that the model supports or, if `max_length_a` is 0, exceeds `max_length_b`. `section`: section
  // of the options, for messages; empty: they are options of the command line.
  void check(model::LanguageModel& model, const std::string& section = "") const;
};

// Options of sampling: if `samples` is above 0, each token is drawn from the distribution of the model instead of
// searched.
struct SamplingOptions {
  int64_t samples = 0;
  double temperature = 1;
  int64_t top_k = 0;
  int64_t seed = 1;
  void describe(Fields& f) {
    f.field("samples", samples,
            "number of hypotheses to sample for each sentence, instead of beam search; 0: beam search",
            between(0, 1 << 16));
    f.field("temperature", temperature, "softmax temperature of sampling; 0: greedy decoding", at_least(0));
    f.field("top_k", top_k, "number of likeliest tokens from which sampling draws; 0: all tokens", at_least(0));
    f.field("seed", seed, "random seed of sampling", at_least(0));
  }
};

// The input of the search for one sentence.
struct Sentence {
  std::vector<int32_t> source;  // source tokens with the end token; empty for a model without an encoder
  std::vector<int32_t> prefix;  // forced first tokens of every hypothesis
  int64_t index = 0;            // index of the sentence, from 0, which selects its random stream
};

struct Hypothesis {
  std::vector<int32_t> tokens;  // tokens of the hypothesis, the last of which is the end token
  double log_probability = 0;   // nats, summed over all tokens, including the end token and a forced prefix
  double score = 0;             // log_probability / tokens.size()^length_penalty
};

// Special tokens of the target vocabulary. `end_id`: the token that ends a hypothesis, and that precedes the first
// token as input of the model. `unknown_id`: the unknown token; -1: the vocabulary has none. `start_id`: the token that
// the model reads in place of the first end token (model::LanguageModel::start_token()), which extends no hypothesis;
// -1: none.
struct SpecialTokens {
  int32_t end_id = 0, unknown_id = -1, start_id = -1;
};

// Returns the maximum length of a hypothesis in tokens, end token excluded, for a source of `source_length` tokens, end
// token included. The options and the maximum input length of the model limit the length.
int64_t max_hypothesis_length(const SearchOptions& options, model::LanguageModel& model, int64_t source_length);

// Returns the hypotheses of each sentence: with beam search, at most `beam` different hypotheses, best first; with
// sampling, all samples, in the order of their random streams. Finished sentences are removed from the batch. If a
// signal requests the process to stop (base/signals.h), the search ends early, and unfinished sentences have no
// hypotheses. `observer`: receives the tensors of each forward pass; may be null. Throws Error(usage) if a prefix is
// longer than the maximum length, if the model does not support incremental decoding, or if all tokens are excluded;
// Error(failed) if a distribution is not finite.
std::vector<std::vector<Hypothesis>> beam_search(model::LanguageModel& model, const std::vector<Sentence>& sentences,
                                                 const SpecialTokens& special_tokens, const SearchOptions& options,
                                                 const SamplingOptions& sampling = {},
                                                 attention::Observer* observer = nullptr);

}  // namespace mh::search
