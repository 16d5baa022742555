// Transformer-XL: segments with a memory against one forward pass over the text, Skip-Retain, parameter counts,
// agreement of devices and types.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "fixtures/device.h"
#include "fixtures/models.h"
#include "fixtures/passes.h"
#include "model/memories.h"
#include "nn/device.h"
#include "train/procedure.h"
#include "train/procedures/skip_retain.h"

using namespace mh;
using namespace mh::model;
using namespace mh::nn;

namespace {

const char* kPublished =
    "backbone = 'transformer-xl'\nnorm = 'post'\npositions = 'none'\ninit = 'transformer-xl'\noutput_bias = true\n";

// Returns the configuration with `model_lines` in [model], and with bias = false, score = 'relative' and
// `attention_lines` in [attention].
ModelConfig parse_model_config(const std::string& model_lines, const std::string& attention_lines) {
  return models::parse_model_config(
      str("[model]\n", model_lines, "[attention]\nbias = false\nscore = 'relative'\n", attention_lines));
}

// Initialises the parameters and multiplies matrices by 12, so that attention is far from uniform.
void initialise_large(ParameterList& parameters, uint64_t seed) {
  parameters.initialise(seed);
  c10::NoGradGuard no_gradient;
  for (auto& p : parameters.all())
    if (p.master().dim() > 1) p.master().mul_(12);
}

std::unique_ptr<LanguageModel> tiny_model(const std::string& extra_toml, const std::string& attention = "",
                                          int64_t layers = 3) {
  auto model = build_language_model(
      parse_model_config(str(kPublished, "layers = ", layers, "\nwidth = 16\nffn_dim = 24\n", extra_toml),
                         "heads = 4\n" + attention),
      {30}, at::kCPU);
  initialise_large(model->parameters(), 1);
  return model;
}

at::Tensor tokens(int64_t num_rows, int64_t length, uint64_t seed) {
  return models::random_tokens(num_rows, length, 30, seed);
}

nn::ForwardContext context_of_update(uint32_t number) { return {true, 3, number, 0}; }

// Draws the layers that Skip-Retain skips in each update.
class SkipDraws {
 public:
  SkipDraws(LanguageModel& model, const std::string& options)
      : procedure_(train::procedures().make("skip-retain", "")) {
    Config config;
    config.load_text("[p]\n" + options, "test");
    config.read("p", *procedure_);
    train::RunProperties properties;
    properties.seed = 3;
    properties.to_updates = [](const Length& length) { return length.count; };
    procedure_->set_run_properties(properties);
    procedure_->start(model);
  }
  // Returns a context that points into this object and is valid until the next call.
  nn::ForwardContext context_of_update(uint32_t number) {
    pass_ = {};
    procedure_->modify_pass(pass_, {number, 0, 0});
    nn::ForwardContext forward_context{true, 3, number, 0};
    forward_context.requests = &pass_.requests;
    return forward_context;
  }

 private:
  std::unique_ptr<train::Procedure> procedure_;
  train::TrainingPass pass_;
};

// Upper bound on the number of keys of a query in these tests.
constexpr int64_t kMaxKeys = 24;

// Returns whether a and b agree within rounding, as results of the same forward pass of the model.
bool agree(LanguageModel& model, const at::Tensor& a, const at::Tensor& b) {
  return rounding::passes_agree(model, a, b, kMaxKeys);
}

// Returns the hidden states of x, read in segments of these lengths with the memory `state`, (B, T, d).
at::Tensor hidden_by_segments(LanguageModel& model, const at::Tensor& x, const std::vector<int64_t>& lengths,
                              DecodingState& state) {
  std::vector<at::Tensor> segments;
  int64_t first = 0;
  for (int64_t n : lengths) {
    segments.push_back(model.hidden(model::Input{x.narrow(1, first, n)}, {}, &state));
    first += n;
  }
  CHECK(state.length() == first);
  return nn::cat(segments, 1);
}

}  // namespace

