// Sliced cross-entropy and its gradients against naive loops in double precision.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/aten.h"
#include "fixtures/numbers.h"
#include "fixtures/peak_memory.h"
#include "fixtures/rounding.h"
#include "fixtures/skip.h"
#include "fixtures/within.h"
#include "nn/ops.h"
#include "oracle/tolerance.h"

using namespace mh;
using numbers::error;
using numbers::max_abs;

namespace {

struct Reference {
  double smoothed = 0, nll = 0;
  at::Tensor dhidden, dweight, dbias, log_p;
  double largest_logit = 1;  // largest |logit|, at least 1
  at::Tensor terms;  // (weight rows): Σ_i (p_ij + e / V + (1 - e) [j = target of i]), the sum of |terms| of dbias
};

// Returns loss = (1 - e) nll + e / V Σ_j nll_j and its gradients in double precision, row by row; e: label smoothing.
Reference reference(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                    const at::Tensor& targets, int64_t vocabulary_size, double e,
                    const nn::LogitScaling& scaling = {}) {
  at::Tensor h = hidden.to(at::kDouble).contiguous(), w = weight.to(at::kDouble).contiguous();
  at::Tensor b = bias.defined() ? bias.to(at::kDouble).contiguous() : at::zeros({weight.size(0)}, at::kDouble);
  Reference r{0,
              0,
              at::zeros_like(h),
              at::zeros_like(w),
              at::zeros_like(b),
              at::zeros({h.size(0)}, at::kDouble),
              1,
              at::zeros_like(b)};
  const int64_t d = h.size(1);
  const double *hp = h.const_data_ptr<double>(), *wp = w.const_data_ptr<double>(), *bp = b.const_data_ptr<double>();
  double *dh = r.dhidden.data_ptr<double>(), *dw = r.dweight.data_ptr<double>(), *db = r.dbias.data_ptr<double>(),
         *terms = r.terms.data_ptr<double>();
  std::vector<double> logits(static_cast<size_t>(vocabulary_size)), slopes(logits.size());
  for (int64_t i = 0; i < h.size(0); ++i) {
    int64_t target = targets.const_data_ptr<int64_t>()[i];
    if (target < 0) continue;
    double max_logit = -1e300, sum = 0, sum_nll = 0;
    for (int64_t j = 0; j < vocabulary_size; ++j) {
      double x = bp[j];
      for (int64_t k = 0; k < d; ++k) x += hp[i * d + k] * wp[j * d + k];
      x *= scaling.scale, slopes[static_cast<size_t>(j)] = scaling.scale;
      if (const double c = scaling.soft_cap; c > 0)
        slopes[static_cast<size_t>(j)] /= std::pow(std::cosh(x / c), 2), x = c * std::tanh(x / c);
      logits[static_cast<size_t>(j)] = x;
      max_logit = std::max(max_logit, x);
      r.largest_logit = std::max(r.largest_logit, std::abs(x));
    }
    for (double x : logits) sum += std::exp(x - max_logit);
    double lse = max_logit + std::log(sum);
    for (double x : logits) sum_nll += lse - x;
    double nll = lse - logits[static_cast<size_t>(target)];
    r.nll += nll;
    r.smoothed += (1 - e) * nll + e / static_cast<double>(vocabulary_size) * sum_nll;
    r.log_p.data_ptr<double>()[i] = -nll;
    for (int64_t j = 0; j < vocabulary_size; ++j) {
      const double p = std::exp(logits[static_cast<size_t>(j)] - lse),
                   target_p = e / static_cast<double>(vocabulary_size) + (j == target ? 1 - e : 0),
                   slope = slopes[static_cast<size_t>(j)], g = (p - target_p) * slope;
      db[j] += g, terms[j] += (p + target_p) * slope;
      for (int64_t k = 0; k < d; ++k) {
        dh[i * d + k] += g * wp[j * d + k];
        dw[j * d + k] += g * hp[i * d + k];
      }
    }
  }
  return r;
}

}  // namespace

