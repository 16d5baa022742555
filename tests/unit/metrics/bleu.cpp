// Tests of BLEU and chrF: values computed by hand, random sentences compared with naive implementations, and corner
// cases of the tokenisers.
#include "metrics/bleu.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "base/unicode.h"
#include "base/version.h"
#include "fixtures/status.h"
#include "fixtures/within.h"
#include "metrics/chrf.h"

using namespace mh;
using namespace mh::metrics;

namespace {

using Words = std::vector<std::string>;
using Sentences = std::vector<Words>;

Words tokenise(BleuTokenizer tokenizer, std::string_view text, bool splits_compounds = false) {
  std::u32string line = code_points(text);
  Words words;
  for (std::u32string_view word : bleu_words(line, tokenizer, splits_compounds)) {
    words.emplace_back();
    for (char32_t c : word)
      words.back() += c < 0x80 ? std::string(1, static_cast<char>(c)) : str("<", uint32_t{c}, ">");
  }
  return words;
}

// Bound on the difference of two fp64 computations of a BLEU or chrF score of at most 100: at most 24 roundings in
// sequence, in up to 8 precisions and recalls, their sums and products, logarithms and exponentials. The error of ln x,
// which exp multiplies by x, stays below one rounding of 1, as x |ln x| < 1.
const double kScoreBound = rounding::fp64_bound(24, 100);

std::string tokens_13a(std::string_view text) { return join(tokenise(BleuTokenizer::mteval_13a, text), " "); }
std::string tokens_intl(std::string_view text) { return join(tokenise(BleuTokenizer::international, text), " "); }

BleuOptions plain_options(BleuSmoothing smoothing = BleuSmoothing::none) {
  BleuOptions options;
  options.tokenizer = BleuTokenizer::none;
  options.smoothing = smoothing;
  return options;
}

BleuStatistics statistics_of(const BleuOptions& options, std::string_view hypothesis,
                             std::vector<std::string_view> references) {
  return Bleu(options).statistics(hypothesis, references);
}

int64_t count(const Words& sentence, const Words& gram) {
  int64_t occurrences = 0;
  for (size_t i = 0; i + gram.size() <= sentence.size(); ++i)
    occurrences += std::equal(gram.begin(), gram.end(), sentence.begin() + static_cast<ptrdiff_t>(i));
  return occurrences;
}

std::set<Words> grams(const Words& sentence, size_t n) {
  std::set<Words> distinct_grams;
  for (size_t i = 0; i + n <= sentence.size(); ++i)
    distinct_grams.emplace(sentence.begin() + static_cast<ptrdiff_t>(i),
                           sentence.begin() + static_cast<ptrdiff_t>(i + n));
  return distinct_grams;
}

// Returns Σ over the distinct n-grams of min(count in the hypothesis, maximum count in a reference).
int64_t naive_matches(const Words& hypothesis, const Sentences& references, size_t n) {
  int64_t sum = 0;
  for (const Words& gram : grams(hypothesis, n)) {
    int64_t max_count = 0;
    for (const Words& reference : references) max_count = std::max(max_count, count(reference, gram));
    sum += std::min(count(hypothesis, gram), max_count);
  }
  return sum;
}

BleuStatistics naive_statistics(const Words& hypothesis, const Sentences& references) {
  BleuStatistics s;
  s.num_sentences = 1;
  s.num_hypothesis_tokens = static_cast<int64_t>(hypothesis.size());
  int64_t nearest_length = -1;
  for (const Words& reference : references) {
    const auto length = static_cast<int64_t>(reference.size());
    const int64_t distance = std::abs(length - s.num_hypothesis_tokens),
                  nearest_distance = std::abs(nearest_length - s.num_hypothesis_tokens);
    if (nearest_length < 0 || distance < nearest_distance || (distance == nearest_distance && length < nearest_length))
      nearest_length = length;
  }
  s.num_reference_tokens = nearest_length;
  for (size_t n = 1; n <= 4; ++n) {
    for (const Words& gram : grams(hypothesis, n)) s.num_ngrams[n - 1] += count(hypothesis, gram);
    s.num_matches[n - 1] = naive_matches(hypothesis, references, n);
  }
  return s;
}

// Returns BLEU = 100 · BP · Π p_n^(1/N) (Papineni et al. 2002), with smoothed precisions p_n (Chen and Cherry 2014).
double naive_score(const BleuStatistics& s, BleuSmoothing smoothing, double smoothing_value,
                   bool uses_effective_order) {
  double product = 1;
  int num_orders = 0, num_orders_without_match = 0;
  int64_t total_matches = 0;
  for (size_t n = 1; n <= 4; ++n) {
    total_matches += s.num_matches[n - 1];
    auto m = static_cast<double>(s.num_matches[n - 1]), t = static_cast<double>(s.num_ngrams[n - 1]);
    if (smoothing == BleuSmoothing::add_k && n > 1) m += smoothing_value, t += smoothing_value;
    if (t == 0) {
      if (uses_effective_order) break;
      return 0;
    }
    ++num_orders;
    if (m == 0 && smoothing == BleuSmoothing::exponential) m = std::pow(0.5, ++num_orders_without_match);
    if (m == 0 && smoothing == BleuSmoothing::floor) m = smoothing_value;
    product *= m / t;
  }
  if (total_matches == 0) return 0;
  const double c = static_cast<double>(s.num_hypothesis_tokens), r = static_cast<double>(s.num_reference_tokens);
  return 100 * std::min(1.0, std::exp(1 - r / c)) * std::pow(product, 1.0 / num_orders);
}

// Generates sentences of a few distinct words, so that n-grams repeat.
rc::Gen<Words> sentence() {
  return rc::gen::scale(0.3,
                        rc::gen::container<Words>(rc::gen::element<std::string>("a", "b", "c", "(d)", "ef,", ",")));
}
rc::Gen<Sentences> references() {
  return rc::gen::mapcat(rc::gen::inRange<size_t>(1, 4),
                         [](size_t n) { return rc::gen::container<Sentences>(n, sentence()); });
}

std::vector<std::string> join_sentences(const Sentences& sentences) {
  std::vector<std::string> lines;
  for (const Words& words : sentences) lines.push_back(join(words, " "));
  return lines;
}

}  // namespace

