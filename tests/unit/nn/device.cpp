// Operations, training steps and decoding on a GPU against the CPU: `torch-tests --device cuda`.
#include <c10/core/GradMode.h>

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // declares TestEventListenerBase
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "data/text.h"
#include "fixtures/corpora.h"
#include "fixtures/device.h"
#include "fixtures/numbers.h"
#include "fixtures/passes.h"
#include "fixtures/skip.h"
#include "model/load.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "oracle/tolerance.h"
#include "search/generation.h"
#include "task/token_score.h"
#include "train/optimizer.h"

using namespace mh;
using numbers::error;
using numbers::max_abs;

namespace {

std::unique_ptr<model::LanguageModel> small_model(at::Device device, const std::string& extra_toml = "") {
  Config config;
  // The activation is GELU, since rounding could move an input of ReLU across the step of its gradient.
  config.load_text(
      "[model]\nlayers = 2\nwidth = 32\nffn_dim = 64\ndropout_ffn = 0.2\ndropout_embedding = 0.1\n"
      "activation = 'gelu'\n" +
          extra_toml + "[attention]\nheads = 4\ndropout = 0.1\n",
      "test");
  auto model = model::build_language_model(model::ModelConfig::read(config), {50}, device);
  model->parameters().initialise(1);
  return model;
}

at::Tensor cyclic_tokens(int64_t num_rows, int64_t length) {
  return (at::arange(num_rows * length) * 7 % 50).view({num_rows, length});
}

// With --device cuda, chooses the GPU before the first test, since a LibTorch call before choose_device() would
// initialise LibTorch without CUDA.
struct ChooseDevice : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testRunStarting(const Catch::TestRunInfo&) override {
    if (test_device() != "cuda") return;
    try {
      nn::choose_device("cuda");
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::exit(static_cast<int>(error.exit()));
    }
  }
};
CATCH_REGISTER_LISTENER(ChooseDevice)

#define NEEDS_GPU                                           \
  if (test_device() != "cuda") SKIP("needs --device cuda"); \
  static const at::Device gpu = nn::choose_device("cuda")

}  // namespace

TEST_CASE("choose_device rejects cuda without a GPU", "[device]") {
  if (test_device() == "cuda") SKIP("this machine has a GPU");
  CHECK(nn::choose_device("cpu").is_cpu());
  CHECK(nn::choose_device("auto").is_cpu());
  CHECK_THROWS_AS(nn::choose_device("cuda"), Error);
}

TEST_CASE("dropout on a GPU is bit-identical to the CPU", "[device]") {
  NEEDS_GPU;
  for (auto type : {at::kFloat, at::kBFloat16})
    for (int64_t width : {1, 5, 64, 4099}) {
      nn::ForwardContext forward_context{true, 7, 3, 5};
      at::Tensor x = at::randn({3, width}).to(type);
      at::Tensor cpu_output = nn::dropout(x, 0.3, forward_context, "s", 2),
                 gpu_output = nn::dropout(x.to(gpu), 0.3, forward_context, "s", 2);
      CHECK(at::equal(cpu_output, gpu_output.to(at::kCPU)));
    }
}

TEST_CASE("loss and gradients of a training step on a GPU agree with the CPU", "[device]") {
  NEEDS_GPU;
  const at::Tensor inputs = cyclic_tokens(3, 17), targets = cyclic_tokens(3, 17).roll(1, 1);
  const std::string bands =
      "input_cutoffs = [10, 30]\noutput_cutoffs = [10, 30]\ntied_projections = true\ndropout_tail = 0.2\n";
  for (auto [bf16, extra_toml] : {std::pair{false, std::string()}, {true, ""}, {false, bands}, {true, bands}}) {
    INFO(extra_toml << "bf16 " << bf16);
    // Returns the loss and the gradients computed on `device`, copied to the CPU. `noise`: relative change of each
    // weight.
    const auto results = [&, bf16 = bf16, extra_toml = extra_toml](at::Device device, double noise) {
      const auto model = small_model(device, extra_toml);
      if (noise > 0) {
        const c10::NoGradGuard no_gradient;
        at::manual_seed(15);
        for (auto& p : model->parameters().all())
          p.master().mul_(1 + noise * (2 * at::randint(2, p.master().sizes()).to(at::kFloat) - 1));
      }
      model->parameters().use_bf16_copies(bf16);
      nn::ForwardContext forward_context{true, 1, 4, 0};
      auto loss = model->loss(model->hidden(model::Input{inputs.to(device)}, forward_context), {targets},
                              extra_toml.empty() ? 0.1 : 0, forward_context);
      loss.smoothed.backward();
      model->parameters().collect_gradients();
      std::vector<at::Tensor> loss_and_gradients{loss.nll.cpu()};
      for (auto& p : model->parameters().all()) loss_and_gradients.push_back(p.master().grad().cpu());
      return loss_and_gradients;
    };
    // Rounding has about the effect of a relative change of each weight: in bf16 by one unit roundoff; in fp32 by
    // kSplitProductError, the larger error of the attention kernels, which split each fp32 operand of a product into
    // numbers of lower precision.
    const double relative_error = bf16 ? tolerance::kBf16 : tolerance::kSplitProductError;
    const auto cpu_results = results(at::kCPU, 0), gpu_results = results(gpu, 0),
               perturbed_results = results(at::kCPU, relative_error);
    for (size_t i = 0; i < cpu_results.size(); ++i) {
      INFO("result " << i);
      CHECK(error(gpu_results[i], cpu_results[i]) <=
            tolerance::composed_error_bound(error(perturbed_results[i], cpu_results[i]), relative_error,
                                            max_abs(cpu_results[i])));
    }
  }
}

