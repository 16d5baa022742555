// Regularisers: values and gradients compared with plain loops, independence of padding, and use in training.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "attention/head_mix.h"
#include "attention/methods/hard_concrete/hard_concrete.h"
#include "attention/methods/mixture_of_heads/routing.h"
#include "fixtures/layers.h"
#include "fixtures/rounding.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "fixtures/within.h"

using namespace mh;
using namespace mh::train;

namespace {

// Passes a tensor per layer to the observer of the term: head outputs (B, hv, Tq, dv) if `observes_outputs` is set,
// else attention probabilities (B, h, Tq, Tk). Runs the backward pass and returns the value of the term.
double term_after_backward(Regulariser& term, const std::vector<at::Tensor>& layers, bool observes_outputs) {
  const attention::LayerSpec spec;
  for (const at::Tensor& x : layers) {
    if (observes_outputs) term.observer()->intercept_heads(attention::HeadSide::value, spec, x);
    else term.observer()->observe_probabilities(spec, x);
  }
  at::Tensor value = term.loss({});
  value.backward();
  return value.item<double>();
}

// Matches a term in fp32 with its reference in fp64. The term is a chain of sums over the entries of a head, over
// heads, rows and layers, and of a few products, with at most 64 roundings in all. In a difference, such as the sum
// over all pairs of heads minus the sum over equal heads, the subtrahend is less than half of the minuend, so that the
// minuend is at most twice the term.
Approx near_term(double expected) {
  return rounding::within(expected, tolerance::chain_error_bound(64, tolerance::kFp32, 2 * expected));
}

// Returns the inner product of a and b over all entries, accumulated in fp64.
double inner_product(const at::Tensor& a, const at::Tensor& b) {
  double sum = 0;
  const auto x = a.detach().to(at::kDouble).flatten(), y = b.detach().to(at::kDouble).flatten();
  for (int64_t i = 0; i < x.numel(); ++i) sum += x[i].item<double>() * y[i].item<double>();
  return sum;
}

// Returns the regulariser `name` with weight 0.5 and these options.
auto make_regulariser(const std::string& name, const std::string& options) {
  auto term = regularisers().make(name, "");
  Config config;
  config.load_text("[r]\nweight = 0.5\n" + options, "test");
  config.read("r", *term);
  return term;
}

}  // namespace

TEST_CASE("disagreement and subspace-overlap equal plain loops over pairs of heads", "[regularisers]") {
  const int64_t batch = 2, heads = 3, n = 4;
  std::vector<at::Tensor> layers;
  for (int i = 0; i < 2; ++i) layers.push_back(at::softmax(at::randn({batch, heads, n, n}), -1).requires_grad_());
  double cosines = 0, position_overlap = 0, row_overlap = 0, column_overlap = 0;
  for (const at::Tensor& p : layers)
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < heads; ++i)
        for (int64_t j = 0; j < heads; ++j) {
          const at::Tensor x = p[b][i].detach().to(at::kDouble), y = p[b][j].detach().to(at::kDouble);
          cosines += (1 + inner_product(x, y) / std::sqrt(inner_product(x, x) * inner_product(y, y))) /
                     static_cast<double>(batch * heads * heads);
          position_overlap += inner_product(x, y) / static_cast<double>(batch * n * heads * heads);
          if (i == j) continue;
          const at::Tensor r = at::matmul(x, y.t()), c = at::matmul(x.t(), y);
          row_overlap += inner_product(r, r) / static_cast<double>(batch * heads * (heads - 1) * n);
          column_overlap += inner_product(c, c) / static_cast<double>(batch * heads * (heads - 1) * n);
        }
  CHECK(term_after_backward(*make_regulariser("disagreement", "of = 'outputs'"), layers, true) ==
        near_term(0.5 * cosines));
  CHECK(term_after_backward(*make_regulariser("disagreement", "of = 'positions'"), layers, false) ==
        near_term(0.5 * position_overlap));
  CHECK(term_after_backward(*make_regulariser("subspace-overlap", "of = 'rows'"), layers, false) ==
        near_term(0.5 * row_overlap));
  CHECK(term_after_backward(*make_regulariser("subspace-overlap", "of = 'columns'"), layers, false) ==
        near_term(0.5 * column_overlap));
}

