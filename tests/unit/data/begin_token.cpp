// Scoring a text with a begin token: scored tokens and their inputs compared with plain loops over the tokens, samples
// of the blocks of documents, and the options that exclude each other.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "data/text.h"
#include "fixtures/contains.h"
#include "fixtures/corpora.h"
#include "fixtures/passes.h"
#include "fixtures/status.h"
#include "model/model_config.h"
#include "task/token_score.h"

using namespace mh;
using data::Begin;

namespace {

// Tokens 0 to 6 occur in documents.
constexpr int32_t kEndOfLine = 7, kOtherBegin = 8;
constexpr int64_t kVocabularySize = 9;

// The tokens of documents, each followed by an end-of-line token.
struct Documents {
  std::vector<int32_t> tokens;
  std::vector<int64_t> ends;

  explicit Documents(const std::vector<int64_t>& lengths) {
    for (const int64_t length : lengths) {
      for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>(tokens.size() * tokens.size() % 7));
      tokens.push_back(kEndOfLine);
      ends.push_back(static_cast<int64_t>(tokens.size()));
    }
  }
  // Returns a text with the begin token `begin_id` that reads `tokens`; `has_document_ends`: whether the text has the
  // ends of the documents.
  data::Text text(int32_t begin_id, bool has_document_ends) const {
    data::Text text = corpora::text_of(tokens, kEndOfLine);
    text.begin_id = begin_id;
    if (has_document_ends) text.document_ends = std::make_shared<const std::vector<int64_t>>(ends);
    return text;
  }
};

// For each scored token, by its position in the text: all inputs of its row up to the prediction, and the token.
using Predictions = std::map<int64_t, std::pair<std::vector<int64_t>, int64_t>>;

// Returns the predictions of a loop over the tokens, by the definitions in data/scoring_options.h.
Predictions expected_predictions(const Documents& documents, const data::Text& text, const data::ScoringOptions& o) {
  Predictions predictions;
  const auto token = [&](int64_t i) { return int64_t{documents.tokens[static_cast<size_t>(i)]}; };
  const bool has_document_ends = o.begin == Begin::document && text.document_ends != nullptr;
  int64_t begin = 0;  // first token of the document, or of the text
  for (int64_t i = 0; i < text.num_tokens; ++i) {
    if (has_document_ends && std::find(documents.ends.begin(), documents.ends.end(), i) != documents.ends.end())
      begin = i;
    if (o.begin != Begin::none && token(i) == text.begin_id) continue;
    int64_t scored_begin = begin;  // first scored token of the row
    while (scored_begin + o.sequence_length - o.context <= i) scored_begin += o.sequence_length - o.context;
    const int64_t row_begin = std::max(begin, scored_begin - o.context);
    std::vector<int64_t> inputs{row_begin > 0 ? token(row_begin - 1) : kEndOfLine};
    if (o.begin == Begin::block || (o.begin == Begin::document && row_begin == begin)) inputs[0] = text.begin_id;
    for (int64_t j = row_begin; j < i; ++j) inputs.push_back(token(j));
    predictions[i] = {inputs, token(i)};
  }
  return predictions;
}

// Returns the predictions of the mini-batches of a text.
Predictions observed_predictions(const data::Text& text, const data::ScoringOptions& o) {
  Predictions predictions;
  const data::MiniBatches mini_batches = text.mini_batches(o);
  int64_t num_rows = 0;
  while (const auto mini_batch = mini_batches.next()) {
    const at::Tensor &inputs = mini_batch->batch.input.tokens, &targets = mini_batch->batch.targets;
    RC_ASSERT(inputs.size(0) == static_cast<int64_t>(mini_batch->rows.size()));
    RC_ASSERT(inputs.size(1) <= o.sequence_length);
    for (int64_t r = 0; r < inputs.size(0); ++r) {
      const data::Row& row = mini_batch->rows[static_cast<size_t>(r)];
      RC_ASSERT(mini_batch->batch.input.lengths.decoder[r].item<int64_t>() == row.length);
      const auto* row_inputs = inputs.const_data_ptr<int64_t>() + r * inputs.size(1);
      for (int64_t t = 0; t < inputs.size(1); ++t) {
        const auto target = targets[r][t].item<int64_t>();
        if (target < 0) continue;
        RC_ASSERT(t < row.length);
        const bool is_first = predictions.count(row.offset + t) == 0;
        RC_ASSERT(is_first);
        predictions[row.offset + t] = std::pair(std::vector<int64_t>(row_inputs, row_inputs + t + 1), target);
      }
      ++num_rows;
    }
  }
  RC_ASSERT(num_rows == mini_batches.num_rows);
  return predictions;
}