TEST_CASE("lower_case(), is_space() and words_of() follow Python's str.lower(), str.isspace() and str.split()",
          "[bleu]") {
  auto lower = [](std::u32string_view text) { return lower_case(text); };
  CHECK(lower(U"ÄÖß ẞ ǅ Ⅷ Ⓐ") == U"äöß ß ǆ ⅷ ⓐ");
  CHECK(lower(U"\u0130I") == U"i\u0307i");
  CHECK(lower(U"ΟΔΟΣ ΣΑΣ. Σ") == U"οδος σας. σ");
  CHECK(lower(U"ΑΣΑ Α'Σ' 1Σ ΑΣ\u0301 ΑΣ\u0301Α") == U"ασα α'ς' 1σ ας\u0301 ασ\u0301α");
  CHECK(lower(U"\u00AAΣ \u2160Σ \u24B6Σ \U0001F130Σ \u1D2CΣ") == U"\u00AAς \u2170ς \u24D0ς \U0001F130ς \u1D2Cσ");
  const std::u32string_view spaces =
      U"\t\n\v\f\r\x1c\x1d\x1e\x1f \u0085\u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000";
  for (char32_t c : spaces) CHECK(is_space(c));
  for (char32_t c : std::u32string_view(U"a\x1b\x7f\u0084\u180e\u200b\u2060\ufeff")) CHECK_FALSE(is_space(c));
  CHECK(words_of(U"\u3000a b\u00a0c ") == std::vector<std::u32string_view>{U"a", U"b", U"c"});
  CHECK(words_of(U" ").empty());
}

