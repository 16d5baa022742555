// Configurations with the keys of earlier versions configure the same run as configurations with the current keys.
#include "base/renamed_keys.h"

#include <catch2/catch.hpp>
#include <set>
#include <tuple>

#include "base/error.h"
#include "fixtures/status.h"
#include "train/run_config.h"

using namespace mh;
using namespace mh::train;

namespace {

// Returns the TOML of the run that `toml` configures, with all defaults.
std::string resolved_toml(const std::string& toml) {
  Config config;
  config.load_text(toml, "test");
  return RunConfig::read(config).toml();
}

// A configuration of an earlier version, in which [model] and [train] contained keys that are now in subsections. Most
// values are not the defaults.
const char* kOldKeys = R"([model]
backbone = "transformer-xl"
positions = "none"
ffn = 24
encoder_layers = 0
shared_embedding = false
source_rows = 0
memory = 8
same_length = true
initial_memory = "zeros"
segments = 0
embedding_norm = false
head = "words"
classes = 0
labels = []
next_sentence = false
[attention]
score = "relative"
[attention.relative]
distances = "true"
[attention.decoder.self.1.relative]
distances = "block_end"
[train]
horizon = "7u"
only = ["attention"]
record = true
batching = "streams"
block = 16
batch_tokens = 64
batch_rows = 3
alike = 2
long_block = 32
long_from = "3u"
micro_tokens = 32
optimizer = "adamw"
betas = [0.5, 0.75]
epsilon = 1e-6
bias_correction = false
momentum = 0.5
weight_decay = 0.1
clip = 2.0
schedule = "cosine"
decay_from = "start"
warmup = "2u"
warmup_share = 0.25
warmup_lr = 0.001
min_lr = 0.002
period = "4u"
period_growth = 2.0
period_shrink = 0.5
valid_block = 4
valid_memory = 5
validate_every = "6u"
validate_by = "bleu"
save_every = "8u"
keep = 2
keep_by = "best"
patience = 9
min_improvement = 0.5
[train.decode]
beam = 3
batch_tokens = 99
[train.groups.a]
match = ["*"]
optimizer = "adam"
)";
// The run of kOldKeys, configured by the current keys.
const char* kNewKeys = R"([model]
backbone = "transformer-xl"
positions = "none"
ffn_dim = 24
[model.transformer-xl]
memory = 8
same_length = true
initial_memory = "zeros"
[attention]
score = "relative"
[attention.relative]
distances = "exact"
[attention.decoder.self.1.relative]
distances = "block_end"
[train]
trainable = ["attention"]
cuda_graph = true
[train.batch]
order = "streams"
sequence_length = 16
tokens = 64
rows = 3
bucket_updates = 2
long_sequence_length = 32
long_from = "3u"
micro_tokens = 32
[train.optimizer]
rule = "adamw"
decay_norms_and_biases = false
betas = [0.5, 0.75]
epsilon = 1e-6
bias_correction = false
momentum = 0.5
weight_decay = 0.1
clip_norm = 2.0
[train.schedule]
rule = "cosine"
length = "7u"
decay_from = "start"
warmup = "2u"
warmup_ratio = 0.25
warmup_lr = 0.001
min_lr = 0.002
period = "4u"
period_growth = 2.0
period_shrink = 0.5
[train.validation]
sequence_length = 4
memory = 5
every = "6u"
metric = "bleu"
patience = 9
min_improvement = 0.5
[train.validation.decode]
beam = 3
batch_tokens = 99
[train.checkpoint]
every = "8u"
retain = 2
retain_by = "best"
[train.groups.a]
match = ["*"]
rule = "adamw"
decay_norms_and_biases = true
)";

}  // namespace

TEST_CASE("a configuration with the keys of an earlier version configures the same run as one with the current keys",
          "[renamed]") {
  CHECK(resolved_toml(kOldKeys) == resolved_toml(kNewKeys));
}

TEST_CASE("the earlier option optimizer = 'adam' configures the default optimizer", "[renamed]") {
  CHECK(resolved_toml("[train]\noptimizer = 'adam'\n") == resolved_toml(""));
}

