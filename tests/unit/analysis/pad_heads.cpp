// Padding of heads with zeros: the padded model has the outputs of the model, up to rounding, for every stage but those
// that zeros would change.
#include "analysis/pad_heads.h"

#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <set>

#include "base/error.h"
#include "fixtures/every_model.h"
#include "fixtures/passes.h"
#include "fixtures/segments.h"

using namespace mh;
using Catch::Contains;
using numbers::normal;

namespace {

std::unique_ptr<model::LanguageModel> perturbed_model(const model::ModelConfig& config) {
  auto model = model::build_language_model(config, every_model::kVocabularySizes, at::kCPU);
  const c10::NoGradGuard no_gradient;
  model->parameters().initialise(3);
  uint64_t seed = 5;
  for (auto& p : model->parameters().all())
    if (p.traits().trainable) p.master().add_(normal(p.master().sizes().vec(), seed++), 0.2);
  return model;
}

int64_t largest_head_size(model::LanguageModel& model) {
  int64_t size = 0;
  for (const auto* layer : model.attention_layers())
    size = std::max({size, layer->layer_spec().key_size, layer->layer_spec().value_size});
  return size;
}

// Returns the hidden states of two passes, of which the second reads the memory of the first if there is a memory.
std::vector<at::Tensor> hidden_states(model::LanguageModel& model, bool is_encoder_only) {
  const c10::NoGradGuard no_gradient;
  const model::Input input = every_model::input(model, is_encoder_only);
  const auto memory = model.memory_length() > 0 ? model.new_memory(model.memory_length()) : nullptr;
  std::vector<at::Tensor> states;
  for (int pass = 0; pass < 2; ++pass) states.push_back(model.hidden(input, {}, memory.get()));
  return states;
}

}  // namespace

TEST_CASE("zeros are appended to each block of an axis, as in plain loops", "[pad]") {
  const at::Tensor x = normal({2, 6}, 1), padded = analysis::pad_blocks(x, 1, 3, 12);
  REQUIRE((padded.sizes() == at::IntArrayRef{2, 12}));
  const auto a = x.accessor<float, 2>(), b = padded.accessor<float, 2>();
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t head = 0; head < 3; ++head)
      for (int64_t i = 0; i < 4; ++i) CHECK(b[row][head * 4 + i] == (i < 2 ? a[row][head * 2 + i] : 0));
  CHECK(at::equal(analysis::pad_blocks(x.t(), 0, 3, 12), padded.t()));
}

TEST_CASE("padding of heads leaves the outputs of a model unchanged; stages that zeros would change refuse padding",
          "[pad]") {
  std::set<std::string> refusing_stages;
  for (const std::string& toml : every_model::configurations()) {
    INFO(toml);
    const model::ModelConfig config = models::parse_model_config(toml);
    const auto model = perturbed_model(config);
    const int64_t head_size = largest_head_size(*model) + 3;
    analysis::PaddedModel padded;
    try {
      padded = analysis::pad_heads(config, *model, head_size, "--head-size");
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::usage);
      for (const std::string stage : {"qk-norm", "pair-norm"})
        if (std::string(error.what()).find("'" + stage + "'") != std::string::npos) refusing_stages.insert(stage);
      REQUIRE(std::string(error.what()).find("whose mean square depends on") != std::string::npos);
      continue;
    }
    for (const auto* layer : padded.model->attention_layers()) {
      CHECK(layer->layer_spec().key_size == head_size);
      CHECK(layer->layer_spec().value_size == head_size);
    }
    const bool is_encoder_only = toml.find("'bert'") != std::string::npos;
    const auto expected = hidden_states(*model, is_encoder_only),
               actual = hidden_states(*padded.model, is_encoder_only);
    for (size_t i = 0; i < expected.size(); ++i)
      CHECK(rounding::passes_agree(*padded.model, actual[i], expected[i], 20, 1));
    // The configuration of the padded model builds its parameters.
    Config padded_config;
    padded_config.load_text(padded.config.toml(), "toml");
    const auto rebuilt =
        model::build_language_model(model::ModelConfig::read(padded_config), every_model::kVocabularySizes, at::kMeta);
    CHECK(rebuilt->parameters().num_trainable_elements() == padded.model->parameters().num_trainable_elements());
  }
  CHECK(refusing_stages == std::set<std::string>{"pair-norm", "qk-norm"});
}

