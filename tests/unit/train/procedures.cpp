// Parameter groups and procedures, and bit-identical resume of runs with each of the methods of toml_by_method() below.
// In block coordinate descent, a G pass trains the gates of the mixture of experts and an F pass trains all other
// parameters.
#include <catch2/catch.hpp>
#include <filesystem>

#include "attention/layer.h"
#include "base/error.h"
#include "fixtures/rounding.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "fixtures/within.h"

using namespace mh;
using namespace mh::train;
using namespace runs;

namespace {

// Returns the configurations of the training methods that the resume test covers, by name.
const std::map<std::string, std::string>& toml_by_method() {
  static const std::map<std::string, std::string> configurations{
      {"groups",
       "[train.groups.norms]\nmatch = ['*.norm.*']\nrule = 'sgd'\nlr = 0.5\n"
       "[train.groups.late]\nmatch = ['*.ffn.up.*']\nfreeze_until = '7u'\n"},
      {"orthogonal by position",
       "[attention]\nmixer = 'mixhead-b'\n[train.regularisers.orthogonal-mixing]\nweight = 0.1\nof = 'positions'\n"},
      {"hard-concrete",
       "[attention]\ncombiner = 'hard-concrete'\n[train.regularisers.hard-concrete-penalty]\nweight = 0.1\n"},
      {"rotation", "[train.procedures.head-rotation]\nmode = 'soft'\nk = 1\nfrequency = 1\n"},
      {"experts drawn evenly", "[attention]\ncombiner = 'mae'\n[attention.mae]\ngate = 'uniform'\n"},
      {"orthogonal", "[attention]\nmixer = 'mixhead-a'\n[train.regularisers.orthogonal-mixing]\nweight = 0.1\n"},
      {"nuclear",
       "[attention]\ncombiner = 'alphas'\n[train.regularisers.nuclear-growth]\nweight = 0.05\nstart = 0.4\n"},
      {"disagreement", "[train.regularisers.disagreement]\nweight = 0.1\n"},
      {"positions", "[train.regularisers.disagreement]\nweight = 0.1\nof = 'positions'\n"},
      {"overlap", "[train.regularisers.subspace-overlap]\nweight = 0.1\n"},
      {"experts",
       "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n[train.procedures.block-coordinate]\nevery = 2\n"
       "[train.groups.gates]\nmatch = ['*.gate.*']\nrule = 'sgd'\nlr = 1.0\n"},
      {"load balance",
       "[attention]\ncombiner = 'mixture-of-heads'\n[attention.mixture-of-heads]\nshared = 1\nchosen = 1\n"
       "[train.regularisers.head-balance]\nweight = 0.1\n"},
      {"cross-head", "[attention]\npairing = 'cross-head'\n[attention.cross-head]\nrate = 0.5\n"}};
  return configurations;
}

std::string add_length(const std::string& extra_toml, int updates) {
  return extra_toml + "[train]\nlength = '" + std::to_string(updates) + "u'\nschedule.length = '16u'\n";
}

}  // namespace

TEST_CASE("resume of a run with any training method gives bit-identical weights", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  for (const auto& [name, extra_toml] : toml_by_method()) {
    INFO(name);
    auto uninterrupted = train_in_folder(folder, name, add_length(extra_toml, 16));
    train_in_folder(folder, name + "-halves", add_length(extra_toml, 9));
    auto resumed = train_in_folder(folder, name + "-halves", add_length(extra_toml, 16), true);
    for (auto& p : uninterrupted.model->parameters().all()) {
      INFO(p.name());
      CHECK(at::equal(p.master(), find(resumed, p.name())));
    }
  }
}

