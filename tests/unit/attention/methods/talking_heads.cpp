// Talking heads against a naive reference in double precision.
#include <catch2/catch.hpp>

#include "fixtures/head_mixing.h"

using namespace mh;
using namespace mh::attention;
using layers::Layer;
using numbers::normal;

namespace {

const std::vector<layers::MixingCase>& cases() {
  static const std::vector<layers::MixingCase> all{
      {"mixer = 'talking-heads'"},
      {"mixer = 'talking-heads'\n[attention.talking-heads]\ninner_heads = 5", 5},
      {"mixer = 'talking-heads'\n[attention.talking-heads]\ninit = 'xavier'\npre = false"},
      {"mixer = 'talking-heads'\n[attention.talking-heads]\npost = false"}};
  return all;
}

}  // namespace

TEST_CASE("layers with talking heads match a naive reference over random shapes and masks", "[talking-heads]") {
  layers::check_mixing(cases());
}

TEST_CASE("gradients of layers with talking heads equal finite differences of a naive reference", "[talking-heads]") {
  layers::check_gradients_of_mixing(cases());
}

TEST_CASE("newly initialised talking heads equal multi-head attention and have no weight decay", "[talking-heads]") {
  layers::check_initial_identity({"mixer = 'talking-heads'"});
  const Layer l("heads = 4\nmixer = 'talking-heads'", 8, 1);
  for (const auto& p : l.parameters.all())
    if (p.name().rfind("x.mixer.", 0) == 0) CHECK(!p.traits().has_weight_decay);
}

TEST_CASE("rows of probabilities after talking heads sum to the column sums of the second matrix", "[talking-heads]") {
  layers::check_row_sums({"talking-heads"});
}

TEST_CASE("permuting the heads of all parameters leaves layers with talking heads unchanged", "[talking-heads]") {
  layers::check_head_permutation({"mixer = 'talking-heads'",
                                  "mixer = 'talking-heads'\n[attention.talking-heads]\ninner_heads = 4",
                                  "mixer = 'talking-heads'\n[attention.talking-heads]\npre = false",
                                  "mixer = 'talking-heads'\n[attention.talking-heads]\npost = false"});
}

TEST_CASE("talking heads that mix logits take the composed path", "[talking-heads]") {
  CHECK(Layer("heads = 2\nmixer = 'talking-heads'\ncombiner = 'alphas'", 32)
            .layer->describe_path(false)
            .starts_with("composed"));
}

TEST_CASE("invalid options of talking heads are rejected, and so are masks per head if inner_heads differs from heads",
          "[talking-heads]") {
  const std::string common_lines = "heads = 2\nmixer = 'talking-heads'\n[attention.talking-heads]\n";
  CHECK_THROWS_AS(Layer(common_lines + "pre = false\npost = false", 4), Error);
  CHECK_THROWS_AS(Layer(common_lines + "pre = false\ninner_heads = 3", 4), Error);
  Layer l(common_lines + "inner_heads = 3", 4);
  const at::Tensor x = normal({1, 3, 4}, 1);
  Mask mask;
  mask.additive = at::zeros({1, 1, 3, 3});
  CHECK_NOTHROW(l(x, x, mask));
  mask.additive = at::zeros({1, 2, 3, 3});
  CHECK_THROWS_AS(l(x, x, mask), Error);
}
