// Batches with train.batch.order = sentence-streams, compared with a naive reading of sentences from a queue.
#include "data/sentence_streams.h"

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <set>

#include "data/mixed_batches.h"
#include "fixtures/corpora.h"
#include "fixtures/status.h"
#include "train/options.h"

using namespace mh;

namespace {

constexpr int32_t kEndOfLine = 5;

// Returns sentences of 1 to 9 tokens with the end-of-line token, whose other tokens are distinct numbers from 10.
std::vector<std::vector<int32_t>> random_sentences(int64_t num_sentences) {
  std::vector<std::vector<int32_t>> sentences;
  int32_t next_token = 10;
  for (int64_t s = 0; s < num_sentences; ++s) {
    std::vector<int32_t> sentence(static_cast<size_t>(*rc::gen::inRange(0, 9)));
    for (int32_t& token : sentence) token = next_token++;
    sentence.push_back(kEndOfLine);
    sentences.push_back(sentence);
  }
  return sentences;
}

std::vector<int32_t> join_sentences(const std::vector<std::vector<int32_t>>& sentences) {
  std::vector<int32_t> text;
  for (const auto& sentence : sentences) text.insert(text.end(), sentence.begin(), sentence.end());
  return text;
}

data::BatchOptions options_of(int64_t num_rows, int64_t sequence_length) {
  data::BatchOptions options;
  options.order = data::BatchOrder::sentence_streams;
  options.sequence_length = sequence_length;
  options.tokens = num_rows * sequence_length;
  return options;
}

// Returns the shuffled order of the sentences of an epoch: the order in which a single row of one token reads them.
std::vector<size_t> shuffled_order(const std::vector<std::vector<int32_t>>& sentences, int64_t seed, int64_t epoch) {
  std::vector<int64_t> begins{0};
  for (const auto& sentence : sentences) begins.push_back(begins.back() + static_cast<int64_t>(sentence.size()));
  data::SentenceStreams streams(begins, 1, 1, seed);
  std::vector<size_t> order;
  for (int64_t step = 0; step < begins.back(); ++step) {
    const data::Row part = streams.rows(epoch, step).at(0).at(0);
    const auto begin = std::lower_bound(begins.begin(), begins.end(), part.offset);
    if (*begin == part.offset) order.push_back(static_cast<size_t>(begin - begins.begin()));
  }
  return order;
}

}  // namespace

TEST_CASE("each row of sentence streams continues with the next sentence of one queue in shuffled order", "[streams]") {
  CHECK(rc::check([] {
    const int64_t num_rows = *rc::gen::inRange<int64_t>(1, 6), sequence_length = *rc::gen::inRange<int64_t>(1, 8),
                  seed = *rc::gen::inRange<int64_t>(0, 100);
    const auto sentences = random_sentences(*rc::gen::inRange<int64_t>(num_rows, 40));
    const std::vector<int32_t> text = join_sentences(sentences);
    const auto num_tokens = static_cast<int64_t>(text.size());
    const auto batches = data::make_sentence_stream_batches(corpora::text_of(text, kEndOfLine),
                                                            options_of(num_rows, sequence_length), seed);
    const int64_t num_updates = batches->updates_per_epoch();
    RC_ASSERT(num_updates == std::max<int64_t>(1, num_tokens / (num_rows * sequence_length)));
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      // Naive reference: each row holds the inputs and targets that it has not yet read, one pair for each token.
      const std::vector<size_t> order = shuffled_order(sentences, seed, epoch);
      RC_ASSERT(std::set<size_t>(order.begin(), order.end()).size() == sentences.size());
      RC_ASSERT(order.size() == sentences.size());
      std::deque<size_t> queue(order.begin(), order.end());
      std::vector<std::deque<std::pair<int64_t, int64_t>>> pending(static_cast<size_t>(num_rows));
      for (int64_t step = 0; step < num_updates; ++step) {
        const int64_t update = epoch * num_updates + step;
        RC_ASSERT(batches->continues_streams(update) == (step > 0));
        RC_ASSERT(batches->row_costs(update) == std::vector<int64_t>(static_cast<size_t>(num_rows), sequence_length));
        const data::Batch batch = batches->load(update, {0, num_rows});
        for (int64_t r = 0; r < num_rows; ++r) {
          auto& row = pending[static_cast<size_t>(r)];
          int64_t length = 0;
          for (int64_t t = 0; t < sequence_length; ++t) {
            while (row.empty() && !queue.empty()) {
              int64_t previous = kEndOfLine;
              for (const int32_t token : sentences[queue.front()]) {
                row.emplace_back(previous, token);
                previous = token;
              }
              queue.pop_front();
            }
            const auto [input, target] = row.empty() ? std::pair<int64_t, int64_t>{kEndOfLine, -1} : row.front();
            RC_ASSERT(batch.input.tokens[r][t].item<int64_t>() == input);
            RC_ASSERT(batch.targets[r][t].item<int64_t>() == target);
            if (row.empty()) continue;
            row.pop_front();
            ++length;
          }
          RC_ASSERT(batch.input.lengths.decoder[r].item<int64_t>() == length);
        }
        RC_ASSERT(batch.targets.max().item<int64_t>() >= 0);
      }
    }
  }));
}

