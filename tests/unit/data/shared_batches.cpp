// The division of the batch of an update across processes.
#include "data/shared_batches.h"

#include <catch2/catch.hpp>

#include "fixtures/aten.h"
#include "fixtures/corpora.h"
#include "fixtures/pairs.h"
#include "fixtures/translation.h"
#include "train/batches.h"

using namespace mh;
using namespace mh::train;

namespace {

std::unique_ptr<Batches> make_batches(BatchOrder order, bool has_pairs, int64_t micro_tokens) {
  static const std::vector<int32_t> text = [] {  // static, since the batches refer to the text
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 203; ++i) tokens.push_back(i * i % 17);
    return tokens;
  }();
  static const auto pairs = translation::random_sentence_pairs(30);
  TrainOptions options;
  options.batch.order = order;
  options.batch.micro_tokens = micro_tokens;
  options.batch.sequence_length = has_pairs ? 16 : 5;
  options.batch.tokens = has_pairs ? 60 : 30;
  return has_pairs ? corpora::make_batches(translation::corpus_of(pairs), options)
                   : corpora::make_batches(corpora::text_of(text, 0), options);
}

}  // namespace

TEST_CASE(
    "shared batches: each row of an update is in a micro-batch of exactly one process, in the order of the ranks") {
  for (const int num_processes : {1, 2, 3, 7})
    for (const int64_t micro_tokens : {0, 20})
      for (const bool has_pairs : {false, true})
        for (const BatchOrder order : {BatchOrder::blocks, BatchOrder::streams, BatchOrder::sentence_streams}) {
          if (has_pairs && order != BatchOrder::blocks) continue;
          CAPTURE(num_processes, micro_tokens, has_pairs, name_of(order));
          const auto all = make_batches(order, has_pairs, 0);
          for (int64_t update = 0; update < 8; ++update) {
            const auto num_rows = static_cast<int64_t>(all->row_costs(update).size());
            const data::Batch whole_batch = all->load(update, {0, num_rows});
            int64_t end = 0, num_targets = 0;
            for (int rank = 0; rank < num_processes; ++rank) {
              const auto own_batches =
                  data::share_batches(make_batches(order, has_pairs, micro_tokens), rank, num_processes);
              const data::BatchRowRange rows = own_batches->own_rows(update);
              CHECK(rows.first_row == end);
              for (const auto& micro_batch : own_batches->micro_batches(update)) {
                CHECK(micro_batch.first_row == end);
                CHECK(micro_batch.num_rows > 0);
                end += micro_batch.num_rows;
                num_targets += own_batches->load(update, micro_batch).targets.ge(0).sum().item<int64_t>();
              }
              CHECK(end == rows.first_row + rows.num_rows);
            }
            CHECK(end == num_rows);
            CHECK(num_targets == whole_batch.targets.ge(0).sum().item<int64_t>());
          }
        }
}
