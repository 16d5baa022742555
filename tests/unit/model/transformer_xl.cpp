// Transformer-XL: memories against the full pass, Skip-Retain, parameter counts.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "fixtures/device.h"
#include "fixtures/models.h"
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

// `model` and `attention` are lines of these sections.
ModelConfig configured(const std::string& model, const std::string& attention) {
  return models::configured(str("[model]\n", model, "[attention]\nbias = false\nscore = 'relative'\n", attention));
}

// Larger parameters than a new model's, so that attention is far from uniform.
void spread(ParameterList& parameters, uint64_t seed) {
  parameters.initialise(seed);
  c10::NoGradGuard no_gradient;
  for (auto& p : parameters.all())
    if (p.master().dim() > 1) p.master().mul_(12);
}

std::unique_ptr<LanguageModel> tiny(const std::string& extra, const std::string& attention = "", int64_t layers = 3) {
  auto model = build_language_model(
      configured(str(kPublished, "layers = ", layers, "\nwidth = 16\nffn = 24\n", extra), "heads = 4\n" + attention),
      30, at::kCPU);
  spread(model->parameters(), 1);
  return model;
}

at::Tensor tokens(int64_t rows, int64_t length, uint64_t seed) { return models::some_tokens(rows, length, 30, seed); }

nn::ForwardContext update(uint32_t number) { return {true, 3, number, 0}; }

// The layers that Skip-Retain skips, update by update.
class Skips {
 public:
  Skips(LanguageModel& model, const std::string& options) : procedure_(train::procedures().make("skip-retain", "")) {
    Config config;
    config.load_text("[p]\n" + options, "test");
    config.read("p", *procedure_);
    train::Plan plan;
    plan.seed = 3;
    plan.updates = [](const Length& length) { return length.count; };
    procedure_->plan(plan);
    procedure_->start(model);
  }
  // Points into this object, and holds until the next call.
  nn::ForwardContext update(uint32_t number) {
    pass_ = {};
    procedure_->change(pass_, {number, 0, 0});
    nn::ForwardContext step{true, 3, number, 0};
    step.skipped = &pass_.skipped;
    return step;
  }

 private:
  std::unique_ptr<train::Procedure> procedure_;
  train::Pass pass_;
};

bool near(const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, 1e-3, 1e-4); }

// Last hidden states of the segments one after the other, cut at random or as given.
at::Tensor in_segments(LanguageModel& model, const at::Tensor& x, const std::vector<int64_t>& lengths,
                       DecodingState& state) {
  std::vector<at::Tensor> parts;
  int64_t at = 0;
  for (int64_t n : lengths) {
    parts.push_back(model.hidden(x.narrow(1, at, n), {}, &state));
    at += n;
  }
  CHECK(state.length() == at);
  return at::cat(parts, 1);
}

}  // namespace

TEST_CASE("parameter counts of Transformer-XL", "[txl]") {
  // Skip Cross-Head on enwik8: 41M in the paper.
  auto count = [](const std::string& model, const std::string& attention, int64_t vocabulary) {
    return build_language_model(configured(kPublished + model, attention), vocabulary, at::kMeta)->parameters().count();
  };
  CHECK(count("layers = 12\ntied = false\n", "", 204) == 41159884);
  // WikiText-2, 40M in Mixhead.
  CHECK(count("layers = 16\nwidth = 410\nffn = 1000\n", "heads = 10\n", 33278) == 40294878);
  for (auto [d, h, k, f, layers] : {std::tuple{16, 4, 0, 24, 1}, {20, 3, 7, 30, 3}, {410, 10, 41, 2100, 16}}) {
    const int64_t inner = h * (k > 0 ? k : d / h);
    CHECK(count(str("layers = ", layers, "\nwidth = ", d, "\nffn = ", f, "\n"),
                str("heads = ", h, "\nhead_size = ", k, "\n"),
                50) == 50 * d + 50 + layers * (5 * d * inner + 2L * d * f + f + d + 4 * d) + 2 * inner);
  }
}

