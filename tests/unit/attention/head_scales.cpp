// Scales of heads, for ablation: where they act, and several of them in one pass.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>

#include "fixtures/layers.h"
#include "model/memories.h"
#include "model/model_config.h"

using namespace mh;
using namespace mh::attention;
using layers::normal;
using layers::Shaken;

namespace {

bool close(const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, 1e-4, 1e-5); }

// A scale for one side of a layer.
HeadScales of_side(int side, const at::Tensor& scale, int64_t copies = 0) {
  HeadScales s;
  (side == 0 ? s.score : side == 1 ? s.value : s.output) = scale;
  s.variants.count = copies;
  return s;
}

}  // namespace

TEST_CASE("copies of a layer's rows under several scales are the layer under each", "[head-scales]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, 8}, 1), scales = normal({3, 4}, 2);
  for (const auto& mixer : mixers().names())
    for (const auto& combiner : combiners().names()) {
      INFO(mixer << " " << combiner);
      Shaken l("heads = 4\nmixer = '" + mixer + "'\ncombiner = '" + combiner + "'\n", 8, 3);
      Mask mask;
      mask.causal = true;
      for (int side = 0; side < 3; ++side) {
        if (side == 0 && mixer == "none") {
          CHECK_THROWS_AS(set_head_scales(*l.layer, of_side(0, scales, 3)), Error);
          continue;
        }
        set_head_scales(*l.layer, of_side(side, scales, 3));
        const at::Tensor all = l(x, x, mask);
        REQUIRE(all.sizes() == at::IntArrayRef({6, 5, 8}));
        for (int64_t f = 0; f < 3; ++f) {
          set_head_scales(*l.layer, of_side(side, scales[f]));
          CHECK(close(l(x, x, mask), all.narrow(0, 2 * f, 2)));
        }
        set_head_scales(*l.layer, {});
      }
    }
}

TEST_CASE("blocks of rows go on in several ways, each from its own", "[head-scales]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({4, 5, 8}, 1), scales = normal({5, 4}, 2);  // two blocks of two rows
  const std::vector<int64_t> from{0, 1, 1, 0, 1};
  for (const std::string mixer : {"none", "mixhead-a", "mixhead-b", "talking-heads"})
    for (const std::string combiner : {"concatenate", "alphas", "mae", "gates"}) {
      INFO(mixer << " " << combiner);
      Shaken l("heads = 4\nmixer = '" + mixer + "'\ncombiner = '" + combiner + "'\n", 8, 3);
      Mask mask;
      mask.causal = true;
      for (int side = mixer == "none" ? 1 : 0; side < 3; ++side) {
        HeadScales s = of_side(side, scales, 5);
        s.variants.from = from;
        set_head_scales(*l.layer, s);
        const at::Tensor all = l(x, x, mask), beside = l.layer->repeat_for_variants(x);
        REQUIRE(all.sizes() == at::IntArrayRef({10, 5, 8}));
        for (int64_t f = 0; f < 5; ++f) {
          const at::Tensor block = x.narrow(0, 2 * from[static_cast<size_t>(f)], 2);
          CHECK(at::equal(beside.narrow(0, 2 * f, 2), block));
          set_head_scales(*l.layer, of_side(side, scales[f]));
          CHECK(close(l(block, block, mask), all.narrow(0, 2 * f, 2)));
        }
      }
    }
}

TEST_CASE("a score head that gives nothing is a row of zeros in the mixing matrix", "[head-scales]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, 8}, 1), scale = at::tensor({1.0F, 0.0F, 1.0F, 1.0F});
  for (const std::string on : {"probabilities", "logits"}) {
    Shaken l("heads = 4\nmixer = 'mixhead-a'\nmixhead-a.on = '" + on + "'\n", 8, 3);
    set_head_scales(*l.layer, {scale, {}, {}});
    const at::Tensor scaled = l(x, x, {});
    set_head_scales(*l.layer, {});
    CHECK(!close(scaled, l(x, x, {})));
    l["mixer.matrix"].select(0, 1).zero_();
    CHECK(close(scaled, l(x, x, {})));
  }
}

TEST_CASE("an output block that gives nothing is a row of zeros in the alphas", "[head-scales]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, 8}, 1), scale = at::tensor({1.0F, 1.0F, 0.0F, 1.0F});
  Shaken l("heads = 4\ncombiner = 'alphas'\n", 8, 3);
  set_head_scales(*l.layer, {{}, {}, scale});
  const at::Tensor outputs = l(x, x, {});
  set_head_scales(*l.layer, {{}, scale, {}});
  const at::Tensor values = l(x, x, {});
  set_head_scales(*l.layer, {});
  const at::Tensor alpha = l["combiner.alpha"].clone();
  l["combiner.alpha"].select(0, 2).zero_();
  CHECK(close(outputs, l(x, x, {})));
  l.set("combiner.alpha", alpha);
  l["combiner.alpha"].select(1, 2).zero_();
  CHECK(close(values, l(x, x, {})));
  CHECK(!close(values, outputs));
}

TEST_CASE("a model above a layer with copies goes on with all of them, memories too", "[head-scales]") {
  c10::NoGradGuard no_gradient;
  // At width 32 a segment of 20 takes the fused path, one of 4 the composed one, and a stage's state goes through both.
  for (const auto& [backbone, width, combiner] :
       {std::tuple("decoder", 8, "concatenate"), std::tuple("transformer-xl", 8, "concatenate"),
        std::tuple("transformer-xl", 32, "mae")}) {
    INFO(backbone << ", width " << width);
    const bool plain = std::string(backbone) == "decoder";
    Config config;
    config.load_text(str("[model]\nbackbone = '", backbone, "'\nlayers = 3\nwidth = ", width, "\nffn = 16\n",
                         plain ? "" : "positions = 'none'\ntransformer-xl.memory = 6\n",
                         "[attention]\nheads = 2\ncombiner = '", combiner, "'\n", plain ? "" : "score = 'relative'\n"),
                     "test");
    const auto model = model::build_language_model(model::ModelConfig::read(config), 11, at::kCPU);
    model->parameters().initialise(1);
    for (auto& p : model->parameters().all()) p.master().add_(normal(p.master().sizes().vec(), 5), 0.3);
    const at::Tensor scales = at::tensor({1.0F, 0.0F, 0.0F, 1.0F, 0.5F, 2.0F}).view({3, 2});
    std::vector<at::Tensor> segments;
    for (const int64_t length : {width < 32 ? 4 : 20, width < 32 ? 4 : 20, 4})
      segments.push_back(normal({2, length}, 20 + segments.size()).abs().mul(4).to(at::kLong).clamp_max(10));
    auto run = [&] {
      auto memory = model->memory() > 0 ? model->new_memory(model->memory()) : nullptr;
      std::vector<at::Tensor> all;
      for (const at::Tensor& tokens : segments) all.push_back(model->hidden(tokens, {}, memory.get()));
      return at::cat(all, 1);
    };
    for (AttentionLayer* layer : model->attention_layers()) {
      set_head_scales(*layer, {{}, scales, {}, {3}});
      const at::Tensor all = run();
      REQUIRE(all.size(0) == 6);
      for (int64_t f = 0; f < 3; ++f) {
        set_head_scales(*layer, {{}, scales[f], {}});
        CHECK(close(run(), all.narrow(0, 2 * f, 2)));
      }
      set_head_scales(*layer, {});
    }
  }
}
