// Head scales for ablation: their effect on score, value and output heads, and variants, which compute the rows of a
// batch with several sets of head scales in one forward pass.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>

#include "fixtures/combiners.h"
#include "fixtures/layers.h"
#include "fixtures/passes.h"
#include "model/memories.h"
#include "model/model_config.h"

using namespace mh;
using namespace mh::attention;
using layers::normal;
using layers::PerturbedLayer;

namespace {

// Returns head scales of the score heads (side 0), value heads (1) or output heads (2). `scale`: the scales of each
// variant, (num_variants, h), or one scale per head, (h), if num_variants is 0.
HeadScales scales_of_side(int side, const at::Tensor& scale, int64_t num_variants = 0) {
  HeadScales s;
  (side == 0 ? s.score : side == 1 ? s.value : s.output) = scale;
  s.variants.count = num_variants;
  return s;
}

}  // namespace

TEST_CASE("a forward pass with variants equals separate forward passes with the head scales of each variant",
          "[head-scales]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, 8}, 1), scales = normal({3, 4}, 2);
  std::vector<std::vector<std::string>> combiner_lists = fixtures::combiner_pairs();
  for (const auto& name : combiners().names()) combiner_lists.push_back({name});
  for (const auto& mixer : mixers().names())
    for (const auto& names : combiner_lists) {
      if (names.size() > 1 && mixer != "none") continue;
      const std::string combiner = fixtures::combiner_line(names);
      INFO(mixer << " " << combiner);
      PerturbedLayer l("heads = 4\nmixer = '" + mixer + "'\n" + combiner, 8, 3);
      const Mask mask = layers::causal_mask();
      const layers::LayerRounding rounding = layers::rounding_of(l, x, x, mask);
      for (int side = 0; side < 3; ++side) {
        if (side == 0 && mixer == "none") {
          CHECK_THROWS_AS(set_head_scales(*l.layer, scales_of_side(0, scales, 3)), Error);
          continue;
        }
        set_head_scales(*l.layer, scales_of_side(side, scales, 3));
        const at::Tensor variant_outputs = l(x, x, mask);
        REQUIRE(variant_outputs.sizes() == at::IntArrayRef({6, 5, 8}));
        for (int64_t variant = 0; variant < 3; ++variant) {
          set_head_scales(*l.layer, scales_of_side(side, scales[variant]));
          CHECK(rounding.agree(l(x, x, mask), variant_outputs.narrow(0, 2 * variant, 2), numbers::max_abs(scales)));
        }
        set_head_scales(*l.layer, {});
      }
    }
}

TEST_CASE("variants of different groups of rows equal separate forward passes over each group", "[head-scales]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({4, 5, 8}, 1), scales = normal({5, 4}, 2);  // x: two groups of two rows
  const std::vector<int64_t> source_groups{0, 1, 1, 0, 1};                // group of rows that each variant copies
  for (const std::string mixer : {"none", "mixhead-a", "mixhead-b", "talking-heads"})
    for (const std::string combiner : {"concatenate", "alphas", "mae", "gates"}) {
      INFO(mixer << " " << combiner);
      PerturbedLayer l("heads = 4\nmixer = '" + mixer + "'\ncombiner = '" + combiner + "'\n", 8, 3);
      const Mask mask = layers::causal_mask();
      const layers::LayerRounding rounding = layers::rounding_of(l, x, x, mask);
      for (int side = mixer == "none" ? 1 : 0; side < 3; ++side) {
        HeadScales s = scales_of_side(side, scales, 5);
        s.variants.source_groups = source_groups;
        set_head_scales(*l.layer, s);
        const at::Tensor variant_outputs = l(x, x, mask), repeated_x = l.layer->repeat_for_variants(x);
        REQUIRE(variant_outputs.sizes() == at::IntArrayRef({10, 5, 8}));
        for (int64_t variant = 0; variant < 5; ++variant) {
          const at::Tensor group = x.narrow(0, 2 * source_groups[static_cast<size_t>(variant)], 2);
          CHECK(at::equal(repeated_x.narrow(0, 2 * variant, 2), group));
          set_head_scales(*l.layer, scales_of_side(side, scales[variant]));
          CHECK(rounding.agree(l(group, group, mask), variant_outputs.narrow(0, 2 * variant, 2),
                               numbers::max_abs(scales)));
        }
      }
    }
}