namespace {

// Returns the sum over layers of `row_weight` R_d + `column_weight` R_c, in fp64: sums over pairs of heads and over
// entries, as subspace_overlap.cpp defines R_d and R_c.
double naive_overlaps(const std::vector<at::Tensor>& layers, double row_weight, double column_weight) {
  double sum = 0;
  for (const at::Tensor& layer : layers) {
    const at::Tensor p = layer.detach().to(at::kDouble).contiguous();
    const int64_t batch = p.size(0), heads = p.size(1), n = p.size(2), keys = p.size(3);
    const auto* x = p.const_data_ptr<double>();
    const auto element = [&](int64_t b, int64_t h, int64_t t, int64_t s) {
      return x[((b * heads + h) * n + t) * keys + s];
    };
    const double num_pairs = static_cast<double>(heads * (heads - 1)) / 2;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < heads; ++i)
        for (int64_t j = i + 1; j < heads; ++j) {
          double row_overlap = 0, column_overlap = 0;
          for (int64_t t = 0; t < n; ++t)
            for (int64_t u = 0; u < n; ++u) {
              double dot = 0;
              for (int64_t s = 0; s < keys; ++s) dot += element(b, i, t, s) * element(b, j, u, s);
              row_overlap += dot * dot;
            }
          for (int64_t s = 0; s < keys; ++s)
            for (int64_t v = 0; v < keys; ++v) {
              double dot = 0;
              for (int64_t t = 0; t < n; ++t) dot += element(b, i, t, s) * element(b, j, t, v);
              column_overlap += dot * dot;
            }
          sum += (row_weight * row_overlap / static_cast<double>(n) +
                  column_weight * column_overlap / static_cast<double>(keys)) /
                 (num_pairs * static_cast<double>(batch));
        }
  }
  return sum;
}

const std::string kOverlaps =
    "[train.regularisers.subspace-overlap]\nof = 'rows'\nweight = 0.5\n"
    "[train.regularisers.columns]\ntype = 'subspace-overlap'\nof = 'columns'\nweight = 2.0\n";

}  // namespace

TEST_CASE("two subspace-overlap sections add R_d and R_c to the loss, and the gradient equals finite differences",
          "[regularisers]") {
  Config config;
  config.load_text(kOverlaps, "test");
  Regularisers terms;
  terms.read(config, "train.regularisers", regularisers(), true);
  config.check_all_known();
  nn::ParameterList list(at::kCPU);
  terms.start(list, {});
  REQUIRE(terms.observer() != nullptr);
  std::vector<at::Tensor> layers;
  for (uint64_t seed : {1, 2})
    layers.push_back(at::softmax(numbers::normal({2, 3, 4, 5}, seed), -1).detach().requires_grad_());
  for (const at::Tensor& p : layers) terms.observer()->observe_probabilities({}, p);
  const at::Tensor value = terms.loss({});
  CHECK(value.item<double>() == near_term(naive_overlaps(layers, 0.5, 2.0)));
  value.backward();
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    // The gradient in fp32 has the roundings of the forward and of the backward pass.
    const double fp32_error =
        tolerance::chain_error_bound(2 * 64, tolerance::kFp32, 2 * numbers::max_abs(layers[layer].grad()));
    for (int64_t i = 0; i < layers[layer].numel(); ++i) {
      auto shifted_loss = [&](double shift) {
        std::vector<at::Tensor> shifted_layers;
        for (const at::Tensor& p : layers) shifted_layers.push_back(p.detach().to(at::kDouble));
        shifted_layers[layer].view({-1})[i] += shift;
        return naive_overlaps(shifted_layers, 0.5, 2.0);
      };
      // The loss is a sum over 2 layers, 2 rows, 3 pairs of heads, at most 25 pairs of positions and at most 5 terms.
      const rounding::Slope slope = rounding::slope(shifted_loss, 1e-4, 2 * 2 * 3 * 25 * 5);
      CHECK(layers[layer].grad().view({-1})[i].item<double>() ==
            rounding::within(slope.value, slope.error + fp32_error));
    }
  }
}

