// BLEU (Papineni et al. 2002), equal to sacrebleu 2.x to the last digit on the same plain text:
//
//   BLEU = 100 · BP · exp(Σ_n log p_n / 4),   p_n = Σ matches_n / Σ n-grams_n of the hypotheses, n = 1 … 4
//   BP = min(1, exp(1 - r / c)),              c, r: words of the hypotheses and of the references
//
// With several references, the counts of n-grams are clipped over all of them, and r takes the length nearest to the
// hypothesis's (the shorter of two equally near ones). All sums run over sentences first, so the statistics of
// sentences are stored and added.
//
//   Bleu bleu(options);
//   BleuStatistics all;
//   for (…) all += bleu.statistics(hypothesis, references);
//   BleuScore score = bleu_score(all, options, BleuOf::corpus);
//
// The papers' protocol multi-bleu.perl on tokenised text is tokenize none, smooth none; WMT En–De adds compound_split.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "metrics/bleu_words.h"
#include "metrics/ngrams.h"
#include "metrics/word_ids.h"

namespace mh::metrics {

// Smoothing of a p_n without a match (Chen and Cherry 2014): exp: 1 / (2^k · n-grams) for the k-th such n; floor: value
// / n-grams; add_k: value more matches and n-grams for n > 1; none: 0, so the score is 0.
enum class BleuSmoothing { exponential, floor, add_k, none };

struct BleuOptions {
  BleuTokens tokenize = BleuTokens::mteval_13a;
  bool lowercase = false;
  bool compound_split = false;
  BleuSmoothing smooth = BleuSmoothing::exponential;
  double smooth_value = 0;
  void describe(Fields& f);
  // Throws Error(usage) for values that contradict each other.
  void check() const;
};

struct BleuStatistics {
  static constexpr int kOrders = 4;
  int64_t sentences = 0;
  int64_t hypothesis_tokens = 0;
  int64_t reference_tokens = 0;
  std::array<int64_t, kOrders> matches{}, totals{};  // [n - 1]
  BleuStatistics& operator+=(const BleuStatistics& other);
  bool operator==(const BleuStatistics&) const = default;
};

// sentence: only the orders of which the sentence has n-grams count (sacrebleu's effective order).
enum class BleuOf { corpus, sentence };

struct BleuScore {
  double score = 0;                                          // 0 … 100
  std::array<double, BleuStatistics::kOrders> precisions{};  // in percent, smoothed; all 0 without a match
  double brevity_penalty = 1;
  double length_ratio = 0;  // words of the hypotheses per word of the references; 0 without reference words
};
BleuScore bleu_score(const BleuStatistics& statistics, const BleuOptions& options, BleuOf of);

// Returns sacrebleu's signature, "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:mh-0.1.0", with the version of
// this project, whose code computed the score. The compound split, which sacrebleu lacks, follows the tokeniser:
// tok:none+compound-split.
std::string bleu_signature(const BleuOptions& options, size_t references, BleuOf of);

// Computes the statistics of sentences. It caches all words; not thread-safe.
class Bleu {
 public:
  explicit Bleu(const BleuOptions& options) : options_(options) { options.check(); }
  // Returns the statistics of one sentence against its references (at least one). Texts are valid UTF-8 without the end
  // of the line.
  BleuStatistics statistics(std::string_view hypothesis, std::span<const std::string_view> references);

 private:
  std::vector<uint32_t> ids_of(std::string_view sentence);
  BleuOptions options_;
  WordIds words_;
  NgramMatcher matcher_;
};

// Returns the statistics of sentences that are token numbers (multi-bleu on numbers).
BleuStatistics bleu_statistics(NgramMatcher& matcher, Ids hypothesis, std::span<const Ids> references);

}  // namespace mh::metrics
