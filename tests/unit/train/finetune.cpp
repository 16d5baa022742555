// Fine-tuning of selected parameters (train.trainable): all other parameters stay bit-identical, and resume gives
// bit-identical weights; the configuration that fine-tuning inherits from a checkpoint.
#include "train/finetune.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "fixtures/contains.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "model/load.h"
#include "train/config_sources.h"
#include "train/trainable_filter.h"

using namespace runs;

namespace {

using ParameterNames = std::set<std::string>;

// A mixture of attentive experts whose gates train by block coordinate descent, as published.
const std::string kExperts =
    "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n[train.procedures.block-coordinate]\nevery = 2\n"
    "[train.groups.gates]\nmatch = ['*.gate.*']\nrule = 'sgd'\nlr = 1.0\nweight_decay = 0.0\n";

// Trains a run to its end after a warm start from `checkpoint`; returns the model of the last checkpoint of the run.
model::LoadedModel train_warm_started(const Folder& folder, const io::Checkpoint& checkpoint, const std::string& name,
                                      const std::string& extra_toml) {
  at::set_num_threads(1);
  Trainer trainer(config_of(folder, extra_toml), folder.file(name), false, at::kCPU, {&checkpoint});
  CHECK(trainer.run() == 0);
  return model::load_model(folder.file(name) + "/last.safetensors", at::kCPU);
}

// Returns the names of the parameters that differ between the two models.
ParameterNames changed_parameters(model::LoadedModel& model_before, model::LoadedModel& model_after) {
  ParameterNames names;
  for (const auto& p : model_before.model->parameters().all())
    if (!at::equal(p.master(), find(model_after, p.name()))) names.insert(p.name());
  return names;
}

// Returns the full names, in both layers, of self-attention parameters. `parameters`: their names within a layer, such
// as "query.weight".
ParameterNames names_in_both_layers(const std::vector<std::string>& parameters) {
  ParameterNames names;
  for (const std::string layer : {"0", "1"})
    for (const std::string& parameter : parameters) names.insert("decoder.layers." + layer + ".self." + parameter);
  return names;
}

const std::vector<std::string> kGate{"gate.norm.weight", "gate.norm.bias", "gate.up.weight", "gate.up.bias",
                                     "gate.down.weight", "gate.down.bias", "gate.norm.mean", "gate.norm.variance"};

}  // namespace

TEST_CASE("only parameters selected by train.trainable change, and resume gives bit-identical weights", "[finetune]") {
  struct Case {
    std::string method, trainable;
    ParameterNames expected;
  };
  ParameterNames gates_and_output = names_in_both_layers(kGate);
  for (const std::string& name : names_in_both_layers({"output.weight", "output.bias"})) gates_and_output.insert(name);
  const ParameterNames queries = names_in_both_layers({"query.weight", "query.bias"});
  ParameterNames all_output = names_in_both_layers({"output.weight", "output.bias"});
  const std::string alphas = "[attention]\ncombiner = 'alphas'\n", mixing = "[attention]\nmixer = 'mixhead-b'\n";
  const std::vector<Case> cases{
      {kExperts, "['gates']", names_in_both_layers(kGate)},
      {kExperts, "['gates', 'output']", gates_and_output},
      {kExperts, "['output']", all_output},
      {kExperts, "['stages']", names_in_both_layers(kGate)},
      {alphas, "['mixing']", names_in_both_layers({"combiner.alpha"})},
      {mixing, "['mixing']", names_in_both_layers({"mixer.matrix", "mixer.query.weight"})},
      {mixing, "['projections']",
       names_in_both_layers({"query.weight", "query.bias", "key.weight", "value.weight", "value.bias"})},
      {"[attention]\ncombiner = 'hard-concrete'\n", "['gates']", names_in_both_layers({"combiner.log_a"})},
      {"", "['*.query.*']", queries},
      {"", "['decoder.norm.weight', 'output']", [&] {
         ParameterNames names = all_output;
         names.insert("decoder.norm.weight");
         return names;
       }()}};
  int num_cases = 0;
  for (const Case& c : cases) {
    INFO(c.method << " " << c.trainable);
    Folder folder;
    write_text(folder.file("t.mhs"), repeating_tokens(400));  // 7 updates per epoch
    auto first = train_in_folder(folder, "first", c.method + train_length(3));
    const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
    auto options = [&](int updates) {
      return c.method + train_length(updates) + "schedule.length = '16u'\ntrainable = " + c.trainable + "\n";
    };
    auto uninterrupted = train_warm_started(folder, checkpoint, "whole", options(16));
    ParameterNames names = changed_parameters(first, uninterrupted);
    // Key biases have no gradient except for rounding, since a key bias shifts all logits of a query equally.
    for (const std::string& bias : names_in_both_layers({"key.bias"})) names.erase(bias);
    CHECK(names == c.expected);
    train_warm_started(folder, checkpoint, "halves", options(9));
    auto resumed = train_in_folder(folder, "halves", options(16), true);
    CHECK(changed_parameters(uninterrupted, resumed).empty());
    CHECK(contains(refusal([&] { train_in_folder(folder, "halves", c.method + train_length(20), true); }),
                   "train.trainable"));
    ++num_cases;
  }
  CHECK(num_cases == 10);
}

