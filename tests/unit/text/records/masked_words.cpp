// Tests of the rows (input sequences) of BERT pre-training: invariants for any documents, and fractions of sampled rows
// and tokens. Seeds are fixed; a fraction may deviate from its expected value by five standard deviations.
#include "text/records/masked_words.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/random.h"
#include "fixtures/status.h"
#include "text/wordpiece.h"

using namespace mh;
using text::Example;
using text::PretrainingExamples;
using text::PretrainingOptions;

namespace {

constexpr int32_t kStart = 2, kSeparator = 3, kMask = 4, kFirstWord = 5;
constexpr int32_t kVocabularySize = 1005;  // entries from kFirstWord on are words, every third a ## piece

bool continues_word(int32_t token) { return token >= kFirstWord && token % 3 == 0; }

const text::WordPieceTokenizer& vocabulary() {
  static const auto tokenizer = [] {
    std::vector<text::Piece> pieces{{"[PAD]", 0}, {"[UNK]", 0}, {"[CLS]", 0}, {"[SEP]", 0}, {"[MASK]", 0}};
    for (int32_t i = kFirstWord; i < kVocabularySize; ++i)
      pieces.push_back({(continues_word(i) ? "##w" : "w") + std::to_string(i), 0});
    return text::make_wordpiece_tokenizer(std::move(pieces), {}, "test");
  }();
  return *tokenizer;
}

using Sentence = std::vector<int32_t>;
using Document = std::vector<Sentence>;

struct Corpus {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> ends;