TEST_CASE("optimiser steps on a GPU agree with the CPU", "[device]") {
  NEEDS_GPU;
  for (const auto& [rule, decays_all] : {std::pair("adamw", true), {"adamw", false}, {"sgd", true}, {"nag", true}}) {
    train::TrainOptions o;
    o.optimizer.rule = rule, o.optimizer.weight_decay = 0.1, o.optimizer.momentum = 0.9;
    o.optimizer.decay_norms_and_biases = decays_all;
    nn::ParameterList cpu_parameters(at::kCPU), gpu_parameters(gpu);
    int64_t num_elements = 0;
    for (auto* list : {&cpu_parameters, &gpu_parameters}) {
      for (int64_t i = 0; i < 50; ++i)  // more tensors than one kernel launch updates
        list->add(str("w", i), {33, i == 7 ? 4001 : i + 1}, {nn::Init::normal(1), true, true});
      list->initialise(1);
      list->use_bf16_copies(true);
    }
    for (const auto& p : cpu_parameters.all()) num_elements += p.master().numel();
    const train::ParameterGroups groups;
    train::Optimizer cpu_optimizer(cpu_parameters, o, groups), gpu_optimizer(gpu_parameters, o, groups);
    for (int n = 1; n <= 5; ++n) {
      for (auto& p : cpu_parameters.all()) {
        const at::Tensor g = p.master().mutable_grad() = at::randn(p.master().sizes());
        gpu_parameters.find(p.name())->master().mutable_grad() = g.to(gpu);
      }
      // Both norms are square roots of sums of squares in fp64, in different orders.
      CHECK(cpu_optimizer.gradient_norm(0.5) == rounding::fp64(gpu_optimizer.gradient_norm(0.5), num_elements));
      CHECK(gpu_optimizer.gradient_norm(0.5) == gpu_optimizer.gradient_norm(0.5));
      cpu_optimizer.step(0.01, 0.5);
      gpu_optimizer.step(0.01, 0.5);
    }
    for (auto& p : gpu_parameters.all()) {
      // In each of five updates the CPU and the GPU round a few operations on numbers that are at most as large as the
      // largest element.
      const at::Tensor expected = cpu_parameters.find(p.name())->master();
      CHECK(error(p.master().cpu(), expected) <=
            5 * tolerance::composed_error_bound(0, tolerance::kFp32, max_abs(expected)));
      CHECK(p.value().equal(p.master().to(at::kBFloat16)));
    }
  }
}

TEST_CASE("error of sliced cross-entropy on a GPU is at most twice the composed error; two calls are bit-identical",
          "[device]") {
  NEEDS_GPU;
  at::manual_seed(3);
  const int64_t n = 3000, d = 64, v = 33278;  // two slices; v is not a multiple of 4
  const at::Tensor h0 = at::randn({n, d}), w0 = at::randn({v, d}) * 0.3, targets = at::randint(v, {n}, at::kLong);
  targets.narrow(0, 100, 50).fill_(-1);
  using Tensors = std::vector<at::Tensor>;
  const auto results = [&](at::ScalarType type, const auto& loss_of) {
    const at::Tensor h = h0.to(gpu, type).requires_grad_(), w = w0.to(gpu, type).requires_grad_();
    const at::Tensor loss = loss_of(h, w);
    loss.backward();
    return Tensors{loss.detach(), h.grad(), w.grad()};
  };
  const auto sliced = [&](const at::Tensor& h, const at::Tensor& w) {
    return nn::sliced_cross_entropy(h, w, {}, targets, v, 0.1).smoothed;
  };
  const auto composed = [&](const at::Tensor& h, const at::Tensor& w) {
    const auto logit_type = h.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return at::cross_entropy_loss(at::linear(h, w).to(logit_type), targets.to(gpu), {}, at::Reduction::Sum, -1, 0.1);
  };
  const Tensors exact = results(at::kDouble, composed);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Tensors first_results = results(type, sliced), second_results = results(type, sliced),
                  composed_results = results(type, composed);
    for (size_t i = 0; i < exact.size(); ++i) {
      INFO("result " << i);
      CHECK(first_results[i].equal(second_results[i]));
      const auto error_of = [&](const at::Tensor& x) {
        return (x.to(at::kDouble) - exact[i]).abs().max().item<double>();
      };
      CHECK(error_of(first_results[i]) <= tolerance::composed_error_bound(error_of(composed_results[i]),
                                                                          tolerance::kFp32,
                                                                          exact[i].abs().max().item<double>()));
    }
  }
}

