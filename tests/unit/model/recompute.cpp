// Forward and backward passes of whole models with train.recompute, in which each layer computes its activations again.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "fixtures/every_model.h"
#include "model/memories.h"

using namespace mh;
using namespace mh::model;

namespace {

struct NamedResult {
  std::string name;
  at::Tensor value;
};

// Returns the hidden states of two training passes with dropout, of which the second reads the memory of the first if
// the model has a memory; the gradients, summed over the two passes; and all parameters that are not trained, such as
// running statistics.
std::vector<NamedResult> train_twice(const std::string& toml, bool recomputes, bool is_bf16) {
  const bool is_encoder_only = toml.find("'bert'") != toml.npos;
  ModelConfig config = models::parse_model_config(toml);
  for (double* rate : {&config.model.dropout_attention, &config.model.dropout_activation, &config.model.dropout_ffn})
    *rate = 0.2;
  const auto model = build_language_model(config, every_model::kVocabularySizes, at::kCPU);
  model->parameters().initialise(3);
  model->parameters().use_bf16_copies(is_bf16);
  const Input input = every_model::input(*model, is_encoder_only);
  const auto memory = model->memory_length() > 0 ? model->new_memory(model->memory_length()) : nullptr;
  std::vector<NamedResult> results;
  for (uint32_t update = 0; update < 2; ++update) {
    nn::ForwardContext context{.training = true, .seed = 5, .update = update};
    context.recomputes_layers = recomputes;
    const at::Tensor hidden = model->hidden(input, context, memory.get());
    hidden.to(at::kFloat).square().mean().backward();
    model->parameters().collect_gradients();
    results.push_back({str("hidden states of pass ", update), hidden.detach()});
  }
  for (const nn::Parameter& p : model->parameters().all())
    if (p.master().grad().defined()) results.push_back({"gradient of " + p.name(), p.master().grad()});
    else if (!p.traits().trainable) results.push_back({p.name(), p.master()});
  return results;
}

}  // namespace

TEST_CASE("recompute: two training passes of every model with and without recomputation are equal bit for bit") {
  for (const std::string& toml : every_model::configurations())
    for (const bool is_bf16 : {false, true}) {
      INFO(toml << (is_bf16 ? "bf16" : "fp32"));
      const auto expected = train_twice(toml, false, is_bf16), actual = train_twice(toml, true, is_bf16);
      REQUIRE(actual.size() == expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        INFO(expected[i].name);
        CHECK(actual[i].name == expected[i].name);
        CHECK(at::equal(actual[i].value, expected[i].value));
      }
    }
}
