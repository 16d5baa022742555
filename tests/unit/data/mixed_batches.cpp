// Batches of several shards: rows of texts in one update, streams of several texts, and whole updates of pairs.
#include "data/mixed_batches.h"

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <tuple>

#include "ceil_div.h"
#include "data/shared_batches.h"
#include "fixtures/aten.h"
#include "fixtures/corpora.h"
#include "fixtures/pairs.h"
#include "fixtures/status.h"
#include "fixtures/translation.h"

using namespace mh;
using data::BatchOptions;
using data::BatchOrder;
using data::MixedTextBatches;

namespace {

// Texts of which no two have a token in common: token t of text i is 1000 i + t + 1.
class Texts {
 public:
  explicit Texts(const std::vector<int64_t>& lengths) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      tokens_.emplace_back();
      for (int64_t t = 0; t < lengths[i]; ++t)
        tokens_.back().push_back(static_cast<int32_t>(1000 * static_cast<int64_t>(i) + t + 1));
    }
  }
  std::vector<data::Text> texts() const {
    std::vector<data::Text> result;
    for (const auto& tokens : tokens_) result.push_back(corpora::text_of(tokens, 0));
    return result;
  }
  std::unique_ptr<MixedTextBatches> batches(const std::vector<double>& weights, const BatchOptions& options) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < tokens_.size(); ++i) names.push_back(str("t", i, ".mhs"));
    return data::mix_texts(texts(), names, weights, options, 3);
  }

 private:
  std::vector<std::vector<int32_t>> tokens_;
};

BatchOptions options_of(int64_t sequence_length, int64_t rows, BatchOrder order = BatchOrder::blocks) {
  BatchOptions options;
  options.sequence_length = sequence_length, options.tokens = sequence_length * rows, options.order = order;
  return options;
}

// Returns (shard, offset, length) of each row of an update, without the continuations of rows.
std::vector<std::tuple<size_t, int64_t, int64_t>> row_keys(MixedTextBatches& batches, int64_t update) {
  std::vector<std::tuple<size_t, int64_t, int64_t>> keys;
  for (const auto& row : batches.rows_of(update).rows) keys.emplace_back(row.shard, row.row.offset, row.row.length);
  return keys;
}

}  // namespace

TEST_CASE("mixed blocks: a shard's blocks occur once in each of its own epochs, and fractions follow the weights",
          "[mixtures]") {
  CHECK(rc::check([] {
    const auto num_shards = *rc::gen::inRange<size_t>(1, 4);
    std::vector<int64_t> lengths;
    std::vector<double> weights;
    double weight_sum = 0;
    for (size_t i = 0; i < num_shards; ++i) {
      lengths.push_back(*rc::gen::inRange<int64_t>(1, 60));
      weights.push_back(*rc::gen::inRange(1, 20));
      weight_sum += weights.back();
    }
    const int64_t sequence_length = *rc::gen::inRange<int64_t>(1, 9), rows = *rc::gen::inRange<int64_t>(1, 7);
    const Texts texts(lengths);
    const auto batches = texts.batches(weights, options_of(sequence_length, rows));
    std::vector<std::vector<int64_t>> offsets(num_shards);  // offsets of the rows of each shard, in order
    int64_t num_rows = 0;
    for (int64_t u = 0; u < 40; ++u)
      for (const auto& [shard, offset, length] : row_keys(*batches, u)) {
        RC_ASSERT(offset % sequence_length == 0);
        RC_ASSERT(length == std::min(sequence_length, lengths[shard] - offset));
        offsets[shard].push_back(offset);
        ++num_rows;
        for (size_t i = 0; i < num_shards; ++i)
          RC_ASSERT(std::abs(weights[i] / weight_sum * static_cast<double>(num_rows) -
                             static_cast<double>(offsets[i].size())) < 1);
      }
    RC_ASSERT(num_rows == 40 * rows);
    const std::vector<double> epochs = batches->shard_epochs(40);
    int64_t blocks_of_all = 0;
    for (size_t i = 0; i < num_shards; ++i) {
      const auto num_blocks = static_cast<size_t>(ceil_div(lengths[i], sequence_length));
      blocks_of_all += static_cast<int64_t>(num_blocks);
      RC_ASSERT(epochs[i] == static_cast<double>(offsets[i].size()) / static_cast<double>(num_blocks));
      for (size_t begin = 0; begin < offsets[i].size(); begin += num_blocks) {
        const auto first = offsets[i].begin() + static_cast<int64_t>(begin),
                   last = offsets[i].begin() + static_cast<int64_t>(std::min(offsets[i].size(), begin + num_blocks));
        RC_ASSERT(static_cast<int64_t>(std::set<int64_t>(first, last).size()) == last - first);
      }
    }
    RC_ASSERT(batches->updates_per_epoch() == ceil_div(blocks_of_all, rows));
  }));
}

