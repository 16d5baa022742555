// Optimizers compared with plain loops, batches of a text, training runs, validation, scoring, and the files of a run
// folder.
#include <c10/core/GradMode.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/json_types.h"
#include "base/random.h"
#include "fixtures/corpora.h"
#include "fixtures/passes.h"
#include "fixtures/runs.h"
#include "fixtures/shards.h"
#include "fixtures/status.h"
#include "task/token_score.h"
#include "train/run_folder.h"
#include "train/seeds.h"

using namespace mh;
using namespace mh::train;
using runs::write_text;

namespace {

// Checks 20 updates of a parameter of shape (4) with random gradients against `reference_step`, which updates one
// element in fp64. The arguments of `reference_step` are the number of the update, from 1; the learning rates of this
// update and of the previous update; the gradient; the state, which is the element and its two moments. Each update in
// fp32 takes at most 12 roundings one after another, all of numbers that are not larger than the largest element.
void check_optimizer(TrainOptions options,
                     const std::function<void(int, double, double, double, double*)>& reference_step) {
  nn::ParameterList list(at::kCPU);
  list.add("w", {4}, {nn::Init::normal(1), true, false});
  list.initialise(1);
  at::Tensor& w = list.all().front().master();
  std::vector<std::array<double, 3>> state(4);
  for (int i = 0; i < 4; ++i) state[static_cast<size_t>(i)] = {static_cast<double>(w.detach()[i].item<float>()), 0, 0};
  const ParameterGroups groups;
  Optimizer optimizer(list, options, groups);
  double previous_lr = 0.01;
  for (int update = 1; update <= 20; ++update) {
    const double lr = 0.01 / update, scale = 0.5;
    w.mutable_grad() = at::randn({4});
    for (int i = 0; i < 4; ++i)
      reference_step(update, lr, update == 1 ? lr : previous_lr, scale * static_cast<double>(w.grad()[i].item<float>()),
                     state[static_cast<size_t>(i)].data());
    optimizer.step(lr, scale);
    previous_lr = lr;
    const double bound = tolerance::chain_error_bound(12 * update, tolerance::kFp32, numbers::max_abs(w));
    for (int i = 0; i < 4; ++i)
      CHECK(static_cast<double>(w.detach()[i].item<float>()) ==
            rounding::within(state[static_cast<size_t>(i)][0], bound));
  }
}

}  // namespace

TEST_CASE("adamw, sgd and nag equal plain loops in double precision") {
  TrainOptions options;
  options.optimizer.weight_decay = 0.1;
  options.optimizer.betas = {0.9, 0.98};
  for (const bool decays_all : {true, false}) {  // no effect: the parameter is neither a norm nor a bias
    options.optimizer.decay_norms_and_biases = decays_all;
    check_optimizer(options, [](int n, double lr, double, double g, double* s) {
      s[0] -= lr * 0.1 * s[0];
      s[1] = 0.9 * s[1] + 0.1 * g;
      s[2] = 0.98 * s[2] + 0.02 * g * g;
      s[0] -= lr * (s[1] / (1 - std::pow(0.9, n))) / (std::sqrt(s[2] / (1 - std::pow(0.98, n))) + 1e-8);
    });
  }
  options.optimizer.rule = "sgd";
  options.optimizer.momentum = 0.9;
  check_optimizer(options, [](int, double lr, double, double g, double* s) {
    s[1] = 0.9 * s[1] + g + 0.1 * s[0];
    s[0] -= lr * s[1];
  });
  options.optimizer.rule = "nag";
  options.optimizer.momentum = 0.99;
  check_optimizer(options, [](int, double lr, double previous_lr, double g, double* s) {
    const double m = 0.99, c = lr / previous_lr;
    s[0] = s[0] * (1 - lr * 0.1) + m * m * c * s[1] - (1 + m) * lr * g;
    s[1] = m * c * s[1] - lr * g;
  });
}

