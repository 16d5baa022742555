// Stochastic cross-head attention: the keys and values that permuted heads read, the rate of permutations, and
// evaluation without permutations.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/text.h"
#include "fixtures/gradients.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using namespace numbers;
using namespace reference;
using layers::causal_mask;
using Layer = layers::PerturbedLayer;

namespace {

std::string attention_lines(const std::string& score, int64_t heads, double rate, int64_t size = 4) {
  return str("heads = ", heads, "\nhead_size = ", size, "\nscore = '", score,
             "'\npairing = 'cross-head'\n[attention.cross-head]\nrate = ", rate, "\n");
}

ForwardContext context_of_update(uint32_t number) { return {true, 3, number, 0}; }

// Permutes the blocks of parameters along their head axis: new block i is old block order[i]. Skips names that
// the layer does not have.
void permute(Layer& l, const std::vector<std::string>& names, const std::vector<int64_t>& order) {
  c10::NoGradGuard no_gradient;
  for (const std::string& name : names) {
    nn::Parameter* p = l.parameters.find("x." + name);
    if (p == nullptr) continue;
    const nn::HeadAxis& heads = p->traits().head_axes.at(0);
    auto blocks = p->master().chunk(heads.heads, heads.axis);
    std::vector<at::Tensor> permuted;
    for (int64_t source : order) permuted.push_back(blocks[static_cast<size_t>(source)]);
    p->master().copy_(nn::cat(permuted, heads.axis));
  }
}

}  // namespace

TEST_CASE("cross-head attention lets a permuted head read keys, values and distance embeddings of another head",
          "[cross-head]") {
  for (const char* score : {"dot-product", "relative"}) {
    const std::string toml = attention_lines(score, 3, 1);
    Layer l(toml, 8, 5);
    at::Tensor x = normal({2, 6, 8}, 1);
    const layers::LayerRounding rounding = layers::rounding_of(l, x, x, causal_mask());
    std::map<std::vector<int64_t>, int> drawn_orders;
    for (uint32_t i = 0; i < 60; ++i) {
      at::Tensor y = l.layer->forward(x, x, causal_mask(), context_of_update(i));
      int num_matches = 0;
      std::vector<int64_t> order{0, 1, 2};
      do {
        // Permuting key and value parameters equals permuting query and output parameters by the inverse permutation.
        Layer permuted_keys_layer(toml, 8, 5), permuted_queries_layer(toml, 8, 5);
        permute(permuted_keys_layer, {"key.weight", "key.bias", "value.weight", "value.bias", "relative.weight"},
                order);
        std::vector<int64_t> inverse(3);
        for (int64_t j = 0; j < 3; ++j) inverse[static_cast<size_t>(order[static_cast<size_t>(j)])] = j;
        permute(permuted_queries_layer,
                {"query.weight", "query.bias", "relative.content_bias", "relative.position_bias", "output.weight"},
                inverse);
        if (rounding.agree(y, permuted_keys_layer.layer->forward(x, x, causal_mask(), {}))) {
          ++num_matches, ++drawn_orders[order];
          CHECK(rounding.agree(y, permuted_queries_layer.layer->forward(x, x, causal_mask(), {})));
        }
      } while (std::next_permutation(order.begin(), order.end()));
      CHECK(num_matches == 1);
    }
    CHECK(drawn_orders.size() == 6);  // all permutations, the identity included
  }
}

TEST_CASE("heads are permuted with probability β = rate; a head reads its own keys with probability 1 - β + β / h",
          "[cross-head]") {
  // The values of head j are the constant j, so the output of a head is the index of the head whose values it read.
  Layer l(attention_lines("dot-product", 4, 0.3, 1), 4, 5);
  {
    c10::NoGradGuard no_gradient;
    l["value.weight"].zero_();
    l["value.bias"].copy_(at::arange(4, at::kFloat));
    l["output.weight"].copy_(at::eye(4));
    l["output.bias"].zero_();
  }
  at::Tensor x = normal({1, 1, 4}, 1);
  const int num_draws = 6000;
  int num_permuted = 0, num_own = 0;
  for (uint32_t i = 0; i < num_draws; ++i) {
    at::Tensor y = l.layer->forward(x, x, {}, context_of_update(i)).flatten().round();
    int num_fixed = 0;
    for (int64_t j = 0; j < 4; ++j) num_fixed += y[j].item<float>() == static_cast<float>(j);
    num_permuted += num_fixed < 4, num_own += num_fixed;
  }
  // Margins of four standard deviations.
  const double p = 0.3 * 23 / 24;
  CHECK(num_permuted / double{num_draws} == rounding::within(p, 4 * std::sqrt(p * (1 - p) / num_draws)));
  // The number of fixed points of a uniform permutation has mean 1 and variance 1.
  CHECK(num_own / double{num_draws} == rounding::within(4 * 0.7 + 0.3, 4 * std::sqrt((0.3 + 0.21 * 9) / num_draws)));
}

