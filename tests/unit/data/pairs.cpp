// Tests of sentence pairs, the data of translation models: batches, training, scoring, and checkpoint retention.
#include "fixtures/pairs.h"

#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "fixtures/contains.h"
#include "fixtures/corpora.h"
#include "fixtures/passes.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "task/task.h"
#include "task/token_score.h"
#include "text/records/translation.h"

using namespace mh;
using namespace mh::train;

namespace {

data::Pairs pairs_of(const io::ShardFile& shard) { return {text::sequences_of(shard), 0, 0}; }

const char* kModelConfig =
    "[model]\nbackbone = 'encoder-decoder'\nlayers = 1\nwidth = 16\nffn_dim = 32\nnorm = 'pre'\ndropout_ffn = 0.1\n"
    "[attention]\nheads = 4\n[train]\nbatch.sequence_length = 12\nbatch.tokens = 120\nlr = 0.01\nvalidation.every = "
    "'1e'\nlog_every = "
    "'1e'\nlabel_smoothing = 0.1\n";

RunConfig config_of(const Folder& folder, const std::string& extra_toml) {
  Config config;
  config.load_text(
      str(kModelConfig, "[data]\ntrain = '", folder.file("t.mhs"), "'\nvalid = '", folder.file("t.mhs"), "'\n"),
      "test");
  config.load_text(extra_toml, "extra");
  return RunConfig::read(config);
}

}  // namespace

TEST_CASE("batches contain every sentence pair once per epoch and respect the token limits", "[pairs]") {
  Folder folder;
  const auto sentences = pairs::random_pairs(200);
  pairs::write(folder.file("t.mhs"), sentences, 10, 10);
  const io::ShardFile shard(folder.file("t.mhs"));
  CHECK(rc::check([&] {
    TrainOptions options;
    options.batch.sequence_length = 12;
    options.batch.tokens = *rc::gen::inRange(12, 400);
    options.batch.micro_tokens = *rc::gen::elementOf(std::vector<int64_t>{0, 12, 40});
    options.batch.micro_tokens = std::min(options.batch.micro_tokens, options.batch.tokens);
    options.seed = *rc::gen::inRange(0, 100);
    const auto batches = corpora::make_batches(pairs_of(shard), options),
               same_batches = corpora::make_batches(pairs_of(shard), options);
    std::vector<std::string> order_of_epoch_0;
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      std::multiset<std::pair<pairs::Sentence, pairs::Sentence>> seen_pairs;
      std::vector<std::string> order;
      for (int64_t u = 0; u < batches->updates_per_epoch(); ++u) {
        const int64_t update = epoch * batches->updates_per_epoch() + u;
        int64_t num_rows = 0, max_length = 0;
        for (const Batches::MicroBatch& micro_batch : batches->micro_batches(update)) {
          RC_ASSERT(micro_batch.first_row == num_rows);
          num_rows += micro_batch.num_rows;
          const data::Batch batch = batches->load(update, micro_batch);
          const auto& input = batch.input;
          RC_ASSERT(input.tokens.size(0) == micro_batch.num_rows);
          max_length = std::max({max_length, input.tokens.size(1), input.source.size(1)});
          if (options.batch.micro_tokens > 0)
            RC_ASSERT(micro_batch.num_rows == 1 ||
                      micro_batch.num_rows * std::max(input.tokens.size(1), input.source.size(1)) <=
                          options.batch.micro_tokens);
          for (int64_t r = 0; r < micro_batch.num_rows; ++r) {
            const auto source_length = input.lengths.encoder[r].item<int64_t>(),
                       target_length = input.lengths.decoder[r].item<int64_t>();
            pairs::Sentence source, target;
            for (int64_t i = 0; i < source_length; ++i) source.push_back(input.source[r][i].item<int32_t>());
            for (int64_t i = 0; i < target_length; ++i) {
              target.push_back(batch.targets[r][i].item<int32_t>());
              // The input of the decoder is the target shifted right by one position, with an end-of-sentence token at
              // position 0.
              RC_ASSERT(input.tokens[r][i].item<int32_t>() == (i == 0 ? 0 : target[static_cast<size_t>(i) - 1]));
            }
            for (int64_t i = target_length; i < batch.targets.size(1); ++i)
              RC_ASSERT(batch.targets[r][i].item<int64_t>() == -1);
            RC_ASSERT(source.back() == 0);
            RC_ASSERT(target.back() == 0);
            source.pop_back(), target.pop_back();
            seen_pairs.insert({source, target});
          }
        }
        RC_ASSERT(num_rows == 1 || num_rows * max_length <= options.batch.tokens);
        RC_ASSERT(batches->describe_rows(update) == same_batches->describe_rows(update));
        order.push_back(batches->describe_rows(update));
      }
      RC_ASSERT((seen_pairs ==
                 std::multiset<std::pair<pairs::Sentence, pairs::Sentence>>(sentences.begin(), sentences.end())));
      if (epoch == 0) order_of_epoch_0 = order;
      else RC_ASSERT(order != order_of_epoch_0);
    }
    RC_ASSERT(batches->to_updates({3, Length::Unit::epochs}) == 3 * batches->updates_per_epoch());
    RC_ASSERT(batches->to_updates({1, Length::Unit::tokens}) == 1);
    const int64_t num_targets = pairs_of(shard).num_targets();
    RC_ASSERT(batches->to_updates({2 * num_targets, Length::Unit::tokens}) == 2 * batches->updates_per_epoch());
  }));
}