namespace {

// Returns a text in which each token determines the next one, so that a model can learn it.
std::vector<int32_t> deterministic_text(int64_t count) {
  std::vector<int32_t> text;
  for (int64_t i = 0; i < count; ++i) text.push_back(static_cast<int32_t>(i % 5 == 4 ? 0 : 2 + i % 5));
  return text;
}

RunConfig tiny_run(const Folder& folder, const std::string& extra_toml) {
  Config config;
  config.load_text(
      "[model]\nlayers = 1\nwidth = 16\nffn_dim = 32\ndropout_ffn = 0.1\n[attention]\nheads = "
      "2\n[train]\nbatch.sequence_length "
      "= "
      "8\nbatch.tokens = 64\nlr = 0.01\n"
      "log_every = '1u'\n" +
          extra_toml + "\n[data]\ntrain = '" + folder.file("t.mhs") + "'\nvalid = '" + folder.file("t.mhs") + "'\n",
      "test");
  return RunConfig::read(config);
}

}  // namespace

TEST_CASE("batches cover every token exactly once per epoch, in a new order each epoch") {
  Folder folder;
  write_text(folder.file("t.mhs"), deterministic_text(1003));
  io::ShardFile shard(folder.file("t.mhs"));
  std::vector<int32_t> text(1003);
  shard.read(0, text);
  TrainOptions options;
  options.batch.sequence_length = 10, options.batch.tokens = 70;
  auto text_batches = corpora::make_batches(corpora::text_of(shard, 0), options);
  data::TextBatches& batches = *text_batches;
  CHECK(batches.updates_per_epoch() == 15);
  std::vector<int64_t> first_order;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::multiset<int64_t> covered_rows;
    std::vector<int64_t> order;
    int64_t num_targets = 0;
    for (int64_t u = 0; u < 15; ++u) {
      auto update = batches.rows_of(epoch * 15 + u);
      std::vector<int64_t> rows;
      for (const auto& row : update.rows) rows.push_back(row.offset / 10);
      data::Batch batch = batches.load(epoch * 15 + u, {0, static_cast<int64_t>(rows.size())});
      CHECK_FALSE(batches.continues_streams(epoch * 15 + u));
      for (size_t r = 0; r < rows.size(); ++r) {
        covered_rows.insert(rows[r]);
        order.push_back(rows[r]);
        for (int64_t t = 0; t < 10; ++t) {
          const int64_t i = rows[r] * 10 + t;
          const auto target = batch.targets[static_cast<int64_t>(r)][t].item<int64_t>();
          if (i >= 1003) {
            CHECK(target == -1);
            continue;
          }
          ++num_targets;
          REQUIRE(target == text[static_cast<size_t>(i)]);
          REQUIRE(batch.input.tokens[static_cast<int64_t>(r)][t].item<int64_t>() ==
                  (i == 0 ? 0 : text[static_cast<size_t>(i - 1)]));
        }
      }
    }
    CHECK(num_targets == 1003);
    CHECK(covered_rows.size() == 101);
    CHECK(std::set<int64_t>(covered_rows.begin(), covered_rows.end()).size() == 101);
    if (epoch == 0) first_order = order;
    else CHECK(order != first_order);
  }
  CHECK(batches.to_updates({2, Length::Unit::epochs}) == 30);
  CHECK(batches.to_updates({701, Length::Unit::tokens}) == 11);
  options.batch.tokens = 9;
  CHECK(status_of([&] { corpora::make_batches(corpora::text_of(shard, 0), options); }) == 2);
}

TEST_CASE("training in fp32 and bf16 reduces the loss of a deterministic text below 0.2 nats per token") {
  Folder folder;
  write_text(folder.file("t.mhs"), deterministic_text(2000));
  for (const char* precision : {"fp32", "bf16"}) {
    const std::string out = folder.file(precision);
    Trainer trainer(tiny_run(folder, str("length = '150u'\nprecision = '", precision, "'")), out, false);
    CHECK(trainer.run() == 0);
    auto loaded = model::load_model(out + "/best.safetensors", at::kCPU);
    const shards::TextShard text = shards::read_tokens(folder.file("t.mhs"));
    data::ScoringOptions scoring_options;
    scoring_options.sequence_length = 8;
    task::NllSum score = task::score(*loaded.model, corpora::text_of(text.tokens, 0), scoring_options);
    CHECK(score.num_tokens == 2000);
    // Each token determines the next token, so the loss of a model that learns this approaches 0; the loss 0.2 means
    // that the right token has a probability of e^-0.2 = 0.82. A model that does not learn has the loss ln 6 = 1.79, a
    // model that learns only the frequencies of the tokens ln 5 = 1.61, since five tokens are equally frequent.
    CHECK(score.nll / 2000 < 0.2);
  }
}