  explicit Corpus(const std::vector<Document>& documents) {
    for (const Document& document : documents) {
      for (const Sentence& sentence : document) {
        tokens.insert(tokens.end(), sentence.begin(), sentence.end());
        ends.push_back(tokens.size());
      }
      ends.push_back(tokens.size());
    }
  }
  text::Sequences sequences() const {
    return {ends, [this](uint64_t first, std::span<int32_t> out) {
              std::copy_n(tokens.begin() + static_cast<int64_t>(first), out.size(), out.begin());
            }};
  }
  Sentence tokens_of(PretrainingExamples::SentenceRange s) const {
    const uint64_t begin = s.begin == 0 ? 0 : ends[s.begin - 1], end = s.end == 0 ? 0 : ends[s.end - 1];
    return {tokens.begin() + static_cast<int64_t>(begin), tokens.begin() + static_cast<int64_t>(std::max(begin, end))};
  }
};

PretrainingExamples make_pretraining(const Corpus& corpus, const PretrainingOptions& options, uint64_t seed = 1) {
  return {corpus.sequences(), vocabulary(), options, seed};
}

// Returns documents of random sentences of min_length to max_length tokens.
std::vector<Document> random_documents(size_t num_documents, size_t num_sentences, size_t min_length, size_t max_length,
                                       uint64_t seed) {
  RandomSequence random(RandomStream(seed, "documents"));
  std::vector<Document> documents(num_documents, Document(num_sentences));
  for (Document& document : documents)
    for (Sentence& sentence : document) {
      sentence.resize(min_length + random.uniform_below(max_length - min_length + 1));
      for (int32_t& token : sentence)
        token = kFirstWord + static_cast<int32_t>(random.uniform_below(kVocabularySize - kFirstWord));
    }
  return documents;
}

// Checks that num_hits / num_trials is within five standard deviations of the expected fraction.
void check_fraction(const char* label, double expected, int64_t num_hits, int64_t num_trials) {
  INFO(label << ": " << num_hits << " of " << num_trials);
  REQUIRE(num_trials > 1000);
  const double deviation = std::sqrt(expected * (1 - expected) / static_cast<double>(num_trials));
  CHECK(std::abs(static_cast<double>(num_hits) / static_cast<double>(num_trials) - expected) < 5 * deviation);
}

// Returns the tokens of a row before masking.
Sentence tokens_before_masking(const Example& row) {
  Sentence tokens = row.tokens;
  for (size_t i = 1; i < tokens.size(); ++i)
    if (row.targets[i] >= 0) tokens[i] = static_cast<int32_t>(row.targets[i]);
  return tokens;
}

size_t count_predicted(const Example& row) {
  return static_cast<size_t>(
      std::count_if(row.targets.begin() + 1, row.targets.end(), [](int64_t target) { return target >= 0; }));
}

// Returns the first position of `part` in `whole`, or -1 if `part` is empty or `whole` does not contain it.
int64_t position_in(const Sentence& part, const Sentence& whole) {
  const auto position = std::search(whole.begin(), whole.end(), part.begin(), part.end());
  return part.empty() || position == whole.end() ? -1 : position - whole.begin();
}

rc::Gen<std::vector<Document>> any_documents(int min_count) {
  const auto sentence =
      rc::gen::nonEmpty(rc::gen::container<Sentence>(rc::gen::inRange<int32_t>(kFirstWord, kVocabularySize)));
  const auto document = rc::gen::nonEmpty(rc::gen::container<Document>(rc::gen::resize(25, sentence)));
  return rc::gen::mapcat(rc::gen::inRange(min_count, 7), [document](int count) {
    return rc::gen::container<std::vector<Document>>(static_cast<size_t>(count), rc::gen::resize(12, document));
  });
}

PretrainingOptions random_options() {
  PretrainingOptions options;
  options.short_fraction = *rc::gen::element(0.0, 0.1, 1.0);
  options.mask_fraction = *rc::gen::element(0.0, 0.15, 0.5, 1.0);
  options.max_predictions = *rc::gen::element<int64_t>(1, 5, 20, 1000);
  options.whole_word = *rc::gen::arbitrary<bool>();
  options.next_sentence = *rc::gen::arbitrary<bool>();
  options.max_length = *rc::gen::inRange<int64_t>(options.next_sentence ? 5 : 3, 70);  // at least one token per segment
  return options;
}

// Checks that `row` consists of the segments `pair`, truncated to options.max_length, with special tokens and
// predicted tokens as `options` specifies.
void check_row(const Corpus& corpus, const PretrainingOptions& options, const PretrainingExamples::SegmentPair& pair,
               const Example& row) {
  const Sentence tokens = tokens_before_masking(row);
  const auto size = static_cast<int64_t>(tokens.size());
  RC_ASSERT(size <= options.max_length);
  RC_ASSERT(row.targets.size() == tokens.size());
  RC_ASSERT(tokens.front() == kStart);
  RC_ASSERT(tokens.back() == kSeparator);
  RC_ASSERT(std::count(tokens.begin(), tokens.end(), kSeparator) == (options.next_sentence ? 2 : 1));
  RC_ASSERT(tokens[static_cast<size_t>(row.first_segment_length) - 1] == kSeparator);
  RC_ASSERT((row.first_segment_length == size) == !options.next_sentence);
  RC_ASSERT(row.targets[0] == (options.next_sentence ? (pair.is_next_sentence ? 0 : 1) : -1));
  const Sentence first = corpus.tokens_of(pair.first), second = corpus.tokens_of(pair.second);
  const Sentence first_segment(tokens.begin() + 1, tokens.begin() + row.first_segment_length - 1);
  RC_ASSERT(position_in(first_segment, first) >= 0);
  Sentence second_segment;
  if (options.next_sentence) {
    second_segment.assign(tokens.begin() + row.first_segment_length, tokens.end() - 1);
    RC_ASSERT(position_in(second_segment, second) >= 0);
  }
  // Only tokens that do not fit into the row are removed, and always from the longer segment.
  const bool is_truncated = first.size() > first_segment.size() || second.size() > second_segment.size();
  RC_ASSERT(!is_truncated || size == options.max_length);
  if (first.size() > first_segment.size()) RC_ASSERT(first_segment.size() >= second_segment.size());
  if (second.size() > second_segment.size()) RC_ASSERT(second_segment.size() + 1 >= first_segment.size());
  const auto max_predicted = std::min<int64_t>(
      options.max_predictions,
      std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(static_cast<double>(size) * options.mask_fraction))));
  const auto num_special = static_cast<int64_t>(options.next_sentence ? 3 : 2);
  if (options.whole_word) RC_ASSERT(static_cast<int64_t>(count_predicted(row)) <= max_predicted);
  else RC_ASSERT(static_cast<int64_t>(count_predicted(row)) == std::min(max_predicted, size - num_special));
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i] == kSeparator) RC_ASSERT(row.targets[i] == -1);
    const bool begins_word =
        i == 1 || static_cast<int32_t>(i) == row.first_segment_length || !continues_word(tokens[i]);
    if (options.whole_word && !begins_word) RC_ASSERT((row.targets[i] >= 0) == (row.targets[i - 1] >= 0));
  }
}

}  // namespace