TEST_CASE("sentence pairs in order of length fill each batch: one more pair would exceed the token limit", "[pairs]") {
  Folder folder;
  // The lengths of source and target of a pair are unrelated, so that the longest sentence of a batch may be longer
  // than the longest sentence of the next batch.
  pairs::SentencePairs sentences;
  for (size_t i = 0; i < 200; ++i)
    sentences.push_back({pairs::Sentence(i * 7 % 11, 2), pairs::Sentence(i * i % 10, 3)});
  pairs::write(folder.file("t.mhs"), sentences, 10, 10);
  const io::ShardFile shard(folder.file("t.mhs"));
  std::vector<std::pair<int64_t, int64_t>> lengths;  // (target length, source length) with end-of-sentence tokens
  for (const auto& [from, to] : sentences) lengths.emplace_back(to.size() + 1, from.size() + 1);
  std::sort(lengths.begin(), lengths.end());
  for (int64_t max_tokens : {12, 24, 36, 60, 100, 250}) {
    int64_t expected_updates = 0, num_rows = 0, max_length = 0;
    for (const auto& [target, source] : lengths) {
      max_length = std::max({max_length, target, source});
      if (expected_updates > 0 && max_length * (num_rows + 1) <= max_tokens) {
        ++num_rows;
      } else {
        ++expected_updates;
        num_rows = 1, max_length = std::max(target, source);
      }
    }
    TrainOptions options;
    options.batch.sequence_length = 12, options.batch.tokens = max_tokens;
    CHECK(corpora::make_batches(pairs_of(shard), options)->updates_per_epoch() == expected_updates);
  }
}

TEST_CASE("each epoch shuffles sentence pairs of equal length and the order of the batches", "[pairs]") {
  Folder folder;
  pairs::SentencePairs equal_lengths, distinct_lengths;
  for (int32_t i = 0; i < 9; ++i) equal_lengths.push_back({{2 + i}, {2}});
  for (size_t i = 5; i < 10; ++i) distinct_lengths.push_back({pairs::Sentence(i, 2), pairs::Sentence(i, 3)});
  pairs::write(folder.file("equal.mhs"), equal_lengths, 10, 10);
  pairs::write(folder.file("distinct.mhs"), distinct_lengths, 10, 10);
  const io::ShardFile equal_shard(folder.file("equal.mhs")), distinct_shard(folder.file("distinct.mhs"));
  TrainOptions options;
  options.batch.sequence_length = 2, options.batch.tokens = 6;
  const auto batches_of_three = corpora::make_batches(pairs_of(equal_shard), options);
  REQUIRE(batches_of_three->updates_per_epoch() == 3);
  options.batch.sequence_length = options.batch.tokens = 10;
  const auto batches_of_one = corpora::make_batches(pairs_of(distinct_shard), options);
  REQUIRE(batches_of_one->updates_per_epoch() == 5);
  std::set<std::set<std::set<int64_t>>> groupings;
  std::set<std::vector<std::string>> orders;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    std::set<std::set<int64_t>> groups;
    for (int64_t u = 3 * epoch; u < 3 * epoch + 3; ++u) {
      const at::Tensor source = batches_of_three->load(u, {0, 3}).input.source;
      groups.insert({source[0][0].item<int64_t>(), source[1][0].item<int64_t>(), source[2][0].item<int64_t>()});
    }
    groupings.insert(groups);
    std::vector<std::string> order;
    for (int64_t u = 5 * epoch; u < 5 * epoch + 5; ++u) order.push_back(batches_of_one->describe_rows(u));
    orders.insert(order);
  }
  CHECK(groupings.size() > 2);
  CHECK(orders.size() > 2);
}