TEST_CASE("sliced cross-entropy, its gradients and its log-probabilities match the equation", "[ops]") {
  at::manual_seed(1);
  struct Case {
    int64_t n, d, num_weight_rows, vocabulary_size;
    double e;
    bool has_bias;
  };
  for (Case c : {Case{1, 1, 1, 1, 0, false},
                 {5, 3, 7, 7, 0, false},
                 {70, 8, 40, 33, 0.1, true},
                 {200, 16, 129, 128, 0.3, true},
                 {2100, 4, 4200, 4117, 0.1, false}}) {
    INFO("N " << c.n << " d " << c.d << " vocabulary " << c.vocabulary_size);
    at::Tensor hidden = at::randn({c.n, c.d}), weight = at::randn({c.num_weight_rows, c.d}), bias;
    if (c.has_bias) bias = at::randn({c.num_weight_rows});
    at::Tensor targets = at::randint(c.vocabulary_size, {c.n}, at::kLong);
    if (c.n > 3) targets[2] = -1;
    Reference expected = reference(hidden, weight, bias, targets, c.vocabulary_size, c.e);
    for (at::ScalarType type : {at::kDouble, at::kFloat}) {
      auto leaf = [&](const at::Tensor& t) { return t.defined() ? t.to(type).detach().clone().requires_grad_() : t; };
      at::Tensor h = leaf(hidden), w = leaf(weight), b = leaf(bias);
      nn::SlicedLoss loss = nn::sliced_cross_entropy(h, w, b, targets, c.vocabulary_size, c.e);
      // Error of log p: a logit sums d products and the bias; the softmax adds up 64 exponentials at a time, each with
      // an error of 2 units in the last place; the logarithm is in fp64. An absolute error of log p is a relative error
      // of the probability p in the gradients. The gradient of `hidden` is a sum over the vocabulary of terms that add
      // up to at most 2; the other gradients are sums over rows. Losses are added in fp64. The reference rounds to
      // fp64.
      const auto bound = [&](int64_t num_roundings, double size) {
        return rounding::bound(type, at::kDouble, num_roundings, size);
      };
      const int64_t num_roundings = c.d + 1 + std::min<int64_t>(c.vocabulary_size, 64) + 4;
      const double log_p_error = bound(num_roundings, expected.largest_logit), largest_sum = max_abs(expected.terms),
                   sum_error = log_p_error + bound(c.n, 1);
      const auto num_scored = targets.ge(0).sum().item<int64_t>();
      const double loss_error =
          static_cast<double>(num_scored) * log_p_error + rounding::fp64_bound(c.n, expected.smoothed);
      CHECK(loss.num_scored == num_scored);
      CHECK(loss.nll.item<double>() == rounding::within(expected.nll, loss_error));
      // The sum over the rows is rounded to the type of the weight.
      CHECK(loss.smoothed.item<double>() ==
            rounding::within(expected.smoothed, loss_error + bound(1, expected.smoothed)));
      (loss.smoothed * 0.5).backward();
      CHECK(error(h.grad(), expected.dhidden / 2) <=
            (log_p_error + bound(c.vocabulary_size, 1)) * 2 * max_abs(weight) / 2);
      CHECK(error(w.grad(), expected.dweight / 2) <= sum_error * largest_sum * max_abs(hidden) / 2);
      if (c.has_bias) CHECK(error(b.grad(), expected.dbias / 2) <= sum_error * largest_sum / 2);
      at::Tensor log_p = nn::sliced_log_probabilities(h, w, b, targets, c.vocabulary_size);
      CHECK(log_p.scalar_type() == at::kFloat);
      CHECK(error(log_p, expected.log_p) <=
            log_p_error + rounding::bound(at::kFloat, at::kDouble, 1, max_abs(expected.log_p)));
    }
  }
}