TEST_CASE("a run saves the types of its regulariser sections, and resume gives bit-identical weights",
          "[regularisers]") {
  Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::repeating_tokens(400));
  auto train_until = [](int updates) { return str("[train]\nlength = '", updates, "u'\nschedule.length = '6u'\n"); };
  auto query_weight = [](model::LoadedModel m) { return runs::find(m, "decoder.layers.0.self.query.weight").clone(); };
  const at::Tensor uninterrupted = query_weight(runs::train_in_folder(folder, "both", kOverlaps + train_until(6)));
  runs::train_in_folder(folder, "run", kOverlaps + train_until(3));
  CHECK(at::equal(query_weight(runs::train_in_folder(folder, "run", kOverlaps + train_until(6), true)), uninterrupted));
  // Each of the two regulariser sections changes the trained weights.
  const std::string rows_section = kOverlaps.substr(0, kOverlaps.find("[train.regularisers.columns]")),
                    columns_section = kOverlaps.substr(rows_section.size());
  CHECK_FALSE(
      at::equal(query_weight(runs::train_in_folder(folder, "rows", rows_section + train_until(6))), uninterrupted));
  CHECK_FALSE(at::equal(query_weight(runs::train_in_folder(folder, "columns", columns_section + train_until(6))),
                        uninterrupted));
  // Writing the configuration of the run as TOML and reading it again does not change it.
  const RunConfig config = runs::config_of(folder, kOverlaps + train_until(6));
  Config saved_config;
  saved_config.load_text(config.toml(), "saved");
  CHECK(RunConfig::read(saved_config).toml() == config.toml());
  CHECK(config.toml().find("type = \"subspace-overlap\"") != std::string::npos);
  for (const char* invalid :
       {"[train.regularisers.columns]\nof = 'columns'\n", "[train.regularisers.columns]\ntype = 'overlap'\n",
        "[train.procedures.one]\ntype = 'block-coordinate'\n"})
    CHECK(status_of([&] { runs::config_of(folder, invalid); }) == 2);
}

TEST_CASE("orthogonal-mixing is 0 for an orthogonal matrix M and has the gradient 4 M (MᵀM - I)", "[regularisers]") {
  nn::ParameterList list(at::kCPU);
  list.add("decoder.layers.0.self.mixer.matrix", {4, 4}, {nn::Init::identity(), true, false});
  list.initialise(1);
  auto term = regularisers().make("orthogonal-mixing", "");
  Config config;
  config.load_text("[r]\nweight = 1.0\n", "test");
  config.read("r", *term);
  term->start(list, {});
  at::Tensor& m = list.all().front().master();
  CHECK(term->loss({}).item<double>() == 0);
  {
    c10::NoGradGuard no_gradient;
    m.copy_(std::get<0>(at::linalg_qr(at::randn({4, 4}))));
    // Roundings in an entry of QᵀQ - I: the QR decomposition applies 4 Householder reflections, each with two sums of 4
    // terms, and QᵀQ adds a sum of 4 terms. The regularisation term is the sum of the squares of the 16 entries.
    const double deviation = tolerance::chain_error_bound(4 * 2 * 4 + 4, tolerance::kFp32, 1);
    CHECK(term->loss({}).item<double>() <= 16 * deviation * deviation);
    // Mixing by an orthogonal matrix preserves the sum of squares of the probabilities.
    const at::Tensor p = at::softmax(at::randn({2, 4, 5, 5}), -1);
    const double squares = p.to(at::kDouble).square().sum().item<double>();
    CHECK(at::einsum("ji,bjts->bits", {m.to(at::kDouble), p.to(at::kDouble)}).square().sum().item<double>() ==
          rounding::within(squares, 4 * deviation * squares));  // |QᵀQ - I| ≤ 4 deviation
    m.copy_(at::randn({4, 4}));
  }
  term->loss({}).backward();
  const at::Tensor d = m.detach().to(at::kDouble), identity = at::eye(4, at::kDouble);
  // Roundings in fp32: two products of 4 terms, the difference, the square and the weight. The bound is relative to the
  // sums of the absolute terms.
  const double size = numbers::max_abs(4 * at::matmul(d.abs(), at::matmul(d.abs().t(), d.abs()) + identity));
  CHECK(rounding::agree(m.grad(), 4 * at::matmul(d, at::matmul(d.t(), d) - identity), 4 + 4 + 3, size));
  nn::ParameterList empty(at::kCPU);
  CHECK(status_of([&] { regularisers().make("orthogonal-mixing", "")->start(empty, {}); }) == 2);
}

