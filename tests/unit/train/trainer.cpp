// Optimisers against plain loops, batches that cover the text, runs that learn.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/json_types.h"
#include "base/random.h"
#include "fixtures/corpora.h"
#include "fixtures/runs.h"
#include "fixtures/shards.h"
#include "fixtures/status.h"
#include "task/token_score.h"
#include "train/run_folder.h"

using namespace mh;
using namespace mh::train;
using runs::write_text;

namespace {

// One parameter of four numbers, trained on given gradients; compared with `expected`, a plain loop in double.
void compare_optimizer(TrainOptions o, const std::function<void(int, double, double, double, double*)>& expected) {
  nn::ParameterList list(at::kCPU);
  list.add("w", {4}, {nn::Init::normal(1), true, false});
  list.initialise(1);
  at::Tensor& w = list.all().front().master();
  std::vector<std::array<double, 3>> state(4);
  for (int i = 0; i < 4; ++i) state[static_cast<size_t>(i)] = {static_cast<double>(w.detach()[i].item<float>()), 0, 0};
  const Groups groups;
  Optimizer optimizer(list, o, groups);
  double before = 0.01;
  for (int n = 1; n <= 20; ++n) {
    const double lr = 0.01 / n, scale = 0.5;
    w.mutable_grad() = at::randn({4});
    for (int i = 0; i < 4; ++i)
      expected(n, lr, n == 1 ? lr : before, scale * static_cast<double>(w.grad()[i].item<float>()),
               state[static_cast<size_t>(i)].data());
    optimizer.step(lr, scale);
    before = lr;
    for (int i = 0; i < 4; ++i)
      CHECK(static_cast<double>(w.detach()[i].item<float>()) ==
            Approx(state[static_cast<size_t>(i)][0]).epsilon(1e-5).margin(1e-6));
  }
}

}  // namespace

TEST_CASE("optimisers equal plain loops in double precision") {
  TrainOptions o;
  o.optimizer.weight_decay = 0.1;
  o.optimizer.betas = {0.9, 0.98};
  for (const bool decays_all : {true, false}) {  // the parameter is neither norm nor bias
    o.optimizer.decay_norms_and_biases = decays_all;
    compare_optimizer(o, [](int n, double lr, double, double g, double* s) {
      s[0] -= lr * 0.1 * s[0];
      s[1] = 0.9 * s[1] + 0.1 * g;
      s[2] = 0.98 * s[2] + 0.02 * g * g;
      s[0] -= lr * (s[1] / (1 - std::pow(0.9, n))) / (std::sqrt(s[2] / (1 - std::pow(0.98, n))) + 1e-8);
    });
  }
  o.optimizer.rule = "sgd";
  o.optimizer.momentum = 0.9;
  compare_optimizer(o, [](int, double lr, double, double g, double* s) {
    s[1] = 0.9 * s[1] + g + 0.1 * s[0];
    s[0] -= lr * s[1];
  });
  o.optimizer.rule = "nag";
  o.optimizer.momentum = 0.99;
  compare_optimizer(o, [](int, double lr, double before, double g, double* s) {
    const double m = 0.99, c = lr / before;
    s[0] = s[0] * (1 - lr * 0.1) + m * m * c * s[1] - (1 + m) * lr * g;
    s[1] = m * c * s[1] - lr * g;
  });
}

namespace {

// A text whose every token follows from the one before, so that a model can learn it.
std::vector<int32_t> learnable(int64_t count) {
  std::vector<int32_t> text;
  for (int64_t i = 0; i < count; ++i) text.push_back(static_cast<int32_t>(i % 5 == 4 ? 0 : 2 + i % 5));
  return text;
}

RunConfig tiny(const Folder& folder, const std::string& extra) {
  Config config;
  config.load_text(
      "[model]\nlayers = 1\nwidth = 16\nffn = 32\ndropout_ffn = 0.1\n[attention]\nheads = 2\n[train]\nbatch.block = "
      "8\nbatch.tokens = 64\nlr = 0.01\n"
      "log_every = '1u'\n" +
          extra + "\n[data]\ntrain = '" + folder.file("t.mhs") + "'\nvalid = '" + folder.file("t.mhs") + "'\n",
      "test");
  return RunConfig::read(config);
}

}  // namespace

