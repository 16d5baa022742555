// Learning-rate schedules, compared with the schedules of transformers, BERT, Transformer-XL, Skip Cross-Head
// Transformer-XL and fairseq.
#include <cmath>
#include <limits>

#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "fixtures/within.h"

using namespace mh;
using namespace mh::train;

namespace {

// Number of roundings in sequence in a rate low + (high - low) (1 + cos(π t)) / 2: 8 for the difference, the quotient
// t, the product, the cosine and four more operations, and 4 more since the phase π t is up to 4 π, so that its
// rounding error can exceed one rounding of the cosine.
constexpr int64_t kCosineOperations = 8 + 4;

TrainOptions train_options(const std::string& schedule, double lr, double warmup_lr = 0, double min_lr = 0) {
  TrainOptions options;
  options.schedule.rule = schedule, options.lr = lr, options.schedule.warmup_lr = warmup_lr,
  options.schedule.min_lr = min_lr;
  return options;
}

// Checks that updates 1, 2, … of a run have the learning rates `expected` to 9 significant digits.
void check_rates(const TrainOptions& options, const ScheduleLengths& lengths, const std::vector<double>& expected) {
  for (size_t update = 1; update <= expected.size(); ++update) {
    INFO(options.schedule.rule << " from " << options.schedule.decay_from << ", update " << update);
    CHECK(learning_rate(options, lengths, static_cast<int64_t>(update) - 1) ==
          rounding::printed(expected[update - 1], 9));
  }
}

}  // namespace

// transformers 4.57: get_linear_schedule_with_warmup and get_cosine_schedule_with_warmup, 10 training steps, of which 0
// or 4 are warm-up.
TEST_CASE("linear and cosine decay after warm-up equal the schedules of transformers") {
  check_rates(train_options("linear", 1), {0, 10, 0}, {1, .9, .8, .7, .6, .5, .4, .3, .2, .1});
  check_rates(train_options("linear", 1), {4, 10, 0}, {0, .25, .5, .75, 1, 5 / 6., 4 / 6., .5, 2 / 6., 1 / 6.});
  const double high = (1 + std::sqrt(.75)) / 2;
  check_rates(train_options("cosine", 1), {4, 10, 0}, {0, .25, .5, .75, 1, high, .75, .5, .25, 1 - high});
}

// google-research/bert, optimization.py: the rate decays to 0 by polynomial_decay of the global step, and is
// lr · step / W instead during the W warm-up steps.
TEST_CASE("linear decay from the first update equals the schedule of BERT") {
  TrainOptions options = train_options("linear", 1);
  options.schedule.decay_from = "start";
  check_rates(options, {4, 10, 0}, {0, .25, .5, .75, .6, .5, .4, .3, .2, .1});
  check_rates(options, {0, 2, 0}, {1, .5});
  // BERT's fine-tuning on MRPC: 343 updates, 34 of them warm-up, learning rate 2e-5.
  options.lr = 2e-5;
  CHECK(learning_rate(options, {34, 343, 0}, 33) == rounding::fp64(2e-5 * 33 / 34, 4));
  CHECK(learning_rate(options, {34, 343, 0}, 34) == rounding::fp64(2e-5 * 309 / 343, 4));
}

// BERT: int(538 · 0.1); transformers: ceil(538 · 0.1). BERT's fine-tuning on STS-B has 538 updates.
TEST_CASE("warmup_ratio is rounded down as in BERT for decay from the start, else up as in transformers") {
  TrainOptions options = train_options("linear", 1);
  options.schedule.warmup_ratio = 0.1;
  CHECK(warmup_from_ratio(options, 538) == 54);
  CHECK(warmup_from_ratio(options, 540) == 54);
  CHECK(warmup_from_ratio(options, 531) == 54);
  options.schedule.decay_from = "start";
  CHECK(warmup_from_ratio(options, 538) == 53);
  CHECK(warmup_from_ratio(options, 540) == 54);
}

// Transformer-XL's training loop with PyTorch's CosineAnnealingLR, for 10 updates. The loop sets the rate after each
// update and counts updates from 0.
TEST_CASE("cosine decay from the first update equals the schedule of Transformer-XL") {
  TrainOptions options = train_options("cosine", 1);
  options.schedule.decay_from = "start";
  check_rates(options, {4, 10, 0},
              {1, .25, .5, .75, .6545084972, .5, .3454915028, .2061073739, .0954915028, .0244717419});
  options.lr = 2.5e-4;
  CHECK(learning_rate(options, {0, 200000, 0}, 0) == 2.5e-4);
  CHECK(learning_rate(options, {0, 200000, 0}, 100000) == rounding::fp64(1.25e-4, kCosineOperations));
  CHECK(learning_rate(options, {20000, 500000, 0}, 20000) ==
        rounding::fp64(1.25e-4 * (1 + std::cos(M_PI / 25)), kCosineOperations));
}