TEST_CASE("nuclear-growth has a constant value, but the gradient of -|α|_*, and freezes alphas until start",
          "[regularisers]") {
  nn::ParameterList list(at::kCPU);
  list.add("decoder.layers.0.self.combiner.alpha", {4, 4}, {nn::Init::identity(), true, false});
  list.initialise(1);
  at::Tensor& a = list.all().front().master();
  for (double margin : {1e-4, 0.5}) {
    auto term = regularisers().make("nuclear-growth", "");
    Config config;
    config.load_text("[r]\nweight = 2.0\nstart = 0.3\nmargin = " + std::to_string(margin) + "\n", "test");
    config.read("r", *term);
    term->start(list, {});
    CHECK_FALSE(term->loss({2, 0, 10}).defined());
    CHECK(term->freezes(list.all().front(), {2, 0, 10}));
    CHECK_FALSE(term->freezes(list.all().front(), {3, 0, 10}));
    {
      c10::NoGradGuard no_gradient;
      a.copy_(at::randn({4, 4}));
    }
    a.mutable_grad() = at::Tensor();
    at::Tensor value = term->loss({3, 0, 10});
    value.backward();
    const auto [u, s, v] = at::linalg_svd(a.detach().to(at::kDouble), false);
    // The value is a difference of two nuclear norms, rounded to fp32. Each norm has the error of a singular value
    // decomposition in fp64 with up to 10 sweeps of rotations.
    CHECK(value.item<double>() ==
          rounding::within(2 * margin, tolerance::chain_error_bound(1, tolerance::kFp32, 2 * margin) +
                                           rounding::fp64_bound(10 * 8, 2 * s.sum().item<double>())));
    CHECK(rounding::agree(a.grad(), -2 * at::matmul(u, v), 1));  // U Vᵀ in fp64, rounded once
  }
}

TEST_CASE("orthogonal-mixing with of = positions is the mean over the mixing matrices of all positions",
          "[regularisers]") {
  layers::Layer layer("heads = 3\nmixer = 'mixhead-b'\n", 6);
  layer.perturb_parameters(4);
  auto term = regularisers().make("orthogonal-mixing", "");
  Config config;
  config.load_text("[r]\nweight = 0.5\nof = 'positions'\n", "test");
  config.read("r", *term);
  term->start(layer.parameters, {});
  const at::Tensor x = layers::normal({2, 4, 6}, 1);
  layer(x, x, {}, {}, term->observer());
  const at::Tensor value = term->loss({});
  // M[b, t, j, i] = Σ_c q[b, t, j, c] W[i, c] + M0[j, i]
  const auto parameter = [&](const char* name) { return layer[name].detach().to(at::kDouble); };
  const at::Tensor q =
      (at::matmul(x.to(at::kDouble), parameter("query.weight").t()) + parameter("query.bias")).view({2, 4, 3, 2});
  const at::Tensor m = at::einsum("btjc,ic->btji", {q, parameter("mixer.query.weight")}) + parameter("mixer.matrix");
  double sum = 0;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t t = 0; t < 4; ++t)
      for (int64_t i = 0; i < 3; ++i)
        for (int64_t k = 0; k < 3; ++k) {
          double product = i == k ? -1 : 0;
          for (int64_t j = 0; j < 3; ++j) product += m[b][t][j][i].item<double>() * m[b][t][j][k].item<double>();
          sum += product * product / 8;
        }
  // In fp32: M is computed by products of 6 and of 2 terms and two additions, MᵀM by a product of 3 terms; the mean of
  // squares adds 9 entries and 8 positions, and four more roundings follow. The term is a fourth power of M, which
  // quadruples relative errors.
  CHECK(value.item<double>() ==
        rounding::within(0.5 * sum,
                         tolerance::chain_error_bound(6 + 2 + 2 + 3 + 9 + 8 + 4, tolerance::kFp32, 4 * 0.5 * sum)));
  value.backward();
  CHECK(layer["mixer.query.weight"].grad().abs().max().item<double>() > 0);
  // A forward pass without gradients, as in a validation, adds nothing to the term.
  {
    c10::NoGradGuard no_gradient;
    layer(x, x, {}, {}, term->observer());
  }
  CHECK_FALSE(term->loss({}).defined());
}