TEST_CASE("tokeniser 13a separates punctuation like mteval-v13a", "[bleu]") {
  CHECK(tokens_13a("Hello, world!") == "Hello , world !");
  CHECK(tokens_13a("It's 3.5% of $1,000.50, or 2-3.") == "It's 3.5 % of $ 1,000.50 , or 2 - 3 .");
  CHECK(tokens_13a("a-b 5-x -5 x-5") == "a-b 5 - x -5 x-5");
  CHECK(tokens_13a("a.. b,,c ...") == "a . . b , , c . . .");
  CHECK(tokens_13a(".5 5. 5,a a,5") == ". 5 5 . 5 , a a , 5");
  CHECK(tokens_13a("&quot;&amp;lt;&gt;") == "\" < >");
  CHECK(tokens_13a("a<skipped>b [x]{y}~\\^_`|@/") == "ab [ x ] { y } ~ \\ ^ _ ` | @ /");
  CHECK(tokens_13a("\u00e4. \u0665.\u0665") == "<228> . <1637> . <1637>");  // 13a: only 0 to 9 are digits
  CHECK(tokens_13a(" \t ") == "");
}

TEST_CASE("tokenisers intl, char and none split text at Unicode punctuation, into characters and at white space",
          "[bleu]") {
  CHECK(tokens_intl("Hello, world!") == "Hello , world !");
  // A full stop after a digit at the end of the line is not separated.
  CHECK(tokens_intl("1,000.50 is 5.") == "1,000.50 is 5.");
  CHECK(tokens_intl("5. a") == "5 . a");
  CHECK(tokens_intl("a-b 1-2 \u20ac5 x+y") == "a - b 1-2 <8364> 5 x + y");
  CHECK(tokens_intl("\u0665.\u0665 \u00bf5") == "<1637>.<1637> <191> 5");  // intl: every Unicode digit is a digit
  CHECK(tokens_intl("a.  ") == "a .");
  CHECK(tokenise(BleuTokenizer::characters, "a b\u00e4,\u3000") == Words{"a", "b", "<228>", ","});
  CHECK(tokenise(BleuTokenizer::none, " a,b  c\u00a0d ") == Words{"a,b", "c", "d"});
}

TEST_CASE("compound splitting replaces hyphens as in the WMT En-De evaluation of published papers", "[bleu]") {
  auto split = [](std::string_view text) { return join(tokenise(BleuTokenizer::none, text, true), " "); };
  CHECK(split("well-known ab-cd-ef") == "well ##AT##-##AT## known ab ##AT##-##AT## cd ##AT##-##AT## ef");
  CHECK(split("a-b-c") == "a ##AT##-##AT## b-c");
  CHECK(split("- -a a- a - b") == "- -a a- a - b");
  CHECK(split("a--b") == "a ##AT##-##AT## -b");
  CHECK(join(tokenise(BleuTokenizer::mteval_13a, "e-mail, 1-2", true), " ") == "e ##AT##-##AT## mail , 1 - 2");
  auto compound_options = plain_options();
  compound_options.compound_split = true;
  CHECK(statistics_of(compound_options, "x-y z", {"x-w z"}).num_matches == std::array<int64_t, 4>{3, 1, 0, 0});
}