// Transformer-XL's training loop with half cosines that are as long as the warm-up of 4 updates.
TEST_CASE("cyclic-cosine equals the schedule of Skip Cross-Head Transformer-XL") {
  check_rates(train_options("cyclic-cosine", 1), {4, 0, 4},
              {1, .25, .5, .75, 0, .1464466094, .5, .8535533906, 1, .8535533906, .5, .1464466094, 0});
  const TrainOptions options = train_options("cyclic-cosine", 2.5e-4);
  for (auto [num_completed, rate] :
       {std::pair{8000, 1.25e-4}, {16000, 0.0}, {24000, 1.25e-4}, {32000, 2.5e-4}, {48000, 0.0}, {64000, 2.5e-4}})
    CHECK(learning_rate(options, {16000, 0, 16000}, num_completed) ==
          rounding::within(rate, rounding::fp64_bound(kCosineOperations, options.lr)));
}

// fairseq computes the rate of an update from the number of completed updates, so that the first update has the rate at
// the start of the warm-up.
TEST_CASE("inverse-sqrt and cosine with periods equal the schedules of fairseq") {
  TrainOptions options = train_options("inverse-sqrt", 5e-4, 1e-7);
  for (auto [num_completed, rate] :
       {std::pair{0, 1e-7}, {1, 2.24975e-7}, {2000, 2.5005e-4}, {4000, 5e-4}, {16000, 2.5e-4}, {50000, 1.41421e-4}})
    CHECK(learning_rate(options, {4000, 0, 0}, num_completed) == rounding::printed(rate, 6));
  CHECK(learning_rate(options, {0, 0, 0}, 0) == 5e-4);  // no reference: fairseq requires a warm-up
  // Baevski & Auli: 1e-7 to 1 over 16000 updates, then cycles of 270000 · 2^i, rates multiplied by .75^i.
  options = train_options("cosine", 1, 1e-7, 1e-4);
  options.schedule.period_growth = 2, options.schedule.period_shrink = 0.75;
  const ScheduleLengths lengths{16000, 286000, 270000};
  for (auto [num_completed, rate] : {std::pair{0, 1e-7},
                                     {16000, 1.0},
                                     {83500, .853568},
                                     {151000, .50005},
                                     {218500, .146532},
                                     {285999, 1.0000e-4},
                                     {286000, .75}})
    CHECK(learning_rate(options, lengths, num_completed) == rounding::printed(rate, 6));
}

// BERT's pre-training in two runs of google-research/bert, optimization.py: the second run counts its steps from 0.
TEST_CASE("a schedule with a restart equals the schedules of BERT's two runs of pre-training") {
  TrainOptions options = train_options("linear", 1);
  options.schedule.decay_from = "start";
  check_rates(options, {2, 16, 0, 10, 3}, {0, .5, .8, .7, .6, .5, .4, .3, .2, .1, 0, 1 / 3., 2 / 3., 3 / 6., 2 / 6.});
  options.lr = 1e-4;
  // 450,000 updates with 5,000 of warm-up, then 50,000 with 3,000 of warm-up.
  const ScheduleLengths lengths{5000, 500000, 0, 450000, 3000};
  for (auto [num_completed, rate] : {std::pair{2500, 5e-5},
                                     {225000, 5e-5},
                                     {449999, 1e-4 / 450000},
                                     {450000, 0.0},
                                     {451500, 5e-5},
                                     {453000, 9.4e-5},
                                     {475000, 5e-5},
                                     {500000, 0.0}})
    CHECK(learning_rate(options, lengths, num_completed) == rounding::within(rate, rounding::fp64_bound(4, 1e-4)));
}

TEST_CASE("with a restart, the first and the second schedule equal those of two runs of their lengths") {
  for (const char* rule : {"constant", "inverse-sqrt", "linear", "cosine", "cyclic-cosine"}) {
    TrainOptions options = train_options(rule, 0.5, 1e-3, 1e-2);
    const int64_t period = std::string(rule) == "cyclic-cosine" ? 4 : 0;
    const ScheduleLengths whole{3, 30, period, 18, 5}, first{3, 18, period}, second{5, 12, period};
    for (int64_t c = 0; c <= 30; ++c) {
      INFO(rule << " after " << c << " updates");
      CHECK(learning_rate(options, whole, c) ==
            (c < 18 ? learning_rate(options, first, c) : learning_rate(options, second, c - 18)));
    }
  }
}

