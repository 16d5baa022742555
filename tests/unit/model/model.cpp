// The decoder language model: parameter counts, causality, incremental decoding, loss, configurations.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "fixtures/covering_array.h"
#include "fixtures/models.h"
#include "fixtures/passes.h"
#include "nn/product.h"

using namespace mh;
using namespace mh::model;
using namespace mh::nn;
using models::num_trainable_parameters;
using models::parse_model_config;
using models::random_tokens;

namespace {

const char* kTiny = "[model]\nlayers = 2\nwidth = 16\nffn_dim = 24\n[attention]\nheads = 4\n";

// Length of the chain of roundings in an output layer of width 16 and 30 vocabulary entries: the sums of a logit and of
// the softmax, and ten operations on single numbers.
constexpr int64_t kOutputRoundings = 16 + 30 + 10;

// Returns a matcher for `nll`, nats, computed in another way from the same hidden states.
Approx same_nll(double nll) {
  return rounding::within(nll, rounding::bound(at::kFloat, at::kFloat, kOutputRoundings, nll));
}

}  // namespace

TEST_CASE("the decoder has the parameter counts of published language models") {
  // Mixhead's vanilla models on WikiText-103 and WikiText-2.
  CHECK(num_trainable_parameters("[model]\nlayers = 6\nvocabulary_rows = 267744", 267735) == 156000256);
  CHECK(num_trainable_parameters("[model]\nlayers = 16\nvocabulary_rows = 33280", 33278) == 67478528);
}

TEST_CASE("parameter counts of the decoder follow the formula for any head size") {
  for (auto [d, h, k, f, layers] : {std::tuple{16, 4, 0, 24, 1}, {20, 3, 7, 30, 3}, {8, 2, 16, 5, 2}}) {
    const int64_t size = k > 0 ? k : d / h;
    const int64_t layer = 4L * d * h * size + 3 * h * size + d + 2L * d * f + f + d + 4L * d;
    CHECK(num_trainable_parameters(str("[model]\nlayers = ", layers, "\nwidth = ", d, "\nffn_dim = ", f,
                                       "\n[attention]\nheads = ", h, "\nhead_size = ", k),
                                   50) == 50L * d + layers * layer + 2L * d);
  }
}

TEST_CASE("later tokens do not change the logits of earlier positions of a decoder") {
  for (const char* extra_toml :
       {"", "norm = 'post'\n", "positions = 'learned'\n", "activation = 'gelu'\ntied = false\n"}) {
    auto config = parse_model_config(
        str("[model]\nlayers = 2\nwidth = 16\nffn_dim = 24\n", extra_toml, "[attention]\nheads = 4\n"));
    auto model = build_language_model(config, {30}, at::kCPU);
    model->parameters().initialise(1);
    c10::NoGradGuard no_gradient;
    at::Tensor a = random_tokens(2, 9, 30, 1), b = a.clone();
    b.narrow(1, 6, 3).copy_(random_tokens(2, 3, 30, 2));
    for (auto path : {attention::Path::composed, attention::Path::automatic}) {
      model->set_path(path);
      at::Tensor x = model->logits(model->hidden(model::Input{a}, {})),
                 y = model->logits(model->hidden(model::Input{b}, {}));
      CHECK(at::equal(x.narrow(1, 0, 6), y.narrow(1, 0, 6)));
      CHECK(!rounding::passes_agree(*model, x.narrow(1, 6, 3), y.narrow(1, 6, 3), 9));
    }
  }
}

