// Rows of pre-training: what they are whatever the documents, and their shares as statistics. Seeds are fixed; a share
// may be off by five standard deviations.
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
using text::Pretraining;
using text::PretrainingOptions;

namespace {

constexpr int32_t kStart = 2, kSeparator = 3, kMask = 4, kWords = 5;
constexpr int32_t kEntries = 1005;  // words from 5 on; every third goes on with the word before it

bool goes_on(int32_t token) { return token >= kWords && token % 3 == 0; }

const text::WordPieceTokenizer& vocabulary() {
  static const auto made = [] {
    std::vector<text::Piece> pieces{{"[PAD]", 0}, {"[UNK]", 0}, {"[CLS]", 0}, {"[SEP]", 0}, {"[MASK]", 0}};
    for (int32_t i = kWords; i < kEntries; ++i) pieces.push_back({(goes_on(i) ? "##w" : "w") + std::to_string(i), 0});
    return text::make_wordpiece_tokenizer(std::move(pieces), {}, "test");
  }();
  return *made;
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
  text::Sequences runs() const {
    return {ends, [this](uint64_t first, std::span<int32_t> out) {
              std::copy_n(tokens.begin() + static_cast<int64_t>(first), out.size(), out.begin());
            }};
  }
  Sentence of(Pretraining::Sentences s) const {
    const uint64_t begin = s.begin == 0 ? 0 : ends[s.begin - 1], end = s.end == 0 ? 0 : ends[s.end - 1];
    return {tokens.begin() + static_cast<int64_t>(begin), tokens.begin() + static_cast<int64_t>(std::max(begin, end))};
  }
};

Pretraining made(const Corpus& corpus, const PretrainingOptions& options, uint64_t seed = 1) {
  return {corpus.runs(), vocabulary(), options, seed};
}

// Sentences of so many tokens, drawn.
std::vector<Document> drawn(size_t documents, size_t sentences, size_t shortest, size_t longest, uint64_t seed) {
  RandomSequence random(RandomStream(seed, "documents"));
  std::vector<Document> all(documents, Document(sentences));
  for (Document& document : all)
    for (Sentence& sentence : document) {
      sentence.resize(shortest + random.below(longest - shortest + 1));
      for (int32_t& token : sentence) token = kWords + static_cast<int32_t>(random.below(kEntries - kWords));
    }
  return all;
}

void is_share(const char* what, double expected, int64_t hits, int64_t all) {
  INFO(what << ": " << hits << " of " << all);
  REQUIRE(all > 1000);
  const double deviation = std::sqrt(expected * (1 - expected) / static_cast<double>(all));
  CHECK(std::abs(static_cast<double>(hits) / static_cast<double>(all) - expected) < 5 * deviation);
}

// As it was before tokens were hidden.
Sentence restored(const Example& row) {
  Sentence tokens = row.tokens;
  for (size_t i = 1; i < tokens.size(); ++i)
    if (row.targets[i] >= 0) tokens[i] = static_cast<int32_t>(row.targets[i]);
  return tokens;
}

size_t predicted(const Example& row) {
  return static_cast<size_t>(
      std::count_if(row.targets.begin() + 1, row.targets.end(), [](int64_t target) { return target >= 0; }));
}

// How much of a segment was cut in front; -1 where it is no part of it. Sentences are drawn so that it is one place.
int64_t place_in(const Sentence& part, const Sentence& whole) {
  const auto at = std::search(whole.begin(), whole.end(), part.begin(), part.end());
  return part.empty() || at == whole.end() ? -1 : at - whole.begin();
}

rc::Gen<std::vector<Document>> documents(int fewest) {
  const auto sentence = rc::gen::nonEmpty(rc::gen::container<Sentence>(rc::gen::inRange<int32_t>(kWords, kEntries)));
  const auto document = rc::gen::nonEmpty(rc::gen::container<Document>(rc::gen::resize(25, sentence)));
  return rc::gen::mapcat(rc::gen::inRange(fewest, 7), [document](int count) {
    return rc::gen::container<std::vector<Document>>(static_cast<size_t>(count), rc::gen::resize(12, document));
  });
}

PretrainingOptions some_options() {
  PretrainingOptions o;
  o.short_share = *rc::gen::element(0.0, 0.1, 1.0);
  o.mask_share = *rc::gen::element(0.0, 0.15, 0.5, 1.0);
  o.max_predictions = *rc::gen::element<int64_t>(1, 5, 20, 1000);
  o.whole_word = *rc::gen::arbitrary<bool>();
  o.next_sentence = *rc::gen::arbitrary<bool>();
  o.length = *rc::gen::inRange<int64_t>(o.next_sentence ? 5 : 3, 70);  // from a row with room for one token a segment
  return o;
}

// A row is built as it should be from what its plan says.
void check_row(const Corpus& corpus, const PretrainingOptions& o, const Pretraining::Row& plan, const Example& row) {
  const Sentence tokens = restored(row);
  const auto size = static_cast<int64_t>(tokens.size());
  RC_ASSERT(size <= o.length);
  RC_ASSERT(row.targets.size() == tokens.size());
  RC_ASSERT(tokens.front() == kStart);
  RC_ASSERT(tokens.back() == kSeparator);
  RC_ASSERT(std::count(tokens.begin(), tokens.end(), kSeparator) == (o.next_sentence ? 2 : 1));
  RC_ASSERT(tokens[static_cast<size_t>(row.first) - 1] == kSeparator);
  RC_ASSERT((row.first == size) == !o.next_sentence);
  RC_ASSERT(row.targets[0] == (o.next_sentence ? (plan.follows ? 0 : 1) : -1));
  const Sentence first = corpus.of(plan.first), second = corpus.of(plan.second);
  const Sentence of_first(tokens.begin() + 1, tokens.begin() + row.first - 1);
  RC_ASSERT(place_in(of_first, first) >= 0);
  Sentence of_second;
  if (o.next_sentence) {
    of_second.assign(tokens.begin() + row.first, tokens.end() - 1);
    RC_ASSERT(place_in(of_second, second) >= 0);
  }
  // No token is lost that would fit, and the longer one lost them.
  const bool cut = first.size() > of_first.size() || second.size() > of_second.size();
  RC_ASSERT(!cut || size == o.length);
  if (first.size() > of_first.size()) RC_ASSERT(of_first.size() >= of_second.size());
  if (second.size() > of_second.size()) RC_ASSERT(of_second.size() + 1 >= of_first.size());
  const auto wanted = std::min<int64_t>(
      o.max_predictions,
      std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(static_cast<double>(size) * o.mask_share))));
  const auto special = static_cast<int64_t>(o.next_sentence ? 3 : 2);
  if (o.whole_word) RC_ASSERT(static_cast<int64_t>(predicted(row)) <= wanted);
  else RC_ASSERT(static_cast<int64_t>(predicted(row)) == std::min(wanted, size - special));
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i] == kSeparator) RC_ASSERT(row.targets[i] == -1);
    const bool begins = i == 1 || static_cast<int32_t>(i) == row.first || !goes_on(tokens[i]);
    if (o.whole_word && !begins) RC_ASSERT((row.targets[i] >= 0) == (row.targets[i - 1] >= 0));
  }
}

}  // namespace