TEST_CASE("mixed blocks and streams: the rows of an update do not depend on earlier requests", "[mixtures]") {
  const Texts texts({203, 50, 77});
  for (const BatchOrder order : {BatchOrder::blocks, BatchOrder::streams}) {
    const BatchOptions options = options_of(5, 6, order);
    const auto forward = texts.batches({3, 1, 2}, options), any_order = texts.batches({3, 1, 2}, options);
    std::vector<std::vector<std::tuple<size_t, int64_t, int64_t>>> rows;
    for (int64_t u = 0; u < 60; ++u) rows.push_back(row_keys(*forward, u));
    for (int64_t i = 0; i < 60; ++i) {
      const int64_t u = i * 23 % 60;
      CHECK((row_keys(*any_order, u) == rows[static_cast<size_t>(u)]));
    }
  }
}

TEST_CASE("mixed blocks: a mixture of one shard has the rows of training on this shard alone", "[mixtures]") {
  const Texts texts({200});
  const BatchOptions options = options_of(5, 8);  // 40 blocks: updates do not cross the end of an epoch
  const auto mixed = texts.batches({0.25}, options);
  const auto unmixed = data::make_batches(texts.texts()[0], options, 3);
  CHECK(mixed->updates_per_epoch() == unmixed->updates_per_epoch());
  for (int64_t u = 0; u < 12; ++u) {
    const data::Batch a = mixed->load(u, {0, 8}), b = unmixed->load(u, {0, 8});
    CHECK(at::equal(a.input.tokens, b.input.tokens));
    CHECK(at::equal(a.targets, b.targets));
    CHECK(at::equal(a.input.lengths.decoder, b.input.lengths.decoder));
  }
}

TEST_CASE("mixed blocks: the first shard is shuffled as in training on it alone, the others by their own seeds",
          "[mixtures]") {
  const Texts texts({200, 200});
  const BatchOptions options = options_of(5, 8);
  const auto mixed = texts.batches({1, 1}, options);
  std::vector<std::vector<int64_t>> offsets(2);
  std::vector<int64_t> unmixed_offsets;  // in training on the first shard alone
  for (int64_t u = 0; u < 10; ++u)
    for (const auto& [shard, offset, length] : row_keys(*mixed, u)) offsets[shard].push_back(offset);
  const auto unmixed = data::make_batches(texts.texts()[0], options, 3);
  for (int64_t u = 0; u < 5; ++u)
    for (const auto& row : unmixed->rows_of(u).rows) unmixed_offsets.push_back(row.offset);
  CHECK(offsets[0] == unmixed_offsets);
  CHECK(offsets[1] != unmixed_offsets);
  CHECK(data::seed_of_shard(3, 0) == 3);
  std::set<int64_t> seeds;
  for (int64_t seed = 0; seed < 10; ++seed)
    for (int64_t shard = 1; shard < 10; ++shard) seeds.insert(data::seed_of_shard(seed, shard));
  CHECK(seeds.size() == 90);
  CHECK(*seeds.begin() >= 0);
}

