#include "metrics/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"
#include "base/unicode.h"
#include "base/version.h"

namespace mh::metrics {

namespace {

const std::vector<std::pair<BleuSmoothing, std::string>>& smoothing_names() {
  static const std::vector<std::pair<BleuSmoothing, std::string>> names{{BleuSmoothing::exponential, "exp"},
                                                                        {BleuSmoothing::floor, "floor"},
                                                                        {BleuSmoothing::add_k, "add-k"},
                                                                        {BleuSmoothing::none, "none"}};
  return names;
}

template <class E>
std::string name_of(const std::vector<std::pair<E, std::string>>& names, E value) {
  return std::find_if(names.begin(), names.end(), [&](auto& entry) { return entry.first == value; })->second;
}

// Returns whether a smoothing method uses BleuOptions::smoothing_value.
bool takes_value(BleuSmoothing smoothing) {
  return smoothing == BleuSmoothing::floor || smoothing == BleuSmoothing::add_k;
}

double smoothing_value_of(const BleuOptions& o) {
  if (o.smoothing_value > 0) return o.smoothing_value;
  return o.smoothing == BleuSmoothing::floor ? 0.1 : 1;
}

}  // namespace

void BleuOptions::describe(Fields& f) {
  f.choice("tokenize", tokenizer, bleu_tokenizer_names(), "BLEU tokeniser, named as in sacrebleu");
  f.field("lowercase", lowercase, "convert hypotheses and references to lower case before scoring");
  f.field("compound_split", compound_split,
          "split words at hyphens before computing BLEU, as in the published scores of WMT En-De");
  f.choice("smooth", smoothing, smoothing_names(), "BLEU smoothing of n-gram precisions without a match");
  f.field("smooth_value", smoothing_value,
          "BLEU smoothing value of the methods floor and add-k; 0: the default of the method, 0.1 for floor and 1 for "
          "add-k",
          between(0, 1e6));
}

void BleuOptions::check(const std::string& section) const {
  const auto name = [&](const char* field) { return field_name(section, field); };
  if (smoothing_value > 0 && !uses_smoothing_value())
    refuse_usage(
        name("smooth_value"), str("0, unless ", name("smooth"), " is floor or add-k"),
        str(smoothing_value, ", with the ", smoothing == BleuOptions{}.smoothing ? "default method " : "method ",
            name_of(smoothing_names(), smoothing)),
        str("leave ", name("smooth_value"), " out, or set ", name("smooth"), " to floor or add-k"));
  if (compound_split && tokenizer == BleuTokenizer::characters)
    refuse_usage(name("compound_split"), "a tokeniser that produces whole words, such as 13a", "the tokeniser char",
                 str("set another tokeniser with ", name("tokenize"), ", or leave ", name("compound_split"), " out"));
}

bool BleuOptions::uses_smoothing_value() const { return takes_value(smoothing); }

BleuStatistics& BleuStatistics::operator+=(const BleuStatistics& other) {
  num_sentences += other.num_sentences;
  num_hypothesis_tokens += other.num_hypothesis_tokens;
  num_reference_tokens += other.num_reference_tokens;
  for (size_t n = 0; n < kOrders; ++n) num_matches[n] += other.num_matches[n], num_ngrams[n] += other.num_ngrams[n];
  return *this;
}

BleuScore bleu_score(const BleuStatistics& s, const BleuOptions& options, BleuScope scope) {
  BleuScore result;
  const auto c = static_cast<double>(s.num_hypothesis_tokens), r = static_cast<double>(s.num_reference_tokens);
  result.brevity_penalty = c >= r ? 1 : c > 0 ? std::exp(1 - r / c) : 0;
  result.length_ratio = r > 0 ? c / r : 0;
  if (std::all_of(s.num_matches.begin(), s.num_matches.end(), [](int64_t m) { return m == 0; })) return result;
  const double value = smoothing_value_of(options);
  double power_of_two = 1;  // 2^k for the k orders without a match so far (BleuSmoothing::exponential)
  double log_sum = 0;
  size_t num_orders = 0;
  for (size_t n = 0; n < BleuStatistics::kOrders; ++n) {
    const double addend = options.smoothing == BleuSmoothing::add_k && n > 0 ? value : 0;
    double matches = static_cast<double>(s.num_matches[n]) + addend;
    double total = static_cast<double>(s.num_ngrams[n]) + addend;
    if (total == 0) break;
    if (matches == 0 && options.smoothing == BleuSmoothing::floor) matches = value;
    if (matches == 0 && options.smoothing == BleuSmoothing::exponential) {
      matches = 1;
      total *= power_of_two *= 2;
    }
    result.precisions[n] = 100 * matches / total;
    log_sum += std::log(result.precisions[n]);  // log(0) is -inf, so that the score is 0
    ++num_orders;
  }
  if (scope == BleuScope::corpus && num_orders < BleuStatistics::kOrders) return result;
  result.score = result.brevity_penalty * std::exp(log_sum / static_cast<double>(num_orders));
  return result;
}

std::string bleu_signature(const BleuOptions& o, size_t num_references, BleuScope scope) {
  std::string smoothing_text = name_of(smoothing_names(), o.smoothing);
  if (takes_value(o.smoothing)) smoothing_text += "[" + fixed_decimal(smoothing_value_of(o), 2) + "]";
  return str("nrefs:", num_references, "|case:", o.lowercase ? "lc" : "mixed",
             "|eff:", scope == BleuScope::sentence ? "yes" : "no",
             "|tok:", name_of(bleu_tokenizer_names(), o.tokenizer), o.compound_split ? "+compound-split" : "",
             "|smooth:", smoothing_text, "|version:mh-", version());
}

BleuStatistics bleu_statistics(NgramMatcher& matcher, TokenIds hypothesis, std::span<const TokenIds> references) {
  BleuStatistics s;
  s.num_sentences = 1;
  const auto length = static_cast<int64_t>(hypothesis.size());
  s.num_hypothesis_tokens = length;
  // Reference whose length is nearest to the length of the hypothesis; on a tie, the shorter reference.
  const TokenIds nearest_reference =
      *std::min_element(references.begin(), references.end(), [&](TokenIds a, TokenIds b) {
        const auto la = static_cast<int64_t>(a.size()), lb = static_cast<int64_t>(b.size());
        return std::pair(std::abs(la - length), la) < std::pair(std::abs(lb - length), lb);
      });
  s.num_reference_tokens = static_cast<int64_t>(nearest_reference.size());
  for (int64_t n = 0; n < BleuStatistics::kOrders; ++n)
    s.num_ngrams[static_cast<size_t>(n)] = std::max<int64_t>(0, length - n);
  matcher.match(hypothesis, references, s.num_matches);
  return s;
}

std::vector<uint32_t> Bleu::ids_of(std::string_view sentence) {
  std::u32string line = code_points(sentence);
  if (options_.lowercase) line = lower_case(line);
  std::vector<uint32_t> ids;
  for (std::u32string_view word : bleu_words(line, options_.tokenizer, options_.compound_split))
    ids.push_back(words_(word));
  return ids;
}

BleuStatistics Bleu::statistics(std::string_view hypothesis, std::span<const std::string_view> references) {
  std::vector<std::vector<uint32_t>> reference_ids;
  for (std::string_view reference : references) reference_ids.push_back(ids_of(reference));
  const std::vector<std::vector<uint32_t>>& read_only_ids = reference_ids;
  const std::vector<uint32_t> hypothesis_ids = ids_of(hypothesis);
  return bleu_statistics(matcher_, hypothesis_ids, std::vector<TokenIds>(read_only_ids.begin(), read_only_ids.end()));
}

}  // namespace mh::metrics
