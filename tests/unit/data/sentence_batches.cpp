// Sentences of a text as rows: rows and batches of training compared with naive loops over the tokens, and scores
// compared with passes over each sentence alone.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "data/batches.h"
#include "data/mixed_batches.h"
#include "data/shared_batches.h"
#include "data/text.h"
#include "fixtures/corpora.h"
#include "fixtures/passes.h"
#include "model/model_config.h"
#include "task/token_score.h"

using namespace mh;
using Catch::Contains;

namespace {

constexpr int32_t kEndOfLine = 7;

// Returns the tokens of sentences of these lengths, each followed by an end-of-line token. The tokens are 0 to 6.
std::vector<int32_t> tokens_of(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> tokens;
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>(tokens.size() * tokens.size() % 7));
    tokens.push_back(kEndOfLine);
  }
  return tokens;
}

// Returns the rows of the sentences by a loop over the tokens: for each row its first token and its tokens.
std::vector<std::pair<int64_t, std::vector<int64_t>>> expected_rows(const std::vector<int32_t>& tokens,
                                                                    int64_t sequence_length) {
  std::vector<std::pair<int64_t, std::vector<int64_t>>> rows;
  bool starts_row = true;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (starts_row) rows.push_back({static_cast<int64_t>(i), {}});
    rows.back().second.push_back(tokens[i]);
    starts_row = tokens[i] == kEndOfLine || static_cast<int64_t>(rows.back().second.size()) == sequence_length;
  }
  return rows;
}

data::BatchOptions options_of(int64_t sequence_length, int64_t tokens, int64_t micro_tokens = 0) {
  data::BatchOptions options;
  options.order = data::BatchOrder::sentences;
  options.sequence_length = sequence_length, options.tokens = tokens, options.micro_tokens = micro_tokens;
  return options;
}

// Returns the targets of every row of an epoch, sorted, and checks the inputs, lengths and sizes of the batches.
std::vector<std::vector<int64_t>> epoch_rows(data::Batches& batches, const data::BatchOptions& o, int64_t epoch) {
  std::vector<std::vector<int64_t>> rows;
  for (int64_t i = 0; i < batches.updates_per_epoch(); ++i) {
    const int64_t update = epoch * batches.updates_per_epoch() + i;
    const std::vector<int64_t> costs = batches.row_costs(update);
    RC_ASSERT(costs[0] * static_cast<int64_t>(costs.size()) <= o.tokens);
    int64_t num_rows = 0;
    for (const auto& micro_batch : batches.micro_batches(update)) {
      const data::Batch batch = batches.load(update, micro_batch);
      RC_ASSERT(batch.targets.size(1) == costs[0]);
      RC_ASSERT((o.micro_tokens == 0 || batch.targets.numel() <= o.micro_tokens));
      num_rows += batch.targets.size(0);
      for (int64_t r = 0; r < batch.targets.size(0); ++r) {
        const auto length = batch.input.lengths.decoder[r].item<int64_t>();
        std::vector<int64_t> row;
        for (int64_t t = 0; t < batch.targets.size(1); ++t) {
          const auto target = batch.targets[r][t].item<int64_t>();
          RC_ASSERT((target >= 0) == (t < length));
          const bool continues_row = t < length && t > 0;
          RC_ASSERT((!continues_row || batch.input.tokens[r][t].item<int64_t>() == row.back()));
          if (target >= 0) row.push_back(target);
        }
        rows.push_back(row);
      }
    }
    RC_ASSERT(num_rows == static_cast<int64_t>(costs.size()));
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::unique_ptr<model::LanguageModel> build_decoder() {
  Config config;
  config.load_text("[model]\nlayers = 2\nwidth = 8\nffn_dim = 16\n[attention]\nheads = 2\n", "test");
  auto model = model::build_language_model(model::ModelConfig::read(config), {8}, at::kCPU);
  model->parameters().initialise(3);
  return model;
}

}  // namespace

TEST_CASE("every epoch of sentences contains each sentence once, cut at the sequence length, in another order",
          "[sentences]") {
  CHECK(rc::check([] {
    const auto lengths = *rc::gen::nonEmpty(rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 12)));
    std::vector<int32_t> tokens = tokens_of(lengths);
    if (*rc::gen::arbitrary<bool>()) tokens.push_back(3);  // a text whose last line has no end
    const int64_t sequence_length = *rc::gen::inRange<int64_t>(1, 10),
                  num_tokens = sequence_length * *rc::gen::inRange<int64_t>(1, 5),
                  micro_tokens = *rc::gen::element<int64_t>(0, sequence_length, 2 * sequence_length);
    const auto expected = expected_rows(tokens, sequence_length);
    const data::Text text = corpora::text_of(tokens, kEndOfLine);
    const std::vector<int64_t> begins = data::sentence_row_begins(text, sequence_length);
    RC_ASSERT(begins.size() == expected.size() + 1);
    RC_ASSERT(begins.back() == text.num_tokens);
    std::vector<std::vector<int64_t>> sorted_rows;
    for (size_t i = 0; i < expected.size(); ++i) {
      RC_ASSERT(begins[i] == expected[i].first);
      sorted_rows.push_back(expected[i].second);
    }
    std::sort(sorted_rows.begin(), sorted_rows.end());
    const data::BatchOptions options = options_of(sequence_length, num_tokens, micro_tokens);
    const auto batches = text.batches(options, 5);
    for (const int64_t epoch : {0, 1, 0}) RC_ASSERT(epoch_rows(*batches, options, epoch) == sorted_rows);
  }));
}