TEST_CASE("segments behind a large memory equal the full pass, cut anywhere", "[txl]") {
  for (const char* norm : {"post", "pre"}) {
    auto model = build_language_model(
        configured(str("backbone = 'transformer-xl'\nnorm = '", norm,
                       "'\npositions = 'none'\nlayers = 3\nwidth = 16\nffn = 24\ntransformer-xl.memory = 20\n"),
                   "heads = 4\n"),
        30, at::kCPU);
    spread(model->parameters(), 1);
    for (bool graph : {false, true}) {
      at::AutoGradMode mode(graph);
      at::Tensor x = tokens(2, 14, 5), full = model->hidden(x, {});
      for (const auto& lengths : std::vector<std::vector<int64_t>>{{14}, {7, 7}, {1, 1, 5, 3, 4}, {13, 1}}) {
        auto state = model->new_state();
        CHECK(near(in_segments(*model, x, lengths, *state), full));
      }
    }
  }
}

TEST_CASE("with same_length every query sees as many keys, so the cut never matters", "[txl]") {
  // A window of M keys for each layer is what M slots give, itself included: the same model however it is fed.
  auto model = tiny("transformer-xl.memory = 4\ntransformer-xl.same_length = true\n");
  at::Tensor x = tokens(2, 15, 5), full = model->hidden(x, {}), changed = x.clone();
  for (bool graph : {false, true}) {
    at::AutoGradMode mode(graph);
    for (const auto& lengths :
         std::vector<std::vector<int64_t>>{{15}, {5, 5, 5}, {1, 2, 9, 3}, std::vector<int64_t>(15, 1)}) {
      auto state = model->new_state();
      CHECK(near(in_segments(*model, x, lengths, *state), full));
    }
  }
  // Three layers reach 3 (M - 1) positions back and no further.
  changed.narrow(1, 0, 5).copy_(tokens(2, 5, 9));
  at::Tensor other = model->hidden(changed, {});
  CHECK(near(other.narrow(1, 14, 1), full.narrow(1, 14, 1)));
  CHECK(!near(other.narrow(1, 13, 1), full.narrow(1, 13, 1)));
}

TEST_CASE("a memory holds the last positions of each layer's inputs", "[txl]") {
  // Without a graph keys and values are kept, with one the inputs; both forget alike.
  auto model = tiny("transformer-xl.memory = 4\n");
  at::Tensor x = tokens(2, 15, 5);
  std::vector<at::Tensor> found;
  for (bool graph : {false, true}) {
    at::AutoGradMode mode(graph);
    auto state = model->new_state();
    found.push_back(in_segments(*model, x, {3, 2, 6, 1, 1, 2}, *state).detach());
    const auto& layer = static_cast<Memories&>(*state).layers[1];
    CHECK(layer.positions == std::vector<int64_t>{11, 12, 13, 14});
    CHECK(layer.inputs.defined() == graph);
    if (graph) CHECK(!layer.inputs.requires_grad());
    if (!graph) CHECK(layer.cache.length() == 4);
  }
  CHECK(near(found[0], found[1]));
  // Segments of one token with a memory of four: five keys for each query.
  auto window = tiny("transformer-xl.memory = 5\ntransformer-xl.same_length = true\n");
  auto state = model->new_state();
  c10::NoGradGuard no_gradient;
  CHECK(near(in_segments(*model, x, std::vector<int64_t>(15, 1), *state), window->hidden(x, {})));
}