TEST_CASE("BLEU equals values computed by hand", "[bleu]") {
  // Papineni et al., example 2: "the" is clipped to its count of 2 in the first reference.
  const BleuStatistics clipped_statistics = statistics_of(plain_options(), "the the the the the the the",
                                                          {"the cat is on the mat", "there is a cat on the mat"});
  CHECK(clipped_statistics.num_matches == std::array<int64_t, 4>{2, 0, 0, 0});
  CHECK(clipped_statistics.num_ngrams == std::array<int64_t, 4>{7, 6, 5, 4});
  CHECK(clipped_statistics.num_reference_tokens == 7);

  const BleuStatistics s = statistics_of(plain_options(), "the cat sat on the mat", {"the cat is on the mat"});
  CHECK(s.num_matches == std::array<int64_t, 4>{5, 3, 1, 0});
  CHECK(s.num_ngrams == std::array<int64_t, 4>{6, 5, 4, 3});
  auto score = [&](BleuSmoothing smoothing, double smoothing_value = 0) {
    BleuOptions options = plain_options(smoothing);
    options.smoothing_value = smoothing_value;
    return bleu_score(s, options, BleuScope::corpus).score;
  };
  auto root = [](double product) { return rounding::within(100 * std::pow(product, 0.25), kScoreBound); };
  CHECK(score(BleuSmoothing::none) == 0);
  CHECK(score(BleuSmoothing::exponential) == root(5. / 6 * 3 / 5 * 1 / 4 * 1 / 6));
  CHECK(score(BleuSmoothing::floor) == root(5. / 6 * 3 / 5 * 1 / 4 * 0.1 / 3));
  CHECK(score(BleuSmoothing::floor, 0.5) == root(5. / 6 * 3 / 5 * 1 / 4 * 0.5 / 3));
  CHECK(score(BleuSmoothing::add_k) == root(5. / 6 * 4 / 6 * 2 / 5 * 1 / 4));
  CHECK(score(BleuSmoothing::add_k, 2) == root(5. / 6 * 5 / 7 * 3 / 6 * 2 / 5));

  // A hypothesis of three words is shorter than its reference of five words and has no 4-gram.
  const BleuStatistics short_hypothesis = statistics_of(plain_options(), "the cat sat", {"the cat sat on it"});
  const BleuScore sentence = bleu_score(short_hypothesis, plain_options(), BleuScope::sentence);
  CHECK(sentence.brevity_penalty == rounding::fp64(std::exp(1 - 5. / 3), 3));
  CHECK(sentence.score == rounding::within(100 * std::exp(1 - 5. / 3), kScoreBound));
  CHECK(sentence.length_ratio == 0.6);
  CHECK(bleu_score(short_hypothesis, plain_options(), BleuScope::corpus).score == 0);
  // Of two reference lengths that differ equally from the hypothesis length, the shorter counts.
  CHECK(statistics_of(plain_options(), "a b c", {"a b c d", "a b"}).num_reference_tokens == 2);

  const BleuStatistics empty = statistics_of(plain_options(BleuSmoothing::exponential), "", {""});
  const BleuScore empty_score = bleu_score(empty, plain_options(), BleuScope::corpus);
  CHECK(empty_score.score == 0);
  CHECK(empty_score.brevity_penalty == 1);
  CHECK(empty_score.length_ratio == 0);
  CHECK(bleu_score(statistics_of(plain_options(), "", {"a"}), plain_options(), BleuScope::corpus).brevity_penalty == 0);
  BleuOptions case_options = plain_options();
  CHECK(statistics_of(case_options, "The Cat", {"the cat"}).num_matches[0] == 0);
  case_options.lowercase = true;
  CHECK(statistics_of(case_options, "The Cat", {"the cat"}).num_matches[1] == 1);
}

TEST_CASE("BLEU of random sentences equals a naive implementation", "[bleu]") {
  CHECK(rc::check("statistics and scores equal a naive implementation", [] {
    const auto texts =
        *rc::gen::container<std::vector<std::pair<Words, Sentences>>>(rc::gen::pair(sentence(), references()));
    const auto smoothing =
        *rc::gen::element(BleuSmoothing::exponential, BleuSmoothing::floor, BleuSmoothing::add_k, BleuSmoothing::none);
    BleuOptions options = plain_options(smoothing);
    options.smoothing_value = smoothing == BleuSmoothing::floor || smoothing == BleuSmoothing::add_k ? 0.25 : 0;
    Bleu bleu(options);
    BleuStatistics sum, naive_sum;
    for (const auto& [hypothesis, sentence_references] : texts) {
      const std::vector<std::string> lines = join_sentences(sentence_references);
      const BleuStatistics s =
          bleu.statistics(join(hypothesis, " "), std::vector<std::string_view>(lines.begin(), lines.end()));
      const BleuStatistics naive = naive_statistics(hypothesis, sentence_references);
      RC_ASSERT(s == naive);
      RC_ASSERT(std::abs(bleu_score(s, options, BleuScope::sentence).score -
                         naive_score(naive, smoothing, 0.25, true)) <= kScoreBound);
      sum += s;
      naive_sum += naive;
    }
    RC_ASSERT(sum.num_sentences == static_cast<int64_t>(texts.size()));
    RC_ASSERT(std::abs(bleu_score(sum, options, BleuScope::corpus).score -
                       naive_score(naive_sum, smoothing, 0.25, false)) <= kScoreBound);
  }));
  CHECK(rc::check("a hypothesis that equals one of its references scores 100", [] {
    Sentences sentence_references = *references();
    const Words words = *rc::gen::suchThat(sentence(), [](const Words& w) { return w.size() >= 4; });
    sentence_references.push_back(words);
    const std::vector<std::string> lines = join_sentences(sentence_references);
    const BleuStatistics s =
        Bleu(plain_options()).statistics(lines.back(), std::vector<std::string_view>(lines.begin(), lines.end()));
    RC_ASSERT(std::abs(bleu_score(s, plain_options(), BleuScope::corpus).score - 100) <= kScoreBound);
  }));
}