TEST_CASE("frozen parameters do not change, and Adam's bias correction starts when a parameter is unfrozen",
          "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  auto start = train_in_folder(folder, "start", "[train]\nlength = '1u'\nlr = 0.0\n");
  auto frozen_run = train_in_folder(
      folder, "frozen", "[train]\nlength = '5u'\n[train.groups.x]\nmatch = ['*.self.*', '*.ffn.*']\nfrozen = true\n");
  auto late_run = train_in_folder(
      folder, "late", "[train]\nlength = '5u'\n[train.groups.x]\nmatch = ['*.self.*']\nfreeze_until = '5u'\n");
  for (auto& p : start.model->parameters().all()) {
    INFO(p.name());
    const bool in_attention = matches_pattern("*.self.*", p.name()), in_ffn = matches_pattern("*.ffn.*", p.name());
    CHECK(at::equal(p.master(), find(frozen_run, p.name())) == (in_attention || in_ffn));
    CHECK(at::equal(p.master(), find(late_run, p.name())) == in_attention);
  }
  // Adam's first step is lr g / (|g| + ε) for the gradient g, since the bias correction counts the steps of the
  // parameter instead of the steps of the run. The first moment of the first step is (1 - β₁) g.
  auto unfrozen_run = train_in_folder(
      folder, "thawed",
      "[train]\nlength = '6u'\n[train.groups.x]\nmatch = ['*.self.query.weight']\nfreeze_until = '5u'\n");
  const std::string query = "decoder.layers.0.self.query.weight";
  at::Tensor moment = at::empty({16, 16});
  model::load_tensor(io::Checkpoint(folder.file("thawed") + "/last.safetensors"), "optimizer." + query + ".first",
                     moment);
  const OptimizerOptions options;
  const double lr = 0.01, beta1 = options.betas[0], beta2 = options.betas[1],
               largest_gradient = numbers::max_abs(moment) / (1 - beta1);
  const at::Tensor first_step = find(unfrozen_run, query) - find(start, query);
  // The difference of two weights has one rounding of a weight, and the step has about 10 roundings. With β in fp32,
  // 1 - β has the relative error kFp32 / (1 - β).
  const double step_error = tolerance::chain_error_bound(10, tolerance::kFp32, lr) +
                            lr * tolerance::kFp32 * (1 / (1 - beta1) + 0.5 / (1 - beta2));
  CHECK(numbers::max_abs(first_step) ==
        rounding::within(lr * largest_gradient / (largest_gradient + options.epsilon),
                         step_error + tolerance::chain_error_bound(2, tolerance::kFp32,
                                                                   numbers::max_abs(find(unfrozen_run, query)))));
  CHECK(status_of([&] {
          train_in_folder(folder, "none", "[train]\nlength = '1u'\n[train.groups.x]\nmatch = ['*.slef.*']\n");
        }) == 2);
  CHECK(status_of([&] {
          train_in_folder(folder, "all", "[train]\nlength = '1u'\n[train.groups.x]\nmatch = ['*']\nfrozen = true\n");
        }) == 2);
}

TEST_CASE("block coordinate descent trains gates only in some epochs, and other parameters in every epoch",
          "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));  // 7 updates per epoch
  const std::string& extra_toml = toml_by_method().at("experts");
  auto start = train_in_folder(folder, "start", extra_toml + "[train]\nlength = '1u'\nlr = 0.0\n");
  auto first = train_in_folder(folder, "first", add_length(extra_toml, 7)),
       second = train_in_folder(folder, "second", add_length(extra_toml, 14));
  for (auto& p : start.model->parameters().all()) {
    if (!matches_pattern("*.gate.*", p.name())) {
      CHECK_FALSE(at::equal(find(first, p.name()), find(second, p.name())));
      continue;
    }
    INFO(p.name());
    // Epoch 1 (counted from 0) has only passes that do not train gates.
    CHECK(at::equal(find(first, p.name()), find(second, p.name())));
  }
  CHECK(status_of([&] {
          train_in_folder(folder, "none", "[train]\nlength = '1u'\n[train.procedures.block-coordinate]\nevery = 5\n");
        }) == 2);
}

TEST_CASE(
    "training the gates between two passes of the other parameters does not change the momentum of these parameters",
    "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  // Gates do not change at learning rate 0, so an update with a pass of the gates (G) and a pass of the other
  // parameters (F) equals an update with only the second pass.
  const std::string method =
      "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\ndropout = 0.0\nnorm_statistics = 'batch'\n"
      "[train]\nlength = '9u'\nschedule.warmup = '9u'\noptimizer.rule = 'nag'\n"
      "[train.groups.gates]\nmatch = ['*.gate.*']\nrule = 'sgd'\nlr_factor = 0.0\n"
      "[train.procedures.block-coordinate]\nevery = 1\nfirst = ";
  auto both_passes = train_in_folder(folder, "both", method + "0\n"),
       f_pass = train_in_folder(folder, "alone", method + "1000\n");
  for (auto& p : both_passes.model->parameters().all()) {
    INFO(p.name());
    if (!matches_pattern("*.gate.*", p.name())) CHECK(at::equal(p.master(), find(f_pass, p.name())));
  }
}

