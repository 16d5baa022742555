// Parameter groups, and runs with every regulariser and procedure, resumed bit for bit.
#include <catch2/catch.hpp>
#include <filesystem>

#include "attention/layer.h"
#include "base/error.h"
#include "fixtures/runs.h"

using namespace mh;
using namespace mh::train;
using namespace runs;

namespace {

// What each method adds to a configuration; a run of each is stopped and resumed.
const std::map<std::string, std::string>& methods() {
  static const std::map<std::string, std::string> all{
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
      {"cross-head", "[attention]\npairing = 'cross-head'\n[attention.cross-head]\nrate = 0.5\n"}};
  return all;
}

std::string with_length(const std::string& extra, int updates) {
  return extra + "[train]\nlength = '" + std::to_string(updates) + "u'\nschedule.length = '16u'\n";
}

}  // namespace

TEST_CASE("a run with each method, stopped and resumed, is the run that never stopped", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  for (const auto& [name, extra] : methods()) {
    INFO(name);
    auto whole = run_of(folder, name, with_length(extra, 16));
    run_of(folder, name + "-halves", with_length(extra, 9));
    auto halves = run_of(folder, name + "-halves", with_length(extra, 16), true);
    for (auto& p : whole.model->parameters().all()) {
      INFO(p.name());
      CHECK(at::equal(p.master(), find(halves, p.name())));
    }
  }
}

TEST_CASE("groups: frozen parameters rest, thawed ones start as at the start", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  auto start = run_of(folder, "start", "[train]\nlength = '1u'\nlr = 0.0\n");
  auto frozen = run_of(folder, "frozen",
                       "[train]\nlength = '5u'\n[train.groups.x]\nmatch = ['*.self.*', '*.ffn.*']\nfrozen = true\n");
  auto late =
      run_of(folder, "late", "[train]\nlength = '5u'\n[train.groups.x]\nmatch = ['*.self.*']\nfreeze_until = '5u'\n");
  for (auto& p : start.model->parameters().all()) {
    INFO(p.name());
    const bool in_attention = matches("*.self.*", p.name()), in_ffn = matches("*.ffn.*", p.name());
    CHECK(at::equal(p.master(), find(frozen, p.name())) == (in_attention || in_ffn));
    CHECK(at::equal(p.master(), find(late, p.name())) == in_attention);
  }
  // Adam's first step is of the size of the rate whenever it comes: the bias correction counts the parameter's own
  // steps.
  auto thawed =
      run_of(folder, "thawed",
             "[train]\nlength = '6u'\n[train.groups.x]\nmatch = ['*.self.query.weight']\nfreeze_until = '5u'\n");
  at::Tensor moved =
      (find(thawed, "decoder.layers.0.self.query.weight") - find(start, "decoder.layers.0.self.query.weight")).abs();
  CHECK(moved.max().item<double>() == Approx(0.01).epsilon(0.01));
  CHECK_THROWS_AS(run_of(folder, "none", "[train]\nlength = '1u'\n[train.groups.x]\nmatch = ['*.slef.*']\n"), Error);
  CHECK_THROWS_AS(run_of(folder, "all", "[train]\nlength = '1u'\n[train.groups.x]\nmatch = ['*']\nfrozen = true\n"),
                  Error);
}

TEST_CASE("block coordinate descent trains gates with their own steps, and the rest with the others", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));  // 7 updates an epoch
  const std::string& extra = methods().at("experts");
  auto start = run_of(folder, "start", extra + "[train]\nlength = '1u'\nlr = 0.0\n");
  auto first = run_of(folder, "first", with_length(extra, 7)),
       second = run_of(folder, "second", with_length(extra, 14));
  for (auto& p : start.model->parameters().all()) {
    if (!matches("*.gate.*", p.name())) {
      CHECK_FALSE(at::equal(find(first, p.name()), find(second, p.name())));
      continue;
    }
    INFO(p.name());
    CHECK(at::equal(find(first, p.name()), find(second, p.name())));  // epoch 1 has F passes only
  }
  CHECK_THROWS_AS(run_of(folder, "none", "[train]\nlength = '1u'\n[train.procedures.block-coordinate]\nevery = 5\n"),
                  Error);
}

