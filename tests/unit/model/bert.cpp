// The encoder and its output heads (output layers for tasks): parameter counts, equations, padding, losses, gradients,
// options.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "fixtures/gradients.h"
#include "fixtures/status.h"
#include "fixtures/translators.h"
#include "oracle/sublayers.h"

using namespace mh;
using namespace mh::model;
using namespace mh::nn;
using models::parse_model_config;
using models::random_tokens;
using numbers::max_abs;

namespace {

const char* const kBert =
    "[model]\nbackbone = 'bert'\nnorm = 'post'\nactivation = 'gelu'\npositions = 'learned'\nmax_positions = "
    "512\nscale_embedding = false\nbert.segments = 2\nbert.embedding_norm = true\nnorm_epsilon = 1e-12\ninit = "
    "'bert'\n";

// Returns the number of parameters without the output heads but with the pooler, like published counts of encoders.
int64_t num_encoder_parameters(const std::string& model_lines) {
  const auto model = build_language_model(parse_model_config(kBert + model_lines), 30522, at::kMeta);
  int64_t count = 0;
  for (const Parameter& p : model->parameters().all())
    if (p.name().rfind("head.", 0) != 0) count += p.master().numel();
  return count;
}

// The configuration of a small encoder, in which tiny_config() replaces HEAD by the lines of an output head.
const std::string kTiny =
    std::string(kBert) + "layers = 2\nwidth = 16\nffn = 24\nHEAD[attention]\nheads = 4\nhead_size = 6\n";

std::string tiny_config(const std::string& head) { return std::string(kTiny).replace(kTiny.find("HEAD"), 4, head); }

const std::vector<std::string> kOutputHeads{"", "bert.next_sentence = true\n",
                                            "bert.head = 'classes'\nbert.classes = 3\n", "bert.head = 'number'\n",
                                            "bert.head = 'span'\n"};

// Builds a model with noise added to every parameter, so that no bias or gain has its neutral initial value.
std::unique_ptr<LanguageModel> build_perturbed(const std::string& toml) {
  auto model = translators::build_model(toml, 30);
  c10::NoGradGuard no_gradient;
  at::manual_seed(77);
  for (Parameter& p : model->parameters().all()) p.master().add_(at::randn(p.master().sizes()) * 0.2);
  return model;
}

// Returns random rows of these lengths. The first half of a row, rounded up, is in the first segment; the rest and the
// padding, which has random tokens, are in the second.
Input random_input(const std::vector<int64_t>& lengths, uint64_t seed) {
  const auto rows = static_cast<int64_t>(lengths.size());
  const int64_t max_length = *std::max_element(lengths.begin(), lengths.end());
  Input input(random_tokens(rows, max_length, 30, seed));
  input.lengths.encoder = at::tensor(lengths, at::kLong);
  input.segments = at::zeros({rows, max_length}, at::kLong);
  for (int64_t b = 0; b < rows; ++b)
    input.segments[b]
        .narrow(0, (lengths[static_cast<size_t>(b)] + 1) / 2, max_length - (lengths[static_cast<size_t>(b)] + 1) / 2)
        .fill_(1);
  return input;
}

// Returns targets for two rows of the lengths 6 and 4 and for the output head that the TOML lines `head` configure.
// Shape: (2, 1) for classes and numbers, (2, 3) for spans, otherwise (2, 6).
at::Tensor example_targets(const std::string& head) {
  if (head.find("classes") != std::string::npos) return at::tensor({2, 0}, at::kLong).view({2, 1});
  if (head.find("number") != std::string::npos) return at::tensor({4250, 0}, at::kLong).view({2, 1});
  if (head.find("span") != std::string::npos) return at::tensor({1, 3, -6, 2, 2, -4}, at::kLong).view({2, 3});
  return at::tensor({1, -1, 7, -1, 29, -1, 0, 4, -1, -1, -1, -1}, at::kLong).view({2, 6});
}

struct Reference : reference::NaiveSublayers {
  HiddenStates operator()(const std::vector<int64_t>& tokens, const std::vector<int64_t>& segments,
                          int64_t num_layers) const {
    HiddenStates x = embed("encoder", tokens, 1);
    const auto positions = parameter("encoder.positions.weight"), table = parameter("encoder.segments.weight");
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t c = 0; c < x[t].size(); ++c)
        x[t][c] += positions[t * x[t].size() + c] + table[static_cast<size_t>(segments[t]) * x[t].size() + c];
    x = layer_norm("encoder.embedding_norm", x);
    for (int64_t i = 0; i < num_layers; ++i)
      x = feed_forward_sublayer(str("encoder.layers.", i, ".ffn"),
                                attention_sublayer(str("encoder.layers.", i, ".self"), x, nullptr, false));
    return x;
  }
  std::vector<double> dense(const std::string& name, const std::vector<double>& x) const {
    const auto w = parameter(name + ".weight");
    std::vector<double> y = parameter(name + ".bias");
    for (size_t o = 0; o < y.size(); ++o)
      for (size_t c = 0; c < x.size(); ++c) y[o] += w[o * x.size() + c] * x[c];
    return y;
  }
  std::vector<double> pool(const HiddenStates& h) const {
    std::vector<double> p = dense("pooler", h[0]);
    for (double& v : p) v = std::tanh(v);
    return p;
  }
  std::vector<double> word_logits(const std::vector<double>& h) const {
    std::vector<double> x = dense("head.words.transform", h);
    for (double& v : x) v = activation(v);
    x = layer_norm("head.words.norm", {x})[0];
    const auto table = parameter("encoder.embedding.weight");
    std::vector<double> scores = parameter("head.words.bias");
    for (size_t o = 0; o < scores.size(); ++o)
      for (size_t c = 0; c < x.size(); ++c) scores[o] += table[o * x.size() + c] * x[c];
    return scores;
  }
};