TEST_CASE("parameter counts of Transformer-XL equal published sizes and the formula", "[txl]") {
  // Skip Cross-Head on enwik8: 41M in the paper.
  auto count = [](const std::string& model, const std::string& attention, int64_t vocabulary_size) {
    return build_language_model(parse_model_config(kPublished + model, attention), {vocabulary_size}, at::kMeta)
        ->parameters()
        .num_trainable_elements();
  };
  CHECK(count("layers = 12\ntied = false\n", "", 204) == 41159884);
  // Transformer-XL on WikiText-2: 40M in the Mixhead paper.
  CHECK(count("layers = 16\nwidth = 410\nffn_dim = 1000\n", "heads = 10\n", 33278) == 40294878);
  for (auto [d, h, k, f, layers] : {std::tuple{16, 4, 0, 24, 1}, {20, 3, 7, 30, 3}, {410, 10, 41, 2100, 16}}) {
    const int64_t inner = h * (k > 0 ? k : d / h);
    CHECK(count(str("layers = ", layers, "\nwidth = ", d, "\nffn_dim = ", f, "\n"),
                str("heads = ", h, "\nhead_size = ", k, "\n"),
                50) == 50 * d + 50 + layers * (5 * d * inner + 2L * d * f + f + d + 4 * d) + 2 * inner);
  }
}

TEST_CASE("segments with a memory longer than the text equal one forward pass for any segmentation", "[txl]") {
  for (const char* norm : {"post", "pre"}) {
    auto model = build_language_model(
        parse_model_config(str("backbone = 'transformer-xl'\nnorm = '", norm,
                               "'\npositions = 'none'\ninit = 'transformer-xl'\nlayers = 3\nwidth = 16\nffn_dim = 24\n"
                               "transformer-xl.memory = 20\n"),
                           "heads = 4\n"),
        {30}, at::kCPU);
    initialise_large(model->parameters(), 1);
    for (bool with_gradients : {false, true}) {
      at::AutoGradMode mode(with_gradients);
      at::Tensor x = tokens(2, 14, 5), full_output = model->hidden(model::Input{x}, {});
      for (const auto& lengths : std::vector<std::vector<int64_t>>{{14}, {7, 7}, {1, 1, 5, 3, 4}, {13, 1}}) {
        auto state = model->new_state();
        CHECK(agree(*model, hidden_by_segments(*model, x, lengths, *state), full_output));
      }
    }
  }
}

TEST_CASE("same_length gives every query M keys, so any segmentation equals one forward pass", "[txl]") {
  // A memory of M slots has the effect of a window of M keys that includes the position of the query.
  auto model = tiny_model("transformer-xl.memory = 4\ntransformer-xl.same_length = true\n");
  at::Tensor x = tokens(2, 15, 5), full_output = model->hidden(model::Input{x}, {}), changed_tokens = x.clone();
  for (bool with_gradients : {false, true}) {
    at::AutoGradMode mode(with_gradients);
    for (const auto& lengths :
         std::vector<std::vector<int64_t>>{{15}, {5, 5, 5}, {1, 2, 9, 3}, std::vector<int64_t>(15, 1)}) {
      auto state = model->new_state();
      CHECK(agree(*model, hidden_by_segments(*model, x, lengths, *state), full_output));
    }
  }
  // The receptive field of three layers is 3 (M - 1) earlier positions.
  changed_tokens.narrow(1, 0, 5).copy_(tokens(2, 5, 9));
  at::Tensor changed_output = model->hidden(model::Input{changed_tokens}, {});
  CHECK(agree(*model, changed_output.narrow(1, 14, 1), full_output.narrow(1, 14, 1)));
  CHECK(!agree(*model, changed_output.narrow(1, 13, 1), full_output.narrow(1, 13, 1)));
}

TEST_CASE("a memory stores the last positions: layer inputs if gradients are enabled, otherwise keys and values",
          "[txl]") {
  // With and without gradients the memory drops the same positions.
  auto model = tiny_model("transformer-xl.memory = 4\n");
  at::Tensor x = tokens(2, 15, 5);
  std::vector<at::Tensor> outputs;
  for (bool with_gradients : {false, true}) {
    at::AutoGradMode mode(with_gradients);
    auto state = model->new_state();
    outputs.push_back(hidden_by_segments(*model, x, {3, 2, 6, 1, 1, 2}, *state).detach());
    const auto& layer = static_cast<Memories&>(*state).layers[1];
    CHECK(layer.positions == std::vector<int64_t>{11, 12, 13, 14});
    CHECK(layer.inputs.defined() == with_gradients);
    if (with_gradients) CHECK(!layer.inputs.requires_grad());
    if (!with_gradients) CHECK(layer.cache.length() == 4);
  }
  CHECK(agree(*model, outputs[0], outputs[1]));
  // Segments of one token with a memory of four: five keys for each query.
  auto window_model = tiny_model("transformer-xl.memory = 5\ntransformer-xl.same_length = true\n");
  auto state = model->new_state();
  c10::NoGradGuard no_gradient;
  CHECK(agree(*model, hidden_by_segments(*model, x, std::vector<int64_t>(15, 1), *state),
              window_model->hidden(model::Input{x}, {})));
}