TEST_CASE("batches cover every token exactly once an epoch, in an order of their own") {
  Folder folder;
  write_text(folder.file("t.mhs"), learnable(1003));
  io::ShardFile shard(folder.file("t.mhs"));
  std::vector<int32_t> text(1003);
  shard.read(0, text);
  TrainOptions o;
  o.batch.block = 10, o.batch.tokens = 70;
  auto made = corpora::make_batches(corpora::text_of(shard, 0), o);
  data::TextBatches& batches = *made;
  CHECK(batches.updates_per_epoch() == 15);
  std::vector<int64_t> first_order;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::multiset<int64_t> seen;
    std::vector<int64_t> order;
    int64_t targets = 0;
    for (int64_t u = 0; u < 15; ++u) {
      auto update = batches.rows_of(epoch * 15 + u);
      std::vector<int64_t> rows;
      for (const auto& row : update.rows) rows.push_back(row.first / 10);
      data::Batch batch = batches.load(epoch * 15 + u, {0, static_cast<int64_t>(rows.size())});
      CHECK_FALSE(batches.continues(epoch * 15 + u));
      for (size_t r = 0; r < rows.size(); ++r) {
        seen.insert(rows[r]);
        order.push_back(rows[r]);
        for (int64_t t = 0; t < 10; ++t) {
          const int64_t i = rows[r] * 10 + t;
          const auto target = batch.targets[static_cast<int64_t>(r)][t].item<int64_t>();
          if (i >= 1003) {
            CHECK(target == -1);
            continue;
          }
          ++targets;
          REQUIRE(target == text[static_cast<size_t>(i)]);
          REQUIRE(batch.input.tokens[static_cast<int64_t>(r)][t].item<int64_t>() ==
                  (i == 0 ? 0 : text[static_cast<size_t>(i - 1)]));
        }
      }
    }
    CHECK(targets == 1003);
    CHECK(seen.size() == 101);
    CHECK(std::set<int64_t>(seen.begin(), seen.end()).size() == 101);
    if (epoch == 0) first_order = order;
    else CHECK(order != first_order);
  }
  CHECK(batches.updates({2, Length::Unit::epochs}) == 30);
  CHECK(batches.updates({701, Length::Unit::tokens}) == 11);
  o.batch.tokens = 9;
  CHECK_THROWS_AS(corpora::make_batches(corpora::text_of(shard, 0), o), Error);
}

TEST_CASE("a run learns, in fp32 and bf16") {
  Folder folder;
  write_text(folder.file("t.mhs"), learnable(2000));
  for (const char* precision : {"fp32", "bf16"}) {
    const std::string out = folder.file(precision);
    Trainer trainer(tiny(folder, str("length = '150u'\nprecision = '", precision, "'")), out, false);
    CHECK(trainer.run() == 0);
    auto loaded = model::load_model(out + "/best.safetensors", at::kCPU);
    const shards::TokenText text = shards::read_tokens(folder.file("t.mhs"));
    data::ScoringOptions scoring;
    scoring.block = 8;
    task::Score score = task::score(*loaded.model, corpora::text_of(text.tokens, 0), scoring);
    CHECK(score.tokens == 2000);
    CHECK(score.nll / 2000 < 0.2);  // ln 6 = 1.79 at the start
  }
}