TEST_CASE("the first input of a sentence is the end-of-line token, and the order of sentences depends on the epoch",
          "[sentences]") {
  const std::vector<int32_t> tokens = tokens_of(std::vector<int64_t>(40, 3));
  const data::Text text = corpora::text_of(tokens, kEndOfLine);
  const auto batches = text.batches(options_of(8, 16), 1), same_batches = text.batches(options_of(8, 16), 1),
             other_batches = text.batches(options_of(8, 16), 2);
  REQUIRE(batches->updates_per_epoch() == 10);  // 4 rows of 4 tokens in each update
  int64_t num_equal_epochs = 0, num_equal_seeds = 0;
  for (int64_t update = 0; update < 10; ++update) {
    const auto load = [](data::Batches& b, int64_t u) { return b.load(u, b.micro_batches(u)[0]); };
    const data::Batch batch = load(*batches, update);
    CHECK((batch.input.tokens.select(1, 0) == kEndOfLine).all().item<bool>());
    CHECK(at::equal(batch.targets, load(*same_batches, update).targets));
    num_equal_seeds += at::equal(batch.targets, load(*other_batches, update).targets);
    num_equal_epochs += at::equal(batch.targets, load(*batches, update + 10).targets);
  }
  CHECK(num_equal_epochs < 10);
  CHECK(num_equal_seeds < 10);
  CHECK(batches->to_updates(Length{2, Length::Unit::epochs}) == 20);
  CHECK(batches->to_updates(Length{160, Length::Unit::tokens}) == 10);
  CHECK(batches->to_updates(Length{17, Length::Unit::tokens}) == 2);
}

TEST_CASE("several processes together compute each row of an update once, with the padding of one process",
          "[sentences]") {
  const std::vector<int32_t> tokens = tokens_of({3, 0, 9, 1, 6, 6, 2, 2, 2, 5, 0, 3});
  const data::Text text = corpora::text_of(tokens, kEndOfLine);
  for (const int num_processes : {2, 3, 7})
    for (const int64_t micro_tokens : {0, 8}) {
      CAPTURE(num_processes, micro_tokens);
      const data::BatchOptions options = options_of(8, 24, micro_tokens);
      const auto all = text.batches(options_of(8, 24), 5);
      for (int64_t update = 0; update < 2 * all->updates_per_epoch(); ++update) {
        const data::Batch whole_batch = all->load(update, all->micro_batches(update)[0]);
        int64_t end = 0;
        for (int rank = 0; rank < num_processes; ++rank) {
          const auto own_batches = data::share_batches(text.batches(options, 5), rank, num_processes);
          for (const auto& micro_batch : own_batches->micro_batches(update)) {
            CHECK(micro_batch.first_row == end);
            const data::Batch batch = own_batches->load(update, micro_batch);
            CHECK(at::equal(batch.targets, whole_batch.targets.narrow(0, end, micro_batch.num_rows)));
            CHECK(at::equal(batch.input.tokens, whole_batch.input.tokens.narrow(0, end, micro_batch.num_rows)));
            end += micro_batch.num_rows;
          }
        }
        CHECK(end == whole_batch.targets.size(0));
      }
    }
}

