// chrF (Popović 2015) and chrF++ (Popović 2017), equal to sacrebleu 2.x to the last digit on the same plain text:
//
//   chrF = 100 · (1 + β²) P R / (β² P + R),   β = 2
//
// P and R: fractions of the n-grams of the hypothesis, and of the reference, that the other has too, averaged over the
// orders of which both have n-grams: characters without white space, n = 1 … 6, and for chrF++ words, n = 1 and 2,
// whose last punctuation mark (or else the first) is a word of its own. With several references, a sentence takes the
// best one.
//
// The statistics of sentences are stored and added, as for BLEU (bleu.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "metrics/ngrams.h"
#include "metrics/word_ids.h"

namespace mh::metrics {

struct ChrfOptions {
  bool lowercase = false;
  int64_t words = 0;
  static constexpr int64_t kMostWords = 2;
  void describe(Fields& f) {
    f.field("words", words, "maximum order of word n-grams; 2 is chrF++", between(0, kMostWords));
  }
};

struct ChrfStatistics {
  static constexpr size_t kCharacters = 6, kOrders = kCharacters + ChrfOptions::kMostWords;
  struct Counts {
    int64_t hypothesis = 0;  // n-grams; 0 if the reference of the sentence has none, so that none can match
    int64_t reference = 0;
    int64_t matches = 0;
    bool operator==(const Counts&) const = default;
  };
  int64_t sentences = 0;
  std::array<Counts, kOrders> orders{};  // orders of characters, then of words
  ChrfStatistics& operator+=(const ChrfStatistics& other);
  bool operator==(const ChrfStatistics&) const = default;
};

double chrf_score(const ChrfStatistics& statistics);  // 0 … 100

// Returns sacrebleu's signature with the version of this project:
// "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:mh-0.1.0".
std::string chrf_signature(const ChrfOptions& options, size_t references);

// Computes the statistics of sentences. It caches all words; not thread-safe.
class Chrf {
 public:
  explicit Chrf(const ChrfOptions& options) : options_(options) {}
  // Returns the statistics of one sentence against its references (at least one). Texts are valid UTF-8 without the end
  // of the line.
  ChrfStatistics statistics(std::string_view hypothesis, std::span<const std::string_view> references);

 private:
  struct Units {
    std::vector<uint32_t> characters, words;
  };
  Units units_of(std::string_view sentence);
  ChrfOptions options_;
  WordIds words_;
  NgramMatcher matcher_;
};

}  // namespace mh::metrics
