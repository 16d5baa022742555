// The tensor interface of GPU kernels other than attention: the kernels run in the emulator, thread by thread on the
// CPU, and operations, a model and the optimisers that use them are compared with the CPU kernels.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "emulator/host_api.h"
#include "fixtures/aten.h"
#include "fixtures/errors.h"
#include "fixtures/models.h"
#include "fixtures/numbers.h"
#include "fixtures/within.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "oracle/tolerance.h"
#include "train/optimizer.h"

using namespace mh;
using numbers::error;
using numbers::max_abs;
using Tensors = std::vector<at::Tensor>;

namespace {

// Returns the results of f() with the CPU kernels and with the emulated GPU kernels.
template <class F>
auto run_on_cpu_and_gpu(const F& f) {
  const auto cpu = f();
  const kernels::CudaApi api = host::emulated_api();
  const nn::ScopedGpuEmulation scope(api);
  return std::pair(cpu, f());
}

at::Tensor identity(const at::Tensor& t) { return t; }
at::Tensor in_double(const at::Tensor& t) { return t.to(at::kDouble); }

at::Tensor leaf(const at::Tensor& t) { return t.defined() ? t.detach().clone().requires_grad_() : t; }

// Checks that the errors of the GPU results against `exact` (fp64) are within tolerance::composed_error_bound() of the
// errors of the CPU results. `term_magnitudes`: for each result the magnitude of its terms, if the terms cancel so that
// the result is smaller.
void check_errors(const Tensors& gpu, const Tensors& cpu, const Tensors& exact,
                  const std::vector<double>& term_magnitudes = {}) {
  REQUIRE(gpu.size() == exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    INFO("result " << i);
    REQUIRE(gpu[i].defined() == exact[i].defined());
    if (!exact[i].defined()) continue;
    CHECK(gpu[i].scalar_type() == cpu[i].scalar_type());
    const double magnitude = std::max(max_abs(exact[i]), term_magnitudes.empty() ? 0 : term_magnitudes[i]);
    CHECK(error(gpu[i], exact[i]) <= tolerance::composed_error_bound(error(cpu[i], exact[i]),
                                                                     numbers::unit_roundoff(cpu[i].scalar_type()),
                                                                     magnitude));
  }
}

}  // namespace

TEST_CASE("dropout by GPU kernels is bit-identical to the CPU", "[gpu-ops]") {
  const nn::ForwardContext forward_context{true, 7, 3, 5};
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({3, 67}).to(type);
    const auto [cpu, gpu] = run_on_cpu_and_gpu([&] { return nn::dropout(x, 0.3, forward_context, "s", 2); });
    CHECK(cpu.equal(gpu));
  }
}

TEST_CASE("sliced cross-entropy and its gradients by GPU kernels agree with the CPU", "[gpu-ops]") {
  at::manual_seed(11);
  for (const bool bf16 : {false, true})
    for (const double smoothing : {0.0, 0.1})
      for (const auto& [with_gradient, with_bias] : {std::pair(true, true), {true, false}, {false, true}}) {
        // Without label smoothing the logits are scaled and bounded.
        const nn::LogitScaling scaling = smoothing == 0 ? nn::LogitScaling{0.5, 3} : nn::LogitScaling{};
        INFO("bf16 " << bf16 << ", smoothing " << smoothing << ", gradient " << with_gradient << ", bias "
                     << with_bias);
        const auto type = bf16 ? at::kBFloat16 : at::kFloat;
        const at::Tensor h0 = at::randn({19, 16}), w0 = at::randn({41, 16}).to(type), b0 = at::randn({41}).to(type);
        at::Tensor targets = at::randint(39, {19}, at::kLong);
        targets[3] = -1;
        const auto results = [&, with_gradient = with_gradient, with_bias = with_bias](const auto& to_type) {
          const c10::AutoGradMode mode(with_gradient);
          const at::Tensor h = leaf(to_type(h0)), w = leaf(to_type(w0)),
                           b = with_bias ? leaf(to_type(b0)) : at::Tensor();
          const nn::SlicedLoss loss = nn::sliced_cross_entropy(h, w, b, targets, 39, smoothing, {scaling});
          CHECK(loss.num_scored == 18);
          if (with_gradient) (loss.smoothed * 0.37).backward();
          return Tensors{loss.smoothed.detach(),
                         loss.nll,
                         h.grad(),
                         w.grad(),
                         with_bias ? b.grad() : b,
                         nn::sliced_log_probabilities(h, w, b, targets, 39, scaling)};
        };
        const auto [cpu, gpu] = run_on_cpu_and_gpu([&] { return results(identity); });
        check_errors(gpu, cpu, results(in_double));
      }
  // More rows than a slice holds; then the same rows, of which the last has a target past the vocabulary.
  const at::Tensor h = at::randn({8200, 2}), w = at::randn({3, 2}), targets = at::randint(3, {8200}, at::kLong);
  const auto [cpu, gpu] =
      run_on_cpu_and_gpu([&] { return Tensors{nn::sliced_log_probabilities(h, w, {}, targets, 3)}; });
  check_errors(gpu, cpu, {nn::sliced_log_probabilities(in_double(h), in_double(w), {}, targets, 3)});
  targets[8199] = 3;
  run_on_cpu_and_gpu([&] {
    CHECK_THROWS_AS(nn::sliced_log_probabilities(h, w, {}, targets, 3), Error);
    return 0;
  });
}

