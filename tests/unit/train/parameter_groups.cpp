// Parameter groups: frozen parameters, options of a group, and updates by a rule of the group.
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "fixtures/rounding.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "fixtures/within.h"

using namespace mh;
using namespace mh::train;
using namespace runs;

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
  // The difference of two weights has the roundings of the weight and of the difference, and the step has about 10
  // roundings. With β in fp32, 1 - β has the relative error kFp32 / (1 - β).
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