TEST_CASE("the nuclear norm has its defining properties, and the gradient of nuclear-growth equals finite differences",
          "[regularisers]") {
  const int64_t h = 5;
  auto norm = [](const at::Tensor& x) { return at::linalg_svdvals(x).sum().item<double>(); };
  const at::Tensor a = at::randn({h, h}, at::kDouble), q = std::get<0>(at::linalg_qr(at::randn({h, h}, at::kDouble)));
  // Each of h singular values has the error of a backward-stable decomposition with up to 10 sweeps of rotations,
  // relative to the largest singular value.
  const auto near_norm = [&](double expected) {
    return rounding::within(expected, rounding::fp64_bound(10 * 2 * h, static_cast<double>(h) * expected));
  };
  CHECK(norm(at::eye(h, at::kDouble)) == near_norm(5));
  CHECK(norm(-3 * a) == near_norm(3 * norm(a)));
  CHECK(norm(at::matmul(q, a)) == near_norm(norm(a)));
  CHECK(norm(at::matmul(a, q)) == near_norm(norm(a)));
  const double frobenius = a.norm().item<double>();
  CHECK(frobenius <= norm(a));
  CHECK(norm(a) <= std::sqrt(static_cast<double>(h)) * frobenius);
  // Each attention layer adds γ r Δ to the loss for any alphas, with weight γ, ratio r and margin Δ; the gradient is
  // that of -γ r |α|_*.
  nn::ParameterList list(at::kCPU);
  for (const char* name : {"encoder.layers.0.self", "decoder.layers.0.self", "decoder.layers.0.cross"})
    list.add(str(name, ".combiner.alpha"), {h, h}, {nn::Init::normal(1), false, false});
  list.initialise(1);
  auto term = regularisers().make("nuclear-growth", "");
  Config config;
  config.load_text(
      "[r]\nweight = 2.0\nmargin = 0.25\nstart = 0.3\n[r.encoder.self]\nratio = 3.0\n[r.decoder.cross]\nratio = 0.0\n",
      "test");
  config.read("r", *term);
  config.check_all_known();
  term->start(list, {});
  const at::Tensor value = term->loss({3, 0, 10});
  CHECK(value.item<double>() ==
        rounding::within(2 * 0.25 * (3 + 1), tolerance::chain_error_bound(1, tolerance::kFp32, 2 * 0.25 * (3 + 1))));
  value.backward();
  const std::vector<double> ratios{3, 1, 0};
  for (size_t i = 0; i < 3; ++i) {
    const nn::Parameter& p = list.all()[i];
    INFO(p.name());
    CHECK(term->freezes(p, {2, 0, 10}));
    CHECK(term->freezes(p, {3, 0, 10}) == (ratios[i] == 0));
    if (ratios[i] == 0) {
      CHECK_FALSE(p.master().grad().defined());
      continue;
    }
    at::Tensor alphas = p.master().detach().to(at::kDouble);
    for (int64_t r = 0; r < h; ++r)
      for (int64_t c = 0; c < h; ++c) {
        const auto shifted_loss = [&](double shift) {
          at::Tensor shifted_alphas = alphas.clone();
          shifted_alphas[r][c] += shift;
          return -2 * ratios[i] * norm(shifted_alphas);
        };
        // The error of the loss is bounded as in near_norm(), for terms up to h times as large as the norm. The
        // gradient is rounded to fp32.
        const rounding::Slope slope = rounding::slope(shifted_loss, 1e-5, h * h * 10 * 2 * h);
        CHECK(p.master().grad()[r][c].item<double>() ==
              rounding::within(slope.value,
                               slope.error + tolerance::chain_error_bound(1, tolerance::kFp32, 2 * ratios[i])));
      }
  }
}

