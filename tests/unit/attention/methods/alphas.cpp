// Alphas, which mix head outputs, against a naive reference; folding alphas into the output projection.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "analysis/fold.h"
#include "fixtures/head_mixing.h"
#include "fixtures/pick.h"

using namespace mh;
using namespace mh::attention;
using layers::Layer;
using layers::LayerRounding;
using layers::output_by_heads;
using layers::RecordingObserver;
using layers::rounding_of;
using numbers::normal;

TEST_CASE("layers with alphas and their gradients match a naive reference", "[alphas]") {
  const std::vector<layers::MixingCase> cases{{"combiner = 'alphas'"}};
  layers::check_mixing(cases);
  layers::check_gradients_of_mixing(cases);
}

TEST_CASE("layers with alphas start as multi-head attention, ignore permutations of heads, and take the fused path",
          "[alphas]") {
  layers::check_initial_identity({"combiner = 'alphas'"});
  layers::check_head_permutation({"combiner = 'alphas'"});
  layers::check_fused_equals_composed("alphas");
}

TEST_CASE("folding alphas into the output projection leaves the output unchanged", "[alphas]") {
  c10::NoGradGuard no_gradient;
  CHECK(rc::check([] {
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    const int64_t h = pick(1, 6), d = pick(1, 9);
    const std::string sizes = str("heads = ", h, "\nhead_size = 3\nvalue_size = ", pick(1, 5), "\n");
    Layer l(sizes + "combiner = 'alphas'", d, seed), plain_layer(sizes, d, seed);
    l.set("combiner.alpha", normal({h, h}, seed));
    plain_layer.copy_parameters_from(l);
    plain_layer.set("output.weight", analysis::fold_matrix(l["combiner.alpha"].t(), l["output.weight"]));
    const at::Tensor x = normal({2, 4, d}, seed + 1);
    const Mask mask = layers::causal_mask();
    RC_ASSERT(rounding_of(l, x, x, mask).agree(l(x, x, mask), plain_layer(x, x, mask)));
  }));
  // The equation of the publication for the transposed folded weight: (αᵀ ⊗ I) Wᵀ.
  const at::Tensor alpha = normal({3, 3}, 1), w = normal({5, 6}, 2);
  CHECK(rounding::agree(analysis::fold_matrix(alpha.t(), w),
                        at::matmul(at::kron(alpha.t().contiguous(), at::eye(2)), w.t()).t(), 3 * 2));
}

TEST_CASE("alphas equal to a permutation matrix permute the heads of the output projection", "[alphas]") {
  c10::NoGradGuard no_gradient;
  Layer l("heads = 3\ncombiner = 'alphas'", 6, 5), plain_layer("heads = 3", 6, 5);
  const at::Tensor x = normal({2, 4, 6}, 1);
  CHECK(rounding_of(l, x, x).agree(l(x, x, {}), plain_layer(x, x, {})));  // α = I
  const std::vector<int64_t> source{2, 0, 1};                             // Z'_i = Z_source[i]
  at::Tensor alpha = at::zeros({3, 3});
  for (int64_t i = 0; i < 3; ++i) alpha[i][source[static_cast<size_t>(i)]] = 1;
  l.set("combiner.alpha", alpha);
  const auto blocks = l["output.weight"].chunk(3, 1);
  std::vector<at::Tensor> permuted(3);
  for (size_t i = 0; i < 3; ++i) permuted[static_cast<size_t>(source[i])] = blocks[i];
  plain_layer.set("output.weight", nn::cat(permuted, 1));
  CHECK(rounding_of(l, x, x).agree(l(x, x, {}), plain_layer(x, x, {})));
}

TEST_CASE("diagonal alphas equal head-weights and head scales", "[alphas]") {
  c10::NoGradGuard no_gradient;
  Layer diagonal_layer("heads = 3\ncombiner = 'alphas'", 6, 5),
      weighted_layer("heads = 3\ncombiner = 'head-weights'\n[attention.head-weights]\nweights = [0.5, -2.0, 0.0]", 6,
                     5),
      plain_layer("heads = 3", 6, 5);
  const at::Tensor weights = at::tensor({0.5F, -2.0F, 0.0F}), x = normal({2, 4, 6}, 1);
  diagonal_layer.set("combiner.alpha", at::diag(weights));
  RecordingObserver recorder;
  const LayerRounding rounding = rounding_of(diagonal_layer, x, x);
  CHECK(rounding.agree(diagonal_layer(x, x, {}), weighted_layer(x, x, {}, {}, &recorder)));
  CHECK(at::equal(recorder.g, weights));
  set_head_scales(*plain_layer.layer, {{}, weights, {}});
  CHECK(rounding.agree(plain_layer(x, x, {}), weighted_layer(x, x, {})));
  CHECK(rounding.agree(output_by_heads(weighted_layer, recorder.z, weights), weighted_layer(x, x, {})));
}

TEST_CASE("Mixhead and alphas with the transposed matrix agree if all heads share their values and differ otherwise",
          "[alphas]") {
  c10::NoGradGuard no_gradient;
  Layer mixhead_layer("heads = 3\nmixer = 'mixhead-a'", 6, 5), alphas_layer("heads = 3\ncombiner = 'alphas'", 6, 5);
  const at::Tensor m = normal({3, 3}, 4), x = normal({2, 4, 6}, 1);
  mixhead_layer.set("mixer.matrix", m);
  alphas_layer.set("combiner.alpha", m.t());
  CHECK(!rounding_of(mixhead_layer, x, x).agree(mixhead_layer(x, x, {}), alphas_layer(x, x, {})));
  for (Layer* l : {&mixhead_layer, &alphas_layer}) {
    l->set("value.weight", (*l)["value.weight"].narrow(0, 0, 2).repeat({3, 1}));
    l->set("value.bias", (*l)["value.bias"].narrow(0, 0, 2).repeat({3}));
  }
  CHECK(rounding_of(mixhead_layer, x, x).agree(mixhead_layer(x, x, {}), alphas_layer(x, x, {})));
}