TEST_CASE("BLEU statistics of a line of 300000 words are exact and take less than quadratic time", "[bleu]") {
  std::string repeated_words, distinct_words;
  for (int i = 0; i < 300000; ++i) repeated_words += "w ", distinct_words += str("w", i, " ");
  CHECK(statistics_of(plain_options(), repeated_words, {repeated_words, distinct_words}).num_matches[3] == 299997);
  CHECK(statistics_of(plain_options(), distinct_words, {repeated_words, distinct_words}).num_matches[0] == 300000);
}

TEST_CASE("signatures of BLEU and chrF list the options of the score", "[bleu]") {
  const std::string version = std::string("|version:mh-") + mh::version();
  BleuOptions options;
  CHECK(bleu_signature(options, 1, BleuScope::corpus) == "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp" + version);
  options = plain_options(BleuSmoothing::floor);
  options.lowercase = options.compound_split = true;
  CHECK(bleu_signature(options, 3, BleuScope::sentence) ==
        "nrefs:3|case:lc|eff:yes|tok:none+compound-split|smooth:floor[0.10]" + version);
  options = BleuOptions{.smoothing = BleuSmoothing::add_k, .smoothing_value = 2.5};
  CHECK(bleu_signature(options, 1, BleuScope::corpus) ==
        "nrefs:1|case:mixed|eff:no|tok:13a|smooth:add-k[2.50]" + version);
  CHECK(chrf_signature({.lowercase = true, .max_word_order = 2}, 2) ==
        "nrefs:2|case:lc|eff:yes|nc:6|nw:2|space:no" + version);
}

TEST_CASE("inconsistent BLEU options are refused", "[bleu]") {
  BleuOptions unused_value;
  unused_value.smoothing_value = 0.5;
  CHECK(status_of([&] { Bleu{unused_value}; }) == static_cast<int>(Exit::usage));
  BleuOptions split_characters;
  split_characters.tokenizer = BleuTokenizer::characters;
  split_characters.compound_split = true;
  CHECK(status_of([&] { Bleu{split_characters}; }) == static_cast<int>(Exit::usage));
}