TEST_CASE("evaluation goes on from a memory that training made, but not the other way", "[txl]") {
  auto model = tiny("transformer-xl.memory = 6\n");
  at::Tensor x = tokens(2, 12, 5);
  auto trained = model->new_state(), evaluated = model->new_state();
  model->hidden(x.narrow(1, 0, 6), update(0), trained.get());
  c10::NoGradGuard no_gradient;
  model->hidden(x.narrow(1, 0, 6), {}, evaluated.get());
  at::Tensor next = x.narrow(1, 6, 2);
  for (int i = 0; i < 2; ++i)
    CHECK(near(model->hidden(next, {}, trained.get()), model->hidden(next, {}, evaluated.get())));
  CHECK_THROWS_AS(model->hidden(next, update(1), trained.get()), Error);
}

TEST_CASE("rows of a decoding are taken over in another order", "[txl]") {
  for (bool graph : {false, true}) {
    at::AutoGradMode mode(graph);
    auto model = tiny("transformer-xl.memory = 20\n");
    at::Tensor x = tokens(3, 7, 5), rows = at::tensor({2, 0}, at::kLong), next = tokens(2, 1, 6);
    auto state = model->new_state();
    model->hidden(x, {}, state.get());
    state->reorder(rows);
    CHECK(near(model->hidden(next, {}, state.get()),
               model->hidden(at::cat({x.index_select(0, rows), next}, 1), {}).narrow(1, 7, 1)));
  }
}

TEST_CASE("without a memory training segments stand alone and decoding keeps all", "[txl]") {
  for (const char* score : {"relative", "dot-product", "synthesizer-dense", "synthesizer-random"}) {
    Config config;
    config.load_text(str("[model]\n", kPublished, "layers = 2\nwidth = 16\nffn = 24\n[attention]\nheads = 4\nscore = '",
                         score, "'\n"),
                     "test");
    auto model = build_language_model(ModelConfig::read(config), 30, at::kCPU);
    spread(model->parameters(), 1);
    at::Tensor x = tokens(2, 9, 5);
    auto state = model->new_state();
    model->hidden(x.narrow(1, 0, 4), update(0), state.get());
    CHECK(near(model->hidden(x.narrow(1, 4, 5), update(1), state.get()), model->hidden(x.narrow(1, 4, 5), update(1))));
    c10::NoGradGuard no_gradient;
    auto fresh = model->new_state();
    CHECK(near(in_segments(*model, x, {4, 1, 1, 3}, *fresh), model->hidden(x, {})));
  }
}

TEST_CASE("the gradient stops at the memory", "[txl]") {
  auto model = tiny("transformer-xl.memory = 6\n", "", 2);
  at::Tensor x = tokens(1, 12, 5).clone(), first = x.narrow(1, 0, 6), second = x.narrow(1, 6, 6);
  // Tokens of the first segment alone and of the second alone, so that the embedding's rows tell them apart.
  first.copy_(first % 15);
  second.copy_(second % 15 + 15);
  auto state = model->new_state();
  model->hidden(first, update(0), state.get());
  model->hidden(second, update(1), state.get()).square().mul(at::arange(16, at::kFloat)).sum().backward();
  at::Tensor gradient = model->parameters().find("decoder.embedding.weight")->master().grad();
  CHECK(gradient.narrow(0, 0, 15).abs().max().item<float>() == 0);
  CHECK(gradient.narrow(0, 15, 15).abs().max().item<float>() > 0);
}

TEST_CASE("probabilities of skipping a layer", "[txl]") {
  using train::SkipSchedule;
  auto all = [](SkipSchedule schedule, int64_t layers) {
    std::vector<double> p;
    for (int64_t i = 0; i < layers; ++i) p.push_back(train::skip_probability(schedule, 0.25, i, layers));
    return p;
  };
  CHECK(all(SkipSchedule::linear, 8) == std::vector<double>{0, .0625, .125, .1875, .25, .3125, .375, 0});
  auto sum = [](const std::vector<double>& p) { return std::accumulate(p.begin(), p.end(), 0.0); };
  CHECK(sum(all(SkipSchedule::linear, 12)) == Approx(2.29167).margin(1e-5));
  CHECK(all(SkipSchedule::linear, 12)[7] == Approx(7 / 24.0));
  CHECK(sum(all(SkipSchedule::linear, 15)) == Approx(3.03333).margin(1e-5));
  CHECK(all(SkipSchedule::linear, 15)[14] == 0);
  CHECK(all(SkipSchedule::all, 3) == std::vector<double>{.25, .25, .25});
  CHECK(all(SkipSchedule::not_first, 3) == std::vector<double>{0, .25, .25});
  CHECK(all(SkipSchedule::not_last, 3) == std::vector<double>{.25, .25, 0});
  CHECK(all(SkipSchedule::not_ends, 3) == std::vector<double>{0, .25, 0});
}

