// Batches that a thread loads ahead are those that are asked for, whichever these are.
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

std::unique_ptr<Batches> of_text(Batching batching, int64_t micro_tokens) {
  static const std::vector<int32_t> text = [] {  // outlives the batches
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 203; ++i) tokens.push_back(i * i % 17);
    return tokens;
  }();
  TrainOptions o;
  o.batch.block = 5, o.batch.tokens = 30, o.batch.micro_tokens = micro_tokens, o.batch.order = batching;
  return corpora::make_batches(corpora::text_of(text, 0), o);
}

std::unique_ptr<Batches> of_pairs() {
  TrainOptions o;
  o.batch.block = 16, o.batch.tokens = 40, o.batch.micro_tokens = 20;
  return corpora::make_batches(translation::corpus_of(translation::sentences(30)), o);
}

// What is done to a batch on its way shows in its targets.
data::Batch marked(data::Batch batch) {
  batch.targets = batch.targets + 100;
  return batch;
}

void require_same(Batches& found, Batches& wanted, int64_t update) {
  const auto parts = found.micro_batches(update), wanted_parts = wanted.micro_batches(update);
  RC_ASSERT(parts.size() == wanted_parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    RC_ASSERT(parts[i].first == wanted_parts[i].first);
    RC_ASSERT(parts[i].count == wanted_parts[i].count);
    const data::Batch a = found.load(update, parts[i]), b = wanted.load(update, parts[i]);
    RC_ASSERT(at::equal(a.input.tokens, b.input.tokens));
    RC_ASSERT(at::equal(a.targets, b.targets + 100));
    RC_ASSERT(a.input.source.defined() == b.input.source.defined());
    if (a.input.source.defined()) RC_ASSERT(at::equal(a.input.source, b.input.source));
  }
}

}  // namespace

TEST_CASE("batches from ahead are those of the update, in any order of asking", "[ahead]") {
  CHECK(rc::check([] {
    const int which = *rc::gen::inRange(0, 4);
    const auto make = [&] {
      if (which == 3) return of_pairs();
      return of_text(which == 0 ? Batching::streams : Batching::blocks, which == 2 ? 10 : 0);
    };
    const auto wanted = make();
    const int64_t end = *rc::gen::inRange(1, 40);
    const auto found = data::prefetch(make(), end, marked);
    RC_ASSERT(found->updates_per_epoch() == wanted->updates_per_epoch());
    RC_ASSERT(found->rows_per_update() == wanted->rows_per_update());
    RC_ASSERT(found->rows_per_micro_batch() == wanted->rows_per_micro_batch());
    RC_ASSERT(found->tokens_per_update() == wanted->tokens_per_update());
    int64_t update = *rc::gen::inRange<int64_t>(0, end);
    for (int times = 0; times < 25; ++times) {
      RC_ASSERT(found->goes_on(update) == wanted->goes_on(update));
      require_same(*found, *wanted, update);
      switch (*rc::gen::inRange(0, 8)) {
        case 0:
          update = *rc::gen::inRange<int64_t>(0, 50);  // as a resume, or beyond the end
          break;
        case 1:
          RC_ASSERT(found->place(update) == wanted->place(update));
          break;
        case 2:
          break;  // another pass
        default:
          ++update;
      }
    }
  }));
}

TEST_CASE("an update that cannot be loaded is refused where it is asked for", "[ahead]") {
  struct Damaged : Batches {
    std::vector<MicroBatch> micro_batches(int64_t update) override {
      if (update >= 3) throw Error(Exit::input, str("update ", update));
      return {{0, 1}};
    }
    data::Batch load(int64_t update, const MicroBatch&) override {
      at::Tensor x = at::full({1, 1}, update, at::kLong);
      return {x, x};
    }
    std::string place(int64_t) override { return ""; }
    int64_t updates(const Length&) const override { return 10; }
  };
  const auto found = data::prefetch(std::make_unique<Damaged>(), 10, marked);
  for (int64_t update = 0; update < 3; ++update)
    CHECK(found->load(update, found->micro_batches(update)[0]).targets.item<int64_t>() == 100 + update);
  for (int times = 0; times < 2; ++times) CHECK_THROWS_WITH(found->micro_batches(3), Catch::Contains("update 3"));
  CHECK_THROWS_WITH(found->micro_batches(7), Catch::Contains("update 7"));
  CHECK(found->load(1, found->micro_batches(1)[0]).targets.item<int64_t>() == 101);
}