TEST_CASE("training uses all tokens of a text shorter than a batch or a block; a text without tokens is refused") {
  using namespace runs;
  Folder folder;
  for (const char* batching : {"blocks", "streams"})
    for (int64_t num_tokens : {0, 1, 5, 9, 63}) {
      INFO(batching << ' ' << num_tokens);
      runs::write_text(folder.file("t.mhs"), runs::repeating_tokens(num_tokens));
      const std::string name = str(batching, num_tokens),
                        extra_toml = str("[train]\nlength = '3e'\nbatch.order = '", batching, "'\n");
      const bool has_too_few_tokens =
          std::string(batching) == "streams" && num_tokens < 8;  // each of the 8 streams of a batch needs a token
      if (num_tokens == 0 || has_too_few_tokens) {
        std::string message;
        try {
          train_in_folder(folder, name, extra_toml);
        } catch (const Error& error) {
          message = error.what();
        }
        CHECK(message.find(num_tokens == 0 ? "found 0 tokens" : ", the number of tokens in the text") !=
              std::string::npos);
        CHECK_FALSE(std::filesystem::exists(folder.file(name)));
        continue;
      }
      train_in_folder(folder, name, extra_toml);
      io::Checkpoint state(folder.file(name) + "/last.safetensors");
      CHECK(nlohmann::json::parse(state.metadata_entry(io::kTrainingKey))["tokens"] == 3 * num_tokens);
    }
}

TEST_CASE("a validation text without tokens is refused", "[train]") {
  using namespace runs;
  Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::repeating_tokens(63));
  runs::write_text(folder.file("empty.mhs"), {});
  const std::string extra_toml = "[train]\nlength = '1u'\n[data]\nvalid = '" + folder.file("empty.mhs") + "'\n";
  CHECK(status_of([&] { train_in_folder(folder, "run", extra_toml); }) == 3);
  CHECK_FALSE(std::filesystem::exists(folder.file("run")));
}

TEST_CASE("warmup_ratio is a fraction of the length of the learning-rate schedule", "[train]") {
  using namespace runs;
  Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::repeating_tokens(400));
  const std::string ratio =
      "[train]\nlr = 0.002\nschedule.warmup_ratio = 0.2\nschedule.warmup_lr = 0\nschedule.rule = 'linear'\nlog_every = "
      "'1u'\n";
  train_in_folder(folder, "share", ratio + "length = '20u'\n");
  train_in_folder(folder, "longer", ratio + "length = '6u'\nschedule.length = '40u'\n");
  const auto rates = [&](const std::string& name) {
    std::vector<double> rates_of_run;
    for (const auto& line : read_log(folder.file(name), "lr")) rates_of_run.push_back(line["lr"]);
    return rates_of_run;
  };
  // Fractions of lr whose denominators are powers of 2 are exact.
  CHECK(rates("share").at(2) == 0.001);
  CHECK(rates("share").at(4) == 0.002);
  CHECK(rates("share").at(12) == 0.001);
  CHECK(rates("longer").at(2) == 0.0005);
  TrainOptions ratio_and_length;
  ratio_and_length.schedule.warmup_ratio = 0.1, ratio_and_length.schedule.warmup = {3, Length::Unit::updates};
  CHECK(refusal([&] { ratio_and_length.check(); }).find("train.schedule.warmup_ratio") != std::string::npos);
}