Reference make_reference(LanguageModel& model) {
  Reference r{{model, false}};
  r.head_size = 6, r.is_gelu = true, r.epsilon = 1e-12;
  return r;
}

// Returns the cross-entropy of one target, nats.
double cross_entropy(const std::vector<double>& scores, int64_t target) {
  double sum = 0;
  for (double s : scores) sum += std::exp(s);
  return std::log(sum) - scores[static_cast<size_t>(target)];
}

}  // namespace

TEST_CASE("parameter counts of encoders equal those of BERT and of Bhojanapalli et al. 2020", "[bert]") {
  const std::string base_lines =
                        "layers = 12\nwidth = 768\nffn = 3072\nbert.next_sentence = true\n[attention]\nheads = 12\n",
                    large_lines =
                        "layers = 24\nwidth = 1024\nffn = 4096\nbert.next_sentence = true\n[attention]\nheads = 16\n";
  CHECK(build_language_model(parse_model_config(kBert + base_lines), 30522, at::kMeta)
            ->parameters()
            .num_trainable_elements() == 110106428);
  CHECK(num_encoder_parameters(base_lines) == 109482240);
  CHECK(num_encoder_parameters(large_lines) == 335141888);
  // Without head_size the count is independent of the number of heads.
  for (int num_heads : {8, 32})
    CHECK(num_encoder_parameters(std::string(large_lines).replace(large_lines.find("= 16"), 4, str("= ", num_heads))) ==
          335141888);
  // Bhojanapalli et al. 2020: width 512, inner width 4096, fixed head sizes.
  const auto count_in_millions = [](int num_heads, int size) {
    return static_cast<double>(num_encoder_parameters(
               str("layers = 24\nwidth = 512\nffn = 4096\nbert.next_sentence = true\n[attention]\nheads = ", num_heads,
                   "\nhead_size = ", size, "\n"))) /
           1e6;
  };
  const double published_counts[][3] = {{8, 128, 167.4}, {12, 128, 192.6}, {16, 128, 217.8}, {32, 128, 318.6},
                                        {8, 32, 129.6},  {8, 64, 142.2},   {8, 256, 217.8}};
  for (const auto& [num_heads, size, count] : published_counts)
    CHECK(count_in_millions(static_cast<int>(num_heads), static_cast<int>(size)) == rounding::printed(count, 4));
}

TEST_CASE("the encoder and its output heads match a naive reference in double precision for rows of different lengths",
          "[bert]") {
  c10::NoGradGuard no_gradient;
  const std::vector<int64_t> lengths{6, 1, 4};
  const Input input = random_input(lengths, 7);
  for (const std::string& head : kOutputHeads)
    for (auto path : {attention::Path::composed, attention::Path::automatic}) {
      INFO(head);
      auto model = build_perturbed(tiny_config(head));
      model->set_path(path);
      const Reference reference = make_reference(*model);
      const at::Tensor hidden = model->hidden(input, {}), logits = model->logits(hidden),
                       sentence_logits = model->sentence_logits(hidden);
      // The error is relative to the largest hidden state, since scores of output heads are sums of products of hidden
      // states and weights.
      const auto require_close = [&](const at::Tensor& actual, const std::vector<double>& expected) {
        REQUIRE(rounding::passes_agree(*model, actual, at::tensor(expected, at::kDouble), 6, max_abs(hidden)));
      };
      CHECK(sentence_logits.defined() == (head.find("next") != std::string::npos));
      for (int64_t b = 0; b < 3; ++b) {
        const int64_t n = lengths[static_cast<size_t>(b)];
        const auto h =
            reference(reference::tokens_of_row(input.tokens, b, n), reference::tokens_of_row(input.segments, b, n), 2);
        for (int64_t t = 0; t < n; ++t) {
          require_close(hidden[b][t], h[static_cast<size_t>(t)]);
          if (head.find("head =") == std::string::npos)
            require_close(logits[b][t], reference.word_logits(h[static_cast<size_t>(t)]));
          if (head.find("span") != std::string::npos)
            require_close(logits[b][t], reference.dense("head.span", h[static_cast<size_t>(t)]));
        }
        if (sentence_logits.defined())
          require_close(sentence_logits[b], reference.dense("head.next", reference.pool(h)));
        if (head.find("classes") != std::string::npos)
          require_close(logits[b][0], reference.dense("head.classes", reference.pool(h)));
        if (head.find("number") != std::string::npos)
          require_close(logits[b][0], reference.dense("head.number", reference.pool(h)));
      }
    }
}

