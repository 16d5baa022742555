// Pairs of sentences: how they are read, batched, trained on and scored.
#include "fixtures/pairs.h"

#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "fixtures/corpora.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "task/task.h"
#include "task/token_score.h"

using namespace mh;
using namespace mh::train;

namespace {

data::Pairs made(const io::ShardFile& shard) { return {text::sequences_of(shard), 0, 0}; }

bool says(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

const char* kModel =
    "[model]\nbackbone = 'encoder-decoder'\nlayers = 1\nwidth = 16\nffn = 32\nnorm = 'pre'\ndropout_ffn = 0.1\n"
    "[attention]\nheads = 4\n[train]\nbatch.block = 12\nbatch.tokens = 120\nlr = 0.01\nvalidation.every = "
    "'1e'\nlog_every = "
    "'1e'\nlabel_smoothing = 0.1\n";

RunConfig config_of(const Folder& folder, const std::string& extra) {
  Config config;
  config.load_text(str(kModel, "[data]\ntrain = '", folder.file("t.mhs"), "'\nvalid = '", folder.file("t.mhs"), "'\n"),
                   "test");
  config.load_text(extra, "extra");
  return RunConfig::read(config);
}

}  // namespace

TEST_CASE("batches hold every pair once an epoch, of like length, within their size", "[pairs]") {
  Folder folder;
  const auto all = pairs::some(200);
  pairs::write(folder.file("t.mhs"), all, 10, 10);
  const io::ShardFile shard(folder.file("t.mhs"));
  CHECK(rc::check([&] {
    TrainOptions o;
    o.batch.block = 12;
    o.batch.tokens = *rc::gen::inRange(12, 400);
    o.batch.micro_tokens = *rc::gen::elementOf(std::vector<int64_t>{0, 12, 40});
    o.batch.micro_tokens = std::min(o.batch.micro_tokens, o.batch.tokens);
    o.seed = *rc::gen::inRange(0, 100);
    const auto batches = corpora::make_batches(made(shard), o), again = corpora::make_batches(made(shard), o);
    std::vector<std::string> first_order;
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      std::multiset<std::pair<pairs::Sentence, pairs::Sentence>> seen;
      std::vector<std::string> order;
      for (int64_t u = 0; u < batches->updates_per_epoch(); ++u) {
        const int64_t update = epoch * batches->updates_per_epoch() + u;
        int64_t rows = 0, widest = 0;
        for (const Batches::MicroBatch& part : batches->micro_batches(update)) {
          RC_ASSERT(part.first == rows);
          rows += part.count;
          const data::Batch batch = batches->load(update, part);
          const auto& in = batch.input;
          RC_ASSERT(in.tokens.size(0) == part.count);
          widest = std::max({widest, in.tokens.size(1), in.source.size(1)});
          if (o.batch.micro_tokens > 0)
            RC_ASSERT(part.count == 1 ||
                      part.count * std::max(in.tokens.size(1), in.source.size(1)) <= o.batch.micro_tokens);
          for (int64_t r = 0; r < part.count; ++r) {
            const auto s = in.lengths.encoder[r].item<int64_t>(), t = in.lengths.decoder[r].item<int64_t>();
            pairs::Sentence from, to;
            for (int64_t i = 0; i < s; ++i) from.push_back(in.source[r][i].item<int32_t>());
            for (int64_t i = 0; i < t; ++i) {
              to.push_back(batch.targets[r][i].item<int32_t>());
              // What the decoder reads is behind an end-of-line symbol.
              RC_ASSERT(in.tokens[r][i].item<int32_t>() == (i == 0 ? 0 : to[static_cast<size_t>(i) - 1]));
            }
            for (int64_t i = t; i < batch.targets.size(1); ++i) RC_ASSERT(batch.targets[r][i].item<int64_t>() == -1);
            RC_ASSERT(from.back() == 0);
            RC_ASSERT(to.back() == 0);
            from.pop_back(), to.pop_back();
            seen.insert({from, to});
          }
        }
        RC_ASSERT(rows == 1 || rows * widest <= o.batch.tokens);
        RC_ASSERT(batches->place(update) == again->place(update));
        order.push_back(batches->place(update));
      }
      RC_ASSERT((seen == std::multiset<std::pair<pairs::Sentence, pairs::Sentence>>(all.begin(), all.end())));
      if (epoch == 0) first_order = order;
      else RC_ASSERT(order != first_order);
    }
    RC_ASSERT(batches->updates({3, Length::Unit::epochs}) == 3 * batches->updates_per_epoch());
    RC_ASSERT(batches->updates({1, Length::Unit::tokens}) == 1);
    const int64_t targets = made(shard).targets();
    RC_ASSERT(batches->updates({2 * targets, Length::Unit::tokens}) == 2 * batches->updates_per_epoch());
  }));
}

