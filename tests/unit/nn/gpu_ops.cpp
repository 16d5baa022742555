// What stands between tensors and the kernels of a GPU beside attention: the kernels run thread by thread on the CPU,
// on its tensors, and what operations, a model and the optimisers make by them is compared with the CPU's own.
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
#include "nn/device.h"
#include "nn/ops.h"
#include "oracle/tolerance.h"
#include "train/optimizer.h"

using namespace mh;
using numbers::error;
using numbers::size_of;
using Tensors = std::vector<at::Tensor>;

namespace {

// f() as on the CPU and as on a GPU.
template <class F>
auto both(const F& f) {
  const auto here = f();
  const kernels::CudaApi table = host::table();
  const nn::CpuAsGpu gpu(table);
  return std::pair(here, f());
}

at::Tensor same(const at::Tensor& t) { return t; }
at::Tensor in_double(const at::Tensor& t) { return t.to(at::kDouble); }

at::Tensor leaf(const at::Tensor& t) { return t.defined() ? t.detach().clone().requires_grad_() : t; }

// Checks that results by the kernels of a GPU err at most twice as much as the CPU's. `terms`: the size of the numbers
// that cancel in a result, if that is larger than the result.
void check_errors(const Tensors& there, const Tensors& here, const Tensors& exact,
                  const std::vector<double>& terms = {}) {
  REQUIRE(there.size() == exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    INFO("result " << i);
    REQUIRE(there[i].defined() == exact[i].defined());
    if (!exact[i].defined()) continue;
    CHECK(there[i].scalar_type() == here[i].scalar_type());
    const double size = std::max(size_of(exact[i]), terms.empty() ? 0 : terms[i]);
    CHECK(error(there[i], exact[i]) <=
          tolerance::beside_composed(error(here[i], exact[i]), numbers::rounding_unit(here[i].scalar_type()), size));
  }
}

}  // namespace

TEST_CASE("dropout by the kernels of a GPU has the bits of the CPU's", "[gpu-ops]") {
  const nn::ForwardContext step{true, 7, 3, 5};
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({3, 67}).to(type);
    const auto [here, there] = both([&] { return nn::dropout(x, 0.3, step, "s", 2); });
    CHECK(here.equal(there));
  }
}

TEST_CASE("sliced cross-entropy by the kernels of a GPU is the CPU's", "[gpu-ops]") {
  at::manual_seed(11);
  for (const bool bf16 : {false, true})
    for (const double smoothing : {0.0, 0.1})
      for (const auto& [trains, biased] : {std::pair(true, true), {true, false}, {false, true}}) {
        INFO("bf16 " << bf16 << ", smoothing " << smoothing << ", trains " << trains << ", bias " << biased);
        const auto type = bf16 ? at::kBFloat16 : at::kFloat;
        const at::Tensor h0 = at::randn({19, 16}), w0 = at::randn({41, 16}).to(type), b0 = at::randn({41}).to(type);
        at::Tensor targets = at::randint(39, {19}, at::kLong);
        targets[3] = -1;
        const auto results = [&, trains = trains, biased = biased](const auto& in) {
          const c10::AutoGradMode mode(trains);
          const at::Tensor h = leaf(in(h0)), w = leaf(in(w0)), b = biased ? leaf(in(b0)) : at::Tensor();
          const nn::SlicedLoss loss = nn::sliced_cross_entropy(h, w, b, targets, 39, smoothing);
          CHECK(loss.scored == 18);
          if (trains) (loss.smoothed * 0.37).backward();
          return Tensors{loss.smoothed.detach(),
                         loss.nll,
                         h.grad(),
                         w.grad(),
                         biased ? b.grad() : b,
                         nn::sliced_log_probabilities(h, w, b, targets, 39)};
        };
        const auto [here, there] = both([&] { return results(same); });
        check_errors(there, here, results(in_double));
      }
  // More rows than a slice, and a target too large.
  const at::Tensor h = at::randn({8200, 2}), w = at::randn({3, 2}), targets = at::randint(3, {8200}, at::kLong);
  const auto [here, there] = both([&] { return Tensors{nn::sliced_log_probabilities(h, w, {}, targets, 3)}; });
  check_errors(there, here, {nn::sliced_log_probabilities(in_double(h), in_double(w), {}, targets, 3)});
  targets[8199] = 3;
  both([&] {
    CHECK_THROWS_AS(nn::sliced_log_probabilities(h, w, {}, targets, 3), Error);
    return 0;
  });
}