TEST_CASE("trainable = gates trains gates in every epoch, by the SGD of their group, on the full mixture",
          "[finetune]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  train_in_folder(folder, "first", kExperts + train_length(3));
  const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
  // With only gates trainable, block coordinate descent equals joint training: one pass of the full mixture per update.
  const std::string gates = "trainable = ['gates']\n";
  const std::string joint =
      "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n[train.groups.gates]\nmatch = "
      "['*.gate.*']\nrule = 'sgd'\nlr = 1.0\nweight_decay = 0.0\n";
  auto coordinate_descent_run = train_warm_started(folder, checkpoint, "turns", kExperts + train_length(12) + gates),
       joint_run = train_warm_started(folder, checkpoint, "plain", joint + train_length(12) + gates);
  CHECK(changed_parameters(coordinate_descent_run, joint_run).empty());
  // If all parameters train, epoch 1 (counted from 0) does not train the gates; if only gates are trainable, every
  // epoch trains them.
  auto one_epoch = train_warm_started(folder, checkpoint, "epoch", kExperts + train_length(7) + gates);
  CHECK(changed_parameters(one_epoch, coordinate_descent_run) == names_in_both_layers(kGate));
  // Gates keep the learning rate 1 of their parameter group for any value of train.lr.
  auto low_rate = train_warm_started(folder, checkpoint, "slow", kExperts + train_length(12) + gates + "lr = 1e-9\n");
  CHECK(changed_parameters(coordinate_descent_run, low_rate).empty());
}

TEST_CASE("batch norm statistics of frozen gates do not change", "[finetune]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  const std::string joint = "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n";
  auto first = train_in_folder(folder, "first", joint + train_length(3));
  const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
  auto fine_tuned =
      train_warm_started(folder, checkpoint, "tuned", joint + train_length(3) + "trainable = ['output']\n");
  CHECK(changed_parameters(first, fine_tuned) == names_in_both_layers({"output.weight", "output.bias"}));
}

TEST_CASE("TrainableFilter selects parameters by role or name pattern, and refuses patterns without a match",
          "[finetune]") {
  Folder folder;
  auto names_of = [&](const std::string& attention, const std::string& trainable) {
    const auto run = config_of(folder, attention);
    const auto model = model::build_language_model(run.model, {6}, at::kMeta);
    const TrainableFilter filter({trainable}, model->parameters());
    ParameterNames names;
    for (const auto& p : model->parameters().all())
      if (p.traits().trainable && filter(p)) names.insert(p.name());
    return names;
  };
  CHECK(names_of("[attention]\ncombiner = 'mixture-of-heads'\n", "gates") ==
        names_in_both_layers({"combiner.router.weight", "combiner.balance.weight"}));
  CHECK(names_of("[attention]\ncombiner = 'gates'\nmixer = 'talking-heads'\n", "stages") ==
        names_in_both_layers({"combiner.gate.bias", "mixer.logits", "mixer.matrix"}));
  // All layers share the biases of relative positions.
  CHECK(names_of("[attention]\nscore = 'relative'\n", "stages") ==
        ParameterNames{"decoder.layers.0.self.relative.weight", "decoder.layers.1.self.relative.weight",
                       "decoder.relative.content_bias", "decoder.relative.position_bias"});
  CHECK(names_of("", "output") == names_in_both_layers({"output.weight", "output.bias"}));
  CHECK(names_of("", "attention") ==
        names_in_both_layers({"query.weight", "query.bias", "key.weight", "key.bias", "value.weight", "value.bias",
                              "output.weight", "output.bias"}));
  const auto filter_error = [&](const std::string& attention, const std::string& trainable) {
    return refusal([&] { names_of(attention, trainable); });
  };
  CHECK((contains(filter_error("", "gates"), "train.trainable") &&
         contains(filter_error("", "gates"), "'gates', which matches no trainable parameter")));
  CHECK(contains(filter_error("[attention]\nmixer = 'random-normal'\n", "mixing"),
                 "which matches no trainable parameter"));  // the mixing matrix is random and not trainable
  CHECK(contains(filter_error("", "ouput"), "did you mean 'output'?"));
  CHECK(contains(filter_error("", "decoder.layers.0.self.qurey.weight"),
                 "did you mean 'decoder.layers.0.self.query.weight'?"));
  CHECK(contains(filter_error("", "*.slef.*"), "patterns that match names"));
}

