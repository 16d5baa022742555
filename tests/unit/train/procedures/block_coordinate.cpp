// Block coordinate descent: a G pass trains the gates of the mixture of experts, and an F pass all other parameters.
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "attention/methods/mae/mae_gate.h"
#include "base/error.h"
#include "fixtures/contains.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "model/model_config.h"
#include "train/parameter_groups.h"

using namespace mh;
using namespace mh::train;
using namespace runs;

namespace {

// Returns the configuration lines of a run of this many updates with the learning rates of a run of 16 updates.
std::string scheduled_length(int updates) { return train_length(updates) + "schedule.length = '16u'\n"; }

}  // namespace

TEST_CASE("block coordinate descent trains gates only in some epochs, and other parameters in every epoch",
          "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));  // 7 updates per epoch
  const std::string method =
      "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n[train.procedures.block-coordinate]\nevery = 2\n"
      "[train.groups.gates]\nmatch = ['*.gate.*']\nrule = 'sgd'\nlr = 1.0\n";
  auto start = train_in_folder(folder, "start", method + "[train]\nlength = '1u'\nlr = 0.0\n");
  auto first = train_in_folder(folder, "first", method + scheduled_length(7)),
       second = train_in_folder(folder, "second", method + scheduled_length(14));
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

TEST_CASE("the pattern of gates of experts matches no other gate", "[procedures]") {
  Config config;
  config.load_text(
      "[model]\nlayers = 1\nwidth = 8\nffn_dim = 8\ngated_ffn = true\n[attention]\nheads = 2\ncombiner = ['gates', "
      "'mae']\ngates.input = true\nmae.hidden = 4\n",
      "test");
  const auto model = model::build_language_model(model::ModelConfig::read(config), {7}, at::kCPU);
  std::vector<std::string> gates, other_gates;
  for (const auto& p : model->parameters().all())
    if (matches_pattern("*.gate.*", p.name()))
      (matches_pattern(attention::kExpertGatePattern, p.name()) ? gates : other_gates).push_back(p.name());
  const std::string layer = "decoder.layers.0.";
  CHECK(gates.size() == 8);
  for (const std::string& name : gates) CHECK(name.starts_with(layer + "self" + attention::kExpertGatePrefix));
  CHECK(std::set<std::string>(other_gates.begin(), other_gates.end()) ==
        std::set<std::string>{layer + "self.combiner.gate.weight", layer + "self.combiner.gate.bias",
                              layer + "ffn.gate.weight", layer + "ffn.gate.bias"});
}

TEST_CASE(
    "training the gates between two passes of the other parameters does not change the momentum of these parameters",
    "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  // Gates do not change at learning rate 0, so an update with a pass of the gates (G) and a pass of the other
  // parameters (F) equals an update with only an F pass.
  const std::string method =
      "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\ndropout = 0.0\nnorm_statistics = 'batch'\n"
      "[train]\nlength = '9u'\nschedule.warmup = '9u'\noptimizer.rule = 'nag'\n"
      "[train.groups.gates]\nmatch = ['*.gate.*']\nrule = 'sgd'\nlr_factor = 0.0\n"
      "[train.procedures.block-coordinate]\nevery = 1\nfirst_gate_epoch = ";
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
  CHECK(contains(start_error(gates + "frozen = true", "every = 1\nfirst_gate_epoch = 0\n"),
                 "only frozen parameters in pass 1 (counted from 1) of 2"));
  CHECK(
      contains(start_error(gates + "frozen = true", "every = 5\nfirst_gate_epoch = 3\n"), "epoch 3 (counted from 0)"));
  CHECK(contains(start_error(gates + "freeze_until = '15u'", "every = 5\nfirst_gate_epoch = 2\n"), frozen_message));
  CHECK(contains(start_error("match = ['*']\nfreeze_until = '1u'", "every = 5\nfirst_gate_epoch = 2\n"),
                 "epoch 0 (counted from 0)"));
  CHECK(start_error(gates + "freeze_until = '14u'", "every = 5\nfirst_gate_epoch = 2\n").empty());
  // The run ends before epoch 5, the first epoch with passes that train gates.
  CHECK(start_error(gates + "frozen = true", "every = 5\nfirst_gate_epoch = 5\n").empty());
}