TEST_CASE("the earlier keys 'of' and 'kept' of pruned mixtures configure original_heads and kept_heads", "[renamed]") {
  CHECK(resolved_toml("[attention.decoder.self]\nheads = 2\ncombiner = 'mae'\nmae.of = 4\nmae.kept = [0, 3]\n") ==
        resolved_toml("[attention.decoder.self]\nheads = 2\ncombiner = 'mae'\n"
                      "mae.original_heads = 4\nmae.kept_heads = [0, 3]\n"));
  CHECK(resolved_toml("[attention.decoder.self.0]\nheads = 2\ncombiner = 'mixture-of-heads'\n"
                      "mixture-of-heads.of = 4\nmixture-of-heads.kept = [0, 1]\n") ==
        resolved_toml("[attention.decoder.self.0]\nheads = 2\ncombiner = 'mixture-of-heads'\n"
                      "mixture-of-heads.original_heads = 4\nmixture-of-heads.kept_heads = [0, 1]\n"));
}

TEST_CASE("the earlier keys 'dropout' and 'on' of Mixhead configure dropout_before_mixing and mixer_input",
          "[renamed]") {
  for (const std::string mixer : {"mixhead-a", "mixhead-b"}) {
    const std::string section = "mixer = '" + mixer + "'\n[attention." + mixer + "]\n";
    for (const auto& [old_lines, new_lines] :
         {std::pair{"dropout = 'before'\non = 'logits'\n", "dropout_before_mixing = true\nmixer_input = 'logits'\n"},
          {"dropout = 'after'\non = 'probabilities'\n",
           "dropout_before_mixing = false\nmixer_input = 'probabilities'\n"}})
      CHECK(resolved_toml("[attention]\n" + section + old_lines) ==
            resolved_toml("[attention]\n" + section + new_lines));
  }
  CHECK(resolved_toml("[attention.decoder.self.1]\nmixer = 'mixhead-b'\nmixhead-b.dropout = 'before'\n") ==
        resolved_toml("[attention.decoder.self.1]\nmixer = 'mixhead-b'\nmixhead-b.dropout_before_mixing = true\n"));
}

TEST_CASE("the earlier keys of head counts of talking heads and of mixtures configure the present keys", "[renamed]") {
  const std::string section = "[attention]\nheads = 4\n";
  for (const auto& [old_lines, new_lines] :
       {std::pair{"mixer = 'talking-heads'\ntalking-heads.inside = 3\n",
                  "mixer = 'talking-heads'\ntalking-heads.inner_heads = 3\n"},
        {"combiner = 'mae'\nmae.drop = 2\n", "combiner = 'mae'\nmae.omitted_heads = 2\n"},
        {"combiner = 'mixture-of-heads'\nmixture-of-heads.shared = 1\nmixture-of-heads.chosen = 3\n",
         "combiner = 'mixture-of-heads'\nmixture-of-heads.shared_heads = 1\nmixture-of-heads.chosen_heads = 3\n"}})
    CHECK(resolved_toml(section + old_lines) == resolved_toml(section + new_lines));
}

TEST_CASE("the earlier key 'of' configures the key of the regulariser whose name or type the section has",
          "[renamed]") {
  for (const auto& [type, old_line, new_line] :
       {std::tuple{"disagreement", "of = 'positions'\n", "property = 'positions'\n"},
        {"orthogonal-mixing", "of = 'positions'\n", "matrix_source = 'positions'\n"},
        {"subspace-overlap", "of = 'columns'\n", "subspace = 'columns'\n"}}) {
    INFO(type);
    const std::string model = "[attention]\nmixer = 'mixhead-b'\n", section = str("[train.regularisers.", type, "]\n"),
                      typed_section = str("[train.regularisers.second]\ntype = '", type, "'\n");
    CHECK(resolved_toml(model + section + old_line + typed_section + old_line) ==
          resolved_toml(model + section + new_line + typed_section + new_line));
    Config config;
    config.load_text(model + typed_section, "test");
    config.set(str("train.regularisers.second.", old_line));
    CHECK(RunConfig::read(config).toml() == resolved_toml(model + typed_section + new_line));
  }
}

TEST_CASE("the earlier key 'first' of block-coordinate configures first_gate_epoch", "[renamed]") {
  const std::string section = "[attention]\ncombiner = 'mae'\n[train.procedures.block-coordinate]\n";
  CHECK(resolved_toml(section + "first = 3\n") == resolved_toml(section + "first_gate_epoch = 3\n"));
}

