// The position bias of T5: buckets of distances, layers against a naive reference, sharing of the table.
#include <catch2/catch.hpp>
#include <utility>

#include "attention/methods/t5_bias/buckets.h"
#include "fixtures/position_biases.h"

using namespace mh;
using namespace mh::attention;
using Layer = layers::PerturbedLayer;

namespace {

// Returns the bias from the table "position_bias.weight" (32, h).
double bias(const reference::Weights& weights, int64_t i, int64_t num_heads, int64_t distance, bool two_sided) {
  return weights.at(
      "position_bias.weight")[static_cast<size_t>(t5_bucket(distance, 32, 128, two_sided) * num_heads + i)];
}

}  // namespace

TEST_CASE("distances are in the same buckets as in the released models", "[t5]") {
  for (const auto& [distance, bucket] : std::vector<std::pair<int64_t, int64_t>>{{-5, 0},
                                                                                 {0, 0},
                                                                                 {1, 1},
                                                                                 {15, 15},
                                                                                 {17, 16},
                                                                                 {20, 17},
                                                                                 {31, 21},
                                                                                 {64, 26},
                                                                                 {100, 30},
                                                                                 {113, 31},
                                                                                 {128, 31},
                                                                                 {5000, 31}})
    CHECK(t5_bucket(distance, 32, 128, false) == bucket);
  for (const auto& [distance, bucket] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 0}, {7, 7}, {8, 8}, {16, 10}, {31, 11}, {64, 14}, {100, 15}, {5000, 15}, {-1, 17}, {-8, 24}, {-100, 31}})
    CHECK(t5_bucket(distance, 32, 128, true) == bucket);
  for (const bool two_sided : {false, true})
    for (int64_t distance = 0; distance < 300; ++distance) {
      const int64_t bucket = t5_bucket(distance, 32, 128, two_sided);
      CHECK(t5_bucket(distance + 1, 32, 128, two_sided) - bucket <= 1);
      CHECK(t5_bucket(distance + 1, 32, 128, two_sided) >= bucket);
      if (two_sided && distance > 0) CHECK(t5_bucket(-distance, 32, 128, true) == bucket + 16);
    }
}

TEST_CASE("layers with the bias of T5 match a naive reference, with memories, windows, sinks and soft caps", "[t5]") {
  position_biases::check_outputs("position_bias = 't5'\n", bias);
}

TEST_CASE("gradients of layers with the bias of T5 equal finite differences of a naive reference", "[t5]") {
  position_biases::check_gradients("position_bias = 't5'\n", bias);
}

TEST_CASE("a table that is constant for each head changes nothing; minus the slope times the bucket is ALiBi", "[t5]") {
  c10::NoGradGuard no_gradient;
  layers::Layer t5("heads = 4\nposition_bias = 't5'\n", 8, 3), plain("heads = 4\n", 8, 3),
      alibi("heads = 4\nposition_bias = 'alibi'\n", 8, 3);
  const at::Tensor x = numbers::normal({2, 16, 8}, 1);
  const Mask mask = layers::causal_mask();
  const layers::LayerRounding rounding = layers::rounding_of(alibi, x, x, mask);
  CHECK(rounding.agree(t5(x, x, mask), plain(x, x, mask)));
  t5.set("position_bias.weight", at::tensor({1.0F, -2.0F, 0.5F, 3.0F}).expand({32, 4}));
  CHECK(rounding.agree(t5(x, x, mask), plain(x, x, mask), 3));
  const at::Tensor slopes = at::tensor({0.25F, 0.0625F, 0.015625F, 0.00390625F});
  t5.set("position_bias.weight", -at::arange(32).to(at::kFloat).unsqueeze(1) * slopes);
  CHECK(rounding.agree(t5(x, x, mask), alibi(x, x, mask)));
}

TEST_CASE("the table of T5 is shared by the layers of a stack unless shared = false", "[t5]") {
  const auto table_names = [](const std::string& extra) {
    return layers::stack_parameter_names("heads = 2\nposition_bias = 't5'\n" + extra, "position_bias");
  };
  CHECK(table_names("") == std::vector<std::string>{"decoder.position_bias.weight"});
  CHECK(table_names("t5.shared = false\n") == std::vector<std::string>{"decoder.layers.0.self.position_bias.weight",
                                                                       "decoder.layers.1.self.position_bias.weight"});
  CHECK_THROWS_AS(table_names("[attention.decoder.self.1]\nheads = 4\n"), Error);
  CHECK_THROWS_AS(table_names("[attention.decoder.self.1]\nt5.buckets = 16\n"), Error);
  CHECK_NOTHROW(table_names("t5.shared = false\n[attention.decoder.self.1]\nheads = 4\n"));
}

TEST_CASE("the bias of T5 refuses cross-attention, odd buckets in an encoder, and a maximum below the exact buckets",
          "[t5]") {
  CHECK_THROWS_AS(Layer("heads = 2\nposition_bias = 't5'\n", 8, 1, AttentionKind::decoder_cross), Error);
  CHECK_THROWS_AS(Layer("heads = 2\nposition_bias = 't5'\nt5.buckets = 31\n", 8, 1, AttentionKind::encoder_self),
                  Error);
  CHECK_NOTHROW(Layer("heads = 2\nposition_bias = 't5'\nt5.buckets = 31\n", 8, 1));
  CHECK_THROWS_AS(Layer("heads = 2\nposition_bias = 't5'\nt5.max_distance = 16\n", 8, 1), Error);
}