TEST_CASE("residual dropout, sum and layer norm on a GPU agree with the CPU; two calls are bit-identical", "[device]") {
  NEEDS_GPU;
  at::manual_seed(4);
  for (const int64_t size : {5, 512, 1026, 4096})
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      INFO("size " << size << ", " << type);
      const at::Tensor x0 = at::randn({3, 67, size}), y0 = at::randn({3, 67, size}).to(type), w0 = at::randn({size}),
                       b0 = at::randn({size}), dsum = at::randn_like(x0), dnorm = at::randn_like(x0);
      const auto results = [&](at::Device device, bool in_double = false) {
        const auto cast = [&](const at::Tensor& t) { return in_double ? t.to(at::kDouble) : t.to(device); };
        const auto leaf = [&](const at::Tensor& t) { return cast(t).detach().clone().requires_grad_(); };
        const at::Tensor x = leaf(x0), y = leaf(y0), w = leaf(w0), b = leaf(b0);
        const nn::ForwardContext forward_context{true, 7, 3, 5};
        const auto result = nn::add_and_norm(x, y, {0.3, forward_context, "s", 2}, {w, b, 1e-5});
        ((result.sum * cast(dsum)).sum() + (result.norm * cast(dnorm)).sum()).backward();
        return std::vector<at::Tensor>{
            result.sum.detach(), result.norm.detach(), x.grad(), y.grad(), w.grad(), b.grad()};
      };
      const auto cpu_results = results(at::kCPU), gpu_results = results(gpu), second_results = results(gpu),
                 exact = results(at::kCPU, true);
      // `cancelling_magnitude`: magnitude of the terms of the norm and of the gradients. The terms may exceed the
      // results, since nearly equal numbers of a row cancel before the multiplication by 1 / standard deviation.
      const double max_rstd = 1 / std::sqrt(exact[0].var(-1, false).min().item<double>() + 1e-5),
                   cancelling_magnitude = (1 + max_abs(exact[0])) * max_rstd * max_abs(w0) * max_abs(dnorm);
      for (size_t i = 0; i < cpu_results.size(); ++i) {
        INFO("result " << i);
        CHECK(error(gpu_results[i].cpu(), exact[i]) <=
              tolerance::composed_error_bound(error(cpu_results[i], exact[i]),
                                              numbers::unit_roundoff(cpu_results[i].scalar_type()),
                                              std::max(max_abs(exact[i]), i == 0 ? 0 : cancelling_magnitude)));
        CHECK(gpu_results[i].equal(second_results[i]));
      }
    }
}

TEST_CASE("nll and greedily generated text on a GPU agree with the CPU", "[device]") {
  NEEDS_GPU;
  auto cpu_model = small_model(at::kCPU), gpu_model = small_model(gpu);
  std::vector<int32_t> text;
  for (int i = 0; i < 200; ++i) text.push_back(i * i % 50);
  data::ScoringOptions scoring_options;
  scoring_options.sequence_length = 16, scoring_options.context = 4;
  const double cpu_nll = task::score(*cpu_model, corpora::text_of(text, 0), scoring_options).nll;
  CHECK(task::score(*gpu_model, corpora::text_of(text, 0), scoring_options).nll ==
        rounding::within(
            cpu_nll,
            rounding::pass_bound(*cpu_model, scoring_options.sequence_length + scoring_options.context) * cpu_nll));
  search::GenerationOptions options;
  options.length = 20, options.temperature = 0;
  std::vector<int32_t> generated[2];
  for (int i = 0; i < 2; ++i)
    search::generate(i == 0 ? *cpu_model : *gpu_model, {{0, 3, 4}}, {}, options,
                     [&](size_t, const std::vector<int32_t>& tokens) { generated[i] = tokens; });
  CHECK(generated[0] == generated[1]);
}