TEST_CASE("pairs longer than train.batch.sequence_length are refused, and the message states how many they are",
          "[pairs]") {
  Folder folder;
  pairs::write(folder.file("t.mhs"), {{{2}, {3}}, {{2, 2, 2}, {3}}, {{2}, {3, 3, 3, 3}}}, 10, 10);
  const io::ShardFile shard(folder.file("t.mhs"));
  TrainOptions options;
  options.batch.sequence_length = 3, options.batch.tokens = 100;
  const std::string text = refusal([&] { corpora::make_batches(pairs_of(shard), options); });
  CHECK(contains(text, "at least 5 tokens, the length of the longest source or target"));
  CHECK(contains(text, "2 of 3 pairs"));
  options.batch.sequence_length = 5;
  CHECK(corpora::make_batches(pairs_of(shard), options)->updates_per_epoch() == 1);
}

TEST_CASE("a translation model learns to copy; resuming is bit-identical, and micro-batches change only rounding",
          "[pairs]") {
  Folder folder;
  pairs::write(folder.file("t.mhs"), pairs::random_pairs(300), 10, 10);
  const auto uninterrupted_model = runs::run(config_of(folder, "[train]\nlength = '12e'\n"), folder.file("whole"));
  const io::ShardFile shard(folder.file("t.mhs"));
  const auto dataset =
      task::task_of_kind(text::kPairsKind, "t.mhs")->open(text::FileRecords(shard), uninterrupted_model.tokenizers, {});
  const data::Corpus& corpus = dataset->corpus();
  const auto loss = [&](const model::LoadedModel& loaded) {
    const task::NllSum s = task::score(*loaded.model, corpus, {});
    CHECK(s.num_tokens == corpus.num_targets());
    return s.nll / static_cast<double>(s.num_tokens);
  };
  // Nats per token. A uniform distribution over 12 tokens has ln 12 = 2.5. A model that learns the targets without
  // their sources has about 2.2: a target sentence has a length of 0 to 9, on average 4.5, and tokens from 10 words,
  // which is 5.5 ln 10 nats for 5.8 targets: 4.5 tokens, 0.3 for the third of the sentences that repeat their last
  // token, and the end-of-sentence token. Only a model that reads the source is below 1.3.
  CHECK(loss(uninterrupted_model) < 1.3);
  runs::run(config_of(folder, "[train]\nlength = '5u'\nschedule.length = '12e'\n"), folder.file("resumed"));
  const auto resumed_model =
      runs::run(config_of(folder, "[train]\nlength = '12e'\nschedule.length = '12e'\n"), folder.file("resumed"), true);
  for (const auto& p : uninterrupted_model.model->parameters().all()) {
    INFO(p.name());
    CHECK(at::equal(p.master(), resumed_model.model->parameters().find(p.name())->master()));
  }
  // Without dropout, gradient accumulation gives the same weights up to rounding. The runs use SGD, since Adam would
  // amplify rounding to full steps where the gradient is almost zero, as for key biases; gradient clipping limits the
  // largest gradient to 1.
  const std::string sgd =
      "[model]\ndropout_ffn = 0.0\n[train]\nlength = '3u'\noptimizer.rule = 'sgd'\noptimizer.clip_norm = 1.0\n";
  const auto whole_updates = runs::run(config_of(folder, sgd), folder.file("once"));
  const auto micro_batches = runs::run(config_of(folder, sgd + "batch.micro_tokens = 24\n"), folder.file("parts"));
  for (const auto& p : whole_updates.model->parameters().all()) {
    INFO(p.name());
    CHECK(numbers::error(p.master(), micro_batches.model->parameters().find(p.name())->master()) <=
          rounding::sgd_bound(*whole_updates.model, 12, 3, 0.01, 1, p.master()));
  }
}