TEST_CASE("rows of any documents are segments of them", "[pretraining]") {
  CHECK(rc::check([] {
    PretrainingOptions o = some_options();
    const auto all = *documents(o.next_sentence ? 2 : 1);
    const Corpus corpus(all);
    const Pretraining training = made(corpus, o, 3);
    RC_ASSERT(training.documents() == static_cast<int64_t>(all.size()));
    const Pretraining::Epoch epoch = training.plan(2);
    const auto document_of = [&](uint32_t sentence) {
      for (int64_t d = 0; d < training.documents(); ++d)
        if (sentence < training.document(d).end) return d;
      return int64_t{-1};
    };
    std::set<uint32_t> seen;
    for (int64_t i = 0; i < epoch.size(); ++i) {
      const Pretraining::Row& plan = epoch.row(i);
      const Example row = epoch.make(i);
      RC_ASSERT(static_cast<int64_t>(row.tokens.size()) == epoch.length(i));
      check_row(corpus, o, plan, row);
      for (uint32_t s = plan.first.begin; s < plan.first.end; ++s) seen.insert(s);
      if (o.next_sentence && plan.follows) {
        RC_ASSERT(plan.second.begin == plan.first.end);
        RC_ASSERT(document_of(plan.second.end - 1) == document_of(plan.first.begin));
        for (uint32_t s = plan.second.begin; s < plan.second.end; ++s) seen.insert(s);
      } else if (o.next_sentence) {
        RC_ASSERT(document_of(plan.second.begin) != document_of(plan.first.begin));
        RC_ASSERT(document_of(plan.second.begin) == document_of(plan.second.end - 1));
      }
      RC_ASSERT(document_of(plan.first.begin) == document_of(plan.first.end - 1));
    }
    // Each sentence of each document is in a row in its place.
    for (int64_t d = 0; d < training.documents(); ++d)
      for (uint32_t s = training.document(d).begin; s < training.document(d).end; ++s) RC_ASSERT(seen.count(s) == 1);
  }));
}