TEST_CASE("a run is refused if a pass of any epoch would train only frozen parameters", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));  // 7 updates per epoch
  int number = 0;
  auto start_error = [&](const std::string& group, const std::string& procedure) {
    const std::string out = folder.file(std::to_string(number++));
    std::string message;
    try {
      Trainer(config_of(folder,
                        "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n[train]\nlength = '30u'\n"
                        "[train.groups.x]\n" +
                            group + "\n[train.procedures.block-coordinate]\n" + procedure),
              out, false);
    } catch (const Error& error) {
      message = error.what();
      CHECK(error.exit() == Exit::usage);
    }
    CHECK(std::filesystem::exists(out) == message.empty());
    return message;
  };
  const std::string gates = "match = ['*.gate.*']\n", frozen_message = "only frozen parameters";
  auto contains = [](const std::string& text, const std::string& substring) {
    return text.find(substring) != std::string::npos;
  };
  CHECK(contains(start_error(gates + "frozen = true", "every = 1\nfirst = 0\n"),
                 "only frozen parameters in pass 1 (counted from 1) of 2"));
  CHECK(contains(start_error(gates + "frozen = true", "every = 5\nfirst = 3\n"), "epoch 3 (counted from 0)"));
  CHECK(contains(start_error(gates + "freeze_until = '15u'", "every = 5\nfirst = 2\n"), frozen_message));
  CHECK(contains(start_error("match = ['*']\nfreeze_until = '1u'", "every = 5\nfirst = 2\n"),
                 "epoch 0 (counted from 0)"));
  CHECK(start_error(gates + "freeze_until = '14u'", "every = 5\nfirst = 2\n").empty());
  // The run ends before epoch 5, the first epoch with passes that train gates.
  CHECK(start_error(gates + "frozen = true", "every = 5\nfirst = 5\n").empty());
}

TEST_CASE("options of a parameter group that have no effect are refused in an error that names the group",
          "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  auto group_error = [&](const std::string& extra_toml, const std::string& train = "") {
    try {
      Trainer(config_of(folder, "[train]\nlength = '1u'\n" + train + extra_toml), folder.file("run"), false);
    } catch (const Error& error) {
      CHECK_FALSE(std::filesystem::exists(folder.file("run")));
      return std::string(error.what());
    }
    return std::string("no error");
  };
  auto check_contains = [](const std::string& text, const std::string& substring) {
    INFO(text);
    CHECK(text.find(substring) != std::string::npos);
  };
  const std::string group_a = "[train.groups.a]\nmatch = ['*.self.*']\n",
                    group_b = "[train.groups.b]\nmatch = ['*.query.weight']\n";
  check_contains(group_error(group_a + "momentum = 0.5\n"),
                 "train.groups.a.momentum: expected the update rule sgd or nag; found adamw");
  check_contains(group_error(group_a + "momentum = 0.0\n"), "train.groups.a.momentum");
  check_contains(group_error(group_a + "momentum = 0.5\nrule = 'adamw'\n", "optimizer.rule = 'sgd'\n"), "found adamw");
  check_contains(group_error(group_a + group_b),
                 "train.groups.b: expected a trainable parameter that is in no earlier group; found all matching "
                 "parameters in earlier groups: a");
  check_contains(group_error(group_a + "frozen = true\nlr = 0.1\n"),
                 "either frozen = true or keys that affect updates");
  check_contains(group_error(group_a + "frozen = true\nfreeze_until = '3u'\n"), "train.groups.a");
  check_contains(group_error(group_a + "[train.groups.0]\nmatch = ['*.query.weight']\nlr = 0.1\n"), "no error");
}