TEST_CASE("patience counts validations that improve perplexity by less than min_improvement as failures") {
  using namespace runs;
  Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::repeating_tokens(400));
  const std::string base = "[train]\nlr = 0.002\nvalidation.every = '1u'\n", full_length = base + "length = '40u'\n";
  auto perplexities = [&](const std::string& name) {
    std::vector<double> perplexities_of_run;
    for (const auto& line : read_log(folder.file(name), "valid_nll"))
      perplexities_of_run.push_back(line["valid_perplexity"]);
    return perplexities_of_run;
  };
  train_in_folder(folder, "all", full_length);
  const auto full_run = perplexities("all");
  REQUIRE(full_run.size() == 40);
  std::set<size_t> stops;
  for (double min_improvement : {0.0, 0.05, 0.15, 0.4}) {
    INFO(min_improvement);
    // `expected` is the number of validations until patience is exhausted, computed from the perplexities of the full
    // run. Improvement is relative to the last validation that reset the patience.
    double reference = INFINITY, best = INFINITY;
    size_t expected = 0;
    for (int failures = 0; expected < full_run.size() && failures < 3; ++expected) {
      const double perplexity = full_run[expected];
      const bool improves = perplexity < best && (min_improvement == 0 || reference - perplexity >= min_improvement);
      best = std::min(best, perplexity);
      if (improves) reference = perplexity;
      failures = improves ? 0 : failures + 1;
    }
    const std::string name = std::to_string(min_improvement),
                      rule = str("validation.patience = 3\nvalidation.min_improvement = ", min_improvement, "\n");
    train_in_folder(folder, name, full_length + rule);
    CHECK(perplexities(name).size() == expected);
    stops.insert(expected);
    // A run that is resumed from update 5 ends at the same validation.
    train_in_folder(folder, name + "-halves", base + "length = '5u'\n" + rule);
    train_in_folder(folder, name + "-halves", full_length + rule, true);
    CHECK(perplexities(name + "-halves").size() == expected);
    // The best perplexity counts every improvement, however small.
    const auto state =
        nlohmann::json::parse(io::Checkpoint(folder.file(name) + "/last.safetensors").metadata_entry(io::kTrainingKey));
    CHECK(std::exp(state["best"].get<double>()) == best);
  }
  CHECK(stops.size() >= 3);
}

TEST_CASE("gradient accumulation over micro-batches gives the update of the full batch") {
  Folder folder;
  write_text(folder.file("t.mhs"), deterministic_text(2000));
  auto weights = [&](const std::string& name, const std::string& extra_toml) {
    return runs::run(tiny_run(folder, "length = '5u'\noptimizer.rule = 'sgd'\n" + extra_toml), folder.file(name));
  };
  // The runs use SGD, since Adam would amplify rounding to full steps where the gradient is almost zero, as for key
  // biases. With momentum below 1, update i moves an element by at most i lr times the largest gradient so far, which
  // is below 1 nat per token here; the gradients differ by the rounding of a forward and backward pass.
  auto full_batch = weights("whole", ""), micro_batches = weights("parts", "batch.micro_tokens = 16");
  const double gradient_difference = rounding::gradient_bound(*full_batch.model, 8), lr = 0.01;
  for (auto& p : full_batch.model->parameters().all()) {
    const double bound = rounding::bound(at::kFloat, at::kFloat, 2 * 5, numbers::max_abs(p.master())) +
                         (1 + 2 + 3 + 4 + 5) * lr * gradient_difference;
    CHECK(numbers::error(p.master(), micro_batches.model->parameters().find(p.name())->master()) <= bound);
  }
}

TEST_CASE("runs with and without train.recompute end with the same weights, bit for bit") {
  Folder folder;
  write_text(folder.file("t.mhs"), deterministic_text(2000));
  // The gates of a mixture of experts have running statistics, which the recomputation must not update a second time.
  int number = 0;
  for (const std::string model :
       {"precision = 'fp32'\n", "precision = 'bf16'\n",
        "[attention]\ncombiner = 'mae'\nmae.hidden = 8\n[train.procedures.block-coordinate]\nevery = 2\n"}) {
    INFO(model);
    ++number;
    auto weights = [&](const std::string& name, const std::string& extra_toml) {
      return runs::train_in_folder(folder, str(name, number),
                                   "[train]\nlength = '6u'\nbatch.micro_tokens = 32\n" + extra_toml + model);
    };
    auto expected = weights("kept", ""), actual = weights("recomputed", "recompute = true\n");
    for (const auto& p : expected.model->parameters().all()) {
      INFO(p.name());
      CHECK(at::equal(actual.model->parameters().find(p.name())->master(), p.master()));
    }
  }
}

TEST_CASE("scoring a text in chunks scores every token exactly once for any context length") {
  for (auto [num_tokens, sequence_length, context] :
       {std::tuple{100, 7, 0}, {100, 7, 3}, {100, 7, 6}, {5, 7, 6}, {1, 1, 0}, {49, 7, 1}}) {
    std::vector<int> times_scored(static_cast<size_t>(num_tokens));
    for (const auto& c : data::make_chunks(num_tokens, sequence_length, context)) {
      CHECK(c.length <= sequence_length);
      if (c.offset > 0) CHECK(c.num_context == context);
      CHECK((c.offset + c.num_context) % (sequence_length - context) ==
            0);  // as in fairseq, chunks advance by `sequence_length - context` tokens, also from the first chunk to
                 // the second
      for (int64_t i = c.offset + c.num_context; i < c.offset + c.length; ++i) ++times_scored[static_cast<size_t>(i)];
    }
    for (int times : times_scored) CHECK(times == 1);
  }
  CHECK(status_of([&] { data::make_chunks(10, 5, 5); }) == 2);
}