TEST_CASE("the loss of scaled and bounded logits, its gradients and its log-probabilities match the equation",
          "[ops]") {
  at::manual_seed(6);
  for (const nn::LogitScaling& scaling :
       {nn::LogitScaling{0.25, 0}, nn::LogitScaling{1, 2}, nn::LogitScaling{3, 5}, nn::LogitScaling{1, 1e6}})
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
      for (const double e : {0.0, 0.2}) {
        INFO("scale " << scaling.scale << ", soft cap " << scaling.soft_cap << ", " << type << ", smoothing " << e);
        const int64_t n = 1100, vocabulary_size = 210;  // two slices
        const at::Tensor h0 = at::randn({n, 6}).to(type), w0 = at::randn({vocabulary_size + 7, 6}).to(type),
                         b0 = at::randn({vocabulary_size + 7}).to(type);
        at::Tensor targets = at::randint(vocabulary_size, {n}, at::kLong);
        targets[5] = -1;
        const Reference expected = reference(h0, w0, b0, targets, vocabulary_size, e, scaling);
        const auto leaf = [](const at::Tensor& t) { return t.detach().clone().requires_grad_(); };
        const at::Tensor h = leaf(h0), w = leaf(w0), b = leaf(b0);
        const nn::SlicedLoss loss = nn::sliced_cross_entropy(h, w, b, targets, vocabulary_size, e, {scaling});
        loss.smoothed.backward();
        const at::Tensor log_p = nn::sliced_log_probabilities(h, w, b, targets, vocabulary_size, scaling);
        // The same loss by composed operations, with all logits in memory.
        const at::Tensor hc = leaf(h0), wc = leaf(w0), bc = leaf(b0);
        const at::Tensor logits = nn::scale_logits(at::linear(hc, wc, bc).narrow(1, 0, vocabulary_size), scaling),
                         all_log_p = at::log_softmax(logits, 1), is_scored = targets.ge(0),
                         composed_log_p = all_log_p.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1) * is_scored;
        CHECK(logits.scalar_type() == (type == at::kDouble ? at::kDouble : at::kFloat));
        if (scaling.soft_cap > 0) CHECK(max_abs(logits.detach()) <= scaling.soft_cap);
        (composed_log_p.sum() * -(1 - e) - (all_log_p.mean(1) * is_scored).sum() * e).backward();
        const auto is_near = [&](const at::Tensor& actual, const at::Tensor& composed, const at::Tensor& exact,
                                 double magnitude) {
          const double size = std::max(magnitude, max_abs(exact));
          const double limit =
              actual.scalar_type() == at::kDouble
                  ? rounding::fp64_bound(n + vocabulary_size, size)
                  : tolerance::composed_error_bound(error(composed, exact), numbers::unit_roundoff(type), size);
          INFO("error " << error(actual, exact) << " of " << limit);
          CHECK(error(actual, exact) <= limit);
        };
        is_near(log_p, composed_log_p.detach(), expected.log_p, expected.largest_logit);
        is_near(h.grad(), hc.grad(), expected.dhidden, 2 * scaling.scale * max_abs(w0));
        is_near(w.grad(), wc.grad(), expected.dweight, max_abs(expected.terms));
        is_near(b.grad(), bc.grad(), expected.dbias, max_abs(expected.terms));
        const double nll_error = std::abs(-composed_log_p.detach().sum().item<double>() - expected.nll);
        CHECK(std::abs(loss.nll.item<double>() - expected.nll) <=
              tolerance::composed_error_bound(nll_error, numbers::unit_roundoff(type), expected.nll));
        CHECK(std::abs(loss.smoothed.item<double>() - expected.smoothed) <=
              tolerance::composed_error_bound(nll_error, numbers::unit_roundoff(type), expected.smoothed));
      }
}

TEST_CASE("logits with scale 1 and without bound are the results of the product, bit for bit", "[ops]") {
  const at::Tensor h = at::randn({70, 8}), w = at::randn({33, 8}), targets = at::randint(33, {70}, at::kLong);
  CHECK(nn::scale_logits(h, {}).is_same(h));
  CHECK(nn::sliced_log_probabilities(h, w, {}, targets, 33, {1, 0})
            .equal(nn::sliced_log_probabilities(h, w, {}, targets, 33)));
  CHECK(nn::scale_logits(h.to(at::kBFloat16), {2, 0}).scalar_type() == at::kFloat);
}

TEST_CASE("weight rows past the vocabulary have zero gradient", "[ops]") {
  at::Tensor h = at::randn({9, 4}).requires_grad_(), w = at::randn({12, 4}).requires_grad_();
  at::Tensor targets = at::randint(10, {9}, at::kLong);
  nn::sliced_cross_entropy(h, w, {}, targets, 10, 0.1).smoothed.backward();
  CHECK(w.grad().narrow(0, 10, 2).eq(0).all().item<bool>());
  CHECK(w.grad().narrow(0, 0, 10).ne(0).any().item<bool>());
}

TEST_CASE("error of bf16 cross-entropy is at most twice the error of composed operations", "[ops]") {
  at::manual_seed(2);
  at::Tensor h0 = at::randn({300, 64}).to(at::kBFloat16), w0 = (at::randn({500, 64}) * 0.3).to(at::kBFloat16);
  at::Tensor targets = at::randint(500, {300}, at::kLong);
  Reference expected = reference(h0, w0, {}, targets, 500, 0);
  at::Tensor h = h0.clone().requires_grad_(), w = w0.clone().requires_grad_();
  nn::SlicedLoss loss = nn::sliced_cross_entropy(h, w, {}, targets, 500, 0);
  loss.smoothed.backward();
  at::Tensor composed_h = h0.clone().requires_grad_(), composed_w = w0.clone().requires_grad_();
  at::Tensor log_p = at::log_softmax(at::linear(composed_h, composed_w).to(at::kFloat), 1);
  at::Tensor composed = log_p.gather(1, targets.unsqueeze(1)).sum().neg();
  composed.backward();
  const auto bound = [](double composed_error, double size) {
    return tolerance::composed_error_bound(composed_error, tolerance::kBf16, size);
  };
  CHECK(std::abs(loss.nll.item<double>() - expected.nll) <=
        bound(std::abs(composed.item<double>() - expected.nll), expected.nll));
  CHECK(w.grad().scalar_type() == at::kBFloat16);
  CHECK(error(h.grad(), expected.dhidden) <=
        bound(error(composed_h.grad(), expected.dhidden), max_abs(expected.dhidden)));
  CHECK(error(w.grad(), expected.dweight) <=
        bound(error(composed_w.grad(), expected.dweight), max_abs(expected.dweight)));
}