TEST_CASE("batches are as full as they may be", "[pairs]") {
  Folder folder;
  // Sides of unlike length, so that the longest of a batch may be longer than that of the next.
  pairs::Sentences all;
  for (size_t i = 0; i < 200; ++i) all.push_back({pairs::Sentence(i * 7 % 11, 2), pairs::Sentence(i * i % 10, 3)});
  pairs::write(folder.file("t.mhs"), all, 10, 10);
  const io::ShardFile shard(folder.file("t.mhs"));
  std::vector<std::pair<int64_t, int64_t>> lengths;  // target, source
  for (const auto& [from, to] : all) lengths.emplace_back(to.size() + 1, from.size() + 1);
  std::sort(lengths.begin(), lengths.end());
  for (int64_t most : {12, 24, 36, 60, 100, 250}) {
    int64_t wanted = 0, rows = 0, widest = 0;
    for (const auto& [target, source] : lengths) {
      widest = std::max({widest, target, source});
      if (wanted > 0 && widest * (rows + 1) <= most) {
        ++rows;
      } else {
        ++wanted;
        rows = 1, widest = std::max(target, source);
      }
    }
    TrainOptions o;
    o.batch.block = 12, o.batch.tokens = most;
    CHECK(corpora::make_batches(made(shard), o)->updates_per_epoch() == wanted);
  }
}

TEST_CASE("each epoch draws anew which pairs go together, and which batch comes when", "[pairs]") {
  Folder folder;
  pairs::Sentences alike, unlike;
  for (int32_t i = 0; i < 9; ++i) alike.push_back({{2 + i}, {2}});
  for (size_t i = 5; i < 10; ++i) unlike.push_back({pairs::Sentence(i, 2), pairs::Sentence(i, 3)});
  pairs::write(folder.file("alike.mhs"), alike, 10, 10);
  pairs::write(folder.file("unlike.mhs"), unlike, 10, 10);
  const io::ShardFile of_alike(folder.file("alike.mhs")), of_unlike(folder.file("unlike.mhs"));
  TrainOptions o;
  o.batch.block = 2, o.batch.tokens = 6;
  const auto threes = corpora::make_batches(made(of_alike), o);
  REQUIRE(threes->updates_per_epoch() == 3);
  o.batch.block = o.batch.tokens = 10;
  const auto ones = corpora::make_batches(made(of_unlike), o);
  REQUIRE(ones->updates_per_epoch() == 5);
  std::set<std::set<std::set<int64_t>>> together;
  std::set<std::vector<std::string>> orders;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    std::set<std::set<int64_t>> groups;
    for (int64_t u = 3 * epoch; u < 3 * epoch + 3; ++u) {
      const at::Tensor source = threes->load(u, {0, 3}).input.source;
      groups.insert({source[0][0].item<int64_t>(), source[1][0].item<int64_t>(), source[2][0].item<int64_t>()});
    }
    together.insert(groups);
    std::vector<std::string> order;
    for (int64_t u = 5 * epoch; u < 5 * epoch + 5; ++u) order.push_back(ones->place(u));
    orders.insert(order);
  }
  CHECK(together.size() > 2);
  CHECK(orders.size() > 2);
}

TEST_CASE("pairs longer than a row may be are refused, with their number", "[pairs]") {
  Folder folder;
  pairs::write(folder.file("t.mhs"), {{{2}, {3}}, {{2, 2, 2}, {3}}, {{2}, {3, 3, 3, 3}}}, 10, 10);
  const io::ShardFile shard(folder.file("t.mhs"));
  TrainOptions o;
  o.batch.block = 3, o.batch.tokens = 100;
  const std::string text = refusal([&] { corpora::make_batches(made(shard), o); });
  CHECK(says(text, "at least 5, the longest side of a pair"));
  CHECK(says(text, "2 of 3 pairs"));
  o.batch.block = 5;
  CHECK(corpora::make_batches(made(shard), o)->updates_per_epoch() == 1);
}