TEST_CASE("the second pass of an update takes up the momentum of the update before", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  // Gates that do not move: an update of both passes is one of the F pass alone.
  const std::string method =
      "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\ndropout = 0.0\nnorm_statistics = 'batch'\n"
      "[train]\nlength = '9u'\nschedule.warmup = '9u'\noptimizer.rule = 'nag'\n"
      "[train.groups.gates]\nmatch = ['*.gate.*']\nrule = 'sgd'\nlr_factor = 0.0\n"
      "[train.procedures.block-coordinate]\nevery = 1\nfirst = ";
  auto both = run_of(folder, "both", method + "0\n"), alone = run_of(folder, "alone", method + "1000\n");
  for (auto& p : both.model->parameters().all()) {
    INFO(p.name());
    if (!matches("*.gate.*", p.name())) CHECK(at::equal(p.master(), find(alone, p.name())));
  }
}

TEST_CASE("what is frozen must leave each pass something to train, whenever it comes", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));  // 7 updates an epoch
  int number = 0;
  auto start = [&](const std::string& group, const std::string& procedure) {
    const std::string out = folder.file(std::to_string(number++));
    std::string said;
    try {
      Trainer(config_of(folder,
                        "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n[train]\nlength = '30u'\n"
                        "[train.groups.x]\n" +
                            group + "\n[train.procedures.block-coordinate]\n" + procedure),
              out, false);
    } catch (const Error& error) {
      said = error.what();
      CHECK(error.exit() == Exit::usage);
    }
    CHECK(std::filesystem::exists(out) == said.empty());
    return said;
  };
  const std::string gates = "match = ['*.gate.*']\n", frozen = "only frozen parameters";
  auto has = [](const std::string& said, const std::string& part) { return said.find(part) != std::string::npos; };
  CHECK(has(start(gates + "frozen = true", "every = 1\nfirst = 0\n"), "pass 1 of an update"));
  CHECK(has(start(gates + "frozen = true", "every = 5\nfirst = 3\n"), "epoch 3 (from 0)"));
  CHECK(has(start(gates + "freeze_until = '15u'", "every = 5\nfirst = 2\n"), frozen));
  CHECK(has(start("match = ['*']\nfreeze_until = '1u'", "every = 5\nfirst = 2\n"), "epoch 0 (from 0)"));
  CHECK(start(gates + "freeze_until = '14u'", "every = 5\nfirst = 2\n").empty());
  // The run ends before.
  CHECK(start(gates + "frozen = true", "every = 5\nfirst = 5\n").empty());
}