TEST_CASE("incremental decoding equals one forward pass for pairwise combinations of all stages") {
  c10::NoGradGuard no_gradient;
  const auto pairings = attention::pairings().names(), scores = attention::scores().names(),
             position_biases = attention::position_biases().names(), normalisers = attention::normalisers().names(),
             mixers = attention::mixers().names(), combiners = attention::combiners().names();
  std::vector<std::string> stage_lines;
  for (const fixtures::Combination& c :
       fixtures::covering_array({pairings.size(), scores.size(), normalisers.size(), mixers.size(), combiners.size(),
                                 position_biases.size()}))
    stage_lines.push_back(str("head_size = 5\npairing = '", pairings[c[0]], "'\nscore = '", scores[c[1]],
                              "'\nnormaliser = '", normalisers[c[2]], "'\nmixer = '", mixers[c[3]], "'\ncombiner = '",
                              combiners[c[4]], "'\nposition_bias = '", position_biases[c[5]], "'\n"));
  // Keys of all layers, in steps that read the cache in place and in steps that do not.
  for (const std::string& name : position_biases)
    for (const char* lines : {"window = 4\n", "soft_cap = 2.0\n", "sink = 'learned'\n", "sink = 'zero'\nwindow = 2\n",
                              "mixer = 'mixhead-a'\nsink = 'learned'\nsoft_cap = 3.0\nwindow = 3\n"})
      stage_lines.push_back(str("head_size = 16\nposition_bias = '", name, "'\n", lines));
  for (const std::string& mixer : mixers)
    for (const std::string& transforms : {join(attention::transforms().names(), "', '"), std::string("rotary")})
      stage_lines.push_back(str("head_size = 6\nmixer = '", mixer, "'\ntransform = ['", transforms, "']\n"));
  for (const std::string& lines : stage_lines) {
    INFO(lines);
    auto model = build_language_model(parse_model_config(kTiny + lines), {30}, at::kCPU);
    model->parameters().initialise(1);
    at::Tensor x = random_tokens(3, 11, 30, 1);
    at::Tensor full_logits = model->logits(model->hidden(model::Input{x}, {}));
    auto state = model->new_state();
    int64_t position = 0;
    for (int64_t step : {1, 3, 1, 2, 4}) {
      at::Tensor step_logits = model->logits(model->hidden(model::Input{x.narrow(1, position, step)}, {}, state.get()));
      CHECK(rounding::passes_agree(*model, step_logits, full_logits.narrow(1, position, step), 11));
      position += step;
    }
    CHECK(state->length() == 11);
    // After a reorder, each row of the decoding state continues the row from which it was copied.
    state->reorder(at::tensor({2, 0}, at::kLong));
    at::Tensor next_tokens = random_tokens(2, 1, 30, 5);
    at::Tensor longer_tokens = nn::cat({x.index_select(0, at::tensor({2, 0}, at::kLong)), next_tokens}, 1);
    CHECK(rounding::passes_agree(*model, model->logits(model->hidden(model::Input{next_tokens}, {}, state.get())),
                                 model->logits(model->hidden(model::Input{longer_tokens}, {})).narrow(1, 11, 1), 12));
  }
}

TEST_CASE("padded vocabulary rows are excluded from the softmax unless score_padded_rows is set") {
  c10::NoGradGuard no_gradient;
  at::Tensor x = random_tokens(1, 5, 30, 1), targets = random_tokens(1, 5, 30, 2);
  auto nll_with = [&](const char* extra_toml) {
    auto model = build_language_model(parse_model_config(str("[model]\nlayers = 1\nwidth = 16\nffn_dim = 8\n",
                                                             extra_toml, "[attention]\nheads = 4\n")),
                                      {30}, at::kCPU);
    model->parameters().initialise(1);
    // Models with and without padded rows have the same initial embeddings of the vocabulary, since padded rows are
    // drawn last.
    return model->loss(model->hidden(model::Input{x}, {}), {targets}, 0).nll.item<double>();
  };
  const double padded_nll = nll_with("vocabulary_rows = 40\n"),
               scored_padding_nll = nll_with("vocabulary_rows = 40\nscore_padded_rows = true\n");
  CHECK(padded_nll == same_nll(nll_with("")));
  CHECK(scored_padding_nll > padded_nll);
  CHECK(scored_padding_nll != same_nll(padded_nll));
}

