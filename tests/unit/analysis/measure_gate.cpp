// The measure gate against the weights that a combiner applies to the heads.
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/measured_models.h"

using namespace mh;
using namespace mh::analysis;
using namespace measured_models;

TEST_CASE("the measure gate is the mean absolute weight of a head in the combiner", "[importance]") {
  for (const std::string& attention :
       {std::string("combiner = 'gates'\ngates.input = true\n"), std::string("combiner = 'hard-concrete'\n"),
        std::string("combiner = 'head-weights'\nhead-weights.weights = [1, -2, 0.5]\n"),
        std::string(
            "combiner = 'mixture-of-heads'\nmixture-of-heads.shared_heads = 1\nmixture-of-heads.chosen_heads = 1\n"),
        std::string("combiner = 'mae'\n[attention.mae]\nhidden = 5\nomitted_heads = 2\n"),
        std::string("combiner = ['gates', 'mae']\n[attention.mae]\nhidden = 5\nomitted_heads = 2\n"),
        std::string("combiner = 'mae'\nmae.gate = 'uniform'\n")}) {
    INFO(attention);
    MeasuredModel measured_model(attention);
    const ObservedTensors recording = observe_passes(measured_model);
    const auto scores = decoder_self_scores(importance_of("gate", measured_model.analysis_input(SideSelection::whole)));
    for (size_t layer = 0; layer < 2; ++layer) {
      CHECK(is_near(scores[layer],
                    mean_over_positions(recording.layers[layer],
                                        [](const ObservedTensors::ForwardPass& pass, int64_t i, int64_t t) {
                                          const at::Tensor w = pass.w.dim() == 1 ? pass.w : pass.w[0][t];
                                          return std::abs(w[i].item<double>());
                                        }),
                    measured_model.pass_bound()));
      // The combiner multiplies head outputs by these weights, in one rounding. A weight of `mae` is the sum of the
      // gates of up to 3 experts times a constant, in at most 4 roundings; a list of combiners multiplies the weights.
      for (const auto& pass : recording.layers[layer])
        for (int64_t i = 0; i < 3; ++i)
          for (int64_t t = 0; t < pass.length; ++t) {
            const at::Tensor w = pass.w.dim() == 1 ? pass.w : pass.w[0][t];
            const at::Tensor product = pass.z[i][t] * w[i];
            CHECK(numbers::error(product, pass.c[i][t]) <=
                  tolerance::chain_error_bound(1 + 4, tolerance::kFp32, numbers::max_abs(product)));
          }
    }
  }
}