TEST_CASE("a text shorter than a batch or a block is trained on whole, and one of no tokens is refused") {
  using namespace runs;
  Folder folder;
  for (const char* batching : {"blocks", "streams"})
    for (int64_t tokens : {0, 1, 5, 9, 63}) {
      INFO(batching << ' ' << tokens);
      runs::write_text(folder.file("t.mhs"), runs::lines(tokens));
      const std::string name = str(batching, tokens),
                        extra = str("[train]\nlength = '3e'\nbatch.order = '", batching, "'\n");
      const bool too_few = std::string(batching) == "streams" && tokens < 8;  // streams, a token in each
      if (tokens == 0 || too_few) {
        std::string said;
        try {
          run_of(folder, name, extra);
        } catch (const Error& error) {
          said = error.what();
        }
        CHECK(said.find(tokens == 0 ? "found 0 tokens" : "streams, one token in each") != std::string::npos);
        CHECK_FALSE(std::filesystem::exists(folder.file(name)));
        continue;
      }
      run_of(folder, name, extra);
      io::Checkpoint state(folder.file(name) + "/last.safetensors");
      CHECK(nlohmann::json::parse(state.entry(io::kTrainingKey))["tokens"] == 3 * tokens);
    }
}

TEST_CASE("a warm-up that is a share of the horizon", "[train]") {
  using namespace runs;
  Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::lines(400));
  const std::string share =
      "[train]\nlr = 0.002\nschedule.warmup_ratio = 0.2\nschedule.warmup_lr = 0\nschedule.rule = 'linear'\nlog_every = "
      "'1u'\n";
  run_of(folder, "share", share + "length = '20u'\n");
  run_of(folder, "longer", share + "length = '6u'\nschedule.length = '40u'\n");
  const auto rates = [&](const std::string& name) {
    std::vector<double> all;
    for (const auto& line : logged(folder.file(name), "lr")) all.push_back(line["lr"]);
    return all;
  };
  CHECK(rates("share").at(2) == Approx(0.001));
  CHECK(rates("share").at(4) == Approx(0.002));
  CHECK(rates("share").at(12) == Approx(0.001));
  CHECK(rates("longer").at(2) == Approx(0.0005));
  TrainOptions both;
  both.schedule.warmup_ratio = 0.1, both.schedule.warmup = {3, Length::Unit::updates};
  CHECK(refusal([&] { both.check(); }).find("train.schedule.warmup_ratio") != std::string::npos);
}

TEST_CASE("patience: perplexity that falls by less than min_improvement since the last that counted is no better") {
  using namespace runs;
  Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::lines(400));
  const std::string base = "[train]\nlr = 0.002\nvalidation.every = '1u'\n", whole = base + "length = '40u'\n";
  auto perplexities = [&](const std::string& name) {
    std::vector<double> all;
    for (const auto& line : logged(folder.file(name), "valid_nll")) all.push_back(line["valid_perplexity"]);
    return all;
  };
  run_of(folder, "all", whole);
  const auto all = perplexities("all");
  REQUIRE(all.size() == 40);
  std::set<size_t> lasts;
  for (double least : {0.0, 0.05, 0.15, 0.4}) {
    INFO(least);
    // Where it should stop.
    double from = INFINITY, best = INFINITY;
    size_t last = 0;
    for (int worse = 0; last < all.size() && worse < 3; ++last) {
      const bool counts = all[last] < best && (least == 0 || from - all[last] >= least);
      best = std::min(best, all[last]);
      if (counts) from = all[last];
      worse = counts ? 0 : worse + 1;
    }
    const std::string name = std::to_string(least),
                      rule = str("validation.patience = 3\nvalidation.min_improvement = ", least, "\n");
    run_of(folder, name, whole + rule);
    CHECK(perplexities(name).size() == last);
    lasts.insert(last);
    // Stopped before and resumed, it stops there, too.
    run_of(folder, name + "-halves", base + "length = '5u'\n" + rule);
    run_of(folder, name + "-halves", whole + rule, true);
    CHECK(perplexities(name + "-halves").size() == last);
    // What is kept is the best all the same.
    const auto position =
        nlohmann::json::parse(io::Checkpoint(folder.file(name) + "/last.safetensors").entry(io::kTrainingKey));
    CHECK(std::exp(position["best"].get<double>()) == Approx(best));
  }
  CHECK(lasts.size() >= 3);
}

