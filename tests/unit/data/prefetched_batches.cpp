// Tests of data::prefetch_batches(), which loads batches in a background thread.
#include "data/prefetched_batches.h"

#include <rapidcheck.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "fixtures/aten.h"
#include "fixtures/corpora.h"
#include "fixtures/numbers.h"
#include "fixtures/pairs.h"
#include "fixtures/translation.h"
#include "train/batches.h"

using namespace mh;
using namespace mh::train;

namespace {

std::unique_ptr<Batches> text_batches(BatchOrder order, int64_t micro_tokens) {
  static const std::vector<int32_t> text = [] {  // static, since the batches refer to the text
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 203; ++i) tokens.push_back(i * i % 17);
    return tokens;
  }();
  TrainOptions options;
  options.batch.sequence_length = 5, options.batch.tokens = 30, options.batch.micro_tokens = micro_tokens,
  options.batch.order = order;
  return corpora::make_batches(corpora::text_of(text, 0), options);
}

std::unique_ptr<Batches> pair_batches() {
  TrainOptions options;
  options.batch.sequence_length = 16, options.batch.tokens = 40, options.batch.micro_tokens = 20;
  return corpora::make_batches(translation::corpus_of(translation::random_sentence_pairs(30)), options);
}

// Adds 100 to the targets, which marks a batch as prepared. The tests pass add_marker() as `prepare` to
// prefetch_batches().
data::Batch add_marker(data::Batch batch) {
  batch.targets = batch.targets + 100;
  return batch;
}

// Checks that `actual` has the micro-batches of `expected`, and batches that equal add_marker() of the batches of
// `expected`.
void require_marked_batches(Batches& actual, Batches& expected, int64_t update) {
  const auto micro_batches = actual.micro_batches(update), expected_micro_batches = expected.micro_batches(update);
  RC_ASSERT(micro_batches.size() == expected_micro_batches.size());
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    RC_ASSERT(micro_batches[i].first_row == expected_micro_batches[i].first_row);
    RC_ASSERT(micro_batches[i].num_rows == expected_micro_batches[i].num_rows);
    const data::Batch a = actual.load(update, micro_batches[i]), b = expected.load(update, micro_batches[i]);
    RC_ASSERT(at::equal(a.input.tokens, b.input.tokens));
    RC_ASSERT(at::equal(a.targets, b.targets + 100));
    RC_ASSERT(a.input.source.defined() == b.input.source.defined());
    if (a.input.source.defined()) RC_ASSERT(at::equal(a.input.source, b.input.source));
  }
}

}  // namespace

TEST_CASE("prefetched batches equal directly loaded batches for any order of requested updates", "[prefetch]") {
  CHECK(rc::check([] {
    const int batch_kind = *rc::gen::inRange(0, 5);
    const auto make = [&] {
      if (batch_kind == 3) return pair_batches();
      if (batch_kind == 4) return text_batches(BatchOrder::sentence_streams, 10);
      return text_batches(batch_kind == 0 ? BatchOrder::streams : BatchOrder::blocks, batch_kind == 2 ? 10 : 0);
    };
    const auto expected = make();
    const int64_t end = *rc::gen::inRange(1, 40);
    const auto actual = data::prefetch_batches(make(), end, add_marker);
    RC_ASSERT(actual->updates_per_epoch() == expected->updates_per_epoch());
    RC_ASSERT(actual->rows_per_update() == expected->rows_per_update());
    RC_ASSERT(actual->rows_per_micro_batch() == expected->rows_per_micro_batch());
    RC_ASSERT(actual->tokens_per_update() == expected->tokens_per_update());
    int64_t update = *rc::gen::inRange<int64_t>(0, end);
    for (int request = 0; request < 25; ++request) {
      RC_ASSERT(actual->continues_streams(update) == expected->continues_streams(update));
      require_marked_batches(*actual, *expected, update);
      switch (*rc::gen::inRange(0, 8)) {
        case 0:
          update = *rc::gen::inRange<int64_t>(0, 50);  // any update, as after a resume; may be past `end`
          break;
        case 1:
          RC_ASSERT(actual->describe_rows(update) == expected->describe_rows(update));
          break;
        case 2:
          break;  // requests the same update again
        default:
          ++update;
      }
    }
  }));
}

TEST_CASE("an error while prefetching an update is thrown when this update is requested", "[prefetch]") {
  struct FailingBatches : Batches {
    std::vector<int64_t> row_costs(int64_t) override { return {1}; }
    std::vector<MicroBatch> micro_batches_of(int64_t update, const data::BatchRowRange& rows) override {
      if (update >= 3) throw Error(Exit::input, str("update ", update));
      return {{rows.first_row, rows.num_rows}};
    }
    data::Batch load(int64_t update, const MicroBatch&) override {
      at::Tensor x = at::full({1, 1}, update, at::kLong);
      return {model::Input{x}, x};
    }
    std::string describe_rows(int64_t) override { return ""; }
    int64_t to_updates(const Length&) const override { return 10; }
  };
  const auto prefetched = data::prefetch_batches(std::make_unique<FailingBatches>(), 10, add_marker);
  for (int64_t update = 0; update < 3; ++update)
    CHECK(prefetched->load(update, prefetched->micro_batches(update)[0]).targets.item<int64_t>() == 100 + update);
  for (int request = 0; request < 2; ++request)
    CHECK_THROWS_WITH(prefetched->micro_batches(3), Catch::Contains("update 3"));
  CHECK_THROWS_WITH(prefetched->micro_batches(7), Catch::Contains("update 7"));
  CHECK(prefetched->load(1, prefetched->micro_batches(1)[0]).targets.item<int64_t>() == 101);
}