TEST_CASE("the segments of rows are contiguous sentences of one document, and every sentence is in a row",
          "[pretraining]") {
  CHECK(rc::check([] {
    PretrainingOptions options = random_options();
    const auto all_documents = *any_documents(options.next_sentence ? 2 : 1);
    const Corpus corpus(all_documents);
    const PretrainingExamples training = make_pretraining(corpus, options, 3);
    RC_ASSERT(training.num_documents() == static_cast<int64_t>(all_documents.size()));
    const PretrainingExamples::Epoch epoch = training.plan_epoch(2);
    const auto document_of = [&](uint32_t sentence) {
      for (int64_t d = 0; d < training.num_documents(); ++d)
        if (sentence < training.document(d).end) return d;
      return int64_t{-1};
    };
    std::set<uint32_t> covered_sentences;
    for (int64_t i = 0; i < epoch.size(); ++i) {
      const PretrainingExamples::SegmentPair& pair = epoch.segment_pair(i);
      const Example row = epoch.make(i);
      RC_ASSERT(static_cast<int64_t>(row.tokens.size()) == epoch.length(i));
      check_row(corpus, options, pair, row);
      for (uint32_t s = pair.first.begin; s < pair.first.end; ++s) covered_sentences.insert(s);
      if (options.next_sentence && pair.is_next_sentence) {
        RC_ASSERT(pair.second.begin == pair.first.end);
        RC_ASSERT(document_of(pair.second.end - 1) == document_of(pair.first.begin));
        for (uint32_t s = pair.second.begin; s < pair.second.end; ++s) covered_sentences.insert(s);
      } else if (options.next_sentence) {
        RC_ASSERT(document_of(pair.second.begin) != document_of(pair.first.begin));
        RC_ASSERT(document_of(pair.second.begin) == document_of(pair.second.end - 1));
      }
      RC_ASSERT(document_of(pair.first.begin) == document_of(pair.first.end - 1));
    }
    // Each sentence of each document is in a first segment, or in a second segment that follows the first segment of
    // its row.
    for (int64_t d = 0; d < training.num_documents(); ++d)
      for (uint32_t s = training.document(d).begin; s < training.document(d).end; ++s)
        RC_ASSERT(covered_sentences.count(s) == 1);
  }));
}

TEST_CASE("the rows of an epoch depend on the seed and the epoch, not on the order of access", "[pretraining]") {
  const Corpus corpus(random_documents(20, 30, 3, 12, 5));
  const auto rows_of_epoch = [&](uint64_t seed, uint32_t epoch, bool reads_backwards) {
    const PretrainingExamples training = make_pretraining(corpus, {}, seed);
    const PretrainingExamples::Epoch epoch_plan = training.plan_epoch(epoch);
    std::map<int64_t, std::pair<Sentence, std::vector<int64_t>>> rows;
    for (int64_t i = 0; i < epoch_plan.size(); ++i) {
      const int64_t row_index = reads_backwards ? epoch_plan.size() - 1 - i : i;
      const Example row = epoch_plan.make(row_index);
      rows[row_index] = {row.tokens, row.targets};
    }
    return rows;
  };
  const auto first = rows_of_epoch(1, 0, false);
  CHECK(first == rows_of_epoch(1, 0, true));
  CHECK(first != rows_of_epoch(1, 1, false));
  CHECK(first != rows_of_epoch(2, 0, false));
}

TEST_CASE("the number of predicted tokens of a row is known without masking the row", "[pretraining]") {
  const Corpus corpus(random_documents(20, 30, 3, 12, 7));
  for (const bool whole_word : {false, true})
    for (const bool next_sentence : {false, true})
      for (const int64_t max_predictions : {2, 20}) {
        PretrainingOptions options;
        options.max_length = 32, options.max_predictions = max_predictions;
        options.whole_word = whole_word, options.next_sentence = next_sentence;
        const PretrainingExamples training = make_pretraining(corpus, options);
        const PretrainingExamples::Epoch epoch = training.plan_epoch(1);
        std::vector<int64_t> rows;
        size_t total_predicted = 0;
        for (int64_t i = 0; i < epoch.size(); ++i) {
          const size_t num_predicted = count_predicted(epoch.make(i));
          CHECK(epoch.count_predicted_tokens(i) == static_cast<int64_t>(num_predicted));
          rows.push_back(i);
          total_predicted += num_predicted;
        }
        const double weight = static_cast<double>(total_predicted) / static_cast<double>(rows.size());
        CHECK(epoch.next_sentence_weight(rows) == (next_sentence ? weight : 1));
      }
}

