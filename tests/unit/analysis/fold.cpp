// Folding combiners into the output projection: the folded model has the outputs of the full model, up to rounding.
#include "analysis/fold.h"

#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "analysis/prune.h"
#include "base/error.h"
#include "fixtures/layers.h"
#include "fixtures/modern_options.h"
#include "fixtures/pick.h"
#include "fixtures/segments.h"
#include "fixtures/within.h"

using namespace mh;
using segment_fixtures::amplification;
using segment_fixtures::check_close;
using segment_fixtures::hidden_states;
using segment_fixtures::Model;
using segment_fixtures::normal;

namespace {

analysis::FoldedModel fold_model(const model::ModelConfig& config, model::LanguageModel& model) {
  return analysis::fold_combiners(config, model, "--fold");
}

// Checks that folding fails with a usage error whose text contains `message`.
void check_refused(const model::ModelConfig& config, model::LanguageModel& model, const std::string& message) {
  try {
    fold_model(config, model);
    FAIL("fold_combiners() throws no error");
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::usage);
    INFO(error.what());
    CHECK(std::string(error.what()).find(message) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("folding a matrix into the output projection equals plain loops in fp64", "[fold]") {
  CHECK(rc::check([] {
    const int64_t value_heads = pick(1, 5), output_heads = pick(1, 5), d = pick(1, 6), dv = pick(1, 4);
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    const at::Tensor m = normal({value_heads, output_heads}, seed), w = normal({d, output_heads * dv}, seed + 1);
    const at::Tensor actual = analysis::fold_matrix(m, w);
    RC_ASSERT((actual.sizes() == at::IntArrayRef{d, value_heads * dv}));
    const auto a = m.accessor<float, 2>(), b = w.accessor<float, 2>(), c = actual.accessor<float, 2>();
    for (int64_t row = 0; row < d; ++row)
      for (int64_t j = 0; j < value_heads; ++j)
        for (int64_t k = 0; k < dv; ++k) {
          double sum = 0, magnitude = 0;
          for (int64_t i = 0; i < output_heads; ++i) {
            const double term = static_cast<double>(a[j][i]) * static_cast<double>(b[row][i * dv + k]);
            sum += term, magnitude += std::abs(term);
          }
          // The bound covers both sums, which are in fp64, and the rounding of the sum of fold_matrix() to fp32.
          RC_ASSERT(std::abs(static_cast<double>(c[row][j * dv + k]) - sum) <=
                    tolerance::kFp32 * std::abs(sum) + rounding::fp64_bound(output_heads, magnitude));
        }
  }));
}

TEST_CASE("a folded model has the outputs of the full model for every foldable combiner, backbone and mixer",
          "[fold]") {
  const std::vector<std::string> combiners{
      "combiner = 'alphas'\n",
      "combiner = 'gates'\n",
      "combiner = 'hard-concrete'\n",
      "combiner = 'drop-head'\n",
      "combiner = 'head-weights'\nhead-weights.weights = [1, -0.5, 2, 0.25]\n",
      "combiner = 'mae'\nmae.gate = 'uniform'\n",
      "combiner = ['gates', 'alphas']\n",
      "combiner = ['head-weights', 'drop-head', 'hard-concrete']\nhead-weights.weights = [1, -0.5, 2, 0.25]\n",
  };
  for (const char* backbone : {"decoder", "transformer-xl"})
    for (const std::string& combiner : combiners)
      for (const char* mixer : {"none", "mixhead-a", "talking-heads"}) {
        INFO(backbone << " " << combiner << " " << mixer);
        const Model full(backbone, str("mixer = '", mixer, "'\n", combiner));
        const auto folded = fold_model(full.config, *full.model);
        CHECK(folded.layer_names.size() == 3);
        CHECK(folded.layer_names[2] == "decoder.layers.2.self");
        for (const auto& p : folded.model->parameters().all()) CHECK(p.name().find("combiner") == std::string::npos);
        check_close(hidden_states(*folded.model), hidden_states(*full.model));
        // The folded configuration has no sections for single layers, and a model built from it has as many parameter
        // tensors as the folded model.
        CHECK(folded.config.toml().find("combiner = \"concatenate\"") != std::string::npos);
        CHECK(folded.config.toml().find("[attention.decoder") == std::string::npos);
        Config folded_config;
        folded_config.load_text(folded.config.toml(), "toml");
        CHECK(model::build_language_model(model::ModelConfig::read(folded_config), {6}, at::kMeta)
                  ->parameters()
                  .all()
                  .size() == folded.model->parameters().all().size());
        check_refused(folded.config, *folded.model, "--fold");
      }
}

TEST_CASE("folding keeps the outputs of layers with unequal head counts, pruned layers and models with two combiners",
          "[fold]") {
  const Model unequal_model("decoder",
                            "value_heads = 6\noutput_heads = 3\nmixer = 'talking-heads'\ncombiner = 'alphas'\n");
  auto folded = fold_model(unequal_model.config, *unequal_model.model);
  check_close(hidden_states(*folded.model), hidden_states(*unequal_model.model));
  CHECK(folded.model->parameters().find("decoder.layers.0.self.output.weight")->master().size(1) == 30);

  for (const std::string combiner : {"'alphas'", "'gates'", "['gates', 'alphas']", "['gates', 'hard-concrete']"}) {
    const Model full("transformer-xl", str("mixer = 'mixhead-b'\ncombiner = ", combiner, "\n"));
    const auto side =
        combiner.find("alphas") != std::string::npos ? analysis::SideSelection::output : analysis::SideSelection::whole;
    const analysis::HeadSet pruned_heads{{analysis::AttentionKind::decoder_self, {{0, 1}, {0, 3}, {2, 0}}}};
    const auto pruned = analysis::prune_heads(full.config, *full.model,
                                              analysis::heads_after_pruning(*full.model, pruned_heads, side, "test"));
    const auto folded_pruned = fold_model(pruned.config, *pruned.model);
    CHECK(folded_pruned.layer_names.size() == 3);
    check_close(hidden_states(*folded_pruned.model), hidden_states(*pruned.model));
  }
  {
    const Model full("decoder", "combiner = 'alphas'\n");
    const analysis::HeadSet pruned_heads{{analysis::AttentionKind::decoder_self, {{1, 0}, {1, 1}, {1, 2}, {1, 3}}}};
    const auto pruned = analysis::prune_heads(
        full.config, *full.model,
        analysis::heads_after_pruning(*full.model, pruned_heads, analysis::SideSelection::output, "test"));
    const auto folded_pruned = fold_model(pruned.config, *pruned.model);
    CHECK(folded_pruned.layer_names == std::vector<std::string>{"decoder.layers.0.self", "decoder.layers.2.self"});
    check_close(hidden_states(*folded_pruned.model), hidden_states(*pruned.model));
  }
  const Model two_combiners("decoder", "combiner = 'mixture-of-heads'\ndecoder.self.1.combiner = 'alphas'\n");
  folded = fold_model(two_combiners.config, *two_combiners.model);
  CHECK(folded.layer_names == std::vector<std::string>{"decoder.layers.1.self"});
  check_close(hidden_states(*folded.model), hidden_states(*two_combiners.model));
  check_refused(folded.config, *folded.model, "concatenate, mixture-of-heads");
}

TEST_CASE("with any option of modern decoders, a folded model has the outputs of the full model", "[fold]") {
  for (const modern_options::Configuration& c : modern_options::all()) {
    INFO(c.name);
    const Model full("decoder", "combiner = 'alphas'\n", c.toml);
    const auto folded = fold_model(full.config, *full.model);
    CHECK(folded.layer_names.size() == 3);
    check_close(hidden_states(*folded.model), hidden_states(*full.model), amplification(*full.model));
  }
}

TEST_CASE("folding a list folds the combiners after the last one without a matrix and keeps the others", "[fold]") {
  for (const auto& [combiners, unfolded] :
       {std::pair{"['mae', 'gates']", "\"mae\""},
        {"['mixture-of-heads', 'hard-concrete', 'alphas']", "\"mixture-of-heads\""},
        {"['gates', 'pair-norm', 'mae', 'drop-head']", "[\"gates\", \"pair-norm\", \"mae\"]"}}) {
    INFO(combiners);
    const Model full("decoder", str("combiner = ", combiners, "\n"));
    const auto folded = fold_model(full.config, *full.model);
    CHECK(folded.layer_names.size() == 3);
    CHECK(folded.config.toml().find(str("combiner = ", unfolded, "\n")) != std::string::npos);
    check_close(hidden_states(*folded.model), hidden_states(*full.model));
    check_refused(folded.config, *folded.model, "one matrix for all inputs");
  }
}

TEST_CASE("folding refuses concatenation and combiners whose matrix depends on the input", "[fold]") {
  for (const char* combiner :
       {"combiner = 'mae'\n", "combiner = 'mixture-of-heads'\n", "combiner = 'gates'\ngates.input = true\n",
        "combiner = 'pair-norm'\n", "combiner = ['gates', 'mae']\n", "combiner = 'concatenate'\n"}) {
    INFO(combiner);
    const Model full("decoder", combiner);
    check_refused(full.config, *full.model, "one matrix for all inputs");
  }
}