namespace {

// A norm of the GPU tests: its type, and whether it has a bias.
struct NormCase {
  nn::NormType type;
  bool has_bias;
};
constexpr NormCase kNormCases[] = {
    {nn::NormType::layer, true}, {nn::NormType::layer, false}, {nn::NormType::rms, false}};

}  // namespace

TEST_CASE("residual dropout, sum and norm with gradients by GPU kernels agree with the CPU", "[gpu-ops]") {
  at::manual_seed(12);
  const nn::ForwardContext forward_context{true, 3, 5, 1};
  for (const NormCase& norm_case : kNormCases)
    for (const int64_t size : {1, 17})
      for (const double p : {0.0, 0.3})
        for (const bool bf16 : {false, true})
          // outputs in the loss: 0: norm; 1: sum; 2: both; 3: result of nn::add
          for (const int outputs : {0, 1, 2, 3}) {
            INFO("RMS norm " << (norm_case.type == nn::NormType::rms) << ", bias " << norm_case.has_bias << ", size "
                             << size << ", p " << p << ", bf16 " << bf16 << ", outputs " << outputs);
            const auto type = bf16 ? at::kBFloat16 : at::kFloat;
            const at::Tensor x0 = at::randn({2, 35, size}), y0 = at::randn({2, 35, size}).to(type);
            const at::Tensor gain0 = at::randn({size}), shift0 = norm_case.has_bias ? at::randn({size}) : at::Tensor();
            const at::Tensor dsum = at::randn_like(x0), dnorm = at::randn_like(x0);
            const nn::DropoutArguments drop{p, forward_context, "place", 2};
            const auto results = [&](const auto& to_type) {
              const at::Tensor x = leaf(to_type(x0)), y = leaf(to_type(y0)), gain = leaf(to_type(gain0)),
                               shift = norm_case.has_bias ? leaf(to_type(shift0)) : at::Tensor();
              const nn::NormArguments norm{gain, shift, 1e-5, norm_case.type};
              const nn::SumAndNorm result =
                  outputs == 3 ? nn::SumAndNorm{nn::add(x, y, drop), {}} : nn::add_and_norm(x, y, drop, norm);
              at::Tensor loss = to_type(at::zeros({}));
              if (outputs != 0) loss = loss + (result.sum * to_type(dsum)).sum();
              if (outputs % 2 == 0) loss = loss + (result.norm * to_type(dnorm)).sum();
              loss.backward();
              const c10::NoGradGuard no_gradient;
              return Tensors{result.sum.detach(),
                             result.norm.defined() ? result.norm.detach() : result.norm,
                             x.grad(),
                             y.grad(),
                             gain.grad(),
                             norm_case.has_bias ? shift.grad() : at::Tensor(),
                             nn::norm_of_sum(x, y, drop, norm)};
            };
            const auto [cpu, gpu] = run_on_cpu_and_gpu([&] { return results(identity); });
            const Tensors exact = results(in_double);
            // `cancelling_magnitude`: magnitude of the terms of the norm and of the gradients. The terms may exceed the
            // results, since nearly equal numbers of a row cancel before the multiplication by 1 / standard deviation,
            // which is 1 / √epsilon for size 1.
            const at::Tensor variance =
                norm_case.type == nn::NormType::rms ? exact[0].square().mean(-1) : exact[0].var(-1, false);
            const double max_rstd = 1 / std::sqrt(variance.min().item<double>() + 1e-5),
                         cancelling_magnitude = (1 + max_abs(exact[0])) * max_rstd * max_abs(gain0) * max_abs(dnorm);
            check_errors(gpu, cpu, exact,
                         {0, cancelling_magnitude, cancelling_magnitude, cancelling_magnitude, cancelling_magnitude,
                          cancelling_magnitude, cancelling_magnitude});
            if (outputs != 3) CHECK(gpu[6].equal(gpu[1]));
          }
  // fp16, which has no CPU kernel, and rows wider than the GPU kernel supports.
  for (const auto& [type, size] : {std::pair<at::ScalarType, int64_t>{at::kHalf, 33}, {at::kFloat, 12001}}) {
    const at::Tensor x = at::randn({2, size}), y = at::randn({2, size}).to(type);
    const auto norm = [&, size = size](const auto& to_type) {
      return Tensors{nn::norm_of_sum(to_type(x), to_type(y), {0, {}, "", 0},
                                     {to_type(at::ones({size})), to_type(at::zeros({size})), 1e-5})};
    };
    const auto [cpu, gpu] = run_on_cpu_and_gpu([&] { return norm(identity); });
    check_errors(gpu, cpu, norm(in_double));
  }
}