TEST_CASE("frozen alphas stay exactly the identity matrix, and their Adam moments stay 0", "[regularisers]") {
  Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::repeating_tokens(400));
  auto method_toml = [](const std::string& start) {
    return "[attention]\ncombiner = 'alphas'\n[train]\nlength = '8u'\n[train.regularisers.nuclear-growth]\n"
           "weight = 0.05\nstart = " +
           start + "\n";
  };
  auto largest_moment = [&](const std::string& name) {
    io::Checkpoint checkpoint(folder.file(name) + "/last.safetensors");
    at::Tensor first = at::empty({4, 4});
    model::load_tensor(checkpoint, "optimizer.decoder.layers.0.self.combiner.alpha.first", first);
    return first.abs().max().item<double>();
  };
  auto frozen_run = runs::train_in_folder(folder, "frozen", method_toml("1.0")),
       unfrozen_run = runs::train_in_folder(folder, "thawed", method_toml("0.5"));
  CHECK(at::equal(runs::find(frozen_run, "decoder.layers.0.self.combiner.alpha"), at::eye(4)));
  CHECK(largest_moment("frozen") == 0);
  CHECK_FALSE(at::equal(runs::find(unfrozen_run, "decoder.layers.0.self.combiner.alpha"), at::eye(4)));
  CHECK(largest_moment("thawed") > 0);
}

TEST_CASE("hard-concrete-penalty uses the temperature and stretch of each layer and has the closed-form gradient",
          "[regularisers]") {
  attention::AttentionConfig attention;
  Config config;
  config.load_text(
      "[attention]\nheads = 3\ncombiner = 'hard-concrete'\n"
      "[attention.decoder.self.1.hard-concrete]\ntemperature = 0.7\nlow = -0.2\nhigh = 1.5\n[r]\nweight = 0.5\n",
      "test");
  attention.read(config, {{attention::AttentionKind::decoder_self, 2}});
  auto term = regularisers().make("hard-concrete-penalty", "");
  config.read("r", *term);
  config.check_all_known();
  nn::ParameterList list(at::kCPU);
  for (int layer : {0, 1})
    list.add(str("decoder.layers.", layer, ".self.combiner.log_a"), {3}, {nn::Init::normal(2), false, false});
  list.initialise(1);
  term->start(list, attention);
  const at::Tensor value = term->loss({});
  value.backward();
  double sum = 0;
  for (size_t layer = 0; layer < 2; ++layer) {
    const double shift = layer == 0 ? 0.33 * std::log(0.1 / 1.1) : 0.7 * std::log(0.2 / 1.5);
    const at::Tensor& log_a = list.all()[layer].master();
    for (int64_t i = 0; i < 3; ++i) {
      const double s = 1 / (1 + std::exp(-(log_a[i].item<double>() - shift)));
      sum += s;
      // Roundings in fp32: two products, a difference, an exponential, a sum, a quotient, and the factors s and 1 - s,
      // whose error is relative to 1.
      CHECK(log_a.grad()[i].item<double>() ==
            rounding::within(0.5 * s * (1 - s), tolerance::chain_error_bound(8, tolerance::kFp32, 0.5 * s)));
    }
  }
  CHECK(value.item<double>() == near_term(0.5 * sum));
  nn::ParameterList empty(at::kCPU);
  CHECK(status_of([&] { regularisers().make("hard-concrete-penalty", "")->start(empty, attention); }) == 2);
}