TEST_CASE("a skipped layer leaves its input and its memory as they are", "[txl]") {
  auto model = tiny("transformer-xl.memory = 6\ndropout_ffn = 0.1\n");
  Skips skips(*model, "schedule = 'all'\nrate = 0.5\n");
  auto state = model->new_state();
  auto& layers = static_cast<Memories&>(*state).layers;
  int skipped = 0, all_skipped = 0;
  for (uint32_t i = 0; i < 40; ++i) {
    std::vector<at::Tensor> before;
    std::vector<std::vector<int64_t>> positions;
    for (const auto& layer : layers) before.push_back(layer.inputs), positions.push_back(layer.positions);
    at::Tensor x = tokens(2, 4, i), y = model->hidden(x, skips.update(i), state.get());
    size_t kept = 0;
    for (size_t l = 0; l < layers.size(); ++l) {
      if (layers[l].positions != positions[l]) {
        CHECK(layers[l].positions.back() == 4 * i + 3);
        continue;
      }
      ++kept;
      CHECK(layers[l].inputs.is_same(before[l]));
    }
    skipped += static_cast<int>(kept);
    if (kept == layers.size()) {
      ++all_skipped;
      CHECK(at::equal(y, mh::nn::embedding(x, model->parameters().find("decoder.embedding.weight")->master(), 4)));
    }
  }
  CHECK(skipped > 30);
  CHECK(all_skipped > 0);
}

TEST_CASE("a rate of zero is the plain model, update by update", "[txl]") {
  auto plain = tiny("transformer-xl.memory = 6\n"), zero = tiny("transformer-xl.memory = 6\n"),
       often = tiny("transformer-xl.memory = 6\n");
  Skips never(*zero, "schedule = 'all'\nrate = 0.0\n"), mostly(*often, "schedule = 'all'\nrate = 0.9\n");
  auto a = plain->new_state(), b = zero->new_state();
  int same = 0;
  for (uint32_t i = 0; i < 6; ++i) {
    at::Tensor x = tokens(2, 4, i), y = plain->hidden(x, update(i), a.get());
    CHECK(at::equal(y, zero->hidden(x, never.update(i), b.get())));
    same += at::equal(y, often->hidden(x, mostly.update(i)));
  }
  CHECK(same == 0);
}

