// Runs in which some parameters train alone: those change and no other, bit for bit, and a resume is exact.
#include "train/finetune.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "train/trainable_filter.h"

using namespace runs;

namespace {

using Names = std::set<std::string>;

std::string length(int updates) { return str("[train]\nlength = '", updates, "u'\n"); }

// Combiners and mixers in their sections; gates train as published.
const std::string kExperts =
    "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n[train.procedures.block-coordinate]\nevery = 2\n"
    "[train.groups.gates]\nmatch = ['*.gate.*']\nrule = 'sgd'\nlr = 1.0\nweight_decay = 0.0\n";

// Trains on from a checkpoint to the end.
model::LoadedModel from(const Folder& folder, const io::Checkpoint& checkpoint, const std::string& name,
                        const std::string& extra) {
  at::set_num_threads(1);
  Trainer trainer(config_of(folder, extra), folder.file(name), false, at::kCPU, {&checkpoint});
  CHECK(trainer.run() == 0);
  return model::load_model(folder.file(name) + "/last.safetensors", at::kCPU);
}

Names changed(model::LoadedModel& before, model::LoadedModel& after) {
  Names names;
  for (const auto& p : before.model->parameters().all())
    if (!at::equal(p.master(), find(after, p.name()))) names.insert(p.name());
  return names;
}

// Of both layers.
Names of_layers(const std::vector<std::string>& parts) {
  Names names;
  for (const std::string layer : {"0", "1"})
    for (const std::string& part : parts) names.insert("decoder.layers." + layer + ".self." + part);
  return names;
}

const std::vector<std::string> kGate{"gate.norm.weight", "gate.norm.bias", "gate.up.weight", "gate.up.bias",
                                     "gate.down.weight", "gate.down.bias", "gate.norm.mean", "gate.norm.variance"};

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("what is named trains and nothing else, bit for bit, and resumes exactly", "[finetune]") {
  struct Case {
    std::string method, only;
    Names expected;
  };
  Names gates_and_output = of_layers(kGate);
  for (const std::string& name : of_layers({"output.weight", "output.bias"})) gates_and_output.insert(name);
  const Names queries = of_layers({"query.weight", "query.bias"});
  Names all_output = of_layers({"output.weight", "output.bias"});
  const std::string alphas = "[attention]\ncombiner = 'alphas'\n", mixing = "[attention]\nmixer = 'mixhead-b'\n";
  const std::vector<Case> cases{
      {kExperts, "['gates']", of_layers(kGate)},
      {kExperts, "['gates', 'output']", gates_and_output},
      {kExperts, "['output']", all_output},
      {kExperts, "['stages']", of_layers(kGate)},
      {alphas, "['mixing']", of_layers({"combiner.alpha"})},
      {mixing, "['mixing']", of_layers({"mixer.matrix", "mixer.query.weight"})},
      {mixing, "['projections']",
       of_layers({"query.weight", "query.bias", "key.weight", "value.weight", "value.bias"})},
      {"[attention]\ncombiner = 'hard-concrete'\n", "['gates']", of_layers({"combiner.log_a"})},
      {"", "['*.query.*']", queries},
      {"", "['decoder.norm.weight', 'output']", [&] {
         Names names = all_output;
         names.insert("decoder.norm.weight");
         return names;
       }()}};
  int number = 0;
  for (const Case& c : cases) {
    INFO(c.method << " " << c.only);
    Folder folder;
    write_text(folder.file("t.mhs"), lines(400));  // 7 updates an epoch
    auto first = run_of(folder, "first", c.method + length(3));
    const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
    auto with = [&](int updates) {
      return c.method + length(updates) + "schedule.length = '16u'\ntrainable = " + c.only + "\n";
    };
    auto whole = from(folder, checkpoint, "whole", with(16));
    Names names = changed(first, whole);
    // The logits do not depend on a bias that all keys share.
    for (const std::string& bias : of_layers({"key.bias"})) names.erase(bias);
    CHECK(names == c.expected);
    from(folder, checkpoint, "halves", with(9));
    auto halves = run_of(folder, "halves", with(16), true);
    CHECK(changed(whole, halves).empty());
    CHECK(has(refusal([&] { run_of(folder, "halves", c.method + length(20), true); }), "train.trainable"));
    ++number;
  }
  CHECK(number == 10);
}

TEST_CASE("gates alone train in every epoch, by their own SGD, on the whole mixture", "[finetune]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  run_of(folder, "first", kExperts + length(3));
  const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
  // Without the procedure an update is one pass of the whole mixture, and that is what is left of it.
  const std::string gates = "trainable = ['gates']\n";
  const std::string joint =
      "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n[train.groups.gates]\nmatch = "
      "['*.gate.*']\nrule = 'sgd'\nlr = 1.0\nweight_decay = 0.0\n";
  auto turns = from(folder, checkpoint, "turns", kExperts + length(12) + gates),
       plain = from(folder, checkpoint, "plain", joint + length(12) + gates);
  CHECK(changed(turns, plain).empty());
  // Epoch 1 has no gate pass in a whole training; here it trains them too.
  auto epoch = from(folder, checkpoint, "epoch", kExperts + length(7) + gates);
  CHECK(changed(epoch, turns) == of_layers(kGate));
  // With rate 1: the schedule's does nothing to gates.
  auto slow = from(folder, checkpoint, "slow", kExperts + length(12) + gates + "lr = 1e-9\n");
  CHECK(changed(turns, slow).empty());
}

TEST_CASE("statistics of gates that do not train rest", "[finetune]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  const std::string joint = "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n";
  auto first = run_of(folder, "first", joint + length(3));
  const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
  auto tuned = from(folder, checkpoint, "tuned", joint + length(3) + "trainable = ['output']\n");
  CHECK(changed(first, tuned) == of_layers({"output.weight", "output.bias"}));
}

TEST_CASE("which parameters go by a name", "[finetune]") {
  Folder folder;
  auto names_of = [&](const std::string& attention, const std::string& only) {
    const auto run = config_of(folder, attention);
    const auto model = model::build_language_model(run.model, 6, at::kMeta);
    const TrainableFilter chosen({only}, model->parameters());
    Names names;
    for (const auto& p : model->parameters().all())
      if (p.traits().trainable && chosen(p)) names.insert(p.name());
    return names;
  };
  CHECK(names_of("[attention]\ncombiner = 'mixture-of-heads'\n", "gates") ==
        of_layers({"combiner.router.weight", "combiner.balance.weight"}));
  CHECK(names_of("[attention]\ncombiner = 'gates'\nmixer = 'talking-heads'\n", "stages") ==
        of_layers({"combiner.gate.bias", "mixer.logits", "mixer.matrix"}));
  // Of biases that layers share there is one.
  CHECK(names_of("[attention]\nscore = 'relative'\n", "stages") ==
        Names{"decoder.layers.0.self.relative.weight", "decoder.layers.1.self.relative.weight",
              "decoder.relative.content_bias", "decoder.relative.position_bias"});
  CHECK(names_of("", "output") == of_layers({"output.weight", "output.bias"}));
  CHECK(names_of("", "attention") == of_layers({"query.weight", "query.bias", "key.weight", "key.bias", "value.weight",
                                                "value.bias", "output.weight", "output.bias"}));
  const auto none = [&](const std::string& attention, const std::string& only) {
    return refusal([&] { names_of(attention, only); });
  };
  CHECK((has(none("", "gates"), "train.trainable") &&
         has(none("", "gates"), "'gates', which matches no trainable parameter of this model")));
  CHECK(has(none("[attention]\nmixer = 'random-normal'\n", "mixing"),
            "which matches no trainable parameter of this model"));  // drawn once
  CHECK(has(none("", "ouput"), "did you mean 'output'?"));
  CHECK(has(none("", "decoder.layers.0.self.qurey.weight"), "did you mean 'decoder.layers.0.self.query.weight'?"));
  CHECK(has(none("", "*.slef.*"), "patterns that match names"));
}

TEST_CASE("fine-tuning takes over groups and how gates are trained, and no length", "[finetune]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  run_of(folder, "first",
         kExperts + length(2) +
             "[train.groups.late]\nmatch = ['*.ffn.*']\nfreeze_until = '1u'\nlr_factor = 0.5\n"
             "[train.regularisers.disagreement]\nweight = 0.1\n[train.procedures.head-rotation]\nmode = 'random'\nk = "
             "1\n");
  const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
  Config config;
  config.load_text(inherited_sections(checkpoint), "taken over");
  const RunConfig run = RunConfig::read(config);
  const auto* gates = run.groups.of("decoder.layers.0.self.gate.up.weight");
  REQUIRE(gates != nullptr);
  CHECK((gates->rule == "sgd" && gates->lr == 1));
  const auto* late = run.groups.of("decoder.layers.0.ffn.up.weight");
  REQUIRE(late != nullptr);
  CHECK((late->freeze_until.count == 0 && late->lr_factor == 0.5));
  REQUIRE(run.procedures.entries().size() == 1);
  CHECK(run.procedures.entries()[0].name == "block-coordinate");
  CHECK(run.procedures.toml().find("every = 2") != std::string::npos);
  CHECK(run.regularisers.entries().empty());
  CHECK(run.train.length.count == 0);
  // Nothing of a plain run.
  run_of(folder, "plain", length(1));
  CHECK(inherited_sections(io::Checkpoint(folder.file("plain") + "/last.safetensors")).empty());
}