TEST_CASE("scores are independent of the batch size and equal a token-by-token evaluation") {
  Config config;
  config.load_text("[model]\nlayers = 1\nwidth = 16\nffn_dim = 32\n[attention]\nheads = 2\n", "test");
  auto model = model::build_language_model(model::ModelConfig::read(config), {6}, at::kCPU);
  model->parameters().initialise(1);
  std::vector<int32_t> text;
  for (int i = 0; i < 53; ++i) text.push_back(i * i % 6);
  data::ScoringOptions options;
  options.sequence_length = 8, options.context = 5;
  auto score = [&](int64_t batch) {
    options.batch = batch;
    return task::score(*model, corpora::text_of(text, 0), options).nll;
  };
  const double bound = rounding::pass_bound(*model, 8) * score(1);
  CHECK(score(1) == rounding::within(score(4), bound));
  CHECK(score(1) == rounding::within(score(100), bound));
  double sum = 0;
  c10::NoGradGuard no_gradient;
  for (const auto& c : data::make_chunks(53, 8, 5))
    for (int64_t i = c.offset + c.num_context; i < c.offset + c.length; ++i) {
      std::vector<int64_t> inputs;
      for (int64_t k = c.offset; k <= i; ++k) inputs.push_back(k == 0 ? 0 : text[static_cast<size_t>(k - 1)]);
      at::Tensor x = at::tensor(inputs, at::kLong).unsqueeze(0);
      at::Tensor log_p = at::log_softmax(model->logits(model->hidden(model::Input{x}, {})), -1);
      sum -= log_p[0][static_cast<int64_t>(inputs.size()) - 1][text[static_cast<size_t>(i)]].item<double>();
    }
  CHECK(score(1) == rounding::within(sum, bound));
}

TEST_CASE("a run refuses symbolic links among its files and changes no file through them") {
  const Folder folder;
  write_file_atomically(folder.file("other"), "other");
  std::filesystem::create_directory(folder.path / "others");
  for (const char* name : {"lock", "config.toml", "log.jsonl", "last.safetensors", "best.safetensors",
                           "diverged.safetensors", "checkpoints", "checkpoints/update-000000001.safetensors"})
    for (const char* target : {"other", "others", "missing"}) {
      const std::filesystem::path run = folder.path / "run", link = run / name;
      std::filesystem::create_directories(link.parent_path());
      std::filesystem::create_symlink(folder.path / target, link);
      CHECK(status_of([&] { RunFolder(run.string(), false); }) == 3);
      CHECK(std::distance(std::filesystem::directory_iterator(run), {}) == 1);
      std::filesystem::remove_all(run);
    }
  std::filesystem::create_directory_symlink(folder.path / "others", folder.path / "seed1");
  CHECK(status_of([&] { check_seed_folders({folder.path.string(), 1, 1, true}); }) == 3);
  CHECK(read_text_file(folder.file("other")) == "other");
  CHECK(std::filesystem::is_empty(folder.path / "others"));
  CHECK_FALSE(std::filesystem::exists(folder.path / "missing"));
  // The run folder itself may be a link.
  CHECK(status_of([&] { RunFolder(folder.file("seed1"), false); }) == 0);
}

TEST_CASE(
    "a run folder names the present owner of its lock, not the owner in an earlier run, and clears the lock at the "
    "end") {
  const Folder folder;
  const std::string path = folder.file("run"), lock_file = path + "/lock";
  {
    const RunFolder run(path, false);
    CHECK_THROWS_WITH(RunFolder(path, false), Catch::Contains(str("process ", getpid(), " on ")));
  }
  CHECK(read_text_file(lock_file).empty());
  // The folder is locked, but its lock file still names an earlier owner, a process that has ended.
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  std::ofstream(lock_file) << "process " << child << " on " << host << "\n";
  const int descriptor = open_descriptor(lock_file, O_RDONLY);
  REQUIRE(flock(descriptor, LOCK_EX | LOCK_NB) == 0);
  std::thread owner([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::ofstream(lock_file) << "process 1 on " << host << "\n";
  });
  CHECK_THROWS_WITH(RunFolder(path, false), Catch::Contains(str("process 1 on ", host, ";")));
  owner.join();
  close(descriptor);
}