TEST_CASE("cross-head attention permutes no heads with rate 0 or in evaluation", "[cross-head]") {
  Layer rate_0_layer(attention_lines("relative", 4, 0), 8, 5), rate_1_layer(attention_lines("relative", 4, 1), 8, 5);
  at::Tensor x = normal({2, 6, 8}, 1);
  // A layer with the parameters of rate_1_layer.
  Layer layer_without_pairing("heads = 4\nhead_size = 4\nscore = 'relative'\n", 8, 5);
  at::Tensor output_without_permutation = rate_1_layer.layer->forward(x, x, causal_mask(), {});
  CHECK(at::equal(layer_without_pairing.layer->forward(x, x, causal_mask(), {}), output_without_permutation));
  const layers::LayerRounding rounding = layers::rounding_of(rate_1_layer, x, x, causal_mask());
  int num_equal = 0;
  for (uint32_t i = 0; i < 20; ++i) {
    ForwardContext evaluation_context = context_of_update(i);
    evaluation_context.training = false;
    CHECK(
        at::equal(rate_0_layer.layer->forward(x, x, causal_mask(), context_of_update(i)), output_without_permutation));
    CHECK(at::equal(rate_1_layer.layer->forward(x, x, causal_mask(), evaluation_context), output_without_permutation));
    num_equal += rounding.agree(rate_1_layer.layer->forward(x, x, causal_mask(), context_of_update(i)),
                                output_without_permutation);
  }
  // One of 24 permutations is the identity. The bound is four standard deviations above the mean number in 20 draws.
  const double p = 1.0 / 24;
  CHECK(num_equal <= 20 * p + 4 * std::sqrt(20 * p * (1 - p)));
}

TEST_CASE("cross-head permutations leave the output unchanged if all heads have equal keys and values",
          "[cross-head]") {
  Layer l(attention_lines("relative", 4, 1), 8, 5);
  permute(l, {"key.weight", "key.bias", "value.weight", "value.bias", "relative.weight"}, {2, 2, 2, 2});
  at::Tensor x = normal({2, 6, 8}, 1), output_without_permutation = l.layer->forward(x, x, causal_mask(), {});
  const layers::LayerRounding rounding = layers::rounding_of(l, x, x, causal_mask());
  for (uint32_t i = 0; i < 10; ++i)
    CHECK(rounding.agree(l.layer->forward(x, x, causal_mask(), context_of_update(i)), output_without_permutation));
}

TEST_CASE("errors of cross-head attention on the fused path are at most twice those on the composed path",
          "[cross-head]") {
  Layer l(attention_lines("dot-product", 4, 1, 16), 8, 5);
  CHECK(l.layer->reasons_not_fused(true).empty());
  const at::Tensor x = normal({2, 6, 8}, 1);
  for (uint32_t i = 0; i < 5; ++i) {
    const auto [fused, composed, exact, magnitudes] = layers::results_of_paths(
        l, x, [&](const at::Tensor& input) { return l(input, input, causal_mask(), context_of_update(i)); });
    CHECK(find_excess_error(fused, composed, exact, at::kFloat, magnitudes) == "");
  }
}

TEST_CASE("the cross-head permutation of an update is equal in all micro-batches", "[cross-head]") {
  Layer l(attention_lines("dot-product", 4, 1), 8, 5);
  at::Tensor x = normal({5, 6, 8}, 1);
  ForwardContext micro_batch_context = context_of_update(2);
  micro_batch_context.row_offset = 3;
  at::Tensor micro_batch = x.narrow(0, 3, 2);
  CHECK(layers::rounding_of(l, x, x, causal_mask())
            .agree(l.layer->forward(micro_batch, micro_batch, causal_mask(), micro_batch_context),
                   l.layer->forward(x, x, causal_mask(), context_of_update(2)).narrow(0, 3, 2)));
}