TEST_CASE("earlier keys of masked words and of questions configure the present keys", "[renamed]") {
  CHECK(resolved_toml("[model]\nbackbone = 'bert'\n[mlm]\nmask_share = 0.3\nshort_share = 0.4\n") ==
        resolved_toml("[model]\nbackbone = 'bert'\n[mlm]\nmask_fraction = 0.3\nshort_fraction = 0.4\n"));
  const std::string model = "[model]\nbackbone = 'bert'\nbert.head = 'span'\nbert.segments = 2\n[squad]\n";
  CHECK(resolved_toml(model + "question = 20\nbest = 3\nlongest = 9\n") ==
        resolved_toml(model + "max_question_tokens = 20\nnum_best_answers = 3\nmax_answer_tokens = 9\n"));
}

TEST_CASE("the earlier key project_head configures first_band_projection", "[renamed]") {
  const std::string section = "[model]\noutput_cutoffs = [10]\ntied = false\n";
  CHECK(resolved_toml(section + "project_head = true\n") == resolved_toml(section + "first_band_projection = true\n"));
}

TEST_CASE("the keys block and long_block of an earlier version configure the sequence lengths", "[renamed]") {
  const std::string section = "[train]\nbatch.long_from = '3u'\n";
  CHECK(resolved_toml(section + "batch.block = 16\nbatch.long_block = 32\nvalidation.block = 4\n") ==
        resolved_toml(section + "batch.sequence_length = 16\nbatch.long_sequence_length = 32\n"
                                "validation.sequence_length = 4\n"));
}

TEST_CASE("the table of renamed options contains options of earlier versions and none of this version", "[renamed]") {
  CHECK(new_option_name("--missing-share") == "--missing-fraction");
  CHECK(new_option_name("--block") == "--sequence-length");
  for (const char* option : {"--missing-fraction", "--sequence-length", "--blocks", "--threads", "", "missing-share"})
    CHECK(new_option_name(option).empty());
}

TEST_CASE("keys of norms, residual connections, feed-forward sublayers and logits keep their names and values",
          "[renamed]") {
  for (const char* key :
       {"model.norm", "model.norm_type", "model.norm_bias", "model.final_norm", "model.first_norm", "model.residual",
        "model.gated_ffn", "model.ffn_bias", "model.activation", "model.output_scale", "model.output_soft_cap"})
    for (const char* value : {"true", "2.5", "\"parallel-shared\""}) {
      const auto assignments = convert_renamed({key, value}, "test", [](const std::string&) { return ""; });
      REQUIRE(assignments.size() == 1);
      CHECK(assignments[0].key == key);
      CHECK(assignments[0].text == value);
    }
}

TEST_CASE("of several assignments to the old and the new name of a key, the last assignment wins", "[renamed]") {
  Config config;
  config.load_text("[train]\noptimizer = 'adamw'\nblock = 3\n", "test");
  config.set("train.batch.sequence_length=4");
  config.set("train.block=5");
  config.set("train.optimizer=sgd");
  const RunConfig run = RunConfig::read(config);
  CHECK(run.train.batch.sequence_length == 5);
  CHECK(run.train.optimizer.rule == "sgd");
}

TEST_CASE("the ambiguous rule adam is refused with an error that names both values of decay_norms_and_biases",
          "[renamed]") {
  for (const char* toml : {"[train.optimizer]\nrule = 'adam'\n", "[train.groups.a]\nmatch = ['*']\nrule = 'adam'\n"}) {
    CHECK(status_of([&] { resolved_toml(toml); }) == 2);
    const std::string message = refusal([&] { resolved_toml(toml); });
    CHECK(message.find("decay_norms_and_biases = true") != std::string::npos);
    CHECK(message.find("false") != std::string::npos);
  }
}

TEST_CASE("an option of another backbone is refused unless it has the default value", "[renamed]") {
  CHECK(resolved_toml("[model]\nsegments = 0\n[model.bert]\nclasses = 0\n") == resolved_toml(""));
  for (const char* toml : {"[model]\nsegments = 2\n", "[model.bert]\nsegments = 2\n"})
    CHECK(refusal([&] { resolved_toml(toml); }).find("model.bert.segments: expected model.backbone='bert'") !=
          std::string::npos);
}