namespace {

Words characters_of(const std::string& text) {
  Words separate_characters;
  for (char c : text)
    if (c != ' ') separate_characters.emplace_back(1, c);
  return separate_characters;
}

// Returns precision and recall of the n-grams of length n; -1 for both if hypothesis or reference has no such n-gram.
std::pair<double, double> naive_order(const Words& hypothesis, const Words& reference, size_t n) {
  if (hypothesis.size() < n || reference.size() < n) return {-1, -1};
  const auto m = static_cast<double>(naive_matches(hypothesis, {reference}, n));
  return {m / static_cast<double>(hypothesis.size() - n + 1), m / static_cast<double>(reference.size() - n + 1)};
}

// Separates the punctuation of words that sentence() has generated, as chrF++ does.
Words chrf_words(const Words& words) {
  Words separated_words;
  for (const std::string& word : words) {
    if (word == "(d)") separated_words.insert(separated_words.end(), {"(d", ")"});
    else if (word == "ef,") separated_words.insert(separated_words.end(), {"ef", ","});
    else separated_words.push_back(word);
  }
  return separated_words;
}

double naive_chrf(const Words& hypothesis, const Words& reference, size_t word_order) {
  double precision_sum = 0, recall_sum = 0;
  int num_orders = 0;
  auto add = [&](const Words& a, const Words& b, size_t n) {
    const auto [precision, recall] = naive_order(a, b, n);
    if (precision < 0) return;
    precision_sum += precision, recall_sum += recall, ++num_orders;
  };
  const Words hypothesis_characters = characters_of(join(hypothesis, "")),
              reference_characters = characters_of(join(reference, ""));
  for (size_t n = 1; n <= 6; ++n) add(hypothesis_characters, reference_characters, n);
  for (size_t n = 1; n <= word_order; ++n) add(chrf_words(hypothesis), chrf_words(reference), n);
  if (precision_sum + recall_sum == 0) return 0;
  precision_sum /= num_orders, recall_sum /= num_orders;
  return 100 * 5 * precision_sum * recall_sum / (4 * precision_sum + recall_sum);
}

}  // namespace

TEST_CASE("chrF equals values computed by hand", "[chrf]") {
  auto statistics = [](std::string_view hypothesis, std::vector<std::string_view> reference_texts,
                       ChrfOptions options) { return Chrf(options).statistics(hypothesis, reference_texts); };
  // abcd and abxd: 3 of 4 letters and 1 of 3 bigrams match; no trigram or 4-gram matches.
  const double mean = (3. / 4 + 1. / 3) / 4;
  CHECK(chrf_score(statistics("ab cd", {"abx d"}, {})) == rounding::within(100 * mean, kScoreBound));
  // The words "(hi" and ")" against "hi" and ")": one of two words matches, and no bigram.
  const ChrfStatistics s = statistics("(hi)", {"hi )"}, {.max_word_order = 2});
  CHECK(s.ngram_counts[6] == ChrfStatistics::NgramCounts{2, 2, 1});
  CHECK(s.ngram_counts[7] == ChrfStatistics::NgramCounts{1, 1, 0});
  // Only ASCII punctuation is separated.
  CHECK(statistics("\u00bfqu\u00e9?", {"\u00bfqu\u00e9 ?"}, {.max_word_order = 1}).ngram_counts[6].matches == 2);
  CHECK(statistics("(a", {"( a"}, {.max_word_order = 1}).ngram_counts[6].matches == 2);
  CHECK(statistics("x", {"", "y", "x"}, {}).ngram_counts[0] ==
        ChrfStatistics::NgramCounts{1, 1, 1});  // best reference: x
  CHECK(statistics("abc", {""}, {}).ngram_counts[0] == ChrfStatistics::NgramCounts{0, 0, 0});
  CHECK(chrf_score(statistics("", {""}, {})) == 0);
  CHECK(chrf_score(statistics("A", {"a"}, {})) == 0);
  CHECK(chrf_score(statistics("A", {"a"}, {.lowercase = true})) == 100);
}

TEST_CASE("chrF of random sentences equals a naive implementation", "[chrf]") {
  CHECK(rc::check([] {
    const Words hypothesis = *sentence(), reference = *sentence();
    const auto word_order = *rc::gen::inRange<int64_t>(0, 3);
    Chrf chrf({.max_word_order = word_order});
    const std::string line = join(reference, " ");
    const std::string_view reference_line = line;
    const ChrfStatistics s = chrf.statistics(join(hypothesis, " "), {&reference_line, 1});
    RC_ASSERT(std::abs(chrf_score(s) - naive_chrf(hypothesis, reference, static_cast<size_t>(word_order))) <=
              kScoreBound);
    ChrfStatistics doubled_statistics = s;
    doubled_statistics += s;
    RC_ASSERT(doubled_statistics.num_sentences == 2);
    RC_ASSERT(chrf_score(doubled_statistics) == chrf_score(s));  // quotients of doubled counts have the same bits
  }));
}
