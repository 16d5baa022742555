// Mixhead A and B and fixed mixing matrices against a naive reference in double precision, and their identities with
// multi-head attention.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "fixtures/head_mixing.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using layers::Layer;
using layers::LayerRounding;
using layers::RecordingObserver;
using layers::rounding_of;
using numbers::normal;

namespace {

const std::vector<layers::MixingCase>& cases() {
  static const std::vector<layers::MixingCase> all{
      {"mixer = 'mixhead-a'"},
      {"mixer = 'mixhead-b'"},
      {"mixer = 'random-normal'"},
      {"mixer = 'random-uniform'"},
      {"mixer = 'mean'"},
      {"normaliser = 'sigsoftmax'\nmixer = 'mixhead-b'\ncombiner = 'alphas'"},
      {"mixer = 'mixhead-a'\n[attention.mixhead-a]\nmixer_input = 'logits'", 0, true}};
  return all;
}

}  // namespace

TEST_CASE("layers with Mixhead or a fixed matrix match a naive reference over random shapes and masks", "[mixhead]") {
  layers::check_mixing(cases());
}

TEST_CASE("gradients of layers with Mixhead or a fixed matrix equal finite differences of a naive reference",
          "[mixhead]") {
  layers::check_gradients_of_mixing(cases());
}

TEST_CASE("newly initialised Mixhead equals multi-head attention in outputs and gradients", "[mixhead]") {
  layers::check_initial_identity({"mixer = 'mixhead-a'", "mixer = 'mixhead-b'",
                                  "mixer = 'mixhead-a'\n[attention.mixhead-a]\nmixer_input = 'logits'",
                                  "mixer = 'mixhead-b'\n[attention.mixhead-b]\nmixer_input = 'logits'"});
}

TEST_CASE("newly initialised Mixhead with the initial matrix of a fixed mixer equals this fixed mixer", "[mixhead]") {
  const at::Tensor x = normal({2, 5, 6}, 1);
  const Mask mask = layers::causal_mask();
  for (const std::string init : {"random-normal", "random-uniform", "mean"}) {
    Layer fixed_layer("heads = 3\nmixer = '" + init + "'", 6, 5);
    const auto y = fixed_layer(x, x, mask);
    for (const std::string mixer : {"mixhead-a", "mixhead-b"}) {
      CAPTURE(init, mixer);
      Layer layer("heads = 3\nmixer = '" + mixer + "'\n[attention." + mixer + "]\ninit = '" + init + "'", 6, 5);
      CHECK(rounding_of(layer, x, x, mask).agree(layer(x, x, mask), y));
      CHECK(at::equal(layer["mixer.matrix"], fixed_layer["mixer.matrix"]));
    }
  }
}

TEST_CASE("Mixhead B with a zero query weight equals Mixhead A", "[mixhead]") {
  Layer mixhead_a("heads = 3\nmixer = 'mixhead-a'", 6, 5), mixhead_b("heads = 3\nmixer = 'mixhead-b'", 6, 5);
  const at::Tensor m = normal({3, 3}, 4), x = normal({2, 5, 6}, 1);
  mixhead_a.set("mixer.matrix", m);
  mixhead_b.set("mixer.matrix", m);
  const Mask mask = layers::causal_mask();
  CHECK(rounding_of(mixhead_a, x, x, mask).agree(mixhead_a(x, x, mask), mixhead_b(x, x, mask)));
}

TEST_CASE("rows of mixed probabilities sum to the column sums of the matrix; masked entries stay exactly 0",
          "[mixhead]") {
  layers::check_row_sums({"mixhead-a", "mixhead-b", "random-normal", "random-uniform", "mean"});
}

