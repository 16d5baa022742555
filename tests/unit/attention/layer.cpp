// The composed and the fused path of an attention layer: accuracy, constraints that forward() reports, observers.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>

#include "fixtures/layers.h"
#include "fixtures/rounding.h"
#include "oracle/tolerance.h"

using namespace mh;
using namespace mh::attention;
using layers::Layer;
using layers::layer_size_lines;
using numbers::doubles;
using numbers::max_relative_difference;
using numbers::normal;
using reference::Sizes;
using reference::Vector;

TEST_CASE("error of the fused path is at most twice the error of the composed path") {
  const Sizes sizes{2, 48, 48, 64, 4, 16, 16};
  Layer l(layer_size_lines(sizes), 64, 3);
  at::Tensor x = normal({2, 48, 64}, 4) * 0.3;
  const Mask mask = layers::causal_mask();
  const Vector expected = reference::attention(sizes, doubles(x), doubles(x), l.weights(),
                                               [](int64_t, int64_t t, int64_t s) { return s <= t; });
  l.layer->set_path(Path::composed);
  const double composed_error = max_relative_difference(doubles(l(x, x, mask)), expected);
  l.layer->set_path(Path::fused);
  const double fused_error = max_relative_difference(doubles(l(x, x, mask)), expected);
  // max_relative_difference() divides by the larger of 1 and the largest output, so the magnitude in the bound is 1.
  CHECK(fused_error <= tolerance::composed_error_bound(composed_error, tolerance::kFp32, 1));
}

TEST_CASE("the composed path normalises logits in bf16 and fp16 to probabilities in fp32") {
  c10::NoGradGuard no_gradient;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    INFO(c10::toString(type));
    Layer l("heads = 2\n", 16, 3);
    l.convert(type);
    l.layer->set_path(Path::composed);
    const at::Tensor x = normal({2, 40, 16}, 4).to(type);
    layers::RecordingObserver observer;
    CHECK(l(x, x, layers::causal_mask(), {}, &observer).scalar_type() == type);
    REQUIRE(observer.p.scalar_type() == at::kFloat);
    const at::Tensor sums = observer.p.sum(-1);
    CHECK(rounding::agree(sums, at::ones_like(sums), 40 + layers::kElementwiseRoundings));
  }
}

TEST_CASE("Path::fused with unequal value_size and head_size throws an error with both sizes") {
  Layer l("heads = 2\nvalue_size = 3", 8, 3);
  l.layer->set_path(Path::fused);
  at::Tensor x = normal({1, 3, 8}, 1);
  try {
    l(x, x, {});
    FAIL("the forward pass took the fused path");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("value_size 3 differs from head_size 4") != std::string::npos);
  }
}