TEST_CASE("padding leaves outputs unchanged with a cache, a scale, grouped heads and rotation of a part of a head",
          "[pad]") {
  for (const char* attention :
       {"", "scale = 0.7\n", "value_size = 3\n", "key_value_heads = 2\n", "transform = ['rotary']\n",
        "transform = ['rotary']\nrotary.size = 4\n", "score = 'synthesizer-dense'\n",
        "score = 'synthesizer-dense'\nsynthesizer-dense.per_head = true\n",
        "mixer = 'mixhead-b'\ncombiner = 'alphas'\n"}) {
    INFO(attention);
    const segment_fixtures::Model full("decoder", attention, "[attention]\nhead_size = 6\n");
    const auto padded = analysis::pad_heads(full.config, *full.model, 8, "--head-size");
    CHECK(padded.num_layers == 3);
    CHECK(padded.config.toml().find("[attention.decoder") == std::string::npos);
    segment_fixtures::check_close(segment_fixtures::hidden_states(*padded.model),
                                  segment_fixtures::hidden_states(*full.model));
  }
}

TEST_CASE("the gradients of appended elements are zero, so further training leaves these elements at zero", "[pad]") {
  for (const auto& [backbone, attention] :
       {std::pair("decoder", ""), std::pair("decoder", "key_value_heads = 2\n"),
        std::pair("decoder", "transform = ['rotary']\nrotary.size = 4\n"),
        std::pair("decoder", "score = 'synthesizer-dense'\n"), std::pair("decoder", "mixer = 'mixhead-b'\n"),
        std::pair("decoder", "mixer = 'differential'\n"), std::pair("transformer-xl", "")}) {
    CAPTURE(backbone, attention);
    const segment_fixtures::Model full(backbone, attention), ones(backbone, attention);
    {
      const c10::NoGradGuard no_gradient;
      for (auto& p : ones.model->parameters().all()) p.master().fill_(1);
    }
    const auto padded = analysis::pad_heads(full.config, *full.model, 8, "--head-size"),
               padded_ones = analysis::pad_heads(ones.config, *ones.model, 8, "--head-size");
    const auto memory = padded.model->memory_length() > 0 ? padded.model->new_memory(6) : nullptr;
    for (const at::Tensor& tokens : segment_fixtures::segments())
      padded.model->hidden(model::Input{tokens}, {}, memory.get()).square().sum().backward();
    int64_t num_appended = 0;
    for (const auto& p : padded.model->parameters().all()) {
      const at::Tensor is_appended = padded_ones.model->parameters().find(p.name())->master().detach() == 0;
      num_appended += is_appended.sum().item<int64_t>();
      if (p.master().grad().defined()) CHECK(p.master().grad().masked_select(is_appended).eq(0).all().item<bool>());
    }
    CHECK(num_appended > 0);
    CHECK(padded.model->parameters()
              .find("decoder.layers.0.self.value.weight")
              ->master()
              .grad()
              .abs()
              .max()
              .item<float>() > 0);
  }
}

TEST_CASE("padding leaves a layer without heads unchanged, whatever its head size", "[pad]") {
  const segment_fixtures::Model full("decoder", "", "[attention.decoder.self.1]\nheads = 0\nhead_size = 16\n");
  const auto padded = analysis::pad_heads(full.config, *full.model, 8, "--head-size");
  CHECK(padded.num_layers == 2);
  segment_fixtures::check_close(segment_fixtures::hidden_states(*padded.model),
                                segment_fixtures::hidden_states(*full.model));
}

TEST_CASE("padding refuses small sizes, models without heads, and frequencies that depend on the head size", "[pad]") {
  const auto message_of = [&](const segment_fixtures::Model& full, int64_t head_size) -> std::string {
    try {
      analysis::pad_heads(full.config, *full.model, head_size, "--head-size");
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::usage);
      return error.what();
    }
    return "no error";
  };
  const segment_fixtures::Model full("decoder", "");
  CHECK_THAT(message_of(full, 4), Contains("a head size of at least 5, the largest size of a head of the model"));
  CHECK_THAT(message_of(full, 5), Contains("a head size above 5, the size of every head of the model"));
  CHECK_THAT(message_of(segment_fixtures::Model("decoder", "", "[attention]\nheads = 0\n"), 8),
             Contains("a model with attention heads"));
  CHECK_THAT(message_of(segment_fixtures::Model("decoder", "transform = ['rotary']\nrotary.scaling = 'proportional'\n",
                                                "[attention]\nhead_size = 6\n"),
                        8),
             Contains("attention.rotary.scaling='proportional'"));
}