TEST_CASE("the nll is minus the sum of target log-probabilities and agrees with the logits") {
  c10::NoGradGuard no_gradient;
  auto model = build_language_model(parse_model_config(kTiny), {30}, at::kCPU);
  model->parameters().initialise(3);
  at::Tensor x = random_tokens(2, 7, 30, 1), targets = random_tokens(2, 7, 30, 2);
  targets[1][6] = -1;
  at::Tensor hidden = model->hidden(model::Input{x}, {});
  at::Tensor p = model->target_log_probabilities(hidden, targets);
  SlicedLoss loss = model->loss(hidden, {targets}, 0);
  CHECK(loss.num_scored == 13);
  CHECK(loss.nll.item<double>() == same_nll(-p.to(at::kDouble).sum().item<double>()));
  at::Tensor expected =
      at::log_softmax(model->logits(hidden), -1).gather(-1, targets.clamp_min(0).unsqueeze(-1)).squeeze(-1);
  CHECK(rounding::agree(p, expected * (targets >= 0), kOutputRoundings));
}

TEST_CASE("a resolved configuration with overrides of layers survives a round trip through TOML") {
  const std::string text =
      std::string(kTiny) +
      "dropout = 0.1\n[attention.decoder.self]\nhead_size = 6\n[attention.decoder.self.1]\nheads = 2\n";
  ModelConfig c = parse_model_config(text);
  CHECK(c.attention.layer(attention::AttentionKind::decoder_self, 0).heads == 4);
  CHECK(c.attention.layer(attention::AttentionKind::decoder_self, 1).heads == 2);
  CHECK(c.attention.layer(attention::AttentionKind::decoder_self, 1).head_size == 6);
  CHECK(parse_model_config(c.toml()).toml() == c.toml());
  CHECK(build_language_model(c, {30}, at::kMeta)->parameters().num_trainable_elements() ==
        build_language_model(parse_model_config(c.toml()), {30}, at::kMeta)->parameters().num_trainable_elements());
}

TEST_CASE("invalid decoder configurations are rejected") {
  for (const char* invalid : {"[attention]\nheads = 7", "[model]\nwidth = 15\n[attention]\nheads = 3",
                              "[attention]\nmixer = 'mixhaed'", "[attention]\nhaeds = 3",
                              "[attention.decoder.self.9]\nheads = 2", "[model]\nnorm = 'per'", "[model]\nlayers = 0"})
    CHECK_THROWS_AS(parse_model_config(invalid), Error);
  CHECK_THROWS_AS(num_trainable_parameters("[model]\nvocabulary_rows = 10", 30), Error);
}

TEST_CASE("a decoder rejects transformer-xl options, and new_state() rejects stages that cannot decode incrementally") {
  CHECK_THROWS_AS(num_trainable_parameters(std::string("[model]\ntransformer-xl.memory = 4"), 30), Error);
  CHECK_THROWS_AS(num_trainable_parameters(std::string("[model]\ntransformer-xl.same_length = true"), 30), Error);
  auto state = [](const char* distances) {
    return build_language_model(
               parse_model_config(str(kTiny, "score = 'relative'\nrelative.distances = '", distances, "'\n")), {30},
               at::kCPU)
        ->new_state();
  };
  CHECK(state("exact") != nullptr);
  CHECK_THROWS_AS(state("block_end"), Error);
}

TEST_CASE("output_bias adds a bias to the logits, and dropout_output drops elements of the final hidden state") {
  c10::NoGradGuard no_gradient;
  auto model = build_language_model(parse_model_config("[model]\nlayers = 1\nwidth = 16\nffn_dim = 8\noutput_bias = "
                                                       "true\ndropout_output = 0.5\n[attention]\nheads = 2"),
                                    {30}, at::kCPU);
  model->parameters().initialise(1);
  at::Tensor x = random_tokens(2, 7, 30, 1), targets = random_tokens(2, 7, 30, 2),
             hidden = model->hidden(model::Input{x}, {});
  const double nll_without_bias = model->loss(hidden, {targets}, 0).nll.item<double>();
  model->parameters().find("decoder.output.bias")->master().copy_(at::arange(30, at::kFloat) / 10);
  at::Tensor p = at::log_softmax(model->logits(hidden), -1).gather(-1, targets.unsqueeze(-1));
  const double nll_with_bias = model->loss(hidden, {targets}, 0).nll.item<double>();
  CHECK(nll_with_bias == same_nll(-p.to(at::kDouble).sum().item<double>()));
  CHECK(nll_with_bias != same_nll(nll_without_bias));
  const at::Tensor is_dropped = model->hidden(model::Input{x}, {true, 1, 0, 0}).eq(0).to(at::kDouble);
  // The margin is 4 standard deviations of the mean of independent draws.
  CHECK(is_dropped.mean().item<double>() ==
        rounding::within(0.5, 4 * std::sqrt(0.5 * 0.5 / static_cast<double>(is_dropped.numel()))));
  CHECK(hidden.ne(0).all().item<bool>());
}