TEST_CASE("evaluation reads a memory that training wrote; training rejects a memory that evaluation wrote", "[txl]") {
  auto model = tiny_model("transformer-xl.memory = 6\n");
  at::Tensor x = tokens(2, 12, 5);
  auto training_memory = model->new_state(), evaluation_memory = model->new_state();
  model->hidden(model::Input{x.narrow(1, 0, 6)}, context_of_update(0), training_memory.get());
  c10::NoGradGuard no_gradient;
  model->hidden(model::Input{x.narrow(1, 0, 6)}, {}, evaluation_memory.get());
  at::Tensor next_tokens = x.narrow(1, 6, 2);
  for (int i = 0; i < 2; ++i)
    CHECK(agree(*model, model->hidden(model::Input{next_tokens}, {}, training_memory.get()),
                model->hidden(model::Input{next_tokens}, {}, evaluation_memory.get())));
  CHECK_THROWS_AS(model->hidden(model::Input{next_tokens}, context_of_update(1), training_memory.get()), Error);
}

TEST_CASE("reordered rows of a decoding state continue as their source rows", "[txl]") {
  for (bool with_gradients : {false, true}) {
    at::AutoGradMode mode(with_gradients);
    auto model = tiny_model("transformer-xl.memory = 20\n");
    at::Tensor x = tokens(3, 7, 5), old_rows = at::tensor({2, 0}, at::kLong), next_tokens = tokens(2, 1, 6);
    auto state = model->new_state();
    model->hidden(model::Input{x}, {}, state.get());
    state->reorder(old_rows);
    CHECK(
        agree(*model, model->hidden(model::Input{next_tokens}, {}, state.get()),
              model->hidden(model::Input{nn::cat({x.index_select(0, old_rows), next_tokens}, 1)}, {}).narrow(1, 7, 1)));
  }
}

TEST_CASE("without a memory training segments are independent and decoding keeps all positions", "[txl]") {
  for (const char* score : {"relative", "dot-product", "synthesizer-dense", "synthesizer-random"}) {
    Config config;
    config.load_text(str("[model]\n", kPublished,
                         "layers = 2\nwidth = 16\nffn_dim = 24\n[attention]\nheads = 4\nscore = '", score, "'\n"),
                     "test");
    auto model = build_language_model(ModelConfig::read(config), {30}, at::kCPU);
    initialise_large(model->parameters(), 1);
    at::Tensor x = tokens(2, 9, 5);
    auto state = model->new_state();
    model->hidden(model::Input{x.narrow(1, 0, 4)}, context_of_update(0), state.get());
    CHECK(agree(*model, model->hidden(model::Input{x.narrow(1, 4, 5)}, context_of_update(1), state.get()),
                model->hidden(model::Input{x.narrow(1, 4, 5)}, context_of_update(1))));
    c10::NoGradGuard no_gradient;
    auto decoding_state = model->new_state();
    CHECK(agree(*model, hidden_by_segments(*model, x, {4, 1, 1, 3}, *decoding_state),
                model->hidden(model::Input{x}, {})));
  }
}