TEST_CASE("every target token is scored once, in order, conditioned on its source sentence", "[pairs]") {
  c10::NoGradGuard no_gradient;
  Folder folder;
  const auto sentences = pairs::random_pairs(60, 8);
  pairs::write(folder.file("t.mhs"), sentences, 10, 8);
  const io::ShardFile shard(folder.file("t.mhs"));
  const auto tokenizers = text::tokenizers_of(shard.header(), "t.mhs");
  Config config;
  config.load_text(kModelConfig, "test");
  auto model =
      model::build_language_model(model::ModelConfig::read(config), model::vocabulary_sizes_of(tokenizers), at::kCPU);
  model->parameters().initialise(1);
  const auto dataset = task::task_of_kind(text::kPairsKind, "t.mhs")->open(text::FileRecords(shard), tokenizers, {});
  const data::Corpus& corpus = dataset->corpus();
  std::vector<double> log_probabilities;
  std::vector<int32_t> tokens;
  task::ScoreCallbacks callbacks;
  callbacks.on_token = [&](const task::TokenScore& scored) {
    const auto [index, token, log_probability] = scored;
    REQUIRE(index == static_cast<int64_t>(log_probabilities.size()));
    log_probabilities.push_back(log_probability), tokens.push_back(token);
  };
  data::ScoringOptions small_batches;
  small_batches.batch = 3;
  const task::NllSum score = task::score(*model, corpus, small_batches, callbacks);
  const double pass_bound = rounding::pass_bound(*model, 12);
  size_t position = 0;
  double sum = 0;
  for (auto [from, to] : sentences) {
    from.push_back(0), to.push_back(0);
    std::vector<int64_t> in{0}, source(from.begin(), from.end());
    in.insert(in.end(), to.begin(), to.end() - 1);
    const model::Input input{at::tensor(in).unsqueeze(0), at::tensor(source).unsqueeze(0)};
    const at::Tensor log_p = at::log_softmax(model->logits(model->hidden(input, {}))[0], -1);
    for (size_t i = 0; i < to.size(); ++i, ++position) {
      REQUIRE(tokens[position] == to[i]);
      const auto expected = log_p[static_cast<int64_t>(i)][to[i]].item<double>();
      // The bound is relative to |log-probability| or, if larger, to 1, since the logits that cancel in a
      // log-probability have a magnitude of at least 1.
      REQUIRE(log_probabilities[position] == rounding::within(expected, pass_bound * std::max(1.0, -expected)));
      sum -= expected;
    }
  }
  CHECK(position == log_probabilities.size());
  CHECK(score.num_tokens == static_cast<int64_t>(position));
  CHECK(score.nll == rounding::within(sum, pass_bound * sum));
  data::ScoringOptions sample_options;
  sample_options.sample.blocks = 7;
  std::set<int64_t> pairs_seen;
  data::BatchVisitor visitor;
  visitor.visit = [&](const data::ForwardedBatch& pass) {
    for (const data::Row& row : pass.rows) pairs_seen.insert(row.record_index);
  };
  data::for_each_batch(*model, corpus, sample_options, visitor);
  CHECK(pairs_seen.size() == 7);
  sample_options.sample.blocks = 61;
  CHECK(contains(refusal([&] { data::for_each_batch(*model, corpus, sample_options, visitor); }), "at most 60"));
  data::ScoringOptions length_options;
  length_options.sequence_length = 5;
  CHECK(contains(refusal([&] { task::score(*model, corpus, length_options); }), "--sequence-length"));
}

