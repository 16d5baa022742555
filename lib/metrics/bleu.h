// BLEU (Papineni et al. 2002), equal to sacrebleu 2.x to the last digit on the same plain text:
//
//   BLEU = 100 · BP · exp(Σ_n log p_n / 4),   p_n = Σ matches_n / Σ n-grams_n of the hypotheses, n = 1 … 4
//   BP = min(1, exp(1 - r / c)),              c, r: numbers of words of the hypotheses and of the references
//
// With several references, the matches of an n-gram are limited to its largest count in one reference, and r is the sum
// of the reference lengths nearest to the lengths of the hypotheses (on a tie, the shorter length). All sums run over
// sentences, so the statistics of sentences are computed one by one and added.
//
//   Bleu bleu(options);
//   BleuStatistics all;
//   for (…) all += bleu.statistics(hypothesis, references);
//   BleuScore score = bleu_score(all, options, BleuScope::corpus);
//
// Papers usually score tokenised text with multi-bleu.perl. The options `tokenize` = none and `smooth` = none give the
// same score; papers on WMT En–De also split compounds (option `compound_split`).
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

// Smoothing of the precisions p_n (Chen and Cherry 2014). All methods but add_k change only a p_n without a match:
//   exponential  p_n = 1 / (2^k · n-grams) for the k-th such n
//   floor        p_n = value / n-grams
//   add_k        adds the value to the matches and to the n-grams of all n > 1
//   none         p_n = 0, so that the score is 0
enum class BleuSmoothing { exponential, floor, add_k, none };

struct BleuOptions {
  BleuTokenizer tokenizer = BleuTokenizer::mteval_13a;
  bool lowercase = false;
  bool compound_split = false;
  BleuSmoothing smoothing = BleuSmoothing::exponential;
  double smoothing_value = 0;
  void describe(Fields& f);
  // Throws Error(usage) for options that contradict each other. `section`: section of the options, for messages; empty:
  // they are options of the command line.
  void check(const std::string& section = "") const;
  bool uses_smoothing_value() const;  // whether `smoothing` is a method with a value
};

struct BleuStatistics {
  static constexpr int kOrders = 4;
  int64_t num_sentences = 0;
  int64_t num_hypothesis_tokens = 0;
  int64_t num_reference_tokens = 0;
  // By order n, at index n - 1: number of matching n-grams, and number of n-grams of the hypotheses.
  std::array<int64_t, kOrders> num_matches{}, num_ngrams{};
  BleuStatistics& operator+=(const BleuStatistics& other);
  bool operator==(const BleuStatistics&) const = default;
};

// Selects the score of a corpus or of a single sentence. `sentence`: log p_n is averaged only over the orders n for
// which the sentence has n-grams (the effective order of sacrebleu).
enum class BleuScope { corpus, sentence };

struct BleuScore {
  double score = 0;                                          // BLEU, 0 … 100
  std::array<double, BleuStatistics::kOrders> precisions{};  // smoothed p_n in percent; all 0 if no n-gram matches
  double brevity_penalty = 1;
  double length_ratio = 0;  // c / r; 0 if r is 0
};
// Returns the score of a corpus from the sum of the statistics of its sentences, or the score of one sentence from its
// statistics, as `scope` states.
BleuScore bleu_score(const BleuStatistics& statistics, const BleuOptions& options, BleuScope scope);

// Returns a signature in the format of sacrebleu, "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:mh-0.1.0", with
// the version of multihead, whose code computed the score. The compound split, which sacrebleu lacks, follows the
// tokeniser: tok:none+compound-split.
std::string bleu_signature(const BleuOptions& options, size_t num_references, BleuScope scope);

// Computes the BLEU statistics of sentences. The object stores the words of all sentences; not thread-safe.
class Bleu {
 public:
  explicit Bleu(const BleuOptions& options) : options_(options) { options.check(); }
  // Returns the statistics of one sentence and its references, of which there is at least one. Texts are valid UTF-8
  // without line ends.
  BleuStatistics statistics(std::string_view hypothesis, std::span<const std::string_view> references);

 private:
  std::vector<uint32_t> ids_of(std::string_view sentence);
  BleuOptions options_;
  WordIds words_;
  NgramMatcher matcher_;
};

// Returns the BLEU statistics of one sentence and its references, all as token numbers (TokenIds), without
// tokenisation.
BleuStatistics bleu_statistics(NgramMatcher& matcher, TokenIds hypothesis, std::span<const TokenIds> references);

}  // namespace mh::metrics