TEST_CASE("regularisers ignore padding in value and gradient", "[regularisers]") {
  const int64_t heads = 3, n = 4, memory = 2;
  const attention::LayerSpec spec;
  // A regulariser, and a tensor that `show` passes to its observer.
  struct Case {
    std::string name, options;
    std::vector<int64_t> sizes;  // dimensions of the tensor after (B, n)
    bool has_heads_first;        // whether the observer receives (B, h, n, …) instead of (B, n, h, …)
    bool is_mean_of_rows;        // whether the term is a mean over rows; else a mean over positions
    std::function<void(attention::Observer&, const at::Tensor&)> show;
  };
  const auto probabilities = [&](attention::Observer& observer, const at::Tensor& x) {
    observer.observe_probabilities(spec, x);
  };
  const std::vector<Case> cases{
      {"disagreement", "of = 'positions'", {heads, n + memory}, true, false, probabilities},
      {"disagreement",
       "of = 'outputs'",
       {heads, 5},
       true,
       true,
       [&](attention::Observer& observer, const at::Tensor& x) {
         observer.intercept_heads(attention::HeadSide::value, spec, x);
       }},
      {"subspace-overlap", "of = 'rows'", {heads, n + memory}, true, true, probabilities},
      {"subspace-overlap", "of = 'columns'", {heads, n + memory}, true, true, probabilities},
      {"orthogonal-mixing",
       "of = 'positions'",
       {heads, heads},
       false,
       false,
       [&](attention::Observer& observer, const at::Tensor& x) {
         observer.notify_subscribers(spec, attention::MixingObservation{x});
       }},
      {"head-balance", "", {heads}, false, false, [&](attention::Observer& observer, const at::Tensor& x) {
         observer.notify_subscribers(spec, attention::RoutingObservation{x, (x > 0.5).to(at::kFloat)});
       }}};
  for (const Case& c : cases) {
    INFO(c.name << ' ' << c.options);
    auto term = make_regulariser(c.name, c.options);
    auto value_of = [&](const at::Tensor& x, const at::Tensor& lengths) {
      attention::Observer& observer = *term->observer();
      observer.begin_batch(lengths);
      c.show(observer, c.has_heads_first ? x.transpose(1, 2) : x);
      return term->loss({});
    };
    const std::vector<int64_t> lengths{4, 2, 1, 0};
    std::vector<int64_t> sizes{4, n};
    sizes.insert(sizes.end(), c.sizes.begin(), c.sizes.end());
    at::Tensor x = at::rand(sizes);
    // Real queries do not attend to padding keys.
    if (c.sizes.back() == n + memory)
      for (int64_t b = 0; b < 4; ++b)
        for (int64_t s = lengths[static_cast<size_t>(b)]; s < n; ++s)
          x[b].narrow(0, 0, s).select(-1, memory + s).zero_();
    x.requires_grad_();
    const at::Tensor value_with_padding = value_of(x, at::tensor(lengths));
    value_with_padding.backward();
    // The reference values come from rows without padding: one row at a time, or all positions in one row.
    double expected = 0;
    if (c.is_mean_of_rows) {
      for (int64_t b = 0; b < 3; ++b) {
        const int64_t length = lengths[static_cast<size_t>(b)];
        at::Tensor row = x.detach().narrow(0, b, 1).narrow(1, 0, length);
        if (c.sizes.back() == n + memory) row = row.narrow(-1, 0, memory + length);
        expected += value_of(row.clone().requires_grad_(), at::tensor({length})).item<double>() / 3;
      }
    } else {
      std::vector<at::Tensor> rows;
      for (int64_t b = 0; b < 3; ++b) rows.push_back(x.detach()[b].narrow(0, 0, lengths[static_cast<size_t>(b)]));
      expected = value_of(at::cat(rows).unsqueeze(0).requires_grad_(), at::Tensor()).item<double>();
    }
    // The value with padding and the reference are both computed in fp32.
    CHECK(value_with_padding.item<double>() ==
          rounding::within(expected, rounding::bound(at::kFloat, at::kFloat, 64, 2 * expected)));
    for (int64_t b = 0; b < 4; ++b) {
      const int64_t length = lengths[static_cast<size_t>(b)];
      const at::Tensor padding_gradient = x.grad()[b].narrow(0, length, n - length);
      if (length < n) CHECK(padding_gradient.abs().max().item<double>() == 0);
    }
    CHECK(x.grad().isfinite().all().item<bool>());
    // A batch of empty rows gives 0, not NaN.
    CHECK(value_of(x, at::tensor(std::vector<int64_t>{0, 0, 0, 0})).item<double>() == 0);
  }
}