TEST_CASE("sum, dropout and norm by the kernels of a GPU are the CPU's", "[gpu-ops]") {
  at::manual_seed(12);
  const nn::ForwardContext step{true, 3, 5, 1};
  for (const int64_t size : {1, 17})
    for (const double p : {0.0, 0.3})
      for (const bool bf16 : {false, true})
        for (const int wanted : {0, 1, 2, 3}) {  // norm, sum, both; the sum alone
          INFO("size " << size << ", p " << p << ", bf16 " << bf16 << ", wanted " << wanted);
          const auto type = bf16 ? at::kBFloat16 : at::kFloat;
          const at::Tensor x0 = at::randn({2, 35, size}), y0 = at::randn({2, 35, size}).to(type);
          const at::Tensor gain0 = at::randn({size}), shift0 = at::randn({size});
          const at::Tensor of_sum = at::randn_like(x0), of_norm = at::randn_like(x0);
          const nn::Dropping drop{p, step, "place", 2};
          const auto results = [&](const auto& in) {
            const at::Tensor x = leaf(in(x0)), y = leaf(in(y0)), gain = leaf(in(gain0)), shift = leaf(in(shift0));
            const nn::SumAndNorm made =
                wanted == 3 ? nn::SumAndNorm{nn::add(x, y, drop), {}} : nn::add_and_norm(x, y, drop, gain, shift, 1e-5);
            at::Tensor loss = in(at::zeros({}));
            if (wanted != 0) loss = loss + (made.sum * in(of_sum)).sum();
            if (wanted % 2 == 0) loss = loss + (made.norm * in(of_norm)).sum();
            loss.backward();
            const c10::NoGradGuard no_gradient;
            return Tensors{made.sum.detach(),
                           made.norm.defined() ? made.norm.detach() : made.norm,
                           x.grad(),
                           y.grad(),
                           gain.grad(),
                           shift.grad(),
                           nn::norm_of_sum(x, y, drop, gain, shift, 1e-5)};
          };
          const auto [here, there] = both([&] { return results(same); });
          const Tensors exact = results(in_double);
          // Numbers of a row that are nearly alike cancel before the factor multiplies them: 1 / √epsilon for a size
          // of 1.
          const double factor = 1 / std::sqrt(exact[0].var(-1, false).min().item<double>() + 1e-5),
                       cancelled = (1 + size_of(exact[0])) * factor * size_of(gain0) * size_of(of_norm);
          check_errors(there, here, exact, {0, cancelled, cancelled, cancelled, cancelled, cancelled, cancelled});
          CHECK(there[6].equal(wanted == 3 ? there[6] : there[1]));
        }
  // Of fp16, which a CPU has no loop for, and of rows that are wider than a kernel takes.
  for (const auto& [type, size] : {std::pair<at::ScalarType, int64_t>{at::kHalf, 33}, {at::kFloat, 12001}}) {
    const at::Tensor x = at::randn({2, size}), y = at::randn({2, size}).to(type);
    const auto norm = [&, size = size](const auto& in) {
      return Tensors{nn::norm_of_sum(in(x), in(y), {0, {}, "", 0}, in(at::ones({size})), in(at::zeros({size})), 1e-5)};
    };
    const auto [here, there] = both([&] { return norm(same); });
    check_errors(there, here, norm(in_double));
  }
}