TEST_CASE("a restart of the schedule is refused within the first warm-up, at the end, and if it has no effect") {
  const auto to_updates = [](const Length& length) { return length.count; };
  const auto updates = [](int64_t count) { return Length{count, Length::Unit::updates}; };
  const auto error_of = [&](int64_t warmup, int64_t restart, int64_t restart_warmup, const char* rule = "linear") {
    TrainOptions options = train_options(rule, 1);
    options.schedule.warmup = updates(warmup), options.schedule.restart = updates(restart);
    options.schedule.restart_warmup = updates(restart_warmup);
    return refusal([&] {
      options.check();
      schedule_lengths(options, 100, to_updates);
    });
  };
  CHECK(error_of(10, 90, 9) == "");
  CHECK(error_of(10, 10, 5).find("train.schedule.restart: expected more than the warm-up, 10 updates") !=
        std::string::npos);
  CHECK(error_of(10, 90, 10).find("90u and train.schedule.restart_warmup=10u") != std::string::npos);
  CHECK(error_of(10, 100, 0).find("before the end of the schedule, 100 updates") != std::string::npos);
  CHECK(error_of(10, 90, std::numeric_limits<int64_t>::max()).find("before the end of the schedule") !=
        std::string::npos);
  CHECK(error_of(10, 90, 0, "constant").find("train.schedule.restart_warmup above 0u") != std::string::npos);
  CHECK(error_of(10, 90, 5, "constant") == "");
  CHECK(error_of(10, 0, 5).find("train.schedule.restart_warmup: expected 0u") != std::string::npos);
  // The first warm-up of warmup_ratio is a part of the first schedule.
  TrainOptions options = train_options("linear", 1);
  options.schedule.warmup_ratio = 0.1, options.schedule.restart = updates(50);
  CHECK(schedule_lengths(options, 100, to_updates).warmup == 5);
}

TEST_CASE("decay_from = start is refused for schedules without a decay to the end of training") {
  for (const char* schedule : {"constant", "inverse-sqrt", "cyclic-cosine"}) {
    TrainOptions options = train_options(schedule, 1);
    options.schedule.decay_from = "start";
    CHECK(refusal([&] { options.check(); }).find("train.schedule.decay_from") != std::string::npos);
  }
  TrainOptions options = train_options("cosine", 1);
  options.schedule.decay_from = "start", options.schedule.period = {5, Length::Unit::updates};
  CHECK(refusal([&] { options.check(); }).find("train.schedule.period=5u") != std::string::npos);
}

// Checks the learning rates that the trainer logs, in runs of 10 updates and of a single update, and that the single
// update changes the weights.
TEST_CASE("a schedule that decays to 0 gives no update the learning rate 0, not even in a run of a single update") {
  using namespace runs;
  Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::repeating_tokens(400));
  for (const std::string schedule : {"linear", "cosine"}) {
    const std::string options = "[train]\nlog_every = '1u'\nschedule.rule = '" + schedule + "'\n";
    const auto rates = [&](const std::string& name) {
      std::vector<double> rates_of_run;
      for (const auto& line : read_log(folder.file(name), "lr")) rates_of_run.push_back(line["lr"]);
      return rates_of_run;
    };
    train_in_folder(folder, schedule + "10", options + "length = '10u'\n");
    const std::vector<double> rates_of_10 = rates(schedule + "10");
    REQUIRE(rates_of_10.size() == 10);
    CHECK(rates_of_10.front() == 0.01);
    CHECK(rates_of_10.back() > 0);
    train_in_folder(folder, schedule + "1", options + "length = '1u'\n");
    CHECK(rates(schedule + "1") == std::vector<double>{0.01});
    train_in_folder(folder, schedule + "0", options + "length = '1u'\nlr = 0\n");
    auto model_before = model::load_model(folder.file(schedule + "0") + "/last.safetensors", at::kCPU);
    auto model_after = model::load_model(folder.file(schedule + "1") + "/last.safetensors", at::kCPU);
    const std::string name = "decoder.layers.0.self.query.weight";
    CHECK_FALSE(find(model_before, name).equal(find(model_after, name)));
  }
}