TEST_CASE("an epoch follows from the seed and its number, whatever is asked for first", "[pretraining]") {
  const Corpus corpus(drawn(20, 30, 3, 12, 5));
  const auto all_of = [&](uint64_t seed, uint32_t epoch, bool backwards) {
    const Pretraining training = made(corpus, {}, seed);
    const Pretraining::Epoch planned = training.plan(epoch);
    std::map<int64_t, std::pair<Sentence, std::vector<int64_t>>> rows;
    for (int64_t i = 0; i < planned.size(); ++i) {
      const int64_t at = backwards ? planned.size() - 1 - i : i;
      const Example row = planned.make(at);
      rows[at] = {row.tokens, row.targets};
    }
    return rows;
  };
  const auto first = all_of(1, 0, false);
  CHECK(first == all_of(1, 0, true));
  CHECK(first != all_of(1, 1, false));
  CHECK(first != all_of(2, 0, false));
}

TEST_CASE("the same row has other hidden words in another epoch", "[pretraining]") {
  const Corpus corpus(drawn(3, 100, 3, 12, 19));
  PretrainingOptions o;
  o.short_share = 0, o.next_sentence = false;  // rows are the same in every epoch
  const Pretraining training = made(corpus, o);
  const Pretraining::Epoch one = training.plan(0), other = training.plan(1);
  REQUIRE(one.size() == other.size());
  for (int64_t i = 0; i < one.size(); ++i) {
    REQUIRE(one.row(i) == other.row(i));
    const Example first = one.make(i), second = other.make(i);
    CHECK(first.targets != second.targets);
    if (i > 0) CHECK(first.targets != one.make(i - 1).targets);
  }
}

TEST_CASE("80% of what is predicted is hidden, 10% stays, 10% is any entry", "[pretraining]") {
  const Corpus corpus(drawn(100, 60, 3, 12, 7));
  const Pretraining training = made(corpus, {});
  int64_t hidden = 0, same = 0, all = 0, others = 0;
  std::vector<int64_t> of_ten(10);
  double real = 0, wanted = 0;
  for (uint32_t number = 0; number < 4; ++number) {
    const Pretraining::Epoch epoch = training.plan(number);
    for (int64_t i = 0; i < epoch.size(); ++i) {
      const Example row = epoch.make(i);
      wanted += 0.15 * static_cast<double>(row.tokens.size());
      for (size_t at = 1; at < row.tokens.size(); ++at) {
        if (row.targets[at] < 0) continue;
        ++all;
        hidden += row.tokens[at] == kMask ? 1 : 0;
        same += row.tokens[at] == row.targets[at] ? 1 : 0;
        if (row.tokens[at] != kMask && row.tokens[at] != row.targets[at]) {
          ++others;
          ++of_ten[static_cast<size_t>(row.tokens[at] * 10 / kEntries)];
        }
        real += 1;
      }
    }
  }
  constexpr double one = 1.0 / kEntries;
  is_share("hidden", 0.8 + 0.1 * one, hidden, all);
  is_share("the same", 0.1 + 0.1 * one, same, all);
  is_share("others", 0.1 * (1 - 2 * one), others, all);
  for (int64_t tenth : of_ten) is_share("others of a tenth of the entries", 0.1, tenth, others);
  CHECK(real / wanted == Approx(1).epsilon(0.01));  // 15%; rounding is half up, half down, and 20 cut rows above 133
}