TEST_CASE("an update of sentence streams depends on its number and the seed, not on earlier reads", "[streams]") {
  CHECK(rc::check([] {
    const auto sentences = random_sentences(30);
    const std::vector<int32_t> text = join_sentences(sentences);
    const data::BatchOptions options = options_of(4, 3);
    const auto in_order = data::make_sentence_stream_batches(corpora::text_of(text, kEndOfLine), options, 7),
               at_random = data::make_sentence_stream_batches(corpora::text_of(text, kEndOfLine), options, 7);
    std::vector<data::Batch> expected;
    for (int64_t u = 0; u < 3 * in_order->updates_per_epoch(); ++u) expected.push_back(in_order->load(u, {0, 4}));
    for (int i = 0; i < 10; ++i) {
      const int64_t u = *rc::gen::inRange<int64_t>(0, static_cast<int64_t>(expected.size()));
      const data::Batch& batch = expected[static_cast<size_t>(u)];
      RC_ASSERT(at_random->load(u, {0, 4}).targets.equal(batch.targets));
      // A micro-batch is a slice of the rows of its update.
      const data::Batch micro_batch = at_random->load(u, {1, 2});
      RC_ASSERT(micro_batch.input.tokens.equal(batch.input.tokens.slice(0, 1, 3)));
      RC_ASSERT(micro_batch.targets.equal(batch.targets.slice(0, 1, 3)));
    }
  }));
}

TEST_CASE("the order of sentences differs between epochs and between seeds", "[streams]") {
  const std::vector<std::vector<int32_t>> sentences(40, {8, kEndOfLine});
  const std::vector<size_t> order = shuffled_order(sentences, 1, 0);
  CHECK(order != shuffled_order(sentences, 1, 1));
  CHECK(order != shuffled_order(sentences, 2, 0));
}

TEST_CASE("the last sentence of a text may lack its end-of-line token", "[streams]") {
  using Begins = std::vector<int64_t>;
  const auto begins_of = [](const std::vector<int32_t>& tokens) {
    return data::sentence_row_begins(corpora::text_of(tokens, kEndOfLine), static_cast<int64_t>(tokens.size()));
  };
  CHECK(begins_of({7, 5, 5, 8, 9}) == Begins{0, 2, 3, 5});
  CHECK(begins_of({7, 8, 5}) == Begins{0, 3});
  CHECK(begins_of({7, 8}) == Begins{0, 2});
}

TEST_CASE("sentence streams refuse more rows than lines and several training shards", "[streams]") {
  const std::vector<int32_t> tokens{7, 5, 8, 8, 5};
  CHECK(refusal([&] {
          data::make_sentence_stream_batches(corpora::text_of(tokens, kEndOfLine), options_of(3, 1), 1);
        }).find("at most 2 streams, the number of lines in the text") != std::string::npos);
  const data::Text text = corpora::text_of(tokens, kEndOfLine);
  CHECK(refusal([&] {
          data::mix_texts({text, text}, {"a", "b"}, {1, 1}, options_of(2, 1), 1);
        }).find("train.batch.order") != std::string::npos);
  const data::BatchOptions options = options_of(2, 3);
  CHECK(data::length_to_updates({2, Length::Unit::epochs}, options, 20) == 6);  // 2 ⌊20 / 6⌋
  CHECK(data::length_to_updates({2, Length::Unit::epochs}, options, 5) == 2);
  CHECK(data::length_to_updates({2, Length::Unit::epochs}, options, 0) == 0);
  CHECK(data::length_to_updates({21, Length::Unit::tokens}, options, 20) == 4);
}