std::unique_ptr<model::LanguageModel> build(const std::string& toml) {
  Config config;
  config.load_text(toml, "test");
  auto model = model::build_language_model(model::ModelConfig::read(config), {kVocabularySize}, at::kCPU);
  model->parameters().initialise(3);
  return model;
}

std::unique_ptr<model::LanguageModel> build_decoder() {
  return build("[model]\nlayers = 2\nwidth = 8\nffn_dim = 16\n[attention]\nheads = 2\n");
}

}  // namespace

TEST_CASE("with every position of the begin token each token is scored once, from the inputs of a loop over the tokens",
          "[begin-token]") {
  CHECK(rc::check([] {
    const auto lengths = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 25));
    RC_PRE(!lengths.empty());
    const Documents documents(lengths);
    const data::Text text = documents.text(*rc::gen::element(kEndOfLine, kOtherBegin), *rc::gen::arbitrary<bool>());
    data::ScoringOptions options;
    options.begin = *rc::gen::element(Begin::none, Begin::document, Begin::block);
    options.sequence_length = *rc::gen::inRange<int64_t>(1, 12);
    options.context = *rc::gen::inRange<int64_t>(0, options.sequence_length);
    options.memory = 0;
    options.batch = *rc::gen::inRange<int64_t>(1, 8);
    RC_ASSERT(observed_predictions(text, options) == expected_predictions(documents, text, options));
  }));
}

TEST_CASE("the score of a text with a begin token before each document is the sum of the scores of its documents",
          "[begin-token]") {
  const std::vector<int64_t> lengths{9, 1, 0, 30, 4, 17, 2, 8};
  const Documents documents(lengths);
  const auto model = build_decoder();
  for (const int64_t context : {0, 3}) {
    data::ScoringOptions options;
    options.sequence_length = 8, options.context = context;
    double expected_nll = 0;
    int64_t expected_num_tokens = 0;
    for (size_t d = 0; d < lengths.size(); ++d) {
      const auto end = documents.tokens.begin() + documents.ends[d] - 1;
      const std::vector<int32_t> tokens(end - lengths[d], end);
      if (tokens.empty()) continue;
      // The first token of this text is predicted from the end-of-line token, which is the begin token.
      const task::NllSum score = task::score(*model, corpora::text_of(tokens, kEndOfLine), options);
      expected_nll += score.nll, expected_num_tokens += score.num_tokens;
    }
    options.begin = Begin::document;
    for (const int64_t batch : {1, 2, 50}) {
      options.batch = batch;
      std::vector<int64_t> indices;
      task::ScoreCallbacks callbacks;
      callbacks.on_token = [&](const task::TokenScore& token_score) {
        indices.push_back(token_score.index);
        CHECK(token_score.token == documents.tokens[static_cast<size_t>(token_score.index)]);
      };
      const task::NllSum score = task::score(*model, documents.text(kEndOfLine, true), options, callbacks);
      CHECK(score.num_tokens == expected_num_tokens);
      CHECK(score.nll ==
            rounding::within(expected_nll, rounding::pass_bound(*model, options.sequence_length) * expected_nll));
      CHECK(static_cast<int64_t>(indices.size()) == expected_num_tokens);
      CHECK(std::is_sorted(indices.begin(), indices.end()));
    }
  }
}