TEST_CASE("the same row has different masks in different epochs", "[pretraining]") {
  const Corpus corpus(random_documents(3, 100, 3, 12, 19));
  PretrainingOptions options;
  options.short_fraction = 0, options.next_sentence = false;  // rows are the same in every epoch
  const PretrainingExamples training = make_pretraining(corpus, options);
  const PretrainingExamples::Epoch epoch_0 = training.plan_epoch(0), epoch_1 = training.plan_epoch(1);
  REQUIRE(epoch_0.size() == epoch_1.size());
  for (int64_t i = 0; i < epoch_0.size(); ++i) {
    REQUIRE(epoch_0.segment_pair(i) == epoch_1.segment_pair(i));
    const Example first = epoch_0.make(i), second = epoch_1.make(i);
    CHECK(first.targets != second.targets);
    if (i > 0) CHECK(first.targets != epoch_0.make(i - 1).targets);
  }
}

TEST_CASE("of the predicted tokens, 80% are masked, 10% unchanged and 10% replaced by a random vocabulary entry",
          "[pretraining]") {
  const Corpus corpus(random_documents(100, 60, 3, 12, 7));
  const PretrainingExamples training = make_pretraining(corpus, {});
  int64_t num_masked = 0, num_unchanged = 0, num_predicted = 0, num_replaced = 0;
  std::vector<int64_t> num_replaced_by_tenth(10);
  double actual_predictions = 0, expected_predictions = 0, num_rows = 0;
  for (uint32_t epoch_number = 0; epoch_number < 4; ++epoch_number) {
    const PretrainingExamples::Epoch epoch = training.plan_epoch(epoch_number);
    for (int64_t i = 0; i < epoch.size(); ++i) {
      const Example row = epoch.make(i);
      expected_predictions += 0.15 * static_cast<double>(row.tokens.size()), ++num_rows;
      for (size_t position = 1; position < row.tokens.size(); ++position) {
        if (row.targets[position] < 0) continue;
        ++num_predicted;
        num_masked += row.tokens[position] == kMask ? 1 : 0;
        num_unchanged += row.tokens[position] == row.targets[position] ? 1 : 0;
        if (row.tokens[position] != kMask && row.tokens[position] != row.targets[position]) {
          ++num_replaced;
          ++num_replaced_by_tenth[static_cast<size_t>(row.tokens[position] * 10 / kVocabularySize)];
        }
        actual_predictions += 1;
      }
    }
  }
  constexpr double entry_share = 1.0 / kVocabularySize;
  check_fraction("masked", 0.8 + 0.1 * entry_share, num_masked, num_predicted);
  check_fraction("unchanged", 0.1 + 0.1 * entry_share, num_unchanged, num_predicted);
  check_fraction("replaced", 0.1 * (1 - 2 * entry_share), num_replaced, num_predicted);
  for (int64_t count : num_replaced_by_tenth)
    check_fraction("replaced by a tenth of the entries", 0.1, count, num_replaced);
  // The number of predictions of a row is rounded to an integer; the maximum of 20 limits only rows of more than 133
  // tokens.
  CHECK(std::abs(actual_predictions - expected_predictions) <= 0.5 * num_rows);
}

TEST_CASE("predicted tokens are distributed uniformly over the positions of a row", "[pretraining]") {
  const Corpus corpus(random_documents(50, 60, 5, 5, 9));
  PretrainingOptions options;
  options.max_length = 43, options.short_fraction = 0;
  const PretrainingExamples training = make_pretraining(corpus, options);
  std::vector<int64_t> predicted_at(43);
  int64_t num_rows = 0;
  for (uint32_t epoch_number = 0; epoch_number < 20; ++epoch_number) {
    const PretrainingExamples::Epoch epoch = training.plan_epoch(epoch_number);
    for (int64_t i = 0; i < epoch.size(); ++i) {
      const Example row = epoch.make(i);
      if (row.tokens.size() != 43 || row.first_segment_length != 22) continue;
      ++num_rows;
      for (size_t p = 1; p < 43; ++p) predicted_at[p] += row.targets[p] >= 0 ? 1 : 0;
    }
  }
  for (size_t p = 1; p < 43; ++p)
    if (p != 21 && p != 42)
      check_fraction("predicted", 6.0 / 40, predicted_at[p], num_rows);  // 43 * 0.15 = 6.45, rounded
}

