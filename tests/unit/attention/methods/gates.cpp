// Learned gates of heads (combiner gates) against their equation.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>

#include "fixtures/head_mixing.h"

using namespace mh;
using namespace mh::attention;
using layers::Layer;
using layers::output_by_heads;
using layers::RecordingObserver;
using numbers::close;
using numbers::normal;
using numbers::sigmoid;

TEST_CASE("head gates are sigmoids of a bias or, with input = true, of a projection of the layer input", "[gates]") {
  const at::Tensor x = normal({2, 4, 6}, 1), r = normal({2, 4, 6}, 2);
  for (bool reads_input : {false, true}) {
    Layer l(str("heads = 3\nhead_size = 4\ncombiner = 'gates'\n[attention.gates]\nstart = 0.75\ninput = ",
                reads_input ? "true" : "false"),
            6, 5);
    RecordingObserver watch;
    l(x, x, {}, {}, &watch);
    CHECK(close(watch.g, at::full(watch.g.sizes(), 0.75)));
    l.perturb_parameters(3);
    const at::Tensor y = l(x, x, {}, {}, &watch);
    CHECK(watch.g.sizes() == (reads_input ? at::IntArrayRef({2, 4, 3}) : at::IntArrayRef({3})));
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t t = 0; t < (reads_input ? 4 : 1); ++t) {
        double logit = l["combiner.gate.bias"][i].item<double>();
        if (reads_input)
          for (int64_t c = 0; c < 6; ++c)
            logit += l["combiner.gate.weight"][i][c].item<double>() * x[1][t][c].item<double>();
        CHECK((reads_input ? watch.g[1][t][i] : watch.g[i]).item<double>() == Approx(sigmoid(logit)).epsilon(1e-5));
      }
    CHECK(close(y, output_by_heads(l, watch.z, watch.g)));
    // Gradients against finite differences of the layer, summed in double precision.
    (y * r).sum().backward();
    for (const char* name : {"combiner.gate.bias", "combiner.gate.weight"}) {
      if (l.parameters.find(std::string("x.") + name) == nullptr) continue;
      const at::Tensor g = l[name].grad().flatten();
      for (int64_t i = 0; i < g.numel(); ++i) {
        auto loss = [&](double step) {
          c10::NoGradGuard no_gradient;
          at::Tensor entry = l[name].view({-1})[i];
          entry.add_(step);
          const double value = (l(x, x, {}).to(at::kDouble) * r).sum().item<double>();
          entry.sub_(step);
          return value;
        };
        CHECK(g[i].item<double>() == Approx((loss(1e-2) - loss(-1e-2)) / 2e-2).margin(5e-3).epsilon(1e-2));
      }
    }
  }
}

TEST_CASE("permuting the heads leaves the output of layers with gates unchanged, and the layers take the fused path",
          "[gates]") {
  layers::check_head_permutation({"combiner = 'gates'", "combiner = 'gates'\n[attention.gates]\ninput = true"});
  layers::check_fused_equals_composed("gates");
}
