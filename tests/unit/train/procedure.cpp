// Procedures: bit-identical resume of runs with each of the methods of toml_by_method() below, several passes in an
// update, and the errors of a diverged run.
#include <catch2/catch.hpp>
#include <filesystem>

#include "attention/layer.h"
#include "base/error.h"
#include "fixtures/modern_options.h"
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
       "[attention]\nmixer = 'mixhead-b'\n[train.regularisers.orthogonal-mixing]\nweight = 0.1\nmatrix_source = "
       "'positions'\n"},
      {"hard-concrete",
       "[attention]\ncombiner = 'hard-concrete'\n[train.regularisers.hard-concrete-penalty]\nweight = 0.1\n"},
      {"rotation", "[train.procedures.head-rotation]\nmode = 'soft'\nk = 1\nfrequency = 1\n"},
      {"experts drawn evenly", "[attention]\ncombiner = 'mae'\n[attention.mae]\ngate = 'uniform'\n"},
      {"orthogonal", "[attention]\nmixer = 'mixhead-a'\n[train.regularisers.orthogonal-mixing]\nweight = 0.1\n"},
      {"nuclear",
       "[attention]\ncombiner = 'alphas'\n[train.regularisers.nuclear-growth]\nweight = 0.05\nstart = 0.4\n"},
      {"disagreement", "[train.regularisers.disagreement]\nweight = 0.1\n"},
      {"positions", "[train.regularisers.disagreement]\nweight = 0.1\nproperty = 'positions'\n"},
      {"overlap", "[train.regularisers.subspace-overlap]\nweight = 0.1\n"},
      {"experts",
       "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n[train.procedures.block-coordinate]\nevery = 2\n"
       "[train.groups.gates]\nmatch = ['*.gate.*']\nrule = 'sgd'\nlr = 1.0\n"},
      {"load balance",
       "[attention]\ncombiner = 'mixture-of-heads'\n[attention.mixture-of-heads]\nshared_heads = 1\nchosen_heads = 1\n"
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

TEST_CASE("resume of a run with any option of modern decoders gives bit-identical weights", "[procedures]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  for (const modern_options::Configuration& c : modern_options::all()) {
    INFO(c.name);
    auto uninterrupted = train_in_folder(folder, c.name, add_length(c.toml, 3));
    train_in_folder(folder, c.name + ", halves", add_length(c.toml, 1));
    auto resumed = train_in_folder(folder, c.name + ", halves", add_length(c.toml, 3), true);
    for (auto& p : uninterrupted.model->parameters().all()) {
      INFO(p.name());
      CHECK(at::equal(p.master(), find(resumed, p.name())));
    }
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