TEST_CASE("scaling a score head by 0 equals zeroing its row of the mixing matrix", "[head-scales]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, 8}, 1), scale = at::tensor({1.0F, 0.0F, 1.0F, 1.0F});
  for (const std::string on : {"probabilities", "logits"}) {
    PerturbedLayer l("heads = 4\nmixer = 'mixhead-a'\nmixhead-a.mixer_input = '" + on + "'\n", 8, 3);
    const layers::LayerRounding rounding = layers::rounding_of(l, x, x);
    set_head_scales(*l.layer, {scale, {}, {}});
    const at::Tensor scaled_output = l(x, x, {});
    set_head_scales(*l.layer, {});
    CHECK(!rounding.agree(scaled_output, l(x, x, {})));
    l["mixer.matrix"].select(0, 1).zero_();
    CHECK(rounding.agree(scaled_output, l(x, x, {})));
  }
}

TEST_CASE("scaling an output head by 0 equals zeroing its row of alpha; for a value head, its column of alpha",
          "[head-scales]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, 8}, 1), scale = at::tensor({1.0F, 1.0F, 0.0F, 1.0F});
  PerturbedLayer l("heads = 4\ncombiner = 'alphas'\n", 8, 3);
  const layers::LayerRounding rounding = layers::rounding_of(l, x, x);
  set_head_scales(*l.layer, {{}, {}, scale});
  const at::Tensor output_ablated = l(x, x, {});
  set_head_scales(*l.layer, {{}, scale, {}});
  const at::Tensor value_ablated = l(x, x, {});
  set_head_scales(*l.layer, {});
  const at::Tensor alpha = l["combiner.alpha"].clone();
  l["combiner.alpha"].select(0, 2).zero_();
  CHECK(rounding.agree(output_ablated, l(x, x, {})));
  l.set("combiner.alpha", alpha);
  l["combiner.alpha"].select(1, 2).zero_();
  CHECK(rounding.agree(value_ablated, l(x, x, {})));
  CHECK(!rounding.agree(value_ablated, output_ablated));
}

TEST_CASE("layers and memories after a layer with variants process the rows of all variants", "[head-scales]") {
  c10::NoGradGuard no_gradient;
  // At width 32 a segment of 20 tokens takes the fused path and a segment of 4 tokens the composed path; both paths use
  // the same state of the stages.
  for (const auto& [backbone, width, combiner] :
       {std::tuple("decoder", 8, "concatenate"), std::tuple("transformer-xl", 8, "concatenate"),
        std::tuple("transformer-xl", 32, "mae")}) {
    INFO(backbone << ", width " << width);
    const bool is_decoder = std::string(backbone) == "decoder";
    Config config;
    config.load_text(
        str("[model]\nbackbone = '", backbone, "'\nlayers = 3\nwidth = ", width, "\nffn_dim = 16\n",
            is_decoder ? "" : "positions = 'none'\ntransformer-xl.memory = 6\n", "[attention]\nheads = 2\ncombiner = '",
            combiner, "'\n", is_decoder ? "" : "score = 'relative'\n"),
        "test");
    const auto model = model::build_language_model(model::ModelConfig::read(config), {11}, at::kCPU);
    model->parameters().initialise(1);
    for (auto& p : model->parameters().all()) p.master().add_(normal(p.master().sizes().vec(), 5), 0.3);
    const at::Tensor scales = at::tensor({1.0F, 0.0F, 0.0F, 1.0F, 0.5F, 2.0F}).view({3, 2});
    std::vector<at::Tensor> segments;
    for (const int64_t length : {width < 32 ? 4 : 20, width < 32 ? 4 : 20, 4})
      segments.push_back(normal({2, length}, 20 + segments.size()).abs().mul(4).to(at::kLong).clamp_max(10));
    auto run = [&](Observer* observer = nullptr) {
      auto memory = model->memory_length() > 0 ? model->new_memory(model->memory_length()) : nullptr;
      std::vector<at::Tensor> outputs;
      for (const at::Tensor& tokens : segments)
        outputs.push_back(model->hidden(model::Input{tokens}, {}, memory.get(), observer));
      return nn::cat(outputs, 1);
    };
    // The chain of roundings passes through the model once for each segment, since a segment reads earlier segments
    // through the memory. As in layers::LayerRounding, errors of logits grow by the largest logit; the scales are at
    // most 2.
    layers::TermObserver terms;
    run(&terms);
    const int64_t num_roundings =
        rounding::num_pass_roundings(*model, terms.num_keys) * static_cast<int64_t>(segments.size());
    for (AttentionLayer* layer : model->attention_layers()) {
      set_head_scales(*layer, {{}, scales, {}, {3}});
      const at::Tensor variant_outputs = run();
      REQUIRE(variant_outputs.size(0) == 6);
      for (int64_t variant = 0; variant < 3; ++variant) {
        set_head_scales(*layer, {{}, scales[variant], {}});
        CHECK(rounding::agree(run(), variant_outputs.narrow(0, 2 * variant, 2), num_roundings,
                              2 * std::max(1.0, terms.largest_logit) * numbers::max_abs(variant_outputs)));
      }
      set_head_scales(*layer, {});
    }
  }
}