TEST_CASE("ages of the memories that layers see", "[txl]") {
  // Independent skips: an age of a blocks has probability p^(a - 1) (1 - p), and 1 / (1 - p) is the mean.
  auto model = build_language_model(
      configured(str(kPublished, "layers = 8\nwidth = 2\nffn = 1\ntransformer-xl.memory = 1\n"), "heads = 1\n"), 30,
      at::kCPU);
  model->parameters().initialise(1);
  c10::NoGradGuard no_gradient;
  auto state = model->new_state();
  auto& memories = static_cast<Memories&>(*state);
  Skips skips(*model, "schedule = 'linear'\n");
  const int steps = 3000;
  std::vector<std::map<int64_t, int>> ages(8);
  at::Tensor x = tokens(1, 1, 1);
  for (uint32_t i = 0; i < steps; ++i) {
    model->hidden(x, skips.update(i), state.get());
    if (i < 20) continue;
    for (size_t l = 0; l < 8; ++l) ++ages[l][memories.seen - memories.layers[l].positions.back()];
  }
  for (int64_t l = 0; l < 8; ++l) {
    const double p = l == 7 ? 0 : static_cast<double>(l) / 16;
    const double n = steps - 20;
    double mean = 0;
    for (auto [age, count] : ages[static_cast<size_t>(l)]) mean += static_cast<double>(age) * count / n;
    // Ages of neighbouring updates go together: about (1 + p) / (1 - p) times the variance of independent ones.
    const double more = std::sqrt((1 + p) / (1 - p));
    CHECK(mean == Approx(1 / (1 - p)).margin(1e-9 + 5 * more * std::sqrt(p) / (1 - p) / std::sqrt(n)));
    for (int64_t age = 1; age <= 4; ++age) {
      const double share = std::pow(p, static_cast<double>(age - 1)) * (1 - p);
      CHECK(ages[static_cast<size_t>(l)][age] / n ==
            Approx(share).margin(1e-9 + 5 * more * std::sqrt(share * (1 - share) / n)));
    }
  }
  CHECK(1 / (1 - 0.375) == Approx(1.6));                     // layer 7 of 8
  CHECK(1 / (1 - 13 / 30.0) == Approx(1.765).margin(5e-4));  // layer 14 of 15
}

TEST_CASE("a layer that was skipped sees its memory where it stands", "[txl]") {
  // One layer, against its parts put together by hand with explicit positions.
  auto model = tiny("transformer-xl.memory = 8\n", "", 1);
  Skips skips(*model, "schedule = 'all'\nrate = 0.5\n");
  int gaps = 0;
  auto state = model->new_state();
  auto& layer = static_cast<Memories&>(*state).layers[0];
  for (uint32_t i = 0; i < 30; ++i) {
    const std::vector<int64_t> before = layer.positions;
    const at::Tensor kept = layer.inputs;
    at::Tensor x = tokens(1, 4, i), y = model->hidden(x, skips.update(i), state.get());
    if (layer.positions == before || before.size() < 8) continue;
    Config config;
    config.load_text("[attention]\nbias = false\nheads = 4\nscore = 'relative'\n", "test");
    attention::AttentionOptions options;
    config.read("attention", options);
    ParameterList parameters(at::kCPU);
    auto shape =
        attention::make_layer_spec(options, attention::AttentionKind::decoder_self, 0, 16, "decoder.layers.0.self");
    attention::AttentionLayer attention(parameters, options, shape, {});
    for (auto& p : parameters.all()) p.master().detach().copy_(model->parameters().find(p.name())->master().detach());
    at::Tensor in = mh::nn::embedding(x, model->parameters().find("decoder.embedding.weight")->master(), 4);
    std::vector<int64_t> positions;
    for (int64_t p : before) positions.push_back(p - 4 * i);
    for (int64_t t = 0; t < 4; ++t) positions.push_back(t);
    attention::Mask mask;
    mask.causal = true;
    mask.offset = 8;
    mask.key_positions = at::tensor(positions, at::kLong);
    at::Tensor z = in + attention.forward(in, at::cat({kept, in}, 1), mask, {});
    auto value = [&](const char* name) { return model->parameters().find(str("decoder.layers.0.", name))->master(); };
    z = layer_norm(z, value("self.norm.weight"), value("self.norm.bias"), 1e-5);
    at::Tensor ffn = linear(at::relu(linear(z, value("ffn.up.weight"), value("ffn.up.bias"))), value("ffn.down.weight"),
                            value("ffn.down.bias"));
    CHECK(near(y, layer_norm(z + ffn, value("ffn.norm.weight"), value("ffn.norm.bias"), 1e-5)));
    gaps += before.front() != 4 * i - 8;
  }
  CHECK(gaps > 3);
}