TEST_CASE("a permutation matrix permutes the probabilities of heads; the mean matrix makes all heads equal",
          "[mixhead]") {
  c10::NoGradGuard no_gradient;
  Layer plain_layer("heads = 3", 6, 5), mixing_layer("heads = 3\nmixer = 'mixhead-a'", 6, 5);
  const std::vector<int64_t> order{2, 0, 1};
  at::Tensor m = at::zeros({3, 3});
  for (int64_t i = 0; i < 3; ++i) m[order[static_cast<size_t>(i)]][i] = 1;
  mixing_layer.set("mixer.matrix", m);
  const at::Tensor x = normal({2, 5, 6}, 1), index = at::tensor(order, at::kLong);
  RecordingObserver plain_recorder, mixing_recorder;
  plain_layer(x, x, {}, {}, &plain_recorder);
  mixing_layer(x, x, {}, {}, &mixing_recorder);
  const LayerRounding rounding = rounding_of(mixing_layer, x, x);
  CHECK(rounding.probabilities_agree(mixing_recorder.p, plain_recorder.p.index_select(1, index)));
  // With values and output weights permuted in the same order, the layer with mixing equals the layer without mixing.
  for (const auto& [name, axis] : {std::pair{"value.weight", 0}, {"value.bias", 0}, {"output.weight", 1}}) {
    const auto blocks = plain_layer[name].chunk(3, axis);
    mixing_layer.set(name, nn::cat({blocks[2], blocks[0], blocks[1]}, axis));
  }
  CHECK(rounding.agree(mixing_layer(x, x, {}), plain_layer(x, x, {})));
  Layer mean_layer("heads = 3\nmixer = 'mean'", 6, 5);
  mean_layer(x, x, {}, {}, &mixing_recorder);
  CHECK(rounding.probabilities_agree(mixing_recorder.p, plain_recorder.p.mean(1, true).expand_as(plain_recorder.p)));
}

TEST_CASE("Mixhead A equals multi-head attention whose value-output products are mixed and have higher rank",
          "[mixhead]") {
  c10::NoGradGuard no_gradient;
  const int64_t h = 3, d = 8, dv = 2;
  Layer l("heads = 3\nhead_size = 2\nbias = false\nmixer = 'mixhead-a'", d, 5),
      plain_layer("heads = 3\nhead_size = 2\nbias = false", d, 5);
  l.set("mixer.matrix", normal({h, h}, 4));
  const at::Tensor x = normal({2, 5, d}, 1);
  RecordingObserver recorder;
  plain_layer(x, x, {}, {}, &recorder);  // recorder.p: the probabilities (B, h, Tq, Tk) without mixing
  at::Tensor y = at::zeros({2, 5, d});
  std::vector<at::Tensor> ov_products;  // product of the value and the output weight of each head, (d, d)
  for (int64_t i = 0; i < h; ++i)
    ov_products.push_back(
        at::matmul(l["output.weight"].narrow(1, i * dv, dv), l["value.weight"].narrow(0, i * dv, dv)).t());
  // Returns the rank of a matrix (d, d) in fp32 whose entries are sums of up to h dv products. A singular value counts
  // as 0 if it is at most d times the bound on the error of an entry.
  const auto rank_of = [&](const at::Tensor& matrix) {
    const double error = tolerance::chain_error_bound(h * dv, tolerance::kFp32, numbers::max_abs(matrix));
    return at::linalg_matrix_rank(matrix.to(at::kDouble), static_cast<double>(d) * error).item<int64_t>();
  };
  int64_t largest_rank = 0;
  for (int64_t j = 0; j < h; ++j) {
    at::Tensor product = at::zeros({d, d});
    for (int64_t i = 0; i < h; ++i) product += l["mixer.matrix"][j][i] * ov_products[static_cast<size_t>(i)];
    largest_rank = std::max(largest_rank, rank_of(product));
    y += at::matmul(recorder.p.select(1, j), at::matmul(x, product));
  }
  CHECK(rounding_of(l, x, x).agree(l(x, x, {}), y));
  CHECK(rank_of(ov_products[0]) == dv);
  CHECK(largest_rank == h * dv);
}

TEST_CASE("permuting the heads of all parameters leaves layers with Mixhead or a fixed matrix unchanged", "[mixhead]") {
  layers::check_head_permutation({"mixer = 'mixhead-a'", "mixer = 'mixhead-b'", "mixer = 'random-normal'",
                                  "mixer = 'random-uniform'", "mixer = 'mean'"});
}

