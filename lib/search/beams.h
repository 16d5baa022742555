// The hypotheses of a search, by sentence, and the rule that extends and ends them. Each search (beam_search.cpp,
// device_search.h) computes the scores and places the rows of the model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "search/beam_search.h"

namespace mh::search {

using Sentences = std::vector<const Sentence*>;

// A live hypothesis: one that is not finished.
struct Partial {
  std::vector<int32_t> tokens;
  double sum = 0;    // sum of log p, nats
  int64_t slot = 0;  // row of the batch among those of its sentence; of a new hypothesis, its parent's
};

// The search of one sentence.
struct Beam {
  size_t sentence = 0;
  int64_t longest = 0;
  std::vector<Partial> live;           // best first; samples: in order
  std::vector<RandomSequence> random;  // random stream of each sample
  std::vector<size_t> samples;         // sample number of each live hypothesis
  std::vector<Hypothesis> finished;
};

// A live hypothesis extended by a token.
struct Extension {
  double sum = 0;   // sum of log p, including this token
  size_t rank = 0;  // rank of the hypothesis
  int32_t token = 0;
};
// Returns whether extension x comes before y in the order of a step.
inline bool precedes(const Extension& x, const Extension& y) {
  return x.sum != y.sum ? x.sum > y.sum : x.rank != y.rank ? x.rank < y.rank : x.token < y.token;
}

class BeamPolicy {
 public:
  BeamPolicy(const EndTokens& ends, const SearchOptions& options, const SamplingOptions& sampling)
      : end_tokens_(ends), options_(options), sampling_(sampling) {}
  const EndTokens& end_tokens() const { return end_tokens_; }
  const SearchOptions& options() const { return options_; }
  const SamplingOptions& sampling() const { return sampling_; }
  bool samples() const { return sampling_.samples > 0; }

  // Returns a beam for each sentence. Throws Error(usage) for a prefix that is too long.
  std::vector<Beam> begin(model::LanguageModel& model, const Sentences& sentences) const;
  // Returns the only token that may follow hypotheses of `length` tokens, or -1 if any may.
  int32_t forced(const Sentence& sentence, const Beam& beam, int64_t length) const;
  // Returns the tokens that must not follow if none is forced.
  std::vector<int32_t> excluded(int64_t length) const;
  // Applies the extensions of a step, in their order; for samples, one for each live hypothesis. Throws Error(usage) if
  // there is none.
  void advance(Beam& beam, std::span<const Extension> extensions, int64_t length) const;
  // Throws Error(usage): no token may follow, as in a vocabulary of the end, which comes too early, and the unknown
  // token.
  [[noreturn]] static void throw_no_candidates();
  // Returns the hypotheses of a finished beam, best first.
  std::vector<Hypothesis> results(Beam& beam) const;

 private:
  Hypothesis finished(const Partial& p, double sum, int64_t length) const;
  EndTokens end_tokens_;
  SearchOptions options_;
  SamplingOptions sampling_;
};

// Fills in the sources, with their lengths, of a model's first pass over `width` rows of each sentence.
void read_sources(model::LanguageModel& model, const Sentences& sentences, int64_t width, model::Input& input);

}  // namespace mh::search
