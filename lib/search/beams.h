// The hypotheses of a search, sentence by sentence, and the rule by which they go on and end. What numbers it goes by
// and where the model's rows are is a search's own (beam_search.cpp, device_search.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "search/beam_search.h"

namespace mh::search {

using Sentences = std::vector<const Sentence*>;

// A hypothesis that is not finished.
struct Partial {
  std::vector<int32_t> tokens;
  double sum = 0;    // of log p, nats
  int64_t slot = 0;  // which of its sentence's rows of the batch is its own; of a new one, its parent's
};

// What is searched of one sentence.
struct Beam {
  size_t sentence = 0;
  int64_t longest = 0;
  std::vector<Partial> live;           // best first; samples: in their order
  std::vector<RandomSequence> random;  // of each sample
  std::vector<size_t> samples;         // of each live one
  std::vector<Hypothesis> finished;
};

// A token behind a live hypothesis.
struct Extension {
  double sum = 0;   // of log p, this token's included
  size_t rank = 0;  // of the hypothesis
  int32_t token = 0;
};
// The order in which ways are taken.
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

  // A beam for each sentence. Error(usage) for a prefix that is too long.
  std::vector<Beam> begin(model::LanguageModel& model, const Sentences& sentences) const;
  // Of a sentence whose hypotheses have `length` tokens: the only one that may come next, or -1.
  int32_t forced(const Sentence& sentence, const Beam& beam, int64_t length) const;
  // What may not come next where nothing is forced.
  std::vector<int32_t> banned(int64_t length) const;
  // Takes the ways of a step, those first that are taken first; of samples, one behind each live one in their order.
  // Error(usage) where there is none at all.
  void advance(Beam& beam, std::span<const Extension> extensions, int64_t length) const;
  // A vocabulary may have nothing that could come next: its end too early, its other token the unknown one.
  [[noreturn]] static void throw_no_candidates();
  // Of a beam that is done, best first.
  std::vector<Hypothesis> results(Beam& beam) const;

 private:
  Hypothesis finished(const Partial& p, double sum, int64_t length) const;
  EndTokens end_tokens_;
  SearchOptions options_;
  SamplingOptions sampling_;
};

// Sources for a model's first pass over `width` rows of each sentence, with their lengths.
void read_sources(model::LanguageModel& model, const Sentences& sentences, int64_t width, model::Input& input);

}  // namespace mh::search