TEST_CASE("no gradient flows through the memory to an earlier segment", "[txl]") {
  auto model = tiny_model("transformer-xl.memory = 6\n", "", 2);
  at::Tensor x = tokens(1, 12, 5).clone(), first_segment = x.narrow(1, 0, 6), second_segment = x.narrow(1, 6, 6);
  // Disjoint tokens in the two segments, so that each row of the embedding gradient belongs to one segment.
  first_segment.copy_(first_segment % 15);
  second_segment.copy_(second_segment % 15 + 15);
  auto state = model->new_state();
  model->hidden(model::Input{first_segment}, context_of_update(0), state.get());
  model->hidden(model::Input{second_segment}, context_of_update(1), state.get())
      .square()
      .mul(at::arange(16, at::kFloat))
      .sum()
      .backward();
  at::Tensor gradient = model->parameters().find("decoder.embedding.weight")->master().grad();
  CHECK(gradient.narrow(0, 0, 15).abs().max().item<float>() == 0);
  CHECK(gradient.narrow(0, 15, 15).abs().max().item<float>() > 0);
}

TEST_CASE("skip_probability() of a layer follows the chosen schedule of Skip-Retain", "[txl]") {
  using train::SkipSchedule;
  auto probabilities = [](SkipSchedule schedule, int64_t layers) {
    std::vector<double> p;
    for (int64_t i = 0; i < layers; ++i) p.push_back(train::skip_probability(schedule, 0.25, i, layers));
    return p;
  };
  CHECK(probabilities(SkipSchedule::linear, 8) == std::vector<double>{0, .0625, .125, .1875, .25, .3125, .375, 0});
  auto sum = [](const std::vector<double>& p) { return std::accumulate(p.begin(), p.end(), 0.0); };
  CHECK(sum(probabilities(SkipSchedule::linear, 12)) == rounding::printed(2.29167, 6));
  CHECK(probabilities(SkipSchedule::linear, 12)[7] == rounding::fp64(7 / 24.0, 4));
  CHECK(sum(probabilities(SkipSchedule::linear, 15)) == rounding::printed(3.03333, 6));
  CHECK(probabilities(SkipSchedule::linear, 15)[14] == 0);
  CHECK(probabilities(SkipSchedule::all, 3) == std::vector<double>{.25, .25, .25});
  CHECK(probabilities(SkipSchedule::not_first, 3) == std::vector<double>{0, .25, .25});
  CHECK(probabilities(SkipSchedule::not_last, 3) == std::vector<double>{.25, .25, 0});
  CHECK(probabilities(SkipSchedule::not_ends, 3) == std::vector<double>{0, .25, 0});
}

TEST_CASE("Skip-Retain reports the expected context and the mean age of memories", "[txl]") {
  auto context_of = [](int64_t num_layers, int64_t memory_length) {
    std::vector<double> p;
    for (int64_t i = 0; i < num_layers; ++i)
      p.push_back(train::skip_probability(train::SkipSchedule::linear, 0, i, num_layers));
    return train::expected_context(p, memory_length);
  };
  CHECK(context_of(12, 512) == rounding::printed(2346.67, 6));  // M (N - 1)(N - 2) / (2 N)
  CHECK(context_of(15, 640) == rounding::fp64(640 * 14 * 13 / 30.0, 20));
  CHECK(context_of(1, 512) == 0);
  for (const double p : {0.0, 0.0625, 0.4375, 0.9}) {
    double age = 0;
    for (int k = 1; k < 2000; ++k) age += k * std::pow(p, k - 1) * (1 - p);
    CHECK(train::mean_memory_age(p) == rounding::fp64(age, 2000));
  }
  auto model = tiny_model("transformer-xl.memory = 6\n");
  const auto procedure = train::procedures().make("skip-retain", "train.procedures");
  procedure->start(*model);
  CHECK(procedure->expected_values().dump() == R"({"expected_context":2.0,"memory_ages":[1.0,1.2,1.0]})");
  auto model_without_memory = tiny_model("transformer-xl.memory = 0\n");
  procedure->start(*model_without_memory);
  CHECK(procedure->expected_values().is_null());
}