TEST_CASE("mixed blocks and streams: inputs and targets of a row come from its own text", "[mixtures]") {
  const Texts texts({203, 50, 77});
  for (const BatchOrder order : {BatchOrder::blocks, BatchOrder::streams}) {
    BatchOptions options = options_of(5, 6, order);
    options.micro_tokens = 10;
    const auto batches = texts.batches({3, 1, 2}, options);
    for (int64_t u = 0; u < 60; ++u) {
      const MixedTextBatches::UpdateRows update = batches->rows_of(u);
      CHECK(batches->row_costs(u) == std::vector<int64_t>(6, update.width));
      size_t r = 0;
      for (const auto& micro_batch : batches->micro_batches(u)) {
        CHECK(micro_batch.num_rows == 2);
        const data::Batch batch = batches->load(u, micro_batch);
        REQUIRE(batch.input.tokens.sizes() == at::IntArrayRef({2, update.width}));
        for (int64_t i = 0; i < 2; ++i, ++r) {
          const auto& [shard, row, continuation] = update.rows[r];
          const int64_t length = row.length + continuation.length;
          CHECK(batch.input.lengths.decoder[i].item<int64_t>() == length);
          for (int64_t t = 0; t < update.width; ++t) {
            const int64_t target = batch.targets[i][t].item<int64_t>(),
                          position = t < row.length ? row.offset + t : continuation.offset + t - row.length;
            if (t >= length) {
              CHECK(target == -1);
              continue;
            }
            CHECK(target == 1000 * static_cast<int64_t>(shard) + position + 1);
            CHECK(batch.input.tokens[i][t].item<int64_t>() == (position == 0 ? 0 : target - 1));
          }
        }
      }
      CHECK(r == update.rows.size());
    }
  }
}

TEST_CASE("mixed streams: each stream is a cycle, whose rows are full", "[mixtures]") {
  const Texts texts({60, 21, 12});
  const auto batches = texts.batches({3, 2, 1}, options_of(4, 6, BatchOrder::streams));
  // Shard 0: 3 streams of 20 tokens. Shard 1: 2 streams of 11 and 10 tokens. Shard 2: 1 stream of 12 tokens.
  const std::vector<int64_t> lengths{20, 20, 20, 11, 10, 12}, begins{0, 20, 40, 0, 11, 0};
  const std::vector<size_t> shards{0, 0, 0, 1, 1, 2};
  for (int64_t u = 0; u < 40; ++u) {
    const auto update = batches->rows_of(u);
    CHECK(update.width == 4);
    CHECK(batches->continues_streams(u) == (u > 0));
    REQUIRE(update.rows.size() == 6);
    for (size_t s = 0; s < 6; ++s) {
      const auto& [shard, row, continuation] = update.rows[s];
      CHECK(shard == shards[s]);
      CHECK(row.length + continuation.length == 4);
      for (int64_t t = 0; t < 4; ++t)
        CHECK((t < row.length ? row.offset + t : continuation.offset + t - row.length) ==
              begins[s] + (u * 4 + t) % lengths[s]);
    }
  }
  CHECK(batches->updates_per_epoch() == 4);  // 93 tokens in updates of 24 tokens
  CHECK(batches->shard_epochs(5) == std::vector<double>{1, 40.0 / 21, 20.0 / 12});
  CHECK(refusal([&] {
          texts.batches({100, 2, 1}, options_of(4, 6, BatchOrder::streams));
        }).find("0.0194 for t1.mhs") != std::string::npos);
  CHECK(refusal([&] {
          texts.batches({1, 1, 4}, options_of(2, 30, BatchOrder::streams));
        }).find("20 streams of 0 tokens in t2.mhs") != std::string::npos);
}

