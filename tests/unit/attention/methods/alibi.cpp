// ALiBi: slopes of the paper, layers against a naive reference, slopes after pruning.
#include <algorithm>
#include <cmath>

#include "fixtures/position_biases.h"

using namespace mh;
using namespace mh::attention;
using Layer = layers::PerturbedLayer;

namespace {

// Returns the slopes as in the paper: with c, the largest power of two that is at most h, the slopes of c heads, then
// every other slope of 2 c heads.
std::vector<double> slopes_of(int64_t num_heads) {
  int64_t c = 1;
  while (2 * c <= num_heads) c *= 2;
  const auto slopes_of_power = [](int64_t power) {
    std::vector<double> slopes;
    for (int64_t j = 1; j <= power; ++j)
      slopes.push_back(std::pow(2.0, -8.0 * static_cast<double>(j) / static_cast<double>(power)));
    return slopes;
  };
  std::vector<double> slopes = slopes_of_power(c);
  const std::vector<double> more_slopes = slopes_of_power(2 * c);
  for (size_t j = 0; static_cast<int64_t>(slopes.size()) < num_heads; j += 2) slopes.push_back(more_slopes[j]);
  return slopes;
}

double bias(const reference::Weights&, int64_t i, int64_t num_heads, int64_t distance, bool) {
  return -slopes_of(num_heads)[static_cast<size_t>(i)] * static_cast<double>(std::abs(distance));
}

}  // namespace

TEST_CASE("ALiBi has the slopes of the paper, also if the number of heads is no power of two", "[alibi]") {
  const std::vector<double> eight{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625};
  std::vector<double> twelve = eight;
  for (const double exponent : {-0.5, -1.5, -2.5, -3.5}) twelve.push_back(std::exp2(exponent));
  const std::vector<double> six{0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
  for (const std::vector<double>& slopes : {eight, twelve, six}) {
    const at::Tensor biases = position_biases::bias_of("alibi", static_cast<int64_t>(slopes.size()), {1, 0, 3, -3});
    for (size_t j = 0; j < slopes.size(); ++j) {
      const at::Tensor head = biases[static_cast<int64_t>(j)];
      // The layer rounds the power of 2 to fp32; the errors of both powers in double precision are far smaller.
      CHECK(-head[0].item<double>() == rounding::within(slopes[j], 2 * tolerance::kFp32 * slopes[j]));
      CHECK(head[1].item<double>() == 0);
      CHECK(rounding::agree(head[2], 3 * head[0], 1));
      CHECK(head[3].item<double>() == head[2].item<double>());
    }
  }
}

TEST_CASE("layers with ALiBi match a naive reference, with memories, windows, sinks and soft caps", "[alibi]") {
  position_biases::check_outputs("position_bias = 'alibi'\n", bias);
}

TEST_CASE("gradients of layers with ALiBi equal finite differences of a naive reference", "[alibi]") {
  position_biases::check_gradients("position_bias = 'alibi'\n", bias);
}

TEST_CASE("ALiBi is added to relative scores and to Synthesizers", "[alibi]") {
  c10::NoGradGuard no_gradient;
  for (const char* score : {"relative", "synthesizer-random"}) {
    INFO(score);
    struct : Observer {
      at::Tensor logits;
      bool wants_scores() const override { return true; }
      void observe_scores(const LayerSpec&, const at::Tensor& x) override { logits = x.clone(); }
    } with_bias, without_bias;
    const std::string lines = str("heads = 2\nscore = '", score, "'\n");
    layers::Layer biased(lines + "position_bias = 'alibi'\n", 8), plain(lines, 8);
    const at::Tensor x = numbers::normal({2, 5, 8}, 1);
    biased(x, x, layers::causal_mask(), {}, &with_bias);
    plain(x, x, layers::causal_mask(), {}, &without_bias);
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t t = 0; t < 5; ++t)
        for (int64_t s = 0; s <= t; ++s) {
          const at::Tensor difference = (with_bias.logits - without_bias.logits).select(1, i).select(1, t).select(1, s);
          CHECK(rounding::agree(difference, at::full({2}, bias({}, i, 2, t - s, false)), 4,
                                numbers::max_abs(with_bias.logits)));
        }
  }
}

TEST_CASE("pruned heads leave the slopes of the other heads unchanged", "[alibi]") {
  const Layer full("heads = 4\nposition_bias = 'alibi'\n", 8, 1);
  AttentionOptions options = full.layer->options_after_pruning({{1, 3}, {1, 3}, {1, 3}});
  FieldLister lister;
  lister.section("attention", options);
  const auto fields = lister.descriptions();
  const auto slopes = std::find_if(fields.begin(), fields.end(),
                                   [](const FieldDescription& f) { return f.key == "attention.alibi.slopes"; });
  REQUIRE(slopes != fields.end());
  CHECK(slopes->value == "[0.0625, 0.00390625]");
}

TEST_CASE("ALiBi refuses cross-attention and a list of slopes of another length than the number of heads", "[alibi]") {
  CHECK_THROWS_AS(Layer("heads = 2\nposition_bias = 'alibi'\n", 8, 1, AttentionKind::decoder_cross), Error);
  CHECK_THROWS_AS(Layer("heads = 2\nposition_bias = 'alibi'\nalibi.slopes = [0.5]\n", 8, 1), Error);
  CHECK_NOTHROW(Layer("heads = 2\nposition_bias = 'alibi'\nalibi.slopes = [0.5, 0.0]\n", 8, 1));
}
