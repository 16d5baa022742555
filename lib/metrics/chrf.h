// chrF (Popović 2015) and chrF++ (Popović 2017), equal to sacrebleu 2.x to the last digit on the same plain text:
//
//   chrF = 100 · (1 + β²) P R / (β² P + R),   β = 2
//
// For each order n, P_n is the fraction of the n-grams of the hypothesis that occur in the reference, and R_n the
// fraction of the n-grams of the reference that occur in the hypothesis. P and R are the averages of P_n and R_n over
// the orders n for which hypothesis and reference have n-grams. chrF uses n-grams of characters other than white space,
// n = 1 … 6; chrF++ adds n-grams of words, n = 1 and 2. A punctuation mark at the end of a word, or else at its start,
// is a separate word. With several references, a sentence is scored against the reference with the best score.
//
// The statistics of sentences are computed one by one and added, as for BLEU (bleu.h).
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
  int64_t max_word_order = 0;
  static constexpr int64_t kMaxWordOrder = 2;
  void describe(Fields& f) {
    f.field("words", max_word_order, "maximum order of the word n-grams in chrF; 0: no word n-grams, 2: chrF++",
            between(0, kMaxWordOrder));
  }
};

struct ChrfStatistics {
  static constexpr size_t kCharacterOrders = 6, kOrders = kCharacterOrders + ChrfOptions::kMaxWordOrder;
  struct NgramCounts {
    // Number of n-grams of the hypotheses; excludes each hypothesis whose reference has no n-gram of this order.
    int64_t hypothesis = 0;
    int64_t reference = 0;  // number of n-grams of the references
    int64_t matches = 0;    // sum over n-grams of min(count in the hypothesis, count in the reference)
    bool operator==(const NgramCounts&) const = default;
  };
  int64_t num_sentences = 0;
  std::array<NgramCounts, kOrders>
      ngram_counts{};  // counts of character n-grams, n = 1 … 6, then of word n-grams, n = 1, 2
  ChrfStatistics& operator+=(const ChrfStatistics& other);
  bool operator==(const ChrfStatistics&) const = default;
};

// Returns the score, 0 … 100, of a corpus from the sum of the statistics of its sentences, or of one sentence from its
// statistics.
double chrf_score(const ChrfStatistics& statistics);

// Returns a signature in the format of sacrebleu, with the version of multihead:
// "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:mh-0.1.0".
std::string chrf_signature(const ChrfOptions& options, size_t num_references);

// Computes the chrF statistics of sentences. The object stores the words of all sentences; not thread-safe.
class Chrf {
 public:
  explicit Chrf(const ChrfOptions& options) : options_(options) {}
  // Returns the statistics of one sentence and its references, of which there is at least one. Texts are valid UTF-8
  // without line ends.
  ChrfStatistics statistics(std::string_view hypothesis, std::span<const std::string_view> references);

 private:
  struct Units {
    std::vector<uint32_t> characters, words;  // code points of the characters; numbers of the words (WordIds)
  };
  Units units_of(std::string_view sentence);
  ChrfOptions options_;
  WordIds words_;
  NgramMatcher matcher_;
};

}  // namespace mh::metrics