TEST_CASE("mixtures: the rows of two or three processes together are the rows of one process", "[mixtures]") {
  const Texts texts({203, 50, 77});
  for (const BatchOrder order : {BatchOrder::blocks, BatchOrder::streams})
    for (const int num_processes : {2, 3}) {
      const BatchOptions options = options_of(5, 7, order);
      const auto all = texts.batches({3, 1, 2}, options);
      std::vector<std::unique_ptr<data::Batches>> process_batches;
      for (int rank = 0; rank < num_processes; ++rank)
        process_batches.push_back(data::share_batches(texts.batches({3, 1, 2}, options), rank, num_processes));
      for (int64_t u = 0; u < 20; ++u) {
        std::vector<at::Tensor> targets;
        for (const auto& own_batches : process_batches)
          for (const auto& micro_batch : own_batches->micro_batches(u))
            targets.push_back(own_batches->load(u, micro_batch).targets);
        CHECK(at::equal(nn::cat(targets), all->load(u, {0, 7}).targets));
        CHECK(process_batches[0]->shard_epochs(u) == all->shard_epochs(u));
      }
      CHECK(process_batches[0]->shard_shares() == all->shard_shares());
    }
}

TEST_CASE("mixed updates of pairs: draw n of a shard is update n of its own batches", "[mixtures]") {
  const auto first_pairs = translation::random_sentence_pairs(30), second_pairs = translation::random_sentence_pairs(9);
  const data::Pairs first = translation::corpus_of(first_pairs), second = translation::corpus_of(second_pairs);
  BatchOptions options;
  options.sequence_length = 16, options.tokens = 60;
  const auto mixed = data::mix_batches({{&first, "a.mhs", 1}, {&second, "b.mhs", 3}}, options, 3);
  const std::unique_ptr<data::Batches> shard_batches[2] = {first.batches(options, 3),
                                                           second.batches(options, data::seed_of_shard(3, 1))};
  CHECK(mixed->updates_per_epoch() == shard_batches[0]->updates_per_epoch() + shard_batches[1]->updates_per_epoch());
  CHECK(mixed->shard_shares() == std::vector<double>{0.25, 0.75});
  CHECK(mixed->to_updates({1, Length::Unit::epochs}) == mixed->updates_per_epoch());
  CHECK(mixed->to_updates({first.num_targets() + second.num_targets(), Length::Unit::tokens}) ==
        mixed->updates_per_epoch());
  int64_t counts[2] = {0, 0};
  for (int64_t u = 0; u < 40; ++u) {
    const size_t shard = u % 4 == 1 ? 0 : 1;  // deficits of the first four updates: 1/4, 3/4; 1/2, 1/2; -1/4, 5/4; 0, 1
    const int64_t index = counts[shard]++;
    CHECK(mixed->row_costs(u) == shard_batches[shard]->row_costs(index));
    REQUIRE((mixed->micro_batches(u) == shard_batches[shard]->micro_batches(index)));
    for (const auto& micro_batch : mixed->micro_batches(u))
      CHECK(at::equal(mixed->load(u, micro_batch).targets, shard_batches[shard]->load(index, micro_batch).targets));
    CHECK(mixed->describe_rows(u) == str(shard_batches[shard]->describe_rows(index), ", training shard ", shard + 1));
  }
  CHECK(mixed->shard_epochs(40) ==
        std::vector<double>{10.0 / static_cast<double>(shard_batches[0]->updates_per_epoch()),
                            30.0 / static_cast<double>(shard_batches[1]->updates_per_epoch())});
}

TEST_CASE("mixed texts: lengths in epochs and tokens are converted as for one text", "[mixtures]") {
  const Texts texts({200, 100});
  const auto batches = texts.batches({1, 1}, options_of(5, 8));  // 60 blocks in updates of 8 rows
  CHECK(batches->updates_per_epoch() == 8);
  CHECK(batches->to_updates({2, Length::Unit::epochs}) == 16);
  CHECK(batches->to_updates({7, Length::Unit::updates}) == 7);
  CHECK(batches->to_updates({300, Length::Unit::tokens}) == 8);
  CHECK(batches->to_updates({341, Length::Unit::tokens}) ==
        9);  // full updates of 40 tokens, also at the end of an epoch
}