TEST_CASE("Path::fused rejects each forward pass for which Path::automatic falls back, and gives the reason") {
  const auto check_rejected = [](Layer& l, const std::string& reason, const auto& pass) {
    INFO(reason);
    // Path::automatic falls back to the composed path: its result is bit-identical to the result of Path::composed.
    l.layer->set_path(Path::composed);
    const at::Tensor composed_output = pass();
    l.layer->set_path(Path::automatic);
    CHECK(at::equal(pass(), composed_output));
    l.layer->set_path(Path::fused);
    try {
      pass();
      FAIL("the forward pass took the fused path");
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::usage);
      const std::string message = error.what();
      INFO(message);
      CHECK(message.find("x: expected ") != std::string::npos);
      CHECK(message.find(reason) != std::string::npos);
      CHECK(message.find("use --attention auto") != std::string::npos);
    }
  };
  c10::NoGradGuard no_gradient;
  const Mask causal_mask = layers::causal_mask();
  const at::Tensor x = normal({2, 20, 32}, 1);
  const auto self_attention = [&](Layer& l, const Mask& mask = {}) { return [&l, &x, mask] { return l(x, x, mask); }; };

  // Constraints that depend on the layer only.
  Layer logit_mixing_layer("heads = 2\nmixer = 'talking-heads'\n", 32, 3),
      unequal_sizes_layer("heads = 2\nvalue_size = 8\n", 32, 3),
      synthesizer_layer("heads = 2\nscore = 'synthesizer-random'\n[attention.synthesizer-random]\nlength = 20\n", 32,
                        3),
      head_size_8_layer("heads = 4\nnormaliser = 'sigsoftmax'\n", 32, 3);
  check_rejected(logit_mixing_layer, "mixer 'talking-heads': the mixer mixes logits",
                 self_attention(logit_mixing_layer, causal_mask));
  check_rejected(unequal_sizes_layer, "value_size 8 differs from head_size 16",
                 self_attention(unequal_sizes_layer, causal_mask));
  check_rejected(synthesizer_layer, "score 'synthesizer-random'", self_attention(synthesizer_layer, causal_mask));
  check_rejected(head_size_8_layer, "Sigsoftmax with head_size 8, which is not a multiple of 16",
                 self_attention(head_size_8_layer, causal_mask));

  // Head scales of score heads and observers of probabilities need the composed path.
  Layer mixhead_layer("heads = 2\nmixer = 'mixhead-a'\n", 32, 3);
  set_head_scales(*mixhead_layer.layer, {at::tensor({0.5F, 1.0F}), {}, {}});
  CHECK(mixhead_layer.layer->describe_path(false) ==
        "composed: scale factors of score heads act on probabilities, which the fused path does not store");
  check_rejected(mixhead_layer,
                 "scale factors of score heads act on probabilities, which the fused path does not store",
                 self_attention(mixhead_layer, causal_mask));
  set_head_scales(*mixhead_layer.layer, {{}, at::tensor({0.5F, 1.0F}), {}});
  mixhead_layer.layer->set_path(Path::fused);
  // Scales of value heads multiply the output of the kernel, so the fused path supports them.
  CHECK_NOTHROW(self_attention(mixhead_layer, causal_mask)());
  set_head_scales(*mixhead_layer.layer, {});
  layers::RecordingObserver recorder;
  check_rejected(mixhead_layer, "an observer reads the probabilities",
                 [&] { return mixhead_layer(x, x, causal_mask, {}, &recorder); });

  // A layer with head mixing or relative positions needs the composed path for an additive mask, and for a causal mask
  // with key lengths.
  Mask additive_mask = causal_mask, memory_mask = causal_mask;
  additive_mask.additive = normal({1, 1, 20, 20}, 2);
  check_rejected(mixhead_layer,
                 "head mixing with a mask that the fused kernels do not support, such as an additive mask",
                 self_attention(mixhead_layer, additive_mask));
  memory_mask.offset = 12;
  memory_mask.key_lengths = at::tensor({32, 25}, at::kLong);
  const at::Tensor keys = normal({2, 32, 32}, 4);
  check_rejected(mixhead_layer,
                 "head mixing with a mask that the fused kernels do not support, such as an additive mask",
                 [&] { return mixhead_layer(x, keys, memory_mask); });
  Layer relative_layer("heads = 2\nscore = 'relative'\n", 32, 3);
  check_rejected(relative_layer,
                 "relative positions with a mask that the fused kernels do not support, such as an additive mask",
                 [&] { return relative_layer(x, keys, memory_mask); });

  // If the batch has fewer queries than head_size, automatic dispatch prefers the composed path, only for speed. With 2
  // to 16 queries (2 rows of 1 to 8) and head_size 16, the fused path gives the same result.
  Layer exact_relative_layer("heads = 2\nscore = 'relative'\n", 32, 3);
  exact_relative_layer.convert(at::kDouble);
  exact_relative_layer.layer->set_path(Path::composed);
  for (int64_t num_queries : {1, 2, 7, 8}) {
    const at::Tensor first_queries = x.narrow(1, 0, num_queries), exact_queries = first_queries.to(at::kDouble);
    relative_layer.layer->set_path(Path::composed);
    const at::Tensor composed_output = relative_layer(first_queries, first_queries, causal_mask);
    relative_layer.layer->set_path(Path::fused);
    CHECK(numbers::find_excess_error({relative_layer(first_queries, first_queries, causal_mask)}, {composed_output},
                                     {exact_relative_layer(exact_queries, exact_queries, causal_mask)},
                                     at::kFloat) == "");
  }

  // Incremental decoding, in which Mixhead with scope = 'released' mixes no heads.
  const auto decoding_pass = [&](Layer& l) {
    return [&] {
      Cache cache;
      const at::Tensor prompt = x.narrow(1, 0, 7);
      return l.layer->forward(prompt, prompt, causal_mask, {}, &cache);
    };
  };
  const std::string released_lines = "mixer = 'mixhead-a'\n[attention.mixhead-a]\nscope = 'released'\n";
  Layer released_size_8_layer("heads = 4\n" + released_lines, 32, 3),
      released_unequal_layer("heads = 2\nvalue_size = 8\n" + released_lines, 32, 3);
  CHECK(released_size_8_layer.layer->describe_path(false) == "fused");
  check_rejected(released_size_8_layer,
                 "head mixing with head_size 8, which is not a multiple of 16, in a forward pass where mixer "
                 "'mixhead-a' mixes no heads",
                 decoding_pass(released_size_8_layer));
  check_rejected(released_unequal_layer,
                 "value_size 8 differs from head_size 16 in a forward pass where mixer 'mixhead-a' mixes no heads",
                 decoding_pass(released_unequal_layer));
}