TEST_CASE("what is predicted stands anywhere in a row", "[pretraining]") {
  const Corpus corpus(drawn(50, 60, 5, 5, 9));
  PretrainingOptions o;
  o.length = 43, o.short_share = 0;
  const Pretraining training = made(corpus, o);
  std::vector<int64_t> at(43);
  int64_t rows = 0;
  for (uint32_t number = 0; number < 20; ++number) {
    const Pretraining::Epoch epoch = training.plan(number);
    for (int64_t i = 0; i < epoch.size(); ++i) {
      const Example row = epoch.make(i);
      if (row.tokens.size() != 43 || row.first != 22) continue;
      ++rows;
      for (size_t p = 1; p < 43; ++p) at[p] += row.targets[p] >= 0 ? 1 : 0;
    }
  }
  for (size_t p = 1; p < 43; ++p)
    if (p != 21 && p != 42) is_share("predicted", 6.0 / 40, at[p], rows);  // 43 * .15 is 6.45
}

TEST_CASE("half of the seconds follow, wherever there are two sentences", "[pretraining]") {
  const std::vector<Document> all = drawn(300, 50, 2, 8, 11);
  const Corpus corpus(all);
  PretrainingOptions o;
  o.length = 64, o.short_share = 0;
  const Pretraining training = made(corpus, o);
  int64_t follow = 0, of_several = 0;
  std::vector<int64_t> from(300);
  std::vector<Pretraining::Row> rows;
  for (uint32_t number = 0; number < 4; ++number) {
    const Pretraining::Epoch epoch = training.plan(number);
    for (int64_t i = 0; i < epoch.size(); ++i) rows.push_back(epoch.row(i));
  }
  for (const Pretraining::Row& row : rows) {
    if (row.follows) {
      ++follow;
      // As many sentences as make up 61 tokens.
      const Sentence both = corpus.of({row.first.begin, row.second.end});
      const bool last = row.second.end == training.document(row.first.begin / 51).end;
      CHECK((both.size() >= 61 || last));
      CHECK(corpus.of({row.first.begin, row.second.end - 1}).size() < 61);
    } else {
      ++from[row.second.begin / 51];
      const auto wanted = 61 - static_cast<int64_t>(corpus.of(row.first).size());
      const bool last = row.second.end == training.document(row.second.begin / 51).end;
      CHECK((static_cast<int64_t>(corpus.of(row.second).size()) >= wanted || last));
    }
    of_several += row.first.begin + 1 < training.document(row.first.begin / 51).end ? 1 : 0;
  }
  is_share("follow", 0.5, follow, of_several);
  CHECK(std::count(from.begin(), from.end(), 0) < 3);  // of 300 documents some 12 seconds each
  // Single sentences have nothing that follows.
  const std::vector<Document> singles = drawn(30, 1, 5, 5, 13);
  const Corpus alone(singles);
  const Pretraining of_one = made(alone, o);
  const Pretraining::Epoch epoch = of_one.plan(0);
  CHECK(epoch.size() == 30);
  for (int64_t i = 0; i < epoch.size(); ++i) CHECK(!epoch.row(i).follows);
}

TEST_CASE("segments are parted behind any sentence alike", "[pretraining]") {
  const Corpus corpus(drawn(400, 100, 1, 1, 15));
  PretrainingOptions o;
  o.length = 13, o.short_share = 0;  // ten sentences of a token, parted behind one to nine of them
  const Pretraining training = made(corpus, o);
  std::map<uint32_t, int64_t> firsts;
  int64_t whole = 0;
  const Pretraining::Epoch epoch = training.plan(0);
  for (int64_t i = 0; i < epoch.size(); ++i) {
    const Pretraining::Row& row = epoch.row(i);
    if (!row.follows || row.second.end - row.first.begin != 10) continue;
    ++firsts[row.first.end - row.first.begin];
    ++whole;
  }
  CHECK(firsts.size() == 9);
  for (const auto& [count, rows] : firsts) is_share("parted", 1.0 / 9, rows, whole);
}

