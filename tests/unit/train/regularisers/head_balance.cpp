// The regulariser head-balance against plain loops over layers, heads and positions.
#include <catch2/catch.hpp>

#include "attention/methods/mixture_of_heads/routing.h"
#include "fixtures/layers.h"
#include "fixtures/loss_terms.h"

using namespace mh;
using namespace mh::train;
using loss_terms::near_term;

TEST_CASE("head-balance is the sum over layers and heads of h f p, with selection frequency f and mean probability p",
          "[regularisers]") {
  auto term = regularisers().make("head-balance", "");
  Config config;
  config.load_text("[r]\nweight = 0.5\n", "test");
  config.read("r", *term);
  const int64_t batch = 2, n = 3, heads = 4, k = 2;
  double expected = 0;
  std::vector<at::Tensor> layers;
  for (int i = 0; i < 2; ++i) {
    const at::Tensor p = at::softmax(at::randn({batch, n, heads}), -1).requires_grad_();
    const at::Tensor chosen = at::zeros({batch, n, heads}).scatter(-1, std::get<1>(p.detach().topk(k, -1)), 1.0);
    layers.push_back(p);
    term->observer()->notify_subscribers({}, attention::RoutingObservation{p, chosen});
    for (int64_t e = 0; e < heads; ++e) {
      double f = 0, mean = 0;
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t t = 0; t < n; ++t) {
          f += chosen[b][t][e].item<double>() / static_cast<double>(batch * n);
          mean += p[b][t][e].item<double>() / static_cast<double>(batch * n);
        }
      expected += static_cast<double>(heads) * f * mean;
    }
  }
  const at::Tensor value = term->loss({});
  CHECK(value.item<double>() == near_term(0.5 * expected));
  value.backward();
  for (const at::Tensor& p : layers) CHECK(p.grad().abs().max().item<double>() > 0);
  // Each of 4 heads is selected at half of the positions.
  const at::Tensor uniform = at::full({1, 2, heads}, 0.25),
                   chosen = at::tensor({1.F, 1.F, 0.F, 0.F, 0.F, 0.F, 1.F, 1.F});
  term->observer()->notify_subscribers({}, attention::RoutingObservation{uniform, chosen.view({1, 2, heads})});
  CHECK(term->loss({}).item<double>() == 0.5 * k);
}

TEST_CASE("head-balance has equal values and gradients on the fused and on the composed path", "[regularisers]") {
  const int64_t width = 32, keys = 5;
  layers::PerturbedLayer l(
      "heads = 4\nhead_size = 16\ncombiner = 'mixture-of-heads'\n"
      "[attention.mixture-of-heads]\nshared_heads = 1\nchosen_heads = 2",
      width, 1);
  const auto term = loss_terms::make_regulariser("head-balance", "");
  const at::Tensor x = numbers::normal({2, keys, width}, 2);
  double value = 0;
  // Path::fused is an error for a pass that needs the composed path.
  const auto results_of = [&](attention::Path path) {
    l.layer->set_path(path);
    return layers::results_of(l, x, [&](const at::Tensor& input) {
      const at::Tensor y = l(input, input, layers::causal_mask(), {}, term->observer());
      const at::Tensor loss = term->loss({});
      value = loss.item<double>();
      return y + loss;
    });
  };
  const layers::Results composed = results_of(attention::Path::composed);
  CHECK(value > 0);
  const double composed_value = value;
  const layers::Results fused = results_of(attention::Path::fused);
  CHECK(value == composed_value);  // the router does not depend on the path
  REQUIRE(fused.size() == composed.size());
  double magnitude = 0;
  for (const at::Tensor& result : composed) magnitude = std::max(magnitude, numbers::max_abs(result));
  for (size_t i = 0; i < fused.size(); ++i) {
    INFO(i);
    CHECK(rounding::agree(fused[i], composed[i].to(at::kDouble), 2 * layers::num_roundings(l.layer->layer_spec(), keys),
                          magnitude));
  }
}