TEST_CASE("an encoder input without segment numbers belongs to the first segment", "[bert]") {
  c10::NoGradGuard no_gradient;
  auto model = build_perturbed(tiny_config(""));
  Input input = random_input({5, 3}, 3);
  const at::Tensor two_segments = model->hidden(input, {});
  input.segments.zero_();
  const at::Tensor first_segment = model->hidden(input, {});
  input.segments = at::Tensor();
  CHECK(at::equal(model->hidden(input, {}), first_segment));
  CHECK(!rounding::passes_agree(*model, two_segments, first_segment, 5));
}

TEST_CASE("losses and log-probabilities of the output heads of an encoder match the equations", "[bert]") {
  c10::NoGradGuard no_gradient;
  const Input input = random_input({6, 4}, 9);
  for (const std::string& head : kOutputHeads) {
    INFO(head);
    auto model = build_perturbed(tiny_config(head));
    const at::Tensor targets = example_targets(head), hidden = model->hidden(input, {});
    const SlicedLoss loss = model->loss(hidden, {targets, 1.5}, 0);
    const at::Tensor log_p = model->target_log_probabilities(hidden, targets);
    REQUIRE(log_p.sizes() == targets.sizes());
    const Reference reference = make_reference(*model);
    double nll = 0, next_sentence_nll = 0;  // nll: loss of words, classes, number or span
    const double pass_bound = rounding::bound(at::kFloat, at::kDouble, rounding::num_pass_roundings(*model, 6), 1);
    // Returns the bound on the error of a loss, whose terms are as large as hidden states.
    const auto bound = [&](double value) { return pass_bound * std::max(value, max_abs(hidden)); };
    const auto check = [&](const at::Tensor& actual, double value) {
      CHECK(actual.item<double>() == rounding::within(-value, bound(value)));
    };
    double loss_error = 0;  // sum of the bounds of all terms of the loss
    int64_t num_scored = 0;
    for (int64_t b = 0; b < 2; ++b) {
      const int64_t n = b == 0 ? 6 : 4;
      const auto h =
          reference(reference::tokens_of_row(input.tokens, b, n), reference::tokens_of_row(input.segments, b, n), 2);
      const auto target = [&](int64_t i) { return targets[b][i].item<int64_t>(); };
      const auto add = [&](int64_t i, double value) {
        nll += value, loss_error += bound(value);
        check(log_p[b][i], value);
      };
      if (head.find("classes") != std::string::npos) {
        add(0, cross_entropy(reference.dense("head.classes", reference.pool(h)), target(0)));
        ++num_scored;
      } else if (head.find("number") != std::string::npos) {
        const double error =
            reference.dense("head.number", reference.pool(h))[0] - 0.001 * static_cast<double>(target(0));
        add(0, error * error);
        ++num_scored;
      } else if (head.find("span") != std::string::npos) {
        for (size_t end = 0; end < 2; ++end) {
          std::vector<double> scores;
          for (const auto& position_output : h) scores.push_back(reference.dense("head.span", position_output)[end]);
          const double value = cross_entropy(scores, target(static_cast<int64_t>(end)));
          check(log_p[b][static_cast<int64_t>(end)], value);
          nll += value / 2, loss_error += bound(value) / 2;
        }
        CHECK(log_p[b][2].item<double>() == 0);
        ++num_scored;
      } else {
        for (int64_t t = 1; t < n; ++t)
          if (target(t) >= 0)
            add(t, cross_entropy(reference.word_logits(h[static_cast<size_t>(t)]), target(t))), ++num_scored;
        if (!head.empty()) {
          const double value = cross_entropy(reference.dense("head.next", reference.pool(h)), target(0));
          check(log_p[b][0], value);
          next_sentence_nll += value, loss_error += 1.5 * bound(value);
        }
      }
    }
    CHECK(loss.num_scored == num_scored);
    CHECK(loss.nll.item<double>() == rounding::within(nll + 1.5 * next_sentence_nll, loss_error));
    CHECK(loss.smoothed.item<double>() == rounding::within(nll + 1.5 * next_sentence_nll, loss_error));
    // Targets of -1 are not scored.
    const at::Tensor no_targets = at::where(targets < 0, targets, -1);
    CHECK(model->loss(hidden, no_targets, 0).num_scored == 0);
    CHECK(model->loss(hidden, no_targets, 0).nll.item<double>() == 0);
  }
}