TEST_CASE("initial parameters are a function of the seed") {
  auto initial_weight = [&](uint64_t seed) {
    auto model = build_language_model(parse_model_config(kTiny), {30}, at::kCPU);
    model->parameters().initialise(seed);
    return model->parameters().find("decoder.layers.1.self.query.weight")->master().detach().clone();
  };
  CHECK(at::equal(initial_weight(1), initial_weight(1)));
  CHECK(!at::equal(initial_weight(1), initial_weight(2)));
}

TEST_CASE("max_length() is the minimum of the limits of learned positions and of the stages of all layers") {
  auto build = [](const std::string& extra_toml) {
    return build_language_model(parse_model_config(str("[model]\nlayers = 2\nwidth = 16\nffn_dim = 8\n", extra_toml)),
                                {30}, at::kMeta);
  };
  const std::string plain_toml = "[attention]\nheads = 4\n",
                    dense = plain_toml + "score = 'synthesizer-dense'\nsynthesizer-dense.length = 12\n",
                    random_layer_1 =
                        "[attention.decoder.self.1]\nscore = 'synthesizer-random'\nsynthesizer-random.length = 9\n";
  CHECK(build(plain_toml)->max_length() == 0);
  CHECK(build("positions = 'learned'\nmax_positions = 10\n" + plain_toml)->max_length() == 10);
  CHECK(build(dense)->max_length() == 12);
  CHECK(build(plain_toml + random_layer_1)->max_length() == 9);
  CHECK(build(dense + random_layer_1)->max_length() == 9);
  CHECK(build("positions = 'learned'\nmax_positions = 10\n" + dense)->max_length() == 10);
  CHECK(build("positions = 'learned'\nmax_positions = 20\n" + dense)->max_length() == 12);
  auto model = build("backbone = 'transformer-xl'\npositions = 'none'\n" + dense);
  CHECK(model->max_length() == 12);
  CHECK_NOTHROW(model->require_length("x", 12));
  CHECK_THROWS_AS(model->require_length("x", 13), Error);
}

TEST_CASE("a model with learned positions refuses longer inputs", "[model]") {
  auto model = build_language_model(
      parse_model_config("[model]\nlayers = 1\nwidth = 16\nffn_dim = 8\npositions = 'learned'\nmax_positions = 10\n"
                         "[attention]\nheads = 4\n"),
      {30}, at::kCPU);
  model->parameters().initialise(1);
  c10::NoGradGuard no_gradient;
  CHECK_NOTHROW(model->hidden(model::Input{random_tokens(2, 10, 30, 1)}, {}));
  CHECK_THROWS_AS(model->hidden(model::Input{random_tokens(2, 11, 30, 1)}, {}), Error);
}

TEST_CASE("product_nt and product_tn accept strided, expanded and transposed matrices", "[model]") {
  const at::Tensor states = at::randn({6, 5, 48}), weight = at::randn({32, 48}), bias = at::randn({32});
  const auto exact = [&](const at::Tensor& x) {
    return at::linear(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble));
  };
  for (const at::Tensor& x : {states.select(1, 0), states.select(1, 0).narrow(0, 2, 1),
                              at::ones({1, 48}).expand({7, 48}), at::randn({48, 9}).t(), states[0].slice(0, 0, 5, 2)}) {
    CHECK(rounding::agree(product_nt(x, weight, bias), exact(x), 48 + 1));
    const at::Tensor xd = x.to(at::kDouble);
    CHECK(rounding::agree(product_tn(x, x), at::mm(xd.t(), xd), x.size(0)));
  }
}