TEST_CASE("a parameter group inherits the momentum of the optimizer unless it sets its own rule or momentum",
          "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  const std::string base = "[train]\nlength = '6u'\nlr = 0.1\noptimizer.rule = '",
                    group_x = "[train.groups.x]\nmatch = ['*']\n";
  auto weights = [&, number = 0](const std::string& extra_toml) mutable {
    auto model = train_in_folder(folder, std::to_string(number++), extra_toml);
    return find(model, "decoder.layers.0.self.query.weight").clone();
  };
  for (const char* rule : {"sgd", "nag"}) {
    INFO(rule);
    const std::string with_rule = base + rule + "'\n";
    const at::Tensor momentum_half = weights(with_rule + "optimizer.momentum = 0.5\n"),
                     momentum_0 = weights(with_rule + "optimizer.momentum = 0.0\n");
    CHECK_FALSE(at::equal(momentum_half, momentum_0));
    CHECK(at::equal(momentum_half, weights(with_rule + "optimizer.momentum = 0.5\n" + group_x)));
    CHECK(at::equal(momentum_half, weights(with_rule + group_x + "momentum = 0.5\n")));
    CHECK(at::equal(momentum_0, weights(with_rule + group_x + "momentum = 0.0\n")));
    CHECK(
        at::equal(momentum_0, weights(with_rule + "optimizer.momentum = 0.5\n" + group_x + "rule = '" + rule + "'\n")));
  }
}

namespace {

// A procedure with `passes` passes per update (two by default), each of which trains all parameters.
class TwoPassProcedure : public Procedure {
 public:
  void describe(Fields& f) override { f.field("passes", passes_, "number of passes in an update", at_least(1)); }
  void start(model::LanguageModel&) override {}
  std::vector<TrainingPass> passes(const TrainProgress&) const override {
    return std::vector<TrainingPass>(static_cast<size_t>(passes_));
  }

 private:
  int64_t passes_ = 2;
};
const Registration<TwoPassProcedure> two_pass_entry(procedures(), "test-twice", "");

}  // namespace

TEST_CASE("the error of a diverged run states whether the state was saved before the update or after its first pass",
          "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  auto divergence_error = [&](const std::string& name, const std::string& procedures) {
    try {
      train_in_folder(
          folder, name,
          "[train]\nlength = '4u'\noptimizer.rule = 'sgd'\nlr = 3e38\noptimizer.clip_norm = 0.0\n" + procedures);
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::failed);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const std::string one_pass = divergence_error("once", ""),
                    two_passes = divergence_error("two", "[train.procedures.test-twice]\n");
  INFO(one_pass << '\n' << two_passes);
  CHECK(one_pass.rfind("update 2 (", 0) == 0);
  CHECK(one_pass.find("the state before this update is in diverged.safetensors") != std::string::npos);
  CHECK(two_passes.rfind("update 1 (", 0) == 0);
  CHECK(two_passes.find("the state after pass 1 of this update is in diverged.safetensors") != std::string::npos);
}

TEST_CASE("two procedures that set the passes of an update are refused", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  CHECK(status_of([&] {
          train_in_folder(folder, "both",
                          "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n[train]\nlength = '1u'\n"
                          "[train.procedures.block-coordinate]\n[train.procedures.test-twice]\n");
        }) == 2);
}

TEST_CASE("joint training updates gates by the SGD of their group and, in the same update, other parameters by Adam",
          "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  const std::string method = "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n";
  const std::string group = "[train.groups.gates]\nmatch = ['*.gate.*']\nrule = 'sgd'\nlr = ";
  auto start = train_in_folder(folder, "start", method + group + "1e-30\n[train]\nlength = '1u'\nlr = 0.0\n");
  auto full_rate =
      train_in_folder(folder, "whole", method + group + "1.0\n[train]\nlength = '1u'\noptimizer.clip_norm = 0.0\n");
  auto half_rate =
      train_in_folder(folder, "half", method + group + "0.5\n[train]\nlength = '1u'\noptimizer.clip_norm = 0.0\n");
  for (auto& p : start.model->parameters().all()) {
    if (!p.traits().trainable || matches_pattern("*.norm.bias", p.name()) || matches_pattern("*.key.bias", p.name()))
      continue;
    INFO(p.name());
    const at::Tensor step = find(full_rate, p.name()) - p.master();
    CHECK(step.abs().max().item<double>() > 0);
    // The SGD step of gates is proportional to the group's rate; the Adam step of other parameters does not
    // depend on this rate. A step computed as a difference has the roundings of the weight and of the difference.
    if (!matches_pattern("*.gate.*", p.name())) CHECK(at::equal(find(half_rate, p.name()), find(full_rate, p.name())));
    else
      CHECK(rounding::agree(find(half_rate, p.name()) - p.master(), 0.5 * step, 2,
                            numbers::max_abs(find(full_rate, p.name()))));
  }
}