TEST_CASE("a skipped layer passes its input on and leaves its memory unchanged", "[txl]") {
  auto model = tiny_model("transformer-xl.memory = 6\ndropout_ffn = 0.1\n");
  SkipDraws skips(*model, "schedule = 'all'\nrate = 0.5\n");
  auto state = model->new_state();
  auto& layers = static_cast<Memories&>(*state).layers;
  int num_skipped = 0, num_all_skipped = 0;
  for (uint32_t i = 0; i < 40; ++i) {
    std::vector<at::Tensor> old_inputs;
    std::vector<std::vector<int64_t>> old_positions;
    for (const auto& layer : layers) old_inputs.push_back(layer.inputs), old_positions.push_back(layer.positions);
    at::Tensor x = tokens(2, 4, i), y = model->hidden(model::Input{x}, skips.context_of_update(i), state.get());
    size_t num_unchanged = 0;
    for (size_t l = 0; l < layers.size(); ++l) {
      if (layers[l].positions != old_positions[l]) {
        CHECK(layers[l].positions.back() == 4 * i + 3);
        continue;
      }
      ++num_unchanged;
      CHECK(layers[l].inputs.is_same(old_inputs[l]));
    }
    num_skipped += static_cast<int>(num_unchanged);
    if (num_unchanged == layers.size()) {
      ++num_all_skipped;
      CHECK(at::equal(y, mh::nn::embedding(x, model->parameters().find("decoder.embedding.weight")->master(), 4)));
    }
  }
  CHECK(num_skipped > 30);
  CHECK(num_all_skipped > 0);
}

TEST_CASE("Skip-Retain with rate 0 equals the model without Skip-Retain in every update", "[txl]") {
  auto plain_model = tiny_model("transformer-xl.memory = 6\n"),
       rate_0_model = tiny_model("transformer-xl.memory = 6\n"),
       rate_90_model = tiny_model("transformer-xl.memory = 6\n");
  SkipDraws rate_0_skips(*rate_0_model, "schedule = 'all'\nrate = 0.0\n"),
      rate_90_skips(*rate_90_model, "schedule = 'all'\nrate = 0.9\n");
  auto plain_state = plain_model->new_state(), rate_0_state = rate_0_model->new_state();
  int num_equal = 0;
  for (uint32_t i = 0; i < 6; ++i) {
    at::Tensor x = tokens(2, 4, i), y = plain_model->hidden(model::Input{x}, context_of_update(i), plain_state.get());
    CHECK(at::equal(y, rate_0_model->hidden(model::Input{x}, rate_0_skips.context_of_update(i), rate_0_state.get())));
    num_equal += at::equal(y, rate_90_model->hidden(model::Input{x}, rate_90_skips.context_of_update(i)));
  }
  CHECK(num_equal == 0);
}

TEST_CASE("ages of memories under Skip-Retain are geometrically distributed with mean 1 / (1 - p)", "[txl]") {
  // The skips of a layer are independent and have the probability p, so its memory has the age n, in segments, with the
  // probability p^(n - 1) (1 - p).
  auto model = build_language_model(
      parse_model_config(str(kPublished, "layers = 8\nwidth = 2\nffn_dim = 1\ntransformer-xl.memory = 1\n"),
                         "heads = 1\n"),
      {30}, at::kCPU);
  model->parameters().initialise(1);
  c10::NoGradGuard no_gradient;
  auto state = model->new_state();
  auto& memories = static_cast<Memories&>(*state);
  SkipDraws skips(*model, "schedule = 'linear'\n");
  const int num_steps = 3000;
  std::vector<std::map<int64_t, int>> ages(8);
  at::Tensor x = tokens(1, 1, 1);
  for (uint32_t i = 0; i < num_steps; ++i) {
    model->hidden(model::Input{x}, skips.context_of_update(i), state.get());
    if (i < 20) continue;
    for (size_t l = 0; l < 8; ++l) ++ages[l][memories.next_position - memories.layers[l].positions.back()];
  }
  for (int64_t l = 0; l < 8; ++l) {
    const double p = l == 7 ? 0 : static_cast<double>(l) / 16;
    const double n = num_steps - 20;
    double mean = 0;
    for (auto [age, count] : ages[static_cast<size_t>(l)]) mean += static_cast<double>(age) * count / n;
    // Ages of consecutive updates are correlated: the variance of their mean is about (1 + p) / (1 - p) times the
    // variance for independent ages. The margins are five standard deviations.
    const double deviation_factor = std::sqrt((1 + p) / (1 - p));
    const double rounding_error = rounding::fp64_bound(num_steps, 1);
    CHECK(mean ==
          rounding::within(1 / (1 - p), rounding_error + 5 * deviation_factor * std::sqrt(p) / (1 - p) / std::sqrt(n)));
    for (int64_t age = 1; age <= 4; ++age) {
      const double probability = std::pow(p, static_cast<double>(age - 1)) * (1 - p);
      CHECK(ages[static_cast<size_t>(l)][age] / n ==
            rounding::within(probability,
                             rounding_error + 5 * deviation_factor * std::sqrt(probability * (1 - probability) / n)));
    }
  }
}