TEST_CASE("a tenth of the rows is drawn short, to any length", "[pretraining]") {
  // Sentences of a token, so that a row is as long as it was drawn; one document of so many that its end is nothing.
  std::vector<Document> all = drawn(1, 400000, 1, 1, 17);
  all.push_back({{5}, {7}});
  const Corpus corpus(all);
  PretrainingOptions o;
  o.length = 43;
  const Pretraining training = made(corpus, o);
  const Pretraining::Epoch epoch = training.plan(0);
  std::map<uint32_t, int64_t> lengths;
  int64_t follow = 0;
  for (int64_t i = 0; i < epoch.size(); ++i) {
    const Pretraining::Row& row = epoch.row(i);
    if (!row.follows) continue;
    ++follow;
    ++lengths[row.second.end - row.first.begin];
  }
  REQUIRE(lengths.begin()->first == 2);
  REQUIRE(lengths.rbegin()->first == 40);
  is_share("short", 0.1 * 38 / 39, follow - lengths[40], follow);
  for (uint32_t length = 2; length < 40; ++length) is_share("a length", 0.1 / 39, lengths[length], follow);
}

TEST_CASE("segments too long lose tokens at both ends alike", "[pretraining]") {
  // Different tokens, so that a part has one place.
  std::vector<Document> all(300);
  for (size_t d = 0; d < all.size(); ++d) {
    all[d].resize(12);
    for (size_t s = 0; s < 12; ++s)
      for (int32_t t = 0; t < 40; ++t) all[d][s].push_back(kWords + static_cast<int32_t>((d * 7 + s * 40) % 500) + t);
  }
  const Corpus corpus(all);
  PretrainingOptions o;
  o.length = 60, o.short_share = 0;
  const Pretraining training = made(corpus, o);
  const Pretraining::Epoch epoch = training.plan(0);
  int64_t front = 0, lost = 0;
  for (int64_t i = 0; i < epoch.size(); ++i) {
    const Example row = epoch.make(i);
    const Sentence tokens = restored(row), first = corpus.of(epoch.row(i).first);
    const Sentence kept(tokens.begin() + 1, tokens.begin() + row.first - 1);
    if (first.size() != 40) continue;  // of one sentence, whose tokens all differ
    front += place_in(kept, first);
    lost += static_cast<int64_t>(first.size() - kept.size());
  }
  is_share("lost in front", 0.5, front, lost);
}

TEST_CASE("a row with room for one token holds one", "[pretraining]") {
  const Corpus corpus({{{5, 7, 8}}, {{10, 11, 13}, {14}}});
  PretrainingOptions o;
  o.length = 3, o.next_sentence = false, o.short_share = 1;  // every row is to be drawn short
  const Pretraining training = made(corpus, o);
  for (uint32_t number = 0; number < 20; ++number) {
    const Pretraining::Epoch epoch = training.plan(number);
    REQUIRE(epoch.size() == 3);  // one for each sentence, cut to a token
    for (int64_t i = 0; i < epoch.size(); ++i) CHECK(restored(epoch.make(i)).size() == 3);
  }
}

TEST_CASE("documents that give no rows are refused", "[pretraining]") {
  const Corpus one({{{5, 7}, {8}}}), none({});
  PretrainingOptions o;
  CHECK(status_of([&] { made(one, o); }) == 2);
  CHECK(status_of([&] { made(none, o); }) == 3);
  o.next_sentence = false;
  CHECK(status_of([&] { made(none, o); }) == 3);
  CHECK(made(one, o).plan(0).size() == 1);
  CHECK(made(one, o).tokens() == 3);
  CHECK(made(one, o).plan(0).make(0).targets[0] == -1);
  CHECK(status_of([&] { made(Corpus({{{5}}, {}}), o); }) == 3);  // the second document has no sentence
}