TEST_CASE("parameter counts of Mixhead equal the table in the paper", "[mixhead]") {
  for (auto [layers, h, dk, added_by_a, added_by_b] : {std::tuple{6, 8, 64, 384, 3456},
                                                       {16, 8, 128, 1024, 17408},
                                                       {16, 10, 41, 1600, 8160},
                                                       {16, 8, 64, 1024, 9216},
                                                       {18, 8, 128, 1152, 19584}}) {
    auto count = [&, num_heads = h, size = dk](const char* mixer) {
      return Layer(str("heads = ", num_heads, "\nhead_size = ", size, "\nmixer = '", mixer, "'"), 4)
          .parameters.num_trainable_elements();
    };
    CHECK(layers * (count("mixhead-a") - count("none")) == added_by_a);
    CHECK(layers * (count("mixhead-b") - count("none")) == added_by_b);
    CHECK(count("random-normal") == count("none"));  // the matrix is a constant
  }
}

TEST_CASE(
    "columns of fixed mixing matrices sum to 1; random matrices depend on the seed; parameters of Mixhead have no "
    "weight decay",
    "[mixhead]") {
  for (const char* mixer : {"random-normal", "random-uniform", "mean"}) {
    Layer l(str("heads = 4\nmixer = '", mixer, "'"), 8, 1),
        other_seed_layer(str("heads = 4\nmixer = '", mixer, "'"), 8, 2);
    const at::Tensor& matrix = l["mixer.matrix"];
    CHECK(rounding::agree(matrix.sum(0), at::ones({4}), 2 * 4, numbers::max_abs(matrix.abs().sum(0))));
    CHECK(at::equal(l["mixer.matrix"], other_seed_layer["mixer.matrix"]) == (std::string(mixer) == "mean"));
    CHECK(!l.parameters.find("x.mixer.matrix")->traits().trainable);
  }
  for (const char* mixer : {"mixhead-a", "mixhead-b"}) {
    Layer l(str("heads = 4\nmixer = '", mixer, "'"), 8, 1);
    for (auto& p : l.parameters.all())
      if (p.name().rfind("x.mixer.", 0) == 0) CHECK(!p.traits().has_weight_decay);
  }
}

TEST_CASE("the option dropout_before_mixing of Mixhead applies dropout before mixing instead of after mixing",
          "[mixhead]") {
  c10::NoGradGuard no_gradient;
  ForwardContext forward_context;
  forward_context.training = true;
  const at::Tensor x = normal({2, 6, 8}, 1);
  auto observed_probabilities = [&](const char* dropout_before_mixing) {
    Layer l(str("heads = 4\ndropout = 0.5\nmixer = 'mixhead-a'\n[attention.mixhead-a]\ndropout_before_mixing = ",
                dropout_before_mixing),
            8, 1);
    l.set("mixer.matrix", at::full({4, 4}, 0.25));
    RecordingObserver recorder;
    l(x, x, {}, forward_context, &recorder);
    return recorder.p;
  };
  // The observer reads probabilities after mixing. With dropout before mixing, dropped entries are missing from the
  // sums of their rows.
  const int64_t num_roundings =
      6 + 4 + 6 + layers::kElementwiseRoundings;  // terms: keys of the softmax, heads, keys of a row
  CHECK(rounding::agree(observed_probabilities("false").sum(-1), at::ones({2, 4, 6}), num_roundings));
  CHECK(!rounding::agree(observed_probabilities("true").sum(-1), at::ones({2, 4, 6}), num_roundings));
  CHECK(rounding::agree(observed_probabilities("true").select(1, 0), observed_probabilities("true").select(1, 3), 4));
}

TEST_CASE("Mixhead with scope = released mixes neither in cross-attention nor in incremental decoding", "[mixhead]") {
  c10::NoGradGuard no_gradient;
  const char* released_lines = "heads = 2\nmixer = 'mixhead-a'\n[attention.mixhead-a]\nscope = 'released'";
  CHECK(Layer(released_lines, 4, 1, AttentionKind::decoder_cross).parameters.find("x.mixer.matrix") == nullptr);
  Layer l(released_lines, 4, 1), plain_layer("heads = 2", 4, 1);
  l.set("mixer.matrix", normal({2, 2}, 3));
  const at::Tensor x = normal({1, 3, 4}, 1);
  const Mask mask = layers::causal_mask();
  const LayerRounding rounding = rounding_of(l, x, x, mask);
  CHECK(!rounding.agree(l(x, x, mask), plain_layer(x, x, mask)));
  Cache cache;
  CHECK(rounding.agree(l.layer->forward(x, x, mask, {}, &cache), plain_layer(x, x, mask)));
}