TEST_CASE("cross-entropy under NoGradGuard has the same nll and no graph; the nll of no rows is 0", "[ops]") {
  at::Tensor h = at::randn({9, 4}), w = at::randn({12, 4}).requires_grad_();
  at::Tensor targets = at::randint(12, {9}, at::kLong);
  double nll_with_graph = nn::sliced_cross_entropy(h, w, {}, targets, 12, 0).nll.item<double>();
  c10::NoGradGuard guard;
  nn::SlicedLoss loss = nn::sliced_cross_entropy(h, w, {}, targets, 12, 0);
  CHECK_FALSE(loss.smoothed.requires_grad());
  CHECK(loss.nll.item<double>() == nll_with_graph);
  CHECK(nn::sliced_cross_entropy(at::empty({0, 4}), w, {}, at::empty({0}, at::kLong), 12, 0).nll.item<double>() == 0);
}

TEST_CASE("the gradient of a weight tied between embedding and output layer is the sum of both gradients", "[ops]") {
  at::Tensor w = at::randn({20, 6}).requires_grad_();
  at::Tensor tokens = at::randint(20, {1, 15}, at::kLong), targets = at::randint(20, {15}, at::kLong);
  at::Tensor h = nn::embedding(tokens, w, 2).view({15, 6});
  nn::sliced_cross_entropy(h, w, {}, targets, 20, 0).smoothed.backward();
  at::Tensor logits;
  const auto composed_gradient = [&](at::ScalarType type) {
    const at::Tensor weight = w.detach().to(type).requires_grad_();
    logits = at::matmul(weight.index_select(0, tokens.view(-1)) * 2, weight.t());
    at::log_softmax(logits, 1).gather(1, targets.unsqueeze(1)).sum().neg().backward();
    return weight.grad();
  };
  const at::Tensor composed = composed_gradient(at::kFloat), exact = composed_gradient(at::kDouble);
  // The bound also grows with the logits: a logit of magnitude x has an absolute error of about x roundings, and exp()
  // turns an absolute error of a logit into a relative error of a term of the gradient.
  CHECK(error(w.grad(), exact) <= tolerance::composed_error_bound(error(composed, exact), tolerance::kFp32,
                                                                  std::max(max_abs(exact), max_abs(logits.detach()))));
}

TEST_CASE("cross-entropy is finite for extreme logits and propagates NaN", "[ops]") {
  at::Tensor h = at::ones({2, 1}), w = at::empty({40, 1});
  for (int64_t i = 0; i < 40; ++i) w[i] = static_cast<double>(i) * 1e4;
  at::Tensor targets = at::zeros({2}, at::kLong);
  CHECK(nn::sliced_cross_entropy(h, w, {}, targets, 40, 0).nll.item<double>() == 2 * 39e4);
  w[5] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(nn::sliced_cross_entropy(h, w, {}, targets, 40, 0).nll.item<double>()));
}

TEST_CASE("cross-entropy stores only a slice of the logits and the gradient of the weight", "[ops]") {
  if (!reset_peak_memory()) SKIP("peak memory cannot be reset on this system");
  const int64_t n = 4096, d = 32, vocabulary_size = 40000;  // all logits: 655 MB
  at::Tensor h = at::randn({n, d}).requires_grad_(), w = (at::randn({vocabulary_size, d}) * 0.1).requires_grad_();
  at::Tensor targets = at::randint(vocabulary_size, {n}, at::kLong);
  reset_peak_memory();
  int64_t initial_kb = peak_memory_kb();
  nn::sliced_cross_entropy(h, w, {}, targets, vocabulary_size, 0).smoothed.backward();
  CHECK(peak_memory_kb() - initial_kb < 200 * 1024);
}

TEST_CASE("cross-entropy gradients are bit-identical in two calls", "[ops]") {
  at::Tensor h0 = at::randn({700, 48}), w0 = at::randn({900, 48}), targets = at::randint(900, {700}, at::kLong);
  auto run = [&](at::ScalarType type) {
    at::Tensor h = h0.to(type).detach().clone().requires_grad_(), w = w0.to(type).detach().clone().requires_grad_();
    nn::sliced_cross_entropy(h, w, {}, targets, 900, 0.1).smoothed.backward();
    return std::pair{h.grad(), w.grad()};
  };
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    auto first_run = run(type), second_run = run(type);
    CHECK(at::equal(first_run.first, second_run.first));
    CHECK(at::equal(first_run.second, second_run.second));
  }
}