TEST_CASE("a resume deletes the checkpoints that a killed run no longer retained") {
  Folder folder;
  write_text(folder.file("t.mhs"), deterministic_text(600));
  const auto train = [&](const std::string& retain_by, bool resume) {
    const std::string toml = "length = '3u'\nvalidation.every = '1u'\ncheckpoint.retain = 2\ncheckpoint.retain_by = '";
    runs::run(tiny_run(folder, toml + retain_by + "'\n"), folder.file("run"), resume);
  };
  const std::filesystem::path checkpoints = folder.path / "run/checkpoints";
  const auto names_of_checkpoints = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoints))
      names.insert(entry.path().filename().string());
    return names;
  };
  train("best", false);
  const std::set<std::string> retained = names_of_checkpoints();
  REQUIRE(retained.size() == 2);
  // A run that is killed between saving its state and deleting old checkpoints leaves a checkpoint that the state does
  // not retain.
  const auto add_checkpoint = [&] {
    std::filesystem::copy(folder.path / "run/last.safetensors", checkpoints / "update-000000000.safetensors");
  };
  add_checkpoint();
  train("best", true);
  CHECK(names_of_checkpoints() == retained);
  // With the rule "newest", the run deletes older checkpoints when it saves a new one.
  add_checkpoint();
  train("newest", true);
  CHECK(names_of_checkpoints().size() == 3);
}

TEST_CASE("several seeds lock their folder, and a resume begins the runs that have not begun") {
  Folder folder;
  const std::string path = folder.file("runs");
  const SeedRuns runs{path, 1, 3, true};
  CHECK(runs.first_new_seed() == 1);
  {
    const SeedFolder seed_folder(runs);
    CHECK(status_of([&] { SeedFolder{runs}; }) == 1);
    CHECK_THROWS_WITH(SeedFolder(runs), Catch::Contains(str("process ", getpid(), " on ")));
  }
  CHECK_FALSE(std::filesystem::exists(path));  // an error before the first run leaves no folder
  {
    const SeedFolder seed_folder(runs);
    std::filesystem::create_directories(runs.folder_of(1));
    write_file_atomically(runs.folder_of(1) + "/config.toml", "");
    std::filesystem::create_directories(runs.folder_of(2));  // a run killed before it wrote config.toml
    CHECK(runs.resumes(1));
    CHECK_FALSE(runs.resumes(2));
    CHECK_FALSE(runs.resumes(3));
    CHECK(runs.first_new_seed() == 2);
    CHECK(status_of([&] { check_seed_folders(runs); }) == 0);
    CHECK(status_of([&] { check_seed_folders({path, 1, 3, false}); }) == 2);
    CHECK_FALSE(SeedRuns{path, 1, 3, false}.resumes(1));
  }
  CHECK(std::filesystem::exists(path + "/lock"));
}

TEST_CASE("resume keeps log lines with control characters, quotes and non-ASCII text unchanged") {
  Folder folder;
  const std::vector<std::string> characters{
      "\r", "\n", "\t",     std::string(1, '\0'), "\u2028", "\u0085", "\ufeff", "\\", "\"",
      "}",  "a",  "\u00e9", "\U0001F600"};
  RandomSequence random(RandomStream(3, "log"));
  std::vector<nlohmann::ordered_json> written_lines;
  {
    RunFolder run(folder.file("run"), false);
    for (int64_t update = 0; update < 200; ++update) {
      std::string text;
      for (uint64_t n = random.uniform_below(6); n > 0; --n)
        text += characters[random.uniform_below(characters.size())];
      written_lines.push_back({{"update", update}, {"configuration", text}});
      run.log(written_lines.back());
    }
    run.rewind_log(199, true);
  }
  const auto log_lines = runs::read_log(folder.file("run"));
  REQUIRE(log_lines.size() == written_lines.size());
  for (size_t i = 0; i < log_lines.size(); ++i) CHECK(log_lines[i] == nlohmann::json(written_lines[i]));
}
