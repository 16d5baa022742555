// The output heads of an encoder (words, classes, number, span): losses and log-probabilities against the equations,
// and gradients against finite differences.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/encoders.h"
#include "fixtures/gradients.h"

using namespace mh;
using namespace mh::model;
using namespace mh::nn;
using namespace encoders;
using numbers::max_abs;

namespace {

// Returns targets for two rows of the lengths 6 and 4 and for the output head that the TOML lines `head` configure.
// Shape: (2, 1) for classes and numbers, (2, 3) for spans, otherwise (2, 6).
at::Tensor example_targets(const std::string& head) {
  if (head.find("classes") != std::string::npos) return at::tensor({2, 0}, at::kLong).view({2, 1});
  if (head.find("number") != std::string::npos) return at::tensor({4250, 0}, at::kLong).view({2, 1});
  if (head.find("span") != std::string::npos) return at::tensor({1, 3, -6, 2, 2, -4}, at::kLong).view({2, 3});
  return at::tensor({1, -1, 7, -1, 29, -1, 0, 4, -1, -1, -1, -1}, at::kLong).view({2, 6});
}

// Returns the cross-entropy of one target, nats.
double cross_entropy(const std::vector<double>& scores, int64_t target) {
  double sum = 0;
  for (double s : scores) sum += std::exp(s);
  return std::log(sum) - scores[static_cast<size_t>(target)];
}

}  // namespace

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
    CHECK(model->loss(hidden, {no_targets}, 0).num_scored == 0);
    CHECK(model->loss(hidden, {no_targets}, 0).nll.item<double>() == 0);
  }
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