TEST_CASE("fine-tuning inherits parameter groups and block coordinate descent, but no lengths and no regularisers",
          "[finetune]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  train_in_folder(
      folder, "first",
      kExperts + train_length(2) +
          "[train.groups.late]\nmatch = ['*.ffn.*']\nfreeze_until = '1u'\nlr_factor = 0.5\n"
          "[train.regularisers.disagreement]\nweight = 0.1\n[train.procedures.head-rotation]\nmode = 'random'\nk = "
          "1\n");
  const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
  Config config;
  config.load_text(inherited_sections(checkpoint), "inherited");
  const RunConfig run = RunConfig::read(config);
  const auto* gates = run.groups.group_of("decoder.layers.0.self.gate.up.weight");
  REQUIRE(gates != nullptr);
  CHECK((gates->rule == "sgd" && gates->lr == 1));
  const auto* late = run.groups.group_of("decoder.layers.0.ffn.up.weight");
  REQUIRE(late != nullptr);
  CHECK((late->freeze_until.count == 0 && late->lr_factor == 0.5));
  REQUIRE(run.procedures.entries().size() == 1);
  CHECK(run.procedures.entries()[0].name == "block-coordinate");
  CHECK(run.procedures.toml().find("every = 2") != std::string::npos);
  CHECK(run.regularisers.entries().empty());
  CHECK(run.train.length.count == 0);
  // The checkpoint of a run without parameter groups and procedures has no sections to inherit.
  train_in_folder(folder, "plain", train_length(1));
  CHECK(inherited_sections(io::Checkpoint(folder.file("plain") + "/last.safetensors")).empty());
}

TEST_CASE(
    "later sources of a configuration override earlier ones, and only fine-tuning inherits groups and sets a length",
    "[finetune]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  train_in_folder(folder, "first", kExperts + train_length(2));
  const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
  write_file_atomically(folder.file("lr.toml"), "[train]\nlr = 0.25\nseed = 2\nattention_path = 'composed'\n");
  ConfigSources sources;
  sources.checkpoint = &checkpoint;
  sources.checkpoint_name = "--init first";
  sources.config_paths = {folder.file("lr.toml")};
  sources.options = {{"train.attention_path", {"fused"}, "--attention"}, {"data.train", {"a.mhs", "b.mhs"}, "--train"}};
  sources.assignments = {"train.seed=3"};
  const auto run_of = [&](bool is_finetuning) {
    sources.is_finetuning = is_finetuning;
    Config config = combine_config(sources);
    return RunConfig::read(config);
  };
  for (const bool is_finetuning : {false, true}) {
    const RunConfig run = run_of(is_finetuning);
    CHECK(run.model.toml() == model::config_of(checkpoint).toml());
    CHECK(run.train.lr == 0.25);
    CHECK(run.train.attention_path == "fused");
    CHECK(run.train.seed == 3);
    CHECK(run.data.train_paths == std::vector<std::string>{"a.mhs", "b.mhs"});
    CHECK((run.groups.group_of("decoder.layers.0.self.gate.up.weight") != nullptr) == is_finetuning);
    CHECK(run.train.length ==
          Length{is_finetuning ? 1 : 0, is_finetuning ? Length::Unit::epochs : Length::Unit::updates});
  }
  sources.assignments = {"train.length=4u"};
  CHECK(run_of(true).train.length == Length{4, Length::Unit::updates});
  // A model with other head counts cannot load the parameters.
  sources.assignments = {"attention.heads=2"};
  for (const bool is_finetuning : {false, true})
    CHECK(contains(refusal([&] { run_of(is_finetuning); }), "--init first"));
}