TEST_CASE("an encoder row is independent of padding and of the other rows, with every stage and for span losses",
          "[bert]") {
  c10::NoGradGuard no_gradient;
  const std::vector<int64_t> lengths{7, 6, 2, 1};
  const Input batch = random_input(lengths, 5);
  for (const std::string& stage : translators::stage_lines()) {
    if (stage.find("decoder") != std::string::npos && stage.find("encoder") == std::string::npos) continue;
    std::string encoder_stage = stage;
    if (const auto at = encoder_stage.find("[attention.decoder"); at != std::string::npos) encoder_stage.resize(at);
    INFO(encoder_stage);
    auto model = build_perturbed(tiny_config("") + encoder_stage);
    const at::Tensor batch_hidden = model->hidden(batch, {});
    for (int64_t b = 0; b < 4; ++b) {
      const int64_t n = lengths[static_cast<size_t>(b)];
      Input single_row(batch.tokens.narrow(0, b, 1).narrow(1, 0, n));
      single_row.segments = batch.segments.narrow(0, b, 1).narrow(1, 0, n);
      CHECK(rounding::passes_agree(*model, model->hidden(single_row, {})[0], batch_hidden[b].narrow(0, 0, n), 7));
    }
  }
  // Padding is excluded from the softmax over the positions of a span.
  auto model = build_perturbed(tiny_config("bert.head = 'span'\n"));
  const at::Tensor targets = at::tensor({0, 1, -2}, at::kLong).view({1, 3});
  Input single_row(batch.tokens.narrow(0, 2, 1).narrow(1, 0, 2));
  single_row.segments = batch.segments.narrow(0, 2, 1).narrow(1, 0, 2);
  const at::Tensor hidden = model->hidden(single_row, {});
  const double nll = model->loss(hidden, targets, 0).nll.item<double>();
  CHECK(model->loss(model->hidden(batch, {}).narrow(0, 2, 1), targets, 0).nll.item<double>() ==
        rounding::within(nll, rounding::pass_bound(*model, 7) * std::max(nll, max_abs(hidden))));
}

TEST_CASE("gradients of an encoder and its output heads equal finite differences", "[bert]") {
  for (const std::string& head : kOutputHeads) {
    INFO(head);
    auto model = build_perturbed(tiny_config(head) + "mixer = 'mixhead-b'\n");
    const Input input = random_input({6, 4}, 21);
    const at::Tensor targets = example_targets(head);
    const auto loss = [&] { return model->loss(model->hidden(input, {}), {targets, 1.5}, 0.1).smoothed; };
    models::check_gradients(*model, loss, 6);
  }
}

TEST_CASE("invalid options of an encoder and its output heads are rejected; encoders cannot decode", "[bert]") {
  const auto build = [](const std::string& toml) { build_language_model(parse_model_config(toml), 30, at::kMeta); };
  CHECK(refusal([&] { build(tiny_config("bert.head = 'classes'\n")); }).find("model.bert.classes") !=
        std::string::npos);
  CHECK(refusal([&] { build(tiny_config("bert.classes = 2\n")); }).find("model.bert.classes") != std::string::npos);
  CHECK(refusal([&] { build(tiny_config("bert.head = 'span'\nbert.next_sentence = true\n")); }).find("next_sentence") !=
        std::string::npos);
  for (const char* key :
       {"transformer-xl.memory = 4\n", "transformer-xl.same_length = true\n", "output_bias = true\n",
        "encoder-decoder.encoder_layers = 2\n", "encoder-decoder.shared_embedding = true\n", "output_cutoffs = [10]\n"})
    CHECK(status_of([&] { build(tiny_config(key)); }) == 2);
  for (const char* key : {"bert.segments = 2\n", "bert.embedding_norm = true\n", "bert.head = 'span'\n",
                          "bert.classes = 2\n", "bert.next_sentence = true\n"}) {
    const std::string decoder = str("[model]\nlayers = 1\nwidth = 16\nffn = 16\n", key, "[attention]\nheads = 4\n");
    CHECK(refusal([&] { build(decoder); }).find("model.backbone='bert', which has this option") != std::string::npos);
  }
  CHECK(status_of([&] { build_language_model(parse_model_config(tiny_config("")), 30, at::kCPU)->new_state(); }) == 2);
}
