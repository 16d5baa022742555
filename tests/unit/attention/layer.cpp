// The paths of an attention layer: what they compute, what each refuses, and what observers see.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>

#include "fixtures/layers.h"
#include "oracle/tolerance.h"

using namespace mh;
using namespace mh::attention;
using layers::Layer;
using layers::sized;
using numbers::close;
using numbers::doubles;
using numbers::normal;
using numbers::worst;
using reference::Sizes;
using reference::Vector;

TEST_CASE("the fused path errs at most twice as much as the composed one") {
  const Sizes z{2, 48, 48, 64, 4, 16, 16};
  Layer l(sized(z), 64, 3);
  at::Tensor x = normal({2, 48, 64}, 4) * 0.3;
  Mask mask;
  mask.causal = true;
  Vector wanted = reference::attention(z, doubles(x), doubles(x), l.weights(),
                                       [](int64_t, int64_t t, int64_t s) { return s <= t; });
  l.layer->set_path(Path::composed);
  const double composed = worst(doubles(l(x, x, mask)), wanted);
  l.layer->set_path(Path::fused);
  const double fused = worst(doubles(l(x, x, mask)), wanted);
  CHECK(fused <= tolerance::beside_composed(composed, tolerance::kFp32, 1));  // errors relative to the largest
}

TEST_CASE("a fused path that cannot be taken names each reason") {
  Layer l("heads = 2\nvalue_size = 3", 8, 3);
  l.layer->set_path(Path::fused);
  at::Tensor x = normal({1, 3, 8}, 1);
  try {
    l(x, x, {});
    FAIL("taken");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("value_size 3 differs from head_size 4") != std::string::npos);
  }
}

TEST_CASE("under the fused path every pass that would be composed is refused with its reason") {
  const auto refused = [](Layer& l, const std::string& reason, const auto& pass) {
    INFO(reason);
    // The same pass is composed by `auto`, and by `composed`.
    l.layer->set_path(Path::composed);
    const at::Tensor composed = pass();
    l.layer->set_path(Path::automatic);
    CHECK(at::equal(pass(), composed));
    l.layer->set_path(Path::fused);
    try {
      pass();
      FAIL("taken");
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::usage);
      const std::string what = error.what();
      INFO(what);
      CHECK(what.find("x: expected ") != std::string::npos);
      CHECK(what.find(reason) != std::string::npos);
      CHECK(what.find("use --attention auto") != std::string::npos);
    }
  };
  c10::NoGradGuard no_gradient;
  Mask causal;
  causal.causal = true;
  const at::Tensor x = normal({2, 20, 32}, 1);
  const auto plain = [&](Layer& l, const Mask& mask = {}) { return [&l, &x, mask] { return l(x, x, mask); }; };

  // Of the layer.
  Layer logits("heads = 2\nmixer = 'talking-heads'\n", 32, 3), sizes("heads = 2\nvalue_size = 8\n", 32, 3),
      synthesizer("heads = 2\nscore = 'synthesizer-random'\n[attention.synthesizer-random]\nlength = 20\n", 32, 3),
      narrow("heads = 4\nnormaliser = 'sigsoftmax'\n", 32, 3);
  refused(logits, "mixer 'talking-heads': it mixes logits", plain(logits, causal));
  refused(sizes, "value_size 8 differs from head_size 16", plain(sizes, causal));
  refused(synthesizer, "score 'synthesizer-random'", plain(synthesizer, causal));
  refused(narrow, "Sigsoftmax, with head_size 8, no multiple of 16", plain(narrow, causal));

  // Of scales and observers.
  Layer mixed("heads = 2\nmixer = 'mixhead-a'\n", 32, 3);
  set_head_scales(*mixed.layer, {at::tensor({0.5F, 1.0F}), {}, {}});
  CHECK(mixed.layer->describe_path(false) == "composed: score heads are scaled before they are mixed");
  refused(mixed, "score heads are scaled before they are mixed", plain(mixed, causal));
  set_head_scales(*mixed.layer, {{}, at::tensor({0.5F, 1.0F}), {}});
  mixed.layer->set_path(Path::fused);
  CHECK_NOTHROW(plain(mixed, causal)());  // scales of value heads multiply what the kernel gives
  set_head_scales(*mixed.layer, {});
  layers::Watch watch;
  refused(mixed, "an observer reads the probabilities", [&] { return mixed(x, x, causal, {}, &watch); });

  // Of masks: additive, and a memory of which some keys are missing.
  Mask additive = causal, memory = causal;
  additive.additive = normal({1, 1, 20, 20}, 2);
  refused(mixed, "mixed heads with an additive mask or with a part of the keys", plain(mixed, additive));
  memory.offset = 12;
  memory.key_lengths = at::tensor({32, 25}, at::kLong);
  const at::Tensor keys = normal({2, 32, 32}, 4);
  refused(mixed, "mixed heads with an additive mask or with a part of the keys",
          [&] { return mixed(x, keys, memory); });
  Layer relative("heads = 2\nscore = 'relative'\n", 32, 3);
  refused(relative, "relative positions with an additive mask or with a part of the keys",
          [&] { return relative(x, keys, memory); });

  // Of few queries, fewer in the batch than head_size: the composed path is faster, and the fused one gives the same.
  for (int64_t queries : {1, 2, 7, 8}) {
    const at::Tensor some = x.narrow(1, 0, queries);
    relative.layer->set_path(Path::composed);
    const at::Tensor composed = relative(some, some, causal);
    relative.layer->set_path(Path::fused);
    CHECK(relative(some, some, causal).allclose(composed, 1e-4, 1e-6));
  }

  // Of decoding where the released Mixhead mixes nothing.
  const auto decode = [&](Layer& l) {
    return [&] {
      Cache cache;
      const at::Tensor some = x.narrow(1, 0, 7);
      return l.layer->forward(some, some, causal, {}, &cache);
    };
  };
  const std::string released = "mixer = 'mixhead-a'\n[attention.mixhead-a]\nscope = 'released'\n";
  Layer eights("heads = 4\n" + released, 32, 3), others("heads = 2\nvalue_size = 8\n" + released, 32, 3);
  CHECK(eights.layer->describe_path(false) == "fused");
  refused(eights, "mixed heads, with head_size 8, no multiple of 16, where mixer 'mixhead-a' mixes nothing",
          decode(eights));
  refused(others, "value_size 8 differs from head_size 16 where mixer 'mixhead-a' mixes nothing", decode(others));
}