TEST_CASE("the second segment follows the first in half of the rows with two or more sentences", "[pretraining]") {
  const std::vector<Document> all_documents = random_documents(300, 50, 2, 8, 11);
  const Corpus corpus(all_documents);
  PretrainingOptions options;
  options.max_length = 64, options.short_fraction = 0;
  const PretrainingExamples training = make_pretraining(corpus, options);
  int64_t num_next = 0, num_splittable = 0;
  std::vector<int64_t> second_segments_per_document(300);
  std::vector<PretrainingExamples::SegmentPair> segment_pairs;
  for (uint32_t epoch_number = 0; epoch_number < 4; ++epoch_number) {
    const PretrainingExamples::Epoch epoch = training.plan_epoch(epoch_number);
    for (int64_t i = 0; i < epoch.size(); ++i) segment_pairs.push_back(epoch.segment_pair(i));
  }
  // A segment refers to sentences by their index in Corpus::ends. Each document has 51 entries there: 50 sentences and
  // the end of the document.
  for (const PretrainingExamples::SegmentPair& pair : segment_pairs) {
    if (pair.is_next_sentence) {
      ++num_next;
      // A row gets sentences until it has at least 61 word tokens: the row length of 64 without the 3 special tokens.
      const Sentence tokens = corpus.tokens_of({pair.first.begin, pair.second.end});
      const bool is_last = pair.second.end == training.document(pair.first.begin / 51).end;
      CHECK((tokens.size() >= 61 || is_last));
      CHECK(corpus.tokens_of({pair.first.begin, pair.second.end - 1}).size() < 61);
    } else {
      ++second_segments_per_document[pair.second.begin / 51];
      const auto num_needed_tokens = 61 - static_cast<int64_t>(corpus.tokens_of(pair.first).size());
      const bool is_last = pair.second.end == training.document(pair.second.begin / 51).end;
      CHECK((static_cast<int64_t>(corpus.tokens_of(pair.second).size()) >= num_needed_tokens || is_last));
    }
    num_splittable += pair.first.begin + 1 < training.document(pair.first.begin / 51).end ? 1 : 0;
  }
  check_fraction("second segment follows", 0.5, num_next, num_splittable);
  CHECK(std::count(second_segments_per_document.begin(), second_segments_per_document.end(), 0) <
        3);  // about 12 second segments per document
  // In documents of a single sentence, the second segment never follows the first.
  const std::vector<Document> single_sentences = random_documents(30, 1, 5, 5, 13);
  const Corpus single_corpus(single_sentences);
  const PretrainingExamples single_training = make_pretraining(single_corpus, options);
  const PretrainingExamples::Epoch epoch = single_training.plan_epoch(0);
  CHECK(epoch.size() == 30);
  for (int64_t i = 0; i < epoch.size(); ++i) CHECK(!epoch.segment_pair(i).is_next_sentence);
}

TEST_CASE("a row is split into two segments after any of its sentences but the last, with equal probability",
          "[pretraining]") {
  const Corpus corpus(random_documents(400, 100, 1, 1, 15));
  PretrainingOptions options;
  options.max_length = 13,
  options.short_fraction = 0;  // a row has ten sentences of one token; its first segment has one to nine
  const PretrainingExamples training = make_pretraining(corpus, options);
  std::map<uint32_t, int64_t> rows_by_first_length;
  int64_t num_full_rows = 0;
  const PretrainingExamples::Epoch epoch = training.plan_epoch(0);
  for (int64_t i = 0; i < epoch.size(); ++i) {
    const PretrainingExamples::SegmentPair& pair = epoch.segment_pair(i);
    if (!pair.is_next_sentence || pair.second.end - pair.first.begin != 10) continue;
    ++rows_by_first_length[pair.first.end - pair.first.begin];
    ++num_full_rows;
  }
  CHECK(rows_by_first_length.size() == 9);
  for (const auto& [count, rows] : rows_by_first_length) check_fraction("this split", 1.0 / 9, rows, num_full_rows);
}