TEST_CASE("a translation model learns to copy, the same in parts and after a resume", "[pairs]") {
  Folder folder;
  pairs::write(folder.file("t.mhs"), pairs::some(300), 10, 10);
  const auto whole = runs::run(config_of(folder, "[train]\nlength = '12e'\n"), folder.file("whole"));
  const io::ShardFile shard(folder.file("t.mhs"));
  const auto dataset =
      task::task_of_kind(io::kPairsKind, "t.mhs")->open(text::FileRecords(shard), whole.tokenizers, {});
  const data::Corpus& corpus = dataset->corpus();
  const auto loss = [&](const model::LoadedModel& m) {
    const task::Score s = task::score(*m.model, corpus, {});
    CHECK(s.tokens == corpus.targets());
    return s.nll / static_cast<double>(s.tokens);
  };
  CHECK(loss(whole) < 1.3);  // an even guess costs ln 12 = 2.5
  runs::run(config_of(folder, "[train]\nlength = '5u'\nschedule.length = '12e'\n"), folder.file("resumed"));
  const auto resumed =
      runs::run(config_of(folder, "[train]\nlength = '12e'\nschedule.length = '12e'\n"), folder.file("resumed"), true);
  for (const auto& p : whole.model->parameters().all()) {
    INFO(p.name());
    CHECK(at::equal(p.master(), resumed.model->parameters().find(p.name())->master()));
  }
  // Without dropout a part at a time gives the same sums, but for rounding.
  const std::string calm = "[model]\ndropout_ffn = 0.0\n[train]\nlength = '3u'\n";
  const auto once = runs::run(config_of(folder, calm), folder.file("once"));
  const auto parts = runs::run(config_of(folder, calm + "batch.micro_tokens = 24\n"), folder.file("parts"));
  for (const auto& p : once.model->parameters().all()) {
    INFO(p.name());
    if (p.name().find("key.bias") != std::string::npos) continue;  // changes nothing, so its gradient is rounding
    CHECK(at::allclose(p.master(), parts.model->parameters().find(p.name())->master(), 1e-2, 2e-4));
  }
}

TEST_CASE("targets are scored each once, in their order, behind their source", "[pairs]") {
  c10::NoGradGuard no_gradient;
  Folder folder;
  const auto all = pairs::some(60, 8);
  pairs::write(folder.file("t.mhs"), all, 10, 8);
  const io::ShardFile shard(folder.file("t.mhs"));
  const auto tokenizers = text::tokenizers_of(shard.header(), "t.mhs");
  Config config;
  config.load_text(kModel, "test");
  auto m = model::build_language_model(model::ModelConfig::read(config), model::sizes_of(tokenizers), at::kCPU);
  m->parameters().initialise(1);
  const auto dataset = task::task_of_kind(io::kPairsKind, "t.mhs")->open(text::FileRecords(shard), tokenizers, {});
  const data::Corpus& corpus = dataset->corpus();
  std::vector<double> told;
  std::vector<int32_t> tokens;
  task::ScoreObserver observer;
  observer.each = [&](const task::TokenScore& scored) {
    const auto [index, token, p] = scored;
    REQUIRE(index == static_cast<int64_t>(told.size()));
    told.push_back(p), tokens.push_back(token);
  };
  data::ScoringOptions few;
  few.batch = 3;
  const task::Score score = task::score(*m, corpus, few, observer);
  size_t at = 0;
  double sum = 0;
  for (auto [from, to] : all) {
    from.push_back(0), to.push_back(0);
    std::vector<int64_t> in{0}, source(from.begin(), from.end());
    in.insert(in.end(), to.begin(), to.end() - 1);
    const model::Input input{at::tensor(in).unsqueeze(0), at::tensor(source).unsqueeze(0)};
    const at::Tensor log_p = at::log_softmax(m->logits(m->hidden(input, {}))[0], -1);
    for (size_t i = 0; i < to.size(); ++i, ++at) {
      REQUIRE(tokens[at] == to[i]);
      const auto p = log_p[static_cast<int64_t>(i)][to[i]].item<double>();
      REQUIRE(told[at] == Approx(p).margin(1e-4));
      sum -= p;
    }
  }
  CHECK(at == told.size());
  CHECK(score.tokens == static_cast<int64_t>(at));
  CHECK(score.nll == Approx(sum).epsilon(1e-5));
  data::ScoringOptions sample;
  sample.sample.blocks = 7;
  std::set<int64_t> pairs_seen;
  data::BatchVisitor visitor;
  visitor.visit = [&](const data::VisitedBatch& pass) {
    for (const data::Row& row : pass.rows) pairs_seen.insert(row.pair);
  };
  data::for_each_batch(*m, corpus, sample, visitor);
  CHECK(pairs_seen.size() == 7);
  sample.sample.blocks = 61;
  CHECK(says(refusal([&] { data::for_each_batch(*m, corpus, sample, visitor); }), "at most 60"));
  data::ScoringOptions blocks;
  blocks.block = 5;
  CHECK(says(refusal([&] { task::score(*m, corpus, blocks); }), "--block"));
}