TEST_CASE("checkpoint.retain_by = 'best' retains the checkpoints of lowest validation loss, also after a resume",
          "[pairs]") {
  Folder folder;
  pairs::write(folder.file("t.mhs"), pairs::random_pairs(60), 10, 10);
  // The learning rate is so high that the validation loss both rises and falls.
  const std::string options =
      "[train]\nlength = '9u'\nlr = 0.3\nvalidation.every = '1u'\ncheckpoint.every = '4u'\ncheckpoint.retain = "
      "3\ncheckpoint.retain_by = 'best'\n";
  const auto retained_updates = [&](const std::string& run) {
    std::set<int64_t> updates;
    for (const auto& entry : std::filesystem::directory_iterator(folder.file(run + "/checkpoints")))
      updates.insert(std::stoll(entry.path().stem().string().substr(7)));
    return updates;
  };
  runs::run(config_of(folder, options), folder.file("whole"));
  std::vector<std::pair<double, int64_t>> validations;
  for (const auto& line : runs::read_log(folder.file("whole"), "valid_nll"))
    validations.emplace_back(line["valid_nll"].get<double>(), line["update"].get<int64_t>());
  REQUIRE(validations.size() == 9);
  std::sort(validations.begin(), validations.end());
  std::set<int64_t> best_updates;
  for (size_t i = 0; i < 3; ++i) best_updates.insert(validations[i].second);
  CHECK(retained_updates("whole") == best_updates);
  runs::run(config_of(folder, options + "schedule.length = '9u'\n"), folder.file("other"));
  runs::run(
      config_of(folder,
                "[train]\nlength = '5u'\nschedule.length = '9u'\nlr = 0.3\nvalidation.every = '1u'\ncheckpoint.every = "
                "'4u'\ncheckpoint.retain = 3\ncheckpoint.retain_by = 'best'\n"),
      folder.file("resumed"));
  runs::run(config_of(folder, options + "schedule.length = '9u'\n"), folder.file("resumed"), true);
  CHECK(retained_updates("resumed") == retained_updates("other"));
  // Of checkpoints with equal validation losses the oldest are retained, and the log marks the first as the best. A
  // resumed run retains and marks the same checkpoints, although it compares new losses with losses that an earlier
  // process has saved as text. The seeds vary the digits of the losses.
  for (int64_t seed : {1, 2, 3, 4}) {
    const std::string name = str("equal", seed),
                      equal_losses =
                          str("schedule.length = '9u'\nlr = 1e-30\nvalidation.every = '1u'\ncheckpoint.retain = 3\n",
                              "checkpoint.retain_by = 'best'\nseed = ", seed, "\n");
    runs::run(config_of(folder, "[train]\nlength = '5u'\n" + equal_losses), folder.file(name));
    runs::run(config_of(folder, "[train]\nlength = '9u'\n" + equal_losses), folder.file(name), true);
    CHECK(retained_updates(name) == std::set<int64_t>{1, 2, 3});
    for (const auto& line : runs::read_log(folder.file(name), "valid_nll"))
      CHECK(line["best"] == (line["update"] == 1));
  }
  CHECK(contains(refusal([&] { config_of(folder, "[train]\nlength = '1u'\ncheckpoint.retain_by = 'best'\n").check(); }),
                 "train.checkpoint.retain"));
}

TEST_CASE("training on pairs refuses text shards and options of texts, and training on texts refuses pairs",
          "[pairs]") {
  Folder folder;
  const auto error_of = [&](const RunConfig& config) {
    try {
      Trainer trainer(config, folder.file("run"), false);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  runs::write_text(folder.file("t.mhs"), runs::repeating_tokens(200));
  CHECK(contains(error_of(config_of(folder, "[train]\nlength = '1u'\n")), "translation"));
  pairs::write(folder.file("t.mhs"), pairs::random_pairs(20), 10, 10);
  CHECK(contains(error_of(runs::config_of(folder, "[train]\nlength = '1u'\n")), "language-model"));
  CHECK(contains(error_of(config_of(folder, "[train]\nlength = '1u'\nbatch.order = 'streams'\n")),
                 "pairs are independent; found streams, which only texts support"));
  CHECK(contains(error_of(config_of(folder, "[train]\nlength = '1u'\nvalidation.sequence_length = 5\n")),
                 "train.validation.sequence_length"));
  CHECK(contains(
      error_of(config_of(
          folder,
          "[model]\nencoder-decoder.shared_embedding = true\n[train]\nlength = '1u'\nbatch.sequence_length = 4\n")),
      "train.batch.sequence_length"));
  pairs::write(folder.file("t.mhs"), pairs::random_pairs(20, 8), 10, 8);
  CHECK(contains(
      error_of(config_of(folder, "[model]\nencoder-decoder.shared_embedding = true\n[train]\nlength = '1u'\n")),
      "joint vocabulary"));
  CHECK(error_of(config_of(folder, "[train]\nlength = '1u'\n")).empty());
}