TEST_CASE("optimiser steps by GPU kernels agree with the CPU within rounding", "[gpu-ops]") {
  for (const auto& [rule, decays_all] : {std::pair("adamw", true), {"adamw", false}, {"sgd", true}, {"nag", true}})
    for (const bool bf16 : {false, true}) {
      INFO(rule << ", bf16 " << bf16);
      train::TrainOptions options;
      options.optimizer.rule = rule, options.optimizer.weight_decay = 0.1, options.optimizer.momentum = 0.9;
      options.optimizer.decay_norms_and_biases = decays_all;
      const train::ParameterGroups groups;
      const auto [cpu, gpu] = run_on_cpu_and_gpu([&] {
        nn::ParameterList list(at::kCPU);
        for (int i = 0; i < 45; ++i)
          list.add(str("w", i), {i % 7 + 1, i % 5 + (i == 3 ? 3000 : 1)},
                   {nn::Init::normal(1), i % 2 == 0, i % 3 == 0});
        list.initialise(1);
        list.use_bf16_copies(bf16);
        train::Optimizer optimizer(list, options, groups);
        at::manual_seed(13);
        Tensors results;
        for (int n = 0; n < 2; ++n) {
          for (auto& p : list.all())  // in update n the parameter "w<n>" has no gradient
            p.master().mutable_grad() = p.name() == str("w", n) ? at::Tensor() : at::randn(p.master().sizes());
          results.push_back(at::scalar_tensor(optimizer.gradient_norm(0.5), at::kDouble));
          optimizer.step(0.01, 0.5);
        }
        for (auto& p : list.all()) {
          results.push_back(p.master().detach().clone());
          CHECK(p.value().detach().equal(p.master().detach().to(p.value().scalar_type())));
        }
        for (const auto& entry : optimizer.moments()) results.push_back(entry.second);
        return results;
      });
      // The kernels round a few operations in each update, on numbers that are at most as large as the largest element
      // of the result.
      for (size_t i = 0; i < cpu.size(); ++i) {
        INFO("result " << i);
        CHECK(error(gpu[i], cpu[i]) <= tolerance::composed_error_bound(0, tolerance::kFp32, max_abs(cpu[i])));
      }
      // The first two results are gradient norms: square roots of sums of squares in fp64, in different orders on CPU
      // and GPU.
      int64_t num_elements = 0;
      for (const at::Tensor& result : cpu) num_elements += result.numel();
      for (size_t i = 0; i < 2; ++i)
        CHECK(gpu[i].item<double>() == rounding::fp64(cpu[i].item<double>(), num_elements));
    }
}

TEST_CASE("loss and gradients of a training step by GPU kernels agree with the CPU", "[gpu-ops]") {
  const at::Tensor tokens = models::random_tokens(3, 17, 50, 14), targets = tokens.roll(1, 1);
  const std::string bands =
      "input_cutoffs = [10, 30]\noutput_cutoffs = [10, 30]\ntied_projections = true\ndropout_tail = 0.2\n";
  for (const bool bf16 : {false, true})
    for (const std::string& extra_toml : {std::string(), bands}) {
      INFO(extra_toml << "bf16 " << bf16);
      // Returns the loss, the smoothed loss and the gradients. `noise`: relative change of each weight.
      const auto results = [&, bf16 = bf16](double noise) {
        // The activation is GELU, since rounding could move an input of ReLU across the step of its gradient.
        const auto model = model::build_language_model(
            models::parse_model_config(
                "[model]\nlayers = 2\nwidth = 32\nffn_dim = 64\ndropout_ffn = 0.2\ndropout_embedding = 0.1\n"
                "activation = 'gelu'\n" +
                extra_toml + "[attention]\nheads = 4\ndropout = 0.1\n"),
            {50}, at::kCPU);
        model->parameters().initialise(1);
        if (noise > 0) {
          const c10::NoGradGuard no_gradient;
          at::manual_seed(15);
          for (auto& p : model->parameters().all())
            p.master().mul_(1 + noise * (2 * at::randint(2, p.master().sizes()).to(at::kFloat) - 1));
        }
        model->parameters().use_bf16_copies(bf16);
        const nn::ForwardContext forward_context{true, 1, 4, 0};
        const auto loss = model->loss(model->hidden(model::Input{tokens}, forward_context), {targets},
                                      extra_toml.empty() ? 0.1 : 0, forward_context);
        loss.smoothed.backward();
        model->parameters().collect_gradients();
        Tensors loss_and_gradients{loss.nll, loss.smoothed.detach()};
        for (auto& p : model->parameters().all()) loss_and_gradients.push_back(p.master().grad());
        return loss_and_gradients;
      };
      const auto [cpu, gpu] = run_on_cpu_and_gpu([&] { return results(0); });
      // A change of each weight by one unit roundoff has about the effect of rounding.
      const double unit_roundoff = bf16 ? tolerance::kBf16 : tolerance::kFp32;
      const Tensors perturbed_results = results(unit_roundoff);
      for (size_t i = 0; i < cpu.size(); ++i) {
        INFO("result " << i);
        CHECK(error(gpu[i], cpu[i]) <=
              tolerance::composed_error_bound(error(perturbed_results[i], cpu[i]), unit_roundoff, max_abs(cpu[i])));
      }
    }
}