TEST_CASE("a tenth of the rows gets a shorter target length, sampled uniformly", "[pretraining]") {
  // All sentences have one token, so that a row has exactly its target length, and one document is so long that its end
  // does not matter.
  std::vector<Document> all_documents = random_documents(1, 400000, 1, 1, 17);
  all_documents.push_back({{5}, {7}});
  const Corpus corpus(all_documents);
  PretrainingOptions options;
  options.max_length = 43;
  const PretrainingExamples training = make_pretraining(corpus, options);
  const PretrainingExamples::Epoch epoch = training.plan_epoch(0);
  std::map<uint32_t, int64_t> lengths;
  int64_t num_next = 0;
  for (int64_t i = 0; i < epoch.size(); ++i) {
    const PretrainingExamples::SegmentPair& pair = epoch.segment_pair(i);
    if (!pair.is_next_sentence) continue;
    ++num_next;
    ++lengths[pair.second.end - pair.first.begin];
  }
  REQUIRE(lengths.begin()->first == 2);
  REQUIRE(lengths.rbegin()->first == 40);
  check_fraction("short rows", 0.1 * 38 / 39, num_next - lengths[40], num_next);
  for (uint32_t length = 2; length < 40; ++length) check_fraction("this length", 0.1 / 39, lengths[length], num_next);
}

TEST_CASE("truncation removes tokens at the start and at the end of a segment with equal probability",
          "[pretraining]") {
  // The tokens of a sentence are distinct, so that the position of any part of it is unique.
  std::vector<Document> all_documents(300);
  for (size_t d = 0; d < all_documents.size(); ++d) {
    all_documents[d].resize(12);
    for (size_t s = 0; s < 12; ++s)
      for (int32_t t = 0; t < 40; ++t)
        all_documents[d][s].push_back(kFirstWord + static_cast<int32_t>((d * 7 + s * 40) % 500) + t);
  }
  const Corpus corpus(all_documents);
  PretrainingOptions options;
  options.max_length = 60, options.short_fraction = 0;
  const PretrainingExamples training = make_pretraining(corpus, options);
  const PretrainingExamples::Epoch epoch = training.plan_epoch(0);
  int64_t num_removed_at_start = 0, num_removed = 0;
  for (int64_t i = 0; i < epoch.size(); ++i) {
    const Example row = epoch.make(i);
    const Sentence tokens = tokens_before_masking(row), first = corpus.tokens_of(epoch.segment_pair(i).first);
    const Sentence first_segment_tokens(tokens.begin() + 1, tokens.begin() + row.first_segment_length - 1);
    if (first.size() != 40) continue;  // only segments of one sentence, whose tokens are distinct
    num_removed_at_start += position_in(first_segment_tokens, first);
    num_removed += static_cast<int64_t>(first.size() - first_segment_tokens.size());
  }
  check_fraction("removed at the start", 0.5, num_removed_at_start, num_removed);
}

TEST_CASE("a pre-training row with room for one word token contains one word token", "[pretraining]") {
  const Corpus corpus({{{5, 7, 8}}, {{10, 11, 13}, {14}}});
  PretrainingOptions options;
  options.max_length = 3, options.next_sentence = false,
  options.short_fraction = 1;  // a shorter target length for every row
  const PretrainingExamples training = make_pretraining(corpus, options);
  for (uint32_t epoch_number = 0; epoch_number < 20; ++epoch_number) {
    const PretrainingExamples::Epoch epoch = training.plan_epoch(epoch_number);
    REQUIRE(epoch.size() == 3);  // one row per sentence, truncated to one word token
    for (int64_t i = 0; i < epoch.size(); ++i) CHECK(tokens_before_masking(epoch.make(i)).size() == 3);
  }
}

TEST_CASE("pre-training refuses missing or empty documents, and next-sentence prediction with a single document",
          "[pretraining]") {
  const Corpus single_document({{{5, 7}, {8}}}), no_documents({});
  PretrainingOptions options;
  CHECK(status_of([&] { make_pretraining(single_document, options); }) == 2);
  CHECK(status_of([&] { make_pretraining(no_documents, options); }) == 3);
  options.next_sentence = false;
  CHECK(status_of([&] { make_pretraining(no_documents, options); }) == 3);
  CHECK(make_pretraining(single_document, options).plan_epoch(0).size() == 1);
  CHECK(make_pretraining(single_document, options).num_tokens() == 3);
  CHECK(make_pretraining(single_document, options).plan_epoch(0).make(0).targets[0] == -1);
  CHECK(status_of([&] {
          make_pretraining(Corpus({{{5}}, {}}), options);
        }) == 3);  // the second document has no sentence
}