TEST_CASE("optimisers by the kernels of a GPU step as the CPU's", "[gpu-ops]") {
  for (const auto& [rule, decays_all] : {std::pair("adamw", true), {"adamw", false}, {"sgd", true}, {"nag", true}})
    for (const bool bf16 : {false, true}) {
      INFO(rule << ", bf16 " << bf16);
      train::TrainOptions options;
      options.optimizer.rule = rule, options.optimizer.weight_decay = 0.1, options.optimizer.momentum = 0.9;
      options.optimizer.decay_norms_and_biases = decays_all;
      const train::Groups groups;
      const auto [here, there] = both([&] {
        nn::ParameterList list(at::kCPU);
        for (int i = 0; i < 45; ++i)
          list.add(str("w", i), {i % 7 + 1, i % 5 + (i == 3 ? 3000 : 1)},
                   {nn::Init::normal(1), i % 2 == 0, i % 3 == 0});
        list.initialise(1);
        list.set_bf16(bf16);
        train::Optimizer optimizer(list, options, groups);
        at::manual_seed(13);
        Tensors all;
        for (int n = 0; n < 2; ++n) {
          for (auto& p : list.all())  // some have none
            p.master().mutable_grad() = p.name() == str("w", n) ? at::Tensor() : at::randn(p.master().sizes());
          all.push_back(at::scalar_tensor(optimizer.gradient_norm(0.5), at::kDouble));
          optimizer.step(0.01, 0.5);
        }
        for (auto& p : list.all()) {
          all.push_back(p.master().detach().clone());
          CHECK(p.value().detach().equal(p.master().detach().to(p.value().scalar_type())));
        }
        for (const auto& entry : optimizer.state()) all.push_back(entry.second);
        return all;
      });
      // Both round each of the few operations of an element's update, of numbers as large as the largest one.
      for (size_t i = 0; i < here.size(); ++i) {
        INFO("result " << i);
        CHECK(error(there[i], here[i]) <= tolerance::beside_composed(0, tolerance::kFp32, size_of(here[i])));
      }
      for (size_t i = 0; i < 2; ++i) CHECK(there[i].item<double>() == Approx(here[i].item<double>()).epsilon(1e-12));
    }
}

TEST_CASE("a training step by the kernels of a GPU is the CPU's", "[gpu-ops]") {
  const at::Tensor tokens = models::some_tokens(3, 17, 50, 14), targets = tokens.roll(1, 1);
  // Of gelu, whose gradient has no steps that rounding could move an input over.
  const std::string bands =
      "input_cutoffs = [10, 30]\noutput_cutoffs = [10, 30]\ntied_projections = true\ndropout_tail = 0.2\n";
  for (const bool bf16 : {false, true})
    for (const std::string& extra : {std::string(), bands}) {
      INFO(extra << "bf16 " << bf16);
      // noise: the relative change of each weight.
      const auto results = [&, bf16 = bf16](double noise) {
        const auto model = model::build_language_model(
            models::configured("[model]\nlayers = 2\nwidth = 32\nffn = 64\ndropout_ffn = 0.2\ndropout_embedding = 0.1\n"
                               "activation = 'gelu'\n" +
                               extra + "[attention]\nheads = 4\ndropout = 0.1\n"),
            50, at::kCPU);
        model->parameters().initialise(1);
        if (noise > 0) {
          const c10::NoGradGuard no_gradient;
          at::manual_seed(15);
          for (auto& p : model->parameters().all())
            p.master().mul_(1 + noise * (2 * at::randint(2, p.master().sizes()).to(at::kFloat) - 1));
        }
        model->parameters().set_bf16(bf16);
        const nn::ForwardContext step{true, 1, 4, 0};
        const auto loss = model->loss(model->hidden(tokens, step), targets, extra.empty() ? 0.1 : 0, step);
        loss.smoothed.backward();
        model->parameters().collect_gradients();
        Tensors all{loss.nll, loss.smoothed.detach()};
        for (auto& p : model->parameters().all()) all.push_back(p.master().grad());
        return all;
      };
      const auto [here, there] = both([&] { return results(0); });
      // Rounding changes a result by about as much as a change of each weight by one rounding unit does.
      const double unit = bf16 ? tolerance::kBf16 : tolerance::kFp32;
      const Tensors changed = results(unit);
      for (size_t i = 0; i < here.size(); ++i) {
        INFO("result " << i);
        CHECK(error(there[i], here[i]) <=
              tolerance::beside_composed(error(changed[i], here[i]), unit, size_of(here[i])));
      }
    }
}
