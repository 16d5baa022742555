// The hypotheses of each sentence, and the rules by which hypotheses are extended and finished. The two searches
// (beam_search.cpp on the host, device_search.h on a GPU) share these rules; each search computes the scores and
// assigns hypotheses to rows of the batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "search/beam_search.h"

namespace mh::search {

using Sentences = std::vector<const Sentence*>;

// A live, that is, unfinished hypothesis.
struct LiveHypothesis {
  std::vector<int32_t> tokens;
  double log_probability = 0;  // nats, summed over the tokens
  int64_t slot = 0;            // index of the row among the rows of the sentence; after an extension, the parent's slot
};

// The state of the search for one sentence.
struct Beam {
  size_t sentence = 0;                           // index in the Sentences of the search
  int64_t max_length = 0;                        // maximum length of a hypothesis in tokens, end token excluded
  std::vector<LiveHypothesis> live_hypotheses;   // beam search: best first; sampling: in the order of sample numbers
  std::vector<RandomSequence> random_sequences;  // sampling: random streams, by sample number
  std::vector<size_t> sample_numbers;            // sampling: sample number of each live hypothesis
  std::vector<Hypothesis> finished_hypotheses;   // beam search: in the order of finishing; sampling: by sample number
};

// A possible extension of a live hypothesis by a token.
struct Extension {
  double log_probability = 0;  // log-probability of the extended hypothesis, nats
  size_t rank = 0;             // index of the hypothesis in Beam::live_hypotheses
  int32_t token = 0;           // next token
};
// Returns whether extension x is better than y. Extensions with equal log-probabilities are ordered by rank, then by
// token.
inline bool precedes(const Extension& x, const Extension& y) {
  return x.log_probability != y.log_probability ? x.log_probability > y.log_probability
         : x.rank != y.rank                     ? x.rank < y.rank
                                                : x.token < y.token;
}

// The rules of beam search and sampling: which tokens are allowed, which extensions become live or finished hypotheses.
class BeamPolicy {
 public:
  BeamPolicy(const SpecialTokens& special_tokens, const SearchOptions& options, const SamplingOptions& sampling)
      : special_tokens_(special_tokens), options_(options), sampling_(sampling) {}
  const SpecialTokens& special_tokens() const { return special_tokens_; }
  const SearchOptions& options() const { return options_; }
  const SamplingOptions& sampling() const { return sampling_; }
  // Returns whether tokens are sampled instead of searched.
  bool is_sampling() const { return sampling_.samples > 0; }

  // Returns the initial beam of each sentence. Throws Error(usage) if a prefix is longer than the maximum length.
  std::vector<Beam> initial_beams(model::LanguageModel& model, const Sentences& sentences) const;
  // Returns the token that is forced after the first `length` tokens of a hypothesis: the next token of the prefix, or
  // at the maximum length the end token; -1: no token is forced.
  int32_t forced_token(const Sentence& sentence, const Beam& beam, int64_t length) const;
  // Returns the tokens that must not extend hypotheses with `length` tokens, unless a token is forced: the end token
  // below the minimum length, the unknown token if `no_unknown` is set, and the start token.
  std::vector<int32_t> excluded_tokens(int64_t length) const;
  // Replaces the live hypotheses, which have `length` tokens, by their extensions, and finishes hypotheses.
  // `extensions`: best first; with sampling, one for each live hypothesis. In beam search, throws Error(usage) if no
  // extension is allowed and no hypothesis is finished.
  void advance(Beam& beam, std::span<const Extension> extensions, int64_t length) const;
  // Throws Error(usage) because every token of the vocabulary is excluded, for example in a vocabulary that has only
  // the end token and the unknown token.
  [[noreturn]] static void throw_no_candidates();
  // Moves the finished hypotheses out of a beam and returns them, best first, or in the order of sample numbers with
  // sampling.
  std::vector<Hypothesis> take_results(Beam& beam) const;

 private:
  // Returns the finished hypothesis that extends the live hypothesis p of `length` tokens by the end token.
  // `log_probability`: log-probability of the extended hypothesis.
  Hypothesis finish(const LiveHypothesis& p, double log_probability, int64_t length) const;
  SpecialTokens special_tokens_;
  SearchOptions options_;
  SamplingOptions sampling_;
};

// Sets input.source (R, Ts) and input.lengths.encoder (R), both int64 and on the CPU, for the first forward pass. Each
// sentence has `rows_per_sentence` equal rows; R is the number of rows of all sentences. All sources are padded to a
// common length Ts.
void set_sources(model::LanguageModel& model, const Sentences& sentences, int64_t rows_per_sentence,
                 model::Input& input);

}  // namespace mh::search