TEST_CASE("a layer attends to its memory at the true positions after skipped updates", "[txl]") {
  // A model of one layer against the same sublayers with explicit key positions.
  auto model = tiny_model("transformer-xl.memory = 8\n", "", 1);
  SkipDraws skips(*model, "schedule = 'all'\nrate = 0.5\n");
  int num_gaps = 0;
  auto state = model->new_state();
  auto& layer = static_cast<Memories&>(*state).layers[0];
  for (uint32_t i = 0; i < 30; ++i) {
    const std::vector<int64_t> memory_positions = layer.positions;
    const at::Tensor memory = layer.inputs;
    at::Tensor x = tokens(1, 4, i), y = model->hidden(model::Input{x}, skips.context_of_update(i), state.get());
    if (layer.positions == memory_positions || memory_positions.size() < 8) continue;
    Config config;
    config.load_text("[attention]\nbias = false\nheads = 4\nscore = 'relative'\n", "test");
    attention::AttentionOptions options;
    config.read("attention", options);
    ParameterList parameters(at::kCPU);
    auto layer_spec =
        attention::make_layer_spec(options, attention::AttentionKind::decoder_self, 0, 16, "decoder.layers.0.self");
    attention::AttentionLayer attention(parameters, options, layer_spec, {});
    for (auto& p : parameters.all()) p.master().detach().copy_(model->parameters().find(p.name())->master().detach());
    at::Tensor input = mh::nn::embedding(x, model->parameters().find("decoder.embedding.weight")->master(), 4);
    std::vector<int64_t> positions;
    for (int64_t p : memory_positions) positions.push_back(p - 4 * i);
    for (int64_t t = 0; t < 4; ++t) positions.push_back(t);
    attention::Mask mask;
    mask.causal = true;
    mask.offset = 8;
    mask.key_positions = at::tensor(positions, at::kLong);
    at::Tensor z = input + attention.forward(input, nn::cat({memory, input}, 1), mask, {});
    auto parameter = [&](const char* name) {
      return model->parameters().find(str("decoder.layers.0.", name))->master();
    };
    z = layer_norm(z, parameter("self.norm.weight"), parameter("self.norm.bias"), 1e-5);
    at::Tensor ffn = linear(at::relu(linear(z, parameter("ffn.up.weight"), parameter("ffn.up.bias"))),
                            parameter("ffn.down.weight"), parameter("ffn.down.bias"));
    CHECK(agree(*model, y, layer_norm(z + ffn, parameter("ffn.norm.weight"), parameter("ffn.norm.bias"), 1e-5)));
    num_gaps += memory_positions.front() != 4 * i - 8;
  }
  CHECK(num_gaps > 3);
}

TEST_CASE("the bias of the output layer is part of the loss, the log-probabilities and the logits", "[txl]") {
  auto model = tiny_model("transformer-xl.memory = 6\n");
  c10::NoGradGuard no_gradient;
  model->parameters().find("decoder.output.bias")->master().copy_(at::arange(30, at::kFloat) / 10);
  at::Tensor x = tokens(2, 7, 1), targets = tokens(2, 7, 2), hidden = model->hidden(model::Input{x}, {});
  at::Tensor expected = at::log_softmax(model->logits(hidden), -1).gather(-1, targets.unsqueeze(-1)).squeeze(-1);
  CHECK(agree(*model, model->target_log_probabilities(hidden, targets), expected));
  const double nll = -expected.to(at::kDouble).sum().item<double>();
  CHECK(model->loss(hidden, {targets}, 0).nll.item<double>() ==
        rounding::within(nll, rounding::pass_bound(*model, kMaxKeys) * nll));
}

TEST_CASE("with relative.distances = block_end a memory stores layer inputs instead of keys in evaluation, too",
          "[txl]") {
  auto model = tiny_model("transformer-xl.memory = 6\n", "relative.distances = 'block_end'\n");
  at::Tensor x = tokens(2, 12, 5);
  std::vector<at::Tensor> outputs;
  for (bool with_gradients : {false, true}) {
    at::AutoGradMode mode(with_gradients);
    auto state = model->new_state();
    outputs.push_back(hidden_by_segments(*model, x, {4, 4, 4}, *state).detach());
    CHECK(static_cast<Memories&>(*state).layers[0].inputs.size(1) == 6);
  }
  CHECK(at::equal(outputs[0], outputs[1]));
}