TEST_CASE("the output layer's bias is in loss, log-probabilities and logits", "[txl]") {
  auto model = tiny("transformer-xl.memory = 6\n");
  c10::NoGradGuard no_gradient;
  model->parameters().find("decoder.output.bias")->master().copy_(at::arange(30, at::kFloat) / 10);
  at::Tensor x = tokens(2, 7, 1), targets = tokens(2, 7, 2), hidden = model->hidden(x, {});
  at::Tensor by_logits = at::log_softmax(model->logits(hidden), -1).gather(-1, targets.unsqueeze(-1)).squeeze(-1);
  CHECK(near(model->target_log_probabilities(hidden, targets), by_logits));
  CHECK(model->loss(hidden, targets, 0).nll.item<double>() == Approx(-by_logits.sum().item<double>()).epsilon(1e-4));
}

TEST_CASE("distances to the end of the block keep inputs in evaluation too", "[txl]") {
  auto model = tiny("transformer-xl.memory = 6\n", "relative.distances = 'block_end'\n");
  at::Tensor x = tokens(2, 12, 5);
  std::vector<at::Tensor> found;
  for (bool graph : {false, true}) {
    at::AutoGradMode mode(graph);
    auto state = model->new_state();
    found.push_back(in_segments(*model, x, {4, 4, 4}, *state).detach());
    CHECK(static_cast<Memories&>(*state).layers[0].inputs.size(1) == 6);
  }
  CHECK(at::equal(found[0], found[1]));
}

TEST_CASE("Transformer-XL on the device of the tests is the CPU's", "[txl][device]") {
  const at::Device device = choose_device(test_device());
  auto config = configured(
      str(kPublished, "layers = 4\nwidth = 16\nffn = 24\ntransformer-xl.memory = 9\n", "dropout_output = 0.1\n"),
      "heads = 4\npairing = 'cross-head'\ncross-head.rate = 0.5\nrelative.dropout = 0.1\n");
  auto here = build_language_model(config, 30, at::kCPU), there = build_language_model(config, 30, device);
  for (auto* m : {here.get(), there.get()}) m->parameters().initialise(1);
  Skips skips(*here, "schedule = 'linear'\n");
  auto a = here->new_state(), b = there->new_state();
  auto close = [](const at::Tensor& x, const at::Tensor& y) { return at::allclose(x, y.to(at::kCPU), 1e-3, 1e-3); };
  for (uint32_t i = 0; i < 10; ++i) {
    at::Tensor x = tokens(2, 5, i);
    const nn::ForwardContext step = skips.update(i);
    CHECK(close(here->hidden(x, step, a.get()), there->hidden(x.to(device), step, b.get())));
  }
  c10::NoGradGuard no_gradient;
  for (int64_t length : {5, 1, 1}) {
    at::Tensor x = tokens(2, length, 3);
    CHECK(close(here->hidden(x, {}, a.get()), there->hidden(x.to(device), {}, b.get())));
  }
}

TEST_CASE("bf16 stays near fp32, with and without a graph, behind a memory", "[txl]") {
  auto model = tiny("transformer-xl.memory = 6\n", "", 2), half = tiny("transformer-xl.memory = 6\n", "", 2);
  for (auto* m : {model.get(), half.get()}) m->parameters().initialise(1);
  half->parameters().set_bf16(true);
  at::Tensor x = tokens(2, 9, 5);
  for (bool graph : {false, true}) {
    at::AutoGradMode mode(graph);
    auto a = model->new_state(), b = half->new_state();
    at::Tensor wanted = in_segments(*model, x, {4, 3, 1, 1}, *a), found = in_segments(*half, x, {4, 3, 1, 1}, *b);
    CHECK((found.to(at::kFloat) - wanted).abs().max().item<float>() < 0.05F);
  }
}