TEST_CASE("micro-batches give the update of the whole batch") {
  Folder folder;
  write_text(folder.file("t.mhs"), learnable(2000));
  auto weights = [&](const std::string& name, const std::string& extra) {
    return runs::run(tiny(folder, "length = '5u'\noptimizer.rule = 'sgd'\n" + extra), folder.file(name));
  };
  // Plain steps: Adam would blow rounding up to whole steps where a gradient is all but zero, as of key biases.
  auto whole = weights("whole", ""), parts = weights("parts", "batch.micro_tokens = 16");
  for (auto& p : whole.model->parameters().all())
    CHECK(at::allclose(p.master(), parts.model->parameters().find(p.name())->master(), 1e-4, 1e-5));
}

TEST_CASE("every token is scored exactly once, whatever the context") {
  for (auto [tokens, block, context] :
       {std::tuple{100, 7, 0}, {100, 7, 3}, {100, 7, 6}, {5, 7, 6}, {1, 1, 0}, {49, 7, 1}}) {
    std::vector<int> seen(static_cast<size_t>(tokens));
    for (const auto& c : data::make_chunks(tokens, block, context)) {
      CHECK(c.length <= block);
      if (c.first > 0) CHECK(c.scored == context);
      CHECK((c.first + c.scored) % (block - context) == 0);  // fairseq: chunks of n - c, the first one too
      for (int64_t i = c.first + c.scored; i < c.first + c.length; ++i) ++seen[static_cast<size_t>(i)];
    }
    for (int s : seen) CHECK(s == 1);
  }
  CHECK_THROWS_AS(data::make_chunks(10, 5, 5), Error);
}

TEST_CASE("scores do not depend on the batch, and equal a token-by-token evaluation") {
  Config config;
  config.load_text("[model]\nlayers = 1\nwidth = 16\nffn = 32\n[attention]\nheads = 2\n", "test");
  auto model = model::build_language_model(model::ModelConfig::read(config), 6, at::kCPU);
  model->parameters().initialise(1);
  std::vector<int32_t> text;
  for (int i = 0; i < 53; ++i) text.push_back(i * i % 6);
  data::ScoringOptions o;
  o.block = 8, o.context = 5;
  auto score = [&](int64_t batch) {
    o.batch = batch;
    return task::score(*model, corpora::text_of(text, 0), o).nll;
  };
  CHECK(score(1) == Approx(score(4)).epsilon(1e-6));
  CHECK(score(1) == Approx(score(100)).epsilon(1e-6));
  double sum = 0;
  c10::NoGradGuard no_gradient;
  for (const auto& c : data::make_chunks(53, 8, 5))
    for (int64_t i = c.first + c.scored; i < c.first + c.length; ++i) {
      std::vector<int64_t> inputs;
      for (int64_t k = c.first; k <= i; ++k) inputs.push_back(k == 0 ? 0 : text[static_cast<size_t>(k - 1)]);
      at::Tensor x = at::tensor(inputs, at::kLong).unsqueeze(0);
      at::Tensor p = at::log_softmax(model->logits(model->hidden(x, {})), -1);
      sum -= p[0][static_cast<int64_t>(inputs.size()) - 1][text[static_cast<size_t>(i)]].item<double>();
    }
  CHECK(score(1) == Approx(sum).epsilon(1e-5));
}

TEST_CASE("a resume reads every line of a log back, whatever text it holds") {
  Folder folder;
  const std::vector<std::string> parts{
      "\r", "\n", "\t",     std::string(1, '\0'), "\u2028", "\u0085", "\ufeff", "\\", "\"",
      "}",  "a",  "\u00e9", "\U0001F600"};
  RandomSequence random(RandomStream(3, "log"));
  std::vector<nlohmann::ordered_json> written;
  {
    RunFolder run(folder.file("run"), false);
    for (int64_t update = 0; update < 200; ++update) {
      std::string text;
      for (uint64_t n = random.below(6); n > 0; --n) text += parts[random.below(parts.size())];
      written.push_back({{"update", update}, {"configuration", text}});
      run.log(written.back());
    }
    run.rewind_log(199, true);
  }
  const auto read = runs::logged(folder.file("run"));
  REQUIRE(read.size() == written.size());
  for (size_t i = 0; i < read.size(); ++i) CHECK(read[i] == nlohmann::json(written[i]));
}