TEST_CASE("groups: what has no effect is refused, by the group's name", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  auto said = [&](const std::string& extra, const std::string& train = "") {
    try {
      Trainer(config_of(folder, "[train]\nlength = '1u'\n" + train + extra), folder.file("run"), false);
    } catch (const Error& error) {
      CHECK_FALSE(std::filesystem::exists(folder.file("run")));
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  auto has = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const std::string a = "[train.groups.a]\nmatch = ['*.self.*']\n",
                    b = "[train.groups.b]\nmatch = ['*.query.weight']\n";
  has(said(a + "momentum = 0.5\n"), "train.groups.a.momentum: expected the rule sgd or nag; found adamw");
  has(said(a + "momentum = 0.0\n"), "train.groups.a.momentum");
  has(said(a + "momentum = 0.5\nrule = 'adamw'\n", "optimizer.rule = 'sgd'\n"), "found adamw");
  has(said(a + b),
      "train.groups.b: expected a trainable parameter that is in no earlier group; found all matching parameters in a");
  has(said(a + "frozen = true\nlr = 0.1\n"), "frozen, or options of training");
  has(said(a + "frozen = true\nfreeze_until = '3u'\n"), "train.groups.a");
  has(said(a + "[train.groups.0]\nmatch = ['*.query.weight']\nlr = 0.1\n"), "nothing");
}

TEST_CASE("groups: momentum is that of the optimizer that trains them", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  const std::string base = "[train]\nlength = '6u'\nlr = 0.1\noptimizer.rule = '",
                    all = "[train.groups.x]\nmatch = ['*']\n";
  auto weights = [&, number = 0](const std::string& extra) mutable {
    auto model = run_of(folder, std::to_string(number++), extra);
    return find(model, "decoder.layers.0.self.query.weight").clone();
  };
  for (const char* rule : {"sgd", "nag"}) {
    INFO(rule);
    const std::string by = base + rule + "'\n";
    const at::Tensor half = weights(by + "optimizer.momentum = 0.5\n"),
                     none = weights(by + "optimizer.momentum = 0.0\n");
    CHECK_FALSE(at::equal(half, none));
    CHECK(at::equal(half, weights(by + "optimizer.momentum = 0.5\n" + all)));
    CHECK(at::equal(half, weights(by + all + "momentum = 0.5\n")));
    CHECK(at::equal(none, weights(by + all + "momentum = 0.0\n")));
    CHECK(at::equal(none, weights(by + "optimizer.momentum = 0.5\n" + all + "rule = '" + rule + "'\n")));
  }
}

namespace {

// Two passes over everything.
class Twice : public Procedure {
 public:
  void describe(Fields& f) override { f.field("passes", passes_, "how many", at_least(1)); }
  void start(model::LanguageModel&) override {}
  std::vector<Pass> passes(const TrainProgress&) const override {
    return std::vector<Pass>(static_cast<size_t>(passes_));
  }

 private:
  int64_t passes_ = 2;
};
const Registration<Twice> twice_entry(procedures(), "test-twice", "");

}  // namespace

TEST_CASE("a run that diverges says what it has saved: the state before the update, or after its first pass",
          "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  auto said = [&](const std::string& name, const std::string& procedures) {
    try {
      run_of(folder, name,
             "[train]\nlength = '4u'\noptimizer.rule = 'sgd'\nlr = 3e38\noptimizer.clip_norm = 0.0\n" + procedures);
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::failed);
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const std::string once = said("once", ""), two = said("two", "[train.procedures.test-twice]\n");
  INFO(once << '\n' << two);
  CHECK(once.rfind("update 2,", 0) == 0);
  CHECK(once.find("the state before this update is in diverged.safetensors") != std::string::npos);
  CHECK(two.rfind("update 1,", 0) == 0);
  CHECK(two.find("the state after pass 1 of this update is in diverged.safetensors") != std::string::npos);
}

TEST_CASE("joint training: gates take their own SGD in the same update as all else", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  const std::string method = "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n";
  const std::string group = "[train.groups.gates]\nmatch = ['*.gate.*']\nrule = 'sgd'\nlr = ";
  auto start = run_of(folder, "start", method + group + "1e-30\n[train]\nlength = '1u'\nlr = 0.0\n");
  auto whole = run_of(folder, "whole", method + group + "1.0\n[train]\nlength = '1u'\noptimizer.clip_norm = 0.0\n");
  auto half = run_of(folder, "half", method + group + "0.5\n[train]\nlength = '1u'\noptimizer.clip_norm = 0.0\n");
  for (auto& p : start.model->parameters().all()) {
    if (!p.traits().trainable || matches("*.norm.bias", p.name()) || matches("*.key.bias", p.name())) continue;
    INFO(p.name());
    const at::Tensor by = find(whole, p.name()) - p.master();
    CHECK(by.abs().max().item<double>() > 0);
    // Plain SGD moves by the rate times the gradient of the mixture; Adam's part does not know of the gates' rate.
    const double share = matches("*.gate.*", p.name()) ? 0.5 : 1;
    CHECK(at::allclose(find(half, p.name()) - p.master(), share * by, 1e-3, 1e-7));
  }
}
