// Learned gates of heads (combiner gates) against their equation.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>

#include "fixtures/head_mixing.h"

using namespace mh;
using namespace mh::attention;
using layers::Layer;
using layers::LayerRounding;
using layers::output_by_heads;
using layers::RecordingObserver;
using numbers::normal;
using numbers::sigmoid;

TEST_CASE("head gates are sigmoids of a bias or, with input = true, of a projection of the layer input", "[gates]") {
  const at::Tensor x = normal({2, 4, 6}, 1), r = normal({2, 4, 6}, 2);
  for (bool reads_input : {false, true}) {
    Layer l(str("heads = 3\nhead_size = 4\ncombiner = 'gates'\n[attention.gates]\nstart = 0.75\ninput = ",
                reads_input ? "true" : "false"),
            6, 5);
    RecordingObserver recorder;
    l(x, x, {}, {}, &recorder);
    // Roundings: one of the initial bias log(3), and four of the sigmoid.
    CHECK(rounding::agree(recorder.g, at::full(recorder.g.sizes(), 0.75), 1 + 4));
    l.perturb_parameters(3);
    const at::Tensor y = l(x, x, {}, {}, &recorder);
    CHECK(recorder.g.sizes() == (reads_input ? at::IntArrayRef({2, 4, 3}) : at::IntArrayRef({3})));
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t t = 0; t < (reads_input ? 4 : 1); ++t) {
        double logit = l["combiner.gate.bias"][i].item<double>();
        if (reads_input)
          for (int64_t c = 0; c < 6; ++c)
            logit += l["combiner.gate.weight"][i][c].item<double>() * x[1][t][c].item<double>();
        const double gate = (reads_input ? recorder.g[1][t][i] : recorder.g[i]).item<double>();
        // The sigmoid does not amplify the error of the logit, which is relative to |logit|.
        CHECK(gate == rounding::within(sigmoid(logit), tolerance::chain_error_bound(6 + 4, tolerance::kFp32,
                                                                                    std::max(1.0, std::abs(logit)))));
      }
    const LayerRounding rounding = layers::rounding_of(l, x, x);
    CHECK(rounding.combiners_agree(y, output_by_heads(l, recorder.z, recorder.g)));
    // Compares gradients with central differences of the loss Σ y r.
    (y * r).sum().backward();
    const double bound = rounding.gradient_bound(layers::largest_gradient(l));
    for (const char* name : {"combiner.gate.bias", "combiner.gate.weight"}) {
      if (l.parameters.find(std::string("x.") + name) == nullptr) continue;
      auto loss = [&](size_t i, double step) {
        c10::NoGradGuard no_gradient;
        auto shifted = [&](const std::string& parameter) {
          at::Tensor values = l[parameter].to(at::kDouble);
          if (parameter == name) values.view({-1})[static_cast<int64_t>(i)].add_(step);
          return values;
        };
        at::Tensor logits = shifted("combiner.gate.bias");
        if (reads_input) logits = at::linear(x.to(at::kDouble), shifted("combiner.gate.weight"), logits);
        return (layers::exact_output_by_heads(l, recorder.z, at::sigmoid(logits)) * r).sum().item<double>();
      };
      layers::check_slopes(l[name].grad(), static_cast<size_t>(l[name].numel()), bound,
                           rounding.num_combiner_roundings + y.numel(), loss);
    }
  }
}

TEST_CASE("permuting the heads leaves the output of layers with gates unchanged, and the layers take the fused path",
          "[gates]") {
  layers::check_head_permutation({"combiner = 'gates'", "combiner = 'gates'\n[attention.gates]\ninput = true"});
  layers::check_fused_equals_composed("gates");
}