TEST_CASE("each update of a mixture of texts with rows of sentences comes from one shard", "[sentences]") {
  const std::vector<int32_t> tokens = tokens_of({3, 5, 2, 4}), other_tokens = tokens_of({6, 1});
  const data::Text text = corpora::text_of(tokens, kEndOfLine), other_text = corpora::text_of(other_tokens, kEndOfLine);
  const auto batches = data::mix_batches({{&text, "a", 1}, {&other_text, "b", 1}}, options_of(8, 8), 1);
  CHECK(batches->updates_per_epoch() == text.batches(options_of(8, 8), 1)->updates_per_epoch() +
                                            other_text.batches(options_of(8, 8), 1)->updates_per_epoch());
}

TEST_CASE("with rows of sentences, the score of a text is the sum of the scores of its sentences", "[sentences]") {
  const c10::NoGradGuard no_gradient;
  const auto model = build_decoder();
  const std::vector<int32_t> tokens = tokens_of({3, 0, 9, 1, 6, 6});
  const data::Text text = corpora::text_of(tokens, kEndOfLine);
  for (const int64_t sequence_length : {4, 16}) {
    data::ScoringOptions options;
    options.sequence_length = sequence_length, options.text_rows = data::TextRows::sentences;
    const data::ScoringOptions resolved = text.resolve(options, *model);
    CHECK(std::string(data::protocol_of(resolved)) == "sentences");
    const task::NllSum score = task::score(*model, text, resolved, {});
    double nll = 0;
    for (const auto& [begin, row] : expected_rows(tokens, sequence_length)) {
      // A row that continues a sentence starts with the token before the row, as in a text of blocks.
      const int32_t first_input = begin > 0 ? tokens[static_cast<size_t>(begin) - 1] : kEndOfLine;
      const std::vector<int32_t> row_tokens(row.begin(), row.end());
      const data::Text sentence = corpora::text_of(row_tokens, first_input);
      data::ScoringOptions block_options;
      block_options.sequence_length = static_cast<int64_t>(row.size());
      nll += task::score(*model, sentence, sentence.resolve(block_options, *model), {}).nll;
    }
    CHECK(score.num_tokens == text.num_tokens);
    CHECK(std::abs(score.nll - nll) <= rounding::pass_bound(*model, 16) * std::abs(nll));
  }
}

TEST_CASE("rows of sentences refuse context, memory, streams, documents and samples", "[sentences]") {
  const auto model = build_decoder();
  const std::vector<int32_t> tokens = tokens_of({3, 4});
  const data::Text text = corpora::text_of(tokens, kEndOfLine);
  data::ScoringOptions valid;
  valid.sequence_length = 8, valid.text_rows = data::TextRows::sentences;
  CHECK_NOTHROW(text.resolve(valid, *model));
  const auto message_of = [&](const std::function<void(data::ScoringOptions&)>& change) -> std::string {
    data::ScoringOptions options = valid;
    change(options);
    try {
      text.resolve(options, *model);
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::usage);
      return error.what();
    }
    return "no error";
  };
  const char* const suffix = " for rows of sentences, which have no context; found ";
  CHECK_THAT(message_of([](auto& o) { o.context = 2; }), Contains(str("--context: expected 0", suffix, 2)));
  CHECK_THAT(message_of([](auto& o) { o.memory = 2; }), Contains(str("--memory: expected 0", suffix, 2)));
  CHECK_THAT(message_of([](auto& o) { o.streams = 2; }), Contains(str("--streams: expected 0", suffix, 2)));
  CHECK_THAT(message_of([](auto& o) { o.begin = data::Begin::document; }),
             Contains(str("--begin: expected block or none", suffix, "document")));
  CHECK_THAT(message_of([](auto& o) { o.sample.blocks = 1; }), Contains(str("--blocks: expected 0", suffix, 1)));
}