TEST_CASE("a sample with a begin token before each document consists of distinct full blocks of documents",
          "[begin-token]") {
  const Documents documents({9, 1, 0, 30, 4, 17, 2, 8});
  const data::Text text = documents.text(kEndOfLine, true);
  const auto model = build_decoder();
  // Full rows of the documents: 2 + 7 + 1 + 4 + 2 of 4 tokens without context; 2 + 9 + 4 + 1 of 3 tokens after a token
  // of context, which the first row of a document lacks.
  constexpr int64_t num_candidates = 16;
  for (const int64_t context : {0, 1}) {
    data::ScoringOptions options;
    options.begin = Begin::document, options.sequence_length = 4, options.context = context;
    for (const int64_t num_sampled : {int64_t{1}, int64_t{5}, num_candidates}) {
      options.sample.blocks = num_sampled, options.sample.seed = num_sampled;
      const data::ScoringOptions resolved = text.resolve(options, *model);
      CHECK(resolved.sample.blocks == num_sampled);
      std::set<int64_t> offsets;
      const data::MiniBatches mini_batches = text.mini_batches(resolved);
      while (const auto mini_batch = mini_batches.next())
        for (const data::Row& row : mini_batch->rows) {
          CHECK(row.length == 4);
          CHECK(row.num_context == context);
          CHECK(offsets.insert(row.offset).second);
          // The row has no end-of-line token, so it is part of one document.
          const auto first = documents.tokens.begin() + row.offset;
          CHECK(std::count(first, first + row.length, kEndOfLine) == 0);
        }
      CHECK(static_cast<int64_t>(offsets.size()) == num_sampled);
    }
    options.sample.blocks = num_candidates + 1;
    CHECK(contains(refusal([&] { text.resolve(options, *model); }),
                   str("at most ", num_candidates, ", the number of full blocks of 4 tokens in the documents")));
    options.sample.is_default_sample = true;
    CHECK(text.resolve(options, *model).sample.blocks == num_candidates);
  }
}

TEST_CASE("the default position of the begin token follows from the vocabulary and the memory of the model",
          "[begin-token]") {
  const Documents documents({9, 30});
  const data::Text with_begin = documents.text(kEndOfLine, true), without_begin = documents.text(-1, true);
  const auto decoder = build_decoder(),
             transformer_xl = build(
                 "[model]\nbackbone = 'transformer-xl'\npositions = 'none'\nlayers = 1\nwidth = 8\nffn_dim = 16\n"
                 "transformer-xl.memory = 6\n[attention]\nheads = 2\nscore = 'relative'\n");
  const auto resolve = [](const data::Text& text, model::LanguageModel& model, Begin begin, int64_t memory = -1) {
    data::ScoringOptions options;
    options.sequence_length = 4, options.begin = begin, options.memory = memory;
    return text.resolve(options, model);
  };
  CHECK(resolve(with_begin, *decoder, Begin::automatic).begin == Begin::block);
  CHECK(resolve(without_begin, *decoder, Begin::automatic).begin == Begin::none);
  CHECK(resolve(with_begin, *transformer_xl, Begin::automatic).begin == Begin::none);
  CHECK(resolve(with_begin, *transformer_xl, Begin::automatic, 0).begin == Begin::block);
  CHECK(resolve(with_begin, *transformer_xl, Begin::document, 0).begin == Begin::document);
  CHECK(resolve(with_begin, *decoder, Begin::none).begin == Begin::none);
  CHECK(resolve(with_begin, *decoder, Begin::none).has_begin_token);
  CHECK_FALSE(resolve(without_begin, *decoder, Begin::automatic).has_begin_token);
  for (const Begin begin : {Begin::document, Begin::block}) {
    CHECK(contains(refusal([&] { resolve(without_begin, *decoder, begin); }), "a vocabulary without a begin token"));
    CHECK(contains(refusal([&] { resolve(with_begin, *transformer_xl, begin); }), "none with a memory"));
    // A resolved position stays the same.
    const data::ScoringOptions resolved = resolve(with_begin, *decoder, begin);
    CHECK(with_begin.resolve(resolved, *decoder).begin == begin);
  }
}