TEST_CASE("the models of the best validations are kept, after a resume as well", "[pairs]") {
  Folder folder;
  pairs::write(folder.file("t.mhs"), pairs::some(60), 10, 10);
  // A rate at which validations go up and down.
  const std::string how =
      "[train]\nlength = '9u'\nlr = 0.3\nvalidation.every = '1u'\ncheckpoint.every = '4u'\ncheckpoint.retain = "
      "3\ncheckpoint.retain_by = 'best'\n";
  const auto kept_in = [&](const std::string& run) {
    std::set<int64_t> updates;
    for (const auto& entry : std::filesystem::directory_iterator(folder.file(run + "/checkpoints")))
      updates.insert(std::stoll(entry.path().stem().string().substr(7)));
    return updates;
  };
  runs::run(config_of(folder, how), folder.file("whole"));
  std::vector<std::pair<double, int64_t>> judged;
  for (const auto& line : runs::logged(folder.file("whole"), "valid_nll"))
    judged.emplace_back(line["valid_nll"].get<double>(), line["update"].get<int64_t>());
  REQUIRE(judged.size() == 9);
  std::sort(judged.begin(), judged.end());
  std::set<int64_t> best;
  for (size_t i = 0; i < 3; ++i) best.insert(judged[i].second);
  CHECK(kept_in("whole") == best);
  runs::run(config_of(folder, how + "schedule.length = '9u'\n"), folder.file("other"));
  runs::run(
      config_of(folder,
                "[train]\nlength = '5u'\nschedule.length = '9u'\nlr = 0.3\nvalidation.every = '1u'\ncheckpoint.every = "
                "'4u'\ncheckpoint.retain = 3\ncheckpoint.retain_by = 'best'\n"),
      folder.file("resumed"));
  runs::run(config_of(folder, how + "schedule.length = '9u'\n"), folder.file("resumed"), true);
  CHECK(kept_in("resumed") == kept_in("other"));
  // Of equal ones the oldest stay, among them the best; so it is where a run goes on from the state of another process,
  // whatever the digits of what they were judged by.
  for (int64_t seed : {1, 2, 3, 4}) {
    const std::string name = str("equal", seed),
                      equal =
                          str("schedule.length = '9u'\nlr = 1e-30\nvalidation.every = '1u'\ncheckpoint.retain = 3\n",
                              "checkpoint.retain_by = 'best'\nseed = ", seed, "\n");
    runs::run(config_of(folder, "[train]\nlength = '5u'\n" + equal), folder.file(name));
    runs::run(config_of(folder, "[train]\nlength = '9u'\n" + equal), folder.file(name), true);
    CHECK(kept_in(name) == std::set<int64_t>{1, 2, 3});
    for (const auto& line : runs::logged(folder.file(name), "valid_nll")) CHECK(line["best"] == (line["update"] == 1));
  }
  CHECK(says(refusal([&] { config_of(folder, "[train]\nlength = '1u'\ncheckpoint.retain_by = 'best'\n").check(); }),
             "train.checkpoint.retain"));
}

TEST_CASE("a run refuses data of the other kind, and what is of texts", "[pairs]") {
  Folder folder;
  const auto error_of = [&](const RunConfig& config) {
    try {
      Trainer trainer(config, folder.file("run"), false);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  runs::write_text(folder.file("t.mhs"), runs::lines(200));
  CHECK(says(error_of(config_of(folder, "[train]\nlength = '1u'\n")), "translation"));
  pairs::write(folder.file("t.mhs"), pairs::some(20), 10, 10);
  CHECK(says(error_of(runs::config_of(folder, "[train]\nlength = '1u'\n")), "language-model"));
  CHECK(
      says(error_of(config_of(folder, "[train]\nlength = '1u'\nbatch.order = 'streams'\n")), "pairs are independent"));
  CHECK(says(error_of(config_of(folder, "[train]\nlength = '1u'\nvalidation.block = 5\n")), "train.validation.block"));
  CHECK(
      says(error_of(config_of(
               folder, "[model]\nencoder-decoder.shared_embedding = true\n[train]\nlength = '1u'\nbatch.block = 4\n")),
           "train.batch.block"));
  pairs::write(folder.file("t.mhs"), pairs::some(20, 8), 10, 8);
  CHECK(says(error_of(config_of(folder, "[model]\nencoder-decoder.shared_embedding = true\n[train]\nlength = '1u'\n")),
             "joint vocabulary"));
  CHECK(error_of(config_of(folder, "[train]\nlength = '1u'\n")).empty());
}