TEST_CASE("every stage that can act on a memory works in Transformer-XL", "[txl]") {
  c10::NoGradGuard no_gradient;
  at::Tensor x = tokens(2, 9, 5);
  auto try_one = [&](const std::string& attention) {
    INFO(attention);
    for (const char* memory : {"transformer-xl.memory = 20\n", ""}) {
      Config config;
      config.load_text(str("[model]\n", kPublished, "layers = 2\nwidth = 16\nffn = 24\n", memory,
                           "[attention]\nheads = 4\n", attention),
                       "test");
      std::unique_ptr<LanguageModel> model;
      try {
        model = build_language_model(ModelConfig::read(config), 30, at::kCPU);
      } catch (const Error& error) {
        CHECK(std::string(error.what()).find("a memory") != std::string::npos);
        CHECK(*memory != 0);
        continue;
      }
      model->parameters().initialise(1);
      auto state = model->new_state();
      CHECK(near(in_segments(*model, x, {4, 1, 1, 3}, *state), model->hidden(x, {})));
      auto training = model->new_state();
      for (uint32_t i = 0; i < 3; ++i) CHECK(model->hidden(x, update(i), training.get()).isfinite().all().item<bool>());
    }
  };
  for (const auto& name : attention::pairings().names()) try_one(str("score = 'relative'\npairing = '", name, "'\n"));
  for (const auto& name : attention::scores().names()) try_one(str("score = '", name, "'\n"));
  for (const auto& name : attention::normalisers().names())
    try_one(str("score = 'relative'\nnormaliser = '", name, "'\n"));
  for (const auto& name : attention::mixers().names()) try_one(str("score = 'relative'\nmixer = '", name, "'\n"));
  for (const auto& name : attention::combiners().names()) try_one(str("score = 'relative'\ncombiner = '", name, "'\n"));
}

TEST_CASE("what a memory has forgotten changes nothing, whatever the stage", "[txl]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = tokens(2, 24, 5);
  at::Tensor other = x.clone();
  other.narrow(1, 0, 8).copy_(tokens(2, 8, 6));
  auto try_one = [&](const std::string& attention) {
    INFO(attention);
    Config config;
    config.load_text(str("[model]\n", kPublished, "layers = 1\nwidth = 16\nffn = 24\ntransformer-xl.memory = 8\n",
                         "[attention]\nheads = 4\nscore = 'relative'\n", attention),
                     "test");
    auto model = build_language_model(ModelConfig::read(config), 30, at::kCPU);
    model->parameters().initialise(1);
    at::manual_seed(3);
    for (auto& p : model->parameters().all())  // so that no gate is nearly even
      if (p.traits().trainable) p.master().add_(at::randn_like(p.master()), 0.5);
    // One layer: the last segment sees the eight tokens before it, and the first eight are long gone.
    auto last = [&](const at::Tensor& text) {
      auto state = model->new_state();
      return in_segments(*model, text, {4, 4, 4, 4, 4, 4}, *state).narrow(1, 20, 4);
    };
    CHECK(near(last(x), last(other)));
  };
  for (const auto& name : attention::normalisers().names()) try_one(str("normaliser = '", name, "'\n"));
  for (const auto& name : attention::mixers().names()) try_one(str("mixer = '", name, "'\n"));
  for (const auto& name : attention::combiners().names()) try_one(str("combiner = '", name, "'\n"));
}

TEST_CASE("Transformer-XL refuses what makes no sense in it", "[txl]") {
  auto build = [](const std::string& model, const std::string& attention = "") {
    return build_language_model(
        configured("backbone = 'transformer-xl'\nwidth = 16\n" + model, "heads = 4\n" + attention), 30, at::kMeta);
  };
  CHECK_NOTHROW(build("positions = 'none'\ntransformer-xl.memory = 4\n"));
  CHECK_THROWS_AS(build("transformer-xl.memory = 4\n"), Error);  // sinusoidal
  CHECK_THROWS_AS(build("positions = 'none'\ntransformer-xl.same_length = true\n"), Error);
}