TEST_CASE("FallbackLog reports each fallback reason once per kind of attention") {
  FallbackLog log;
  CHECK(log.insert(AttentionKind::decoder_self, "few queries"));
  CHECK_FALSE(log.insert(AttentionKind::decoder_self, "few queries"));
  CHECK(log.insert(AttentionKind::decoder_self, "additive mask"));
  CHECK(log.insert(AttentionKind::encoder_self, "few queries"));
}

TEST_CASE(
    "an observer reads probabilities that sum to 1, and zeroing a head in the observer equals a head scale of 0") {
  struct HeadZeroingObserver : Observer {
    at::Tensor p;
    void observe_probabilities(const LayerSpec&, const at::Tensor& probabilities) override { p = probabilities; }
    at::Tensor intercept_heads(HeadSide side, const LayerSpec&, const at::Tensor& z) override {
      if (side != HeadSide::value) return z;
      at::Tensor out = z.clone();
      out.select(1, 1).zero_();
      return out;
    }
  } observer;
  Layer l("heads = 2", 8, 3);
  at::Tensor x = normal({2, 5, 8}, 1);
  const Mask mask = layers::causal_mask();
  at::Tensor ablated_output = l.layer->forward(x, x, mask, {}, nullptr, &observer);
  CHECK(observer.p.sizes() == at::IntArrayRef({2, 2, 5, 5}));
  CHECK(rounding::agree(observer.p.sum(-1), at::ones({2, 2, 5}), 5 + layers::kElementwiseRoundings));
  CHECK(observer.p.triu(1).abs().max().item<float>() == 0);
  const layers::LayerRounding rounding = layers::rounding_of(l, x, x, mask);
  // Head scales of shape (h), then of shape (B, h).
  set_head_scales(*l.layer, {{}, at::tensor({1.0F, 0.0F}), {}});
  CHECK(rounding.agree(l(x, x, mask), ablated_output));
  set_head_scales(*l.layer, {{}, at::tensor({1.0F, 0.0F, 1.0F, 0.0F}).view({2, 2}), {}});
  CHECK(rounding.agree(l(x, x, mask), ablated_output));
}

TEST_CASE("permuting the heads of all parameters leaves the output of a layer unchanged") {
  Layer l("heads = 3", 12, 3);
  const at::Tensor x = normal({2, 5, 12}, 1), original_output = l(x, x, {});
  const layers::LayerRounding rounding = layers::rounding_of(l, x, x);
  l.permute_heads({2, 0, 1});
  CHECK(rounding.agree(l(x, x, {}), original_output));
}