TEST_CASE("Transformer-XL on the test device equals the CPU in training, with skips, and in decoding",
          "[txl][device]") {
  const at::Device device = choose_device(test_device());
  auto config = parse_model_config(
      str(kPublished, "layers = 4\nwidth = 16\nffn_dim = 24\ntransformer-xl.memory = 9\n", "dropout_output = 0.1\n"),
      "heads = 4\npairing = 'cross-head'\ncross-head.rate = 0.5\nrelative.dropout = 0.1\n");
  auto cpu_model = build_language_model(config, {30}, at::kCPU),
       device_model = build_language_model(config, {30}, device);
  for (auto* m : {cpu_model.get(), device_model.get()}) m->parameters().initialise(1);
  SkipDraws skips(*cpu_model, "schedule = 'linear'\n");
  auto cpu_state = cpu_model->new_state(), device_state = device_model->new_state();
  auto are_close = [&](const at::Tensor& x, const at::Tensor& y) { return agree(*cpu_model, x, y.to(at::kCPU)); };
  for (uint32_t i = 0; i < 10; ++i) {
    at::Tensor x = tokens(2, 5, i);
    const nn::ForwardContext forward_context = skips.context_of_update(i);
    CHECK(are_close(cpu_model->hidden(model::Input{x}, forward_context, cpu_state.get()),
                    device_model->hidden(model::Input{x.to(device)}, forward_context, device_state.get())));
  }
  c10::NoGradGuard no_gradient;
  for (int64_t length : {5, 1, 1}) {
    at::Tensor x = tokens(2, length, 3);
    CHECK(are_close(cpu_model->hidden(model::Input{x}, {}, cpu_state.get()),
                    device_model->hidden(model::Input{x.to(device)}, {}, device_state.get())));
  }
}

TEST_CASE("bf16 with a memory equals fp32 up to rounding, with and without gradients", "[txl]") {
  auto model = tiny_model("transformer-xl.memory = 6\n", "", 2),
       bf16_model = tiny_model("transformer-xl.memory = 6\n", "", 2),
       perturbed_model = tiny_model("transformer-xl.memory = 6\n", "", 2);
  for (auto* m : {model.get(), bf16_model.get(), perturbed_model.get()}) m->parameters().initialise(1);
  // Perturbs each weight by one unit roundoff, which has about the effect of rounding in bf16.
  {
    c10::NoGradGuard no_gradient;
    at::manual_seed(15);
    for (auto& p : perturbed_model->parameters().all())
      p.master().mul_(1 + tolerance::kBf16 * (2 * at::randint(2, p.master().sizes()).to(at::kFloat) - 1));
  }
  bf16_model->parameters().use_bf16_copies(true);
  at::Tensor x = tokens(2, 9, 5);
  for (bool with_gradients : {false, true}) {
    at::AutoGradMode mode(with_gradients);
    const auto hidden_of = [&](LanguageModel& m) {
      auto state = m.new_state();
      return hidden_by_segments(m, x, {4, 3, 1, 1}, *state);
    };
    const at::Tensor expected = hidden_of(*model), actual = hidden_of(*bf16_model);
    CHECK(numbers::error(actual, expected) <=
          tolerance::composed_error_bound(numbers::error(hidden_of(*perturbed_model), expected), tolerance::kBf16,
                                          numbers::max_abs(expected)));
  }
}

