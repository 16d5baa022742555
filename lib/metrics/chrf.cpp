#include "metrics/chrf.h"

#include <algorithm>

#include "base/error.h"
#include "base/unicode.h"
#include "base/version.h"

namespace mh::metrics {

namespace {

constexpr double kBetaSquared = 4;

bool is_ascii_mark(char32_t c) {
  return (c >= U'!' && c <= U'/') || (c >= U':' && c <= U'@') || (c >= U'[' && c <= U'`') || (c >= U'{' && c <= U'~');
}

// Splits off the punctuation mark at the end of a word or, without such a mark, the mark at the start: "(hi)" becomes
// "(hi" and ")".
std::vector<std::u32string_view> split_marks(std::u32string_view word) {
  if (word.size() > 1 && is_ascii_mark(word.back()))
    return {word.substr(0, word.size() - 1), word.substr(word.size() - 1)};
  if (word.size() > 1 && is_ascii_mark(word.front())) return {word.substr(0, 1), word.substr(1)};
  return {word};
}

}  // namespace

ChrfStatistics& ChrfStatistics::operator+=(const ChrfStatistics& other) {
  num_sentences += other.num_sentences;
  for (size_t k = 0; k < kOrders; ++k) {
    ngram_counts[k].hypothesis += other.ngram_counts[k].hypothesis;
    ngram_counts[k].reference += other.ngram_counts[k].reference;
    ngram_counts[k].matches += other.ngram_counts[k].matches;
  }
  return *this;
}

double chrf_score(const ChrfStatistics& s) {
  double precision = 0, recall = 0, num_orders = 0;
  for (const ChrfStatistics::NgramCounts& counts : s.ngram_counts) {
    if (counts.hypothesis == 0 || counts.reference == 0) continue;
    precision += static_cast<double>(counts.matches) / static_cast<double>(counts.hypothesis);
    recall += static_cast<double>(counts.matches) / static_cast<double>(counts.reference);
    ++num_orders;
  }
  if (precision + recall == 0) return 0;
  precision /= num_orders;
  recall /= num_orders;
  return 100 * ((1 + kBetaSquared) * precision * recall / (kBetaSquared * precision + recall));
}

std::string chrf_signature(const ChrfOptions& o, size_t num_references) {
  return str("nrefs:", num_references, "|case:", o.lowercase ? "lc" : "mixed",
             "|eff:yes|nc:", ChrfStatistics::kCharacterOrders, "|nw:", o.max_word_order, "|space:no|version:mh-",
             version());
}

Chrf::Units Chrf::units_of(std::string_view sentence) {
  std::u32string line = code_points(sentence);
  if (options_.lowercase) line = lower_case(line);
  Units units;
  for (std::u32string_view word : words_of(line)) {
    units.characters.insert(units.characters.end(), word.begin(), word.end());
    if (options_.max_word_order > 0)
      for (std::u32string_view word_or_mark : split_marks(word)) units.words.push_back(words_(word_or_mark));
  }
  return units;
}

ChrfStatistics Chrf::statistics(std::string_view hypothesis, std::span<const std::string_view> references) {
  const Units hypothesis_units = units_of(hypothesis);
  ChrfStatistics best_statistics;
  double best_score = -1;
  for (std::string_view reference : references) {
    const Units reference_units = units_of(reference);
    ChrfStatistics s;
    s.num_sentences = 1;
    auto count_matches = [&](const std::vector<uint32_t>& hypothesis_ids, const std::vector<uint32_t>& reference_ids,
                             size_t first, size_t n) {
      std::array<int64_t, ChrfStatistics::kOrders> matches{};
      const TokenIds id_spans[] = {hypothesis_ids, reference_ids};
      matcher_.match(id_spans[0], {id_spans + 1, 1}, {matches.data(), n});
      for (size_t k = 0; k < n; ++k) {
        auto num_ngrams = [&](TokenIds ids) { return static_cast<int64_t>(ids.size() > k ? ids.size() - k : 0); };
        s.ngram_counts[first + k] = {num_ngrams(reference_ids) > 0 ? num_ngrams(hypothesis_ids) : 0,
                                     num_ngrams(reference_ids), matches[k]};
      }
    };
    count_matches(hypothesis_units.characters, reference_units.characters, 0, ChrfStatistics::kCharacterOrders);
    count_matches(hypothesis_units.words, reference_units.words, ChrfStatistics::kCharacterOrders,
                  static_cast<size_t>(options_.max_word_order));
    if (const double score = chrf_score(s); score > best_score) best_score = score, best_statistics = s;
  }
  return best_statistics;
}

}  // namespace mh::metrics