namespace {

std::vector<int64_t> observed_lengths;

// A regulariser that records the row lengths that its observer receives in training.
class LengthRecorder : public ObservedTerm {
 public:
  LengthRecorder() : ObservedTerm(1, "recorded term") {}
  void begin_batch(const attention::Lengths& lengths) override {
    for (int64_t b = 0; b < lengths.decoder.size(0); ++b)
      observed_lengths.push_back(lengths.decoder[b].item<int64_t>());
  }
};
const Registration<LengthRecorder> length_recorder_entry(regularisers(), "test-witness", "");

}  // namespace

TEST_CASE("training passes the row lengths of every micro-batch to the observers of regularisers", "[regularisers]") {
  Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::repeating_tokens(21));
  observed_lengths.clear();
  runs::train_in_folder(folder, "run",
                        "[train]\nlength = '1e'\nbatch.micro_tokens = 16\n[train.regularisers.test-witness]\n");
  std::sort(observed_lengths.begin(), observed_lengths.end());
  CHECK(observed_lengths == std::vector<int64_t>{5, 8, 8});
}

TEST_CASE("head-balance is the sum over layers and heads of h f p, with selection frequency f and mean probability p",
          "[regularisers]") {
  auto term = regularisers().make("head-balance", "");
  Config config;
  config.load_text("[r]\nweight = 0.5\n", "test");
  config.read("r", *term);
  const int64_t batch = 2, n = 3, heads = 4, k = 2;
  double expected = 0;
  std::vector<at::Tensor> layers;
  for (int i = 0; i < 2; ++i) {
    const at::Tensor p = at::softmax(at::randn({batch, n, heads}), -1).requires_grad_();
    const at::Tensor chosen = at::zeros({batch, n, heads}).scatter(-1, std::get<1>(p.detach().topk(k, -1)), 1.0);
    layers.push_back(p);
    term->observer()->notify_subscribers({}, attention::RoutingObservation{p, chosen});
    for (int64_t e = 0; e < heads; ++e) {
      double f = 0, mean = 0;
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t t = 0; t < n; ++t) {
          f += chosen[b][t][e].item<double>() / static_cast<double>(batch * n);
          mean += p[b][t][e].item<double>() / static_cast<double>(batch * n);
        }
      expected += static_cast<double>(heads) * f * mean;
    }
  }
  const at::Tensor value = term->loss({});
  CHECK(value.item<double>() == near_term(0.5 * expected));
  value.backward();
  for (const at::Tensor& p : layers) CHECK(p.grad().abs().max().item<double>() > 0);
  // Each of 4 heads is selected at half of the positions.
  const at::Tensor uniform = at::full({1, 2, heads}, 0.25),
                   chosen = at::tensor({1.F, 1.F, 0.F, 0.F, 0.F, 0.F, 1.F, 1.F});
  term->observer()->notify_subscribers({}, attention::RoutingObservation{uniform, chosen.view({1, 2, heads})});
  CHECK(term->loss({}).item<double>() == 0.5 * k);
}
