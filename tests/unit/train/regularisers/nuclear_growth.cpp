// The regulariser nuclear-growth: value, gradient of the nuclear norm, and frozen alphas.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/loss_terms.h"
#include "fixtures/numbers.h"
#include "fixtures/runs.h"

using namespace mh;
using namespace mh::train;

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
  // Each attention layer adds γ r Δ to the loss for any alphas, with weight γ, ratio r and margin Δ; the gradient
  // equals the gradient of -γ r |α|_*.
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
