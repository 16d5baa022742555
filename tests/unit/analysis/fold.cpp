// Combiners folded into the output projection: the model that is left gives what the whole one gave.
#include "analysis/fold.h"

#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "analysis/prune.h"
#include "base/error.h"
#include "fixtures/layers.h"
#include "fixtures/segments.h"

using namespace mh;
using passes::check_same;
using passes::Model;
using passes::normal;
using passes::run;

namespace {

analysis::FoldedModel folded(const model::ModelConfig& config, model::LanguageModel& model) {
  return analysis::fold_combiners(config, model, "--fold");
}

void refuses(const model::ModelConfig& config, model::LanguageModel& model, const std::string& part) {
  try {
    folded(config, model);
    FAIL("it is folded");
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::usage);
    INFO(error.what());
    CHECK(std::string(error.what()).find(part) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("folding is a sum over heads by plain loops", "[fold]") {
  CHECK(rc::check([] {
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    const int64_t values = pick(1, 5), outputs = pick(1, 5), d = pick(1, 6), dv = pick(1, 4);
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    const at::Tensor m = normal({values, outputs}, seed), w = normal({d, outputs * dv}, seed + 1);
    const at::Tensor got = analysis::fold(m, w);
    RC_ASSERT((got.sizes() == at::IntArrayRef{d, values * dv}));
    const auto a = m.accessor<float, 2>(), b = w.accessor<float, 2>(), c = got.accessor<float, 2>();
    for (int64_t row = 0; row < d; ++row)
      for (int64_t j = 0; j < values; ++j)
        for (int64_t k = 0; k < dv; ++k) {
          double sum = 0, size = 0;
          for (int64_t i = 0; i < outputs; ++i) {
            const double term = static_cast<double>(a[j][i]) * static_cast<double>(b[row][i * dv + k]);
            sum += term, size += std::abs(term);
          }
          // One rounding to fp32, after sums in double.
          RC_ASSERT(std::abs(static_cast<double>(c[row][j * dv + k]) - sum) <= 6e-8 * std::abs(sum) + 1e-14 * size);
        }
  }));
}

TEST_CASE("a folded model gives what it gave, on both backbones, with every combiner that folds and mixers", "[fold]") {
  const std::vector<std::string> combiners{
      "combiner = 'alphas'\n",
      "combiner = 'gates'\n",
      "combiner = 'hard-concrete'\n",
      "combiner = 'drop-head'\n",
      "combiner = 'head-weights'\nhead-weights.weights = [1, -0.5, 2, 0.25]\n",
      "combiner = 'mae'\nmae.gate = 'uniform'\n",
  };
  for (const char* backbone : {"decoder", "transformer-xl"})
    for (const std::string& combiner : combiners)
      for (const char* mixer : {"none", "mixhead-a", "talking-heads"}) {
        INFO(backbone << " " << combiner << " " << mixer);
        const Model whole(backbone, str("mixer = '", mixer, "'\n", combiner));
        const auto left = folded(whole.config, *whole.model);
        CHECK(left.layers.size() == 3);
        CHECK(left.layers[2] == "decoder.layers.2.self");
        for (const auto& p : left.model->parameters().all()) CHECK(p.name().find("combiner") == std::string::npos);
        check_same(run(*left.model), run(*whole.model));
        // Its configuration builds it, and says what it is in one place.
        CHECK(left.config.toml().find("combiner = \"concatenate\"") != std::string::npos);
        CHECK(left.config.toml().find("[attention.decoder") == std::string::npos);
        Config text;
        text.load_text(left.config.toml(), "toml");
        CHECK(model::build_language_model(model::ModelConfig::read(text), 6, at::kMeta)->parameters().all().size() ==
              left.model->parameters().all().size());
        refuses(left.config, *left.model, "--fold");
      }
}

TEST_CASE("layers fold that have other numbers of heads, were cut, or stand among others", "[fold]") {
  const Model numbers("decoder", "value_heads = 6\noutput_heads = 3\nmixer = 'talking-heads'\ncombiner = 'alphas'\n");
  auto left = folded(numbers.config, *numbers.model);
  check_same(run(*left.model), run(*numbers.model));
  CHECK(left.model->parameters().find("decoder.layers.0.self.output.weight")->master().size(1) == 30);

  for (const char* combiner : {"alphas", "gates"}) {
    const Model whole("transformer-xl", str("mixer = 'mixhead-b'\ncombiner = '", combiner, "'\n"));
    const auto side = std::string(combiner) == "alphas" ? analysis::Side::output : analysis::Side::whole;
    const analysis::HeadSet lost{{analysis::AttentionKind::decoder_self, {{0, 1}, {0, 3}, {2, 0}}}};
    const auto cut =
        analysis::prune_heads(whole.config, *whole.model, analysis::kept_without(*whole.model, lost, side, "test"));
    const auto fold = folded(cut.config, *cut.model);
    CHECK(fold.layers.size() == 3);
    check_same(run(*fold.model), run(*cut.model));
  }
  {
    const Model whole("decoder", "combiner = 'alphas'\n");
    const analysis::HeadSet lost{{analysis::AttentionKind::decoder_self, {{1, 0}, {1, 1}, {1, 2}, {1, 3}}}};
    const auto cut = analysis::prune_heads(whole.config, *whole.model,
                                           analysis::kept_without(*whole.model, lost, analysis::Side::output, "test"));
    const auto fold = folded(cut.config, *cut.model);
    CHECK(fold.layers == std::vector<std::string>{"decoder.layers.0.self", "decoder.layers.2.self"});
    check_same(run(*fold.model), run(*cut.model));
  }
  const Model mixed("decoder", "combiner = 'mixture-of-heads'\ndecoder.self.1.combiner = 'alphas'\n");
  left = folded(mixed.config, *mixed.model);
  CHECK(left.layers == std::vector<std::string>{"decoder.layers.1.self"});
  check_same(run(*left.model), run(*mixed.model));
  refuses(left.config, *left.model, "concatenate, mixture-of-heads");
}

TEST_CASE("what depends on the input does not fold", "[fold]") {
  for (const char* combiner :
       {"combiner = 'mae'\n", "combiner = 'mixture-of-heads'\n", "combiner = 'gates'\ngates.input = true\n",
        "combiner = 'pair-norm'\n", "combiner = 'concatenate'\n"}) {
    INFO(combiner);
    const Model whole("decoder", combiner);
    refuses(whole.config, *whole.model, "a constant matrix across heads");
  }
}