TEST_CASE("segments equal one forward pass for every stage; stages without memory support are rejected", "[txl]") {
  c10::NoGradGuard no_gradient;
  at::Tensor x = tokens(2, 9, 5);
  auto check_stage = [&](const std::string& attention) {
    INFO(attention);
    for (const char* memory : {"transformer-xl.memory = 20\n", ""}) {
      Config config;
      config.load_text(str("[model]\n", kPublished, "layers = 2\nwidth = 16\nffn_dim = 24\n", memory,
                           "[attention]\nheads = 4\n", attention),
                       "test");
      std::unique_ptr<LanguageModel> model;
      try {
        model = build_language_model(ModelConfig::read(config), {30}, at::kCPU);
      } catch (const Error& error) {
        CHECK(std::string(error.what()).find("a memory") != std::string::npos);
        CHECK(*memory != 0);
        continue;
      }
      model->parameters().initialise(1);
      auto state = model->new_state();
      CHECK(agree(*model, hidden_by_segments(*model, x, {4, 1, 1, 3}, *state), model->hidden(model::Input{x}, {})));
      auto training_state = model->new_state();
      for (uint32_t i = 0; i < 3; ++i)
        CHECK(model->hidden(model::Input{x}, context_of_update(i), training_state.get()).isfinite().all().item<bool>());
    }
  };
  for (const auto& name : attention::transforms().names()) check_stage(str("transform = ['", name, "']\n"));
  for (const auto& name : attention::pairings().names())
    check_stage(str("score = 'relative'\npairing = '", name, "'\n"));
  for (const auto& name : attention::scores().names()) check_stage(str("score = '", name, "'\n"));
  for (const auto& name : attention::position_biases().names())
    for (const char* lines : {"", "score = 'relative'\n", "soft_cap = 2.0\nsink = 'learned'\n"})
      check_stage(str(lines, "position_bias = '", name, "'\n"));
  for (const auto& name : attention::normalisers().names())
    check_stage(str("score = 'relative'\nnormaliser = '", name, "'\n"));
  for (const auto& name : attention::mixers().names()) check_stage(str("score = 'relative'\nmixer = '", name, "'\n"));
  for (const auto& name : attention::combiners().names())
    check_stage(str("score = 'relative'\ncombiner = '", name, "'\n"));
}

TEST_CASE("positions dropped from the memory do not change later outputs for any stage", "[txl]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = tokens(2, 24, 5);
  at::Tensor changed_tokens = x.clone();
  changed_tokens.narrow(1, 0, 8).copy_(tokens(2, 8, 6));
  auto check_stage = [&](const std::string& attention) {
    INFO(attention);
    Config config;
    config.load_text(str("[model]\n", kPublished, "layers = 1\nwidth = 16\nffn_dim = 24\ntransformer-xl.memory = 8\n",
                         "[attention]\nheads = 4\nscore = 'relative'\n", attention),
                     "test");
    auto model = build_language_model(ModelConfig::read(config), {30}, at::kCPU);
    model->parameters().initialise(1);
    at::manual_seed(3);
    for (auto& p : model->parameters().all())  // so that gates are far from uniform
      if (p.traits().trainable) p.master().add_(at::randn_like(p.master()), 0.5);
    // With one layer the last segment sees itself and the eight tokens before it, so not the first eight of the 24
    // tokens, which differ between x and changed_tokens.
    auto last_segment = [&](const at::Tensor& text) {
      auto state = model->new_state();
      return hidden_by_segments(*model, text, {4, 4, 4, 4, 4, 4}, *state).narrow(1, 20, 4);
    };
    CHECK(agree(*model, last_segment(x), last_segment(changed_tokens)));
  };
  for (const auto& name : attention::position_biases().names()) check_stage(str("position_bias = '", name, "'\n"));
  for (const auto& name : attention::normalisers().names()) check_stage(str("normaliser = '", name, "'\n"));
  for (const auto& name : attention::mixers().names()) check_stage(str("mixer = '", name, "'\n"));
  for (const auto& name : attention::combiners().names()) check_stage(str("combiner = '", name, "'\n"));
}

TEST_CASE("Transformer-XL rejects absolute positions, and same_length without a memory", "[txl]") {
  auto build = [](const std::string& model, const std::string& attention = "") {
    return build_language_model(
        parse_model_config("backbone = 'transformer-xl'\nwidth = 16\n" + model, "heads = 4\n" + attention), {30},
        at::kMeta);
  };
  CHECK_NOTHROW(build("positions = 'none'\ntransformer-xl.memory = 4\n"));
  CHECK_THROWS_AS(build("transformer-xl.memory = 4\n"), Error);  // sinusoidal positions by default
  CHECK_THROWS_AS(build("positions = 'none'\ntransformer-xl.same_length = true\n"), Error);
}