TEST_CASE("a model logs each reason for the composed path once for a kind of layer") {
  PathLog log;
  CHECK(log.first(AttentionKind::decoder_self, "few"));
  CHECK_FALSE(log.first(AttentionKind::decoder_self, "few"));
  CHECK(log.first(AttentionKind::decoder_self, "a mask"));
  CHECK(log.first(AttentionKind::encoder_self, "few"));
}

TEST_CASE("an observer sees probabilities that sum to 1 and may replace head outputs") {
  struct Watch : Observer {
    at::Tensor p;
    void probabilities(const LayerSpec&, const at::Tensor& probabilities) override { p = probabilities; }
    at::Tensor heads(HeadSide side, const LayerSpec&, const at::Tensor& z) override {
      if (side != HeadSide::value) return z;
      at::Tensor out = z.clone();
      out.select(1, 1).zero_();
      return out;
    }
  } watch;
  Layer l("heads = 2", 8, 3);
  at::Tensor x = normal({2, 5, 8}, 1);
  Mask mask;
  mask.causal = true;
  at::Tensor ablated = l.layer->forward(x, x, mask, {}, nullptr, &watch);
  CHECK(watch.p.sizes() == at::IntArrayRef({2, 2, 5, 5}));
  CHECK(at::allclose(watch.p.sum(-1), at::ones({2, 2, 5})));
  CHECK(watch.p.triu(1).abs().max().item<float>() == 0);
  // The same by a head scale of 0, on either path.
  set_head_scales(*l.layer, {{}, at::tensor({1.0F, 0.0F}), {}});
  CHECK(close(l(x, x, mask), ablated));
  set_head_scales(*l.layer, {{}, at::tensor({1.0F, 0.0F, 1.0F, 0.0F}).view({2, 2}), {}});
  CHECK(close(l(x, x, mask), ablated));
}

TEST_CASE("permuting the heads' parameters leaves the layer as it is") {
  Layer l("heads = 3", 12, 3);
  const at::Tensor x = normal({2, 5, 12}, 1), before = l(x, x, {});
  l.permute_heads({2, 0, 1});
  CHECK(close(l(x, x, {}), before));
}
