// Masked softmax and Sigsoftmax: sums of rows, masked entries, sinks, gradients, reuse of memory.
#include "attention/masked_softmax.h"

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "attention/mask.h"
#include "attention/methods/sigsoftmax/sigsoftmax.h"
#include "fixtures/numbers.h"
#include "fixtures/pick.h"
#include "fixtures/rounding.h"

using namespace mh;
using namespace mh::attention;
using numbers::normal;
using rounding::agree;

namespace {

// Returns the length of the chain of roundings in a probability of a row of `num_keys` logits: a term per key in the
// sum, and the subtraction of the maximum, both exponentials of Sigsoftmax and the divisions. The subtraction rounds
// the difference x ≤ 0 of a logit and the maximum, which changes e^x by at most |x| e^x < 1 roundings.
int64_t num_roundings(int64_t num_keys) { return num_keys + 8; }

}  // namespace

TEST_CASE("masked_softmax_in_place overwrites the logits only if nothing else references their storage", "[mixing]") {
  const at::Tensor shared_logits = normal({2, 3, 4, 5}, 1), shared_copy = shared_logits.clone(),
                   second_reference = shared_logits;
  masked_softmax_in_place(shared_logits, {});
  CHECK(at::equal(shared_logits, shared_copy));
  const at::Tensor viewed_logits = normal({2, 3, 4, 5}, 2), viewed_copy = viewed_logits.clone();
  masked_softmax_in_place(viewed_logits.narrow(0, 0, 1), {});
  masked_softmax_in_place(viewed_logits.unsqueeze(0).squeeze(0), {});
  CHECK(at::equal(viewed_logits, viewed_copy));
  const at::Tensor unshared_logits = normal({2, 3, 4, 5}, 3), expected = masked_softmax(unshared_logits.clone(), {});
  const void* memory = unshared_logits.const_data_ptr();
  const at::Tensor p = masked_softmax_in_place(unshared_logits, {});
  CHECK(p.const_data_ptr() == memory);
  CHECK(at::equal(p, expected));
}

TEST_CASE("rows of masked_softmax sum to 1, masked entries are exactly 0, fully masked rows are zero", "[mixing]") {
  CHECK(rc::check([] {
    const int64_t b = pick(1, 3), h = pick(1, 3), t = pick(1, 5), s = pick(1, 70);
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    const double stddev = std::pow(10.0, static_cast<double>(pick(-2, 3)));
    const at::Tensor a = normal({b, h, t, s}, seed) * stddev;
    const at::Tensor allowed_mask =
        normal({pick(0, 1) == 1 ? b : 1, pick(0, 3) == 0 ? h : 1, t, pick(0, 5) == 0 ? 1 : s}, seed + 1) > -0.5;
    const at::Tensor visible = allowed_mask.expand(a.sizes()), any_visible = visible.any(-1);
    for (bool sigsoftmax : {false, true}) {
      auto normalise = sigsoftmax ? masked_sigmoid_softmax : masked_softmax;
      at::Tensor a32 = a.clone().requires_grad_(), a64 = a.to(at::kDouble).requires_grad_();
      const at::Tensor p32 = normalise(a32, allowed_mask, {}), p64 = normalise(a64, allowed_mask, {});
      RC_ASSERT(agree(p32.sum(-1), any_visible.to(at::kFloat), num_roundings(s)));
      RC_ASSERT((p32.masked_select(~visible) == 0).all().item<bool>());
      RC_ASSERT(agree(p32, p64, num_roundings(s)));
      // The equation in double precision.
      const at::Tensor d = a.to(at::kDouble), e = sigsoftmax ? d + at::log_sigmoid(d) : d;
      const at::Tensor expected = at::softmax(e.masked_fill(~visible, -1e300), -1) * visible;
      RC_ASSERT(agree(p64, expected, num_roundings(s)));
      const at::Tensor r = normal({b, h, t, s}, seed + 2);
      p32.backward(r);
      p64.backward(r.to(at::kDouble));
      // A gradient is at most 2 max |r|, since the derivative of the exponent of Sigsoftmax is at most 2.
      RC_ASSERT(agree(a32.grad(), a64.grad(), num_roundings(s) + s, 2 * numbers::max_abs(r)));
    }
  }));
}

TEST_CASE("a sink is a further key, whose probability and gradient are left out of the result", "[mixing]") {
  CHECK(rc::check([] {
    const int64_t b = pick(1, 3), h = pick(1, 3), t = pick(1, 5), s = pick(1, 40);
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    const at::Tensor a = normal({b, h, t, s}, seed) * 3, visible = normal({b, 1, t, s}, seed + 1) > -0.5,
                     r = normal({b, h, t, s}, seed + 2);
    for (const bool sigsoftmax : {false, true})
      for (const auto type : {at::kFloat, at::kDouble}) {
        at::Tensor logits = a.to(type, false, true).requires_grad_(), sinks = normal({h}, seed + 3).requires_grad_();
        const at::Tensor p = (sigsoftmax ? masked_sigmoid_softmax : masked_softmax)(logits, visible, sinks);
        (p * r).sum().backward();
        at::Tensor exact_logits = a.to(at::kDouble).requires_grad_(),
                   exact_sinks = sinks.detach().to(at::kDouble).requires_grad_();
        const at::Tensor exponents = sigsoftmax ? exact_logits + at::log_sigmoid(exact_logits) : exact_logits;
        const at::Tensor further_key = exact_sinks.view({1, h, 1, 1}).expand({b, h, t, 1});
        const at::Tensor expected =
            at::softmax(nn::cat({exponents.masked_fill(~visible, -INFINITY), further_key}, -1), -1).narrow(-1, 0, s);
        (expected * r).sum().backward();
        // Relative to 1, since all probabilities are small if the sink is large.
        RC_ASSERT(agree(p, expected, num_roundings(s) + 1, 1));
        RC_ASSERT((p.masked_select(~visible.expand(p.sizes())) == 0).all().item<bool>());
        const double sum_bound = rounding::bound(type, type, num_roundings(s) + 1, 1);
        RC_ASSERT((p.sum(-1) <= 1 + sum_bound).all().item<bool>());
        RC_ASSERT(agree(logits.grad(), exact_logits.grad(), num_roundings(s) + s, 2 * numbers::max_abs(r)));
        RC_ASSERT(agree(sinks.grad(), exact_sinks.grad(), num_roundings(s) + s + b * t,
                        static_cast<double>(b * t) * numbers::max_abs(r)));
      }
  }));
}

TEST_CASE("a fully masked row with a sink is zero and has zero gradients, also with a sink of -infinity", "[mixing]") {
  for (const double sink : {0.5, -HUGE_VAL}) {
    at::Tensor a = normal({1, 2, 3, 4}, 1).requires_grad_(), sinks = at::full({2}, sink).requires_grad_();
    at::Tensor visible = at::ones({1, 1, 3, 4}, at::kBool);
    visible.select(2, 1).fill_(false);
    const at::Tensor p = masked_softmax(a, visible, sinks);
    CHECK((p.select(2, 1) == 0).all().item<bool>());
    p.select(2, 1).sum().backward();
    CHECK((a.grad() == 0).all().item<bool>());
    if (std::isfinite(sink)) CHECK((sinks.grad() == 0).all().item<bool>());
    const at::Tensor logits = a.detach(), sink_logits = sinks.detach().view({1, 2, 1});
    CHECK(agree(masked_softmax(logits, {}, sinks.detach()).sum(-1),
                (1 + (sink_logits - logits.logsumexp({-1})).exp()).reciprocal(), num_roundings(4) + 4));
  }
}

TEST_CASE("rows that an additive mask fully masks are zero and have zero gradient", "[mixing]") {
  Mask mask;
  mask.additive = at::zeros({2, 1, 4, 6});
  mask.additive.select(0, 1).select(1, 2).fill_(-INFINITY);  // query 2 of row 1 is fully masked
  mask.additive.narrow(3, 4, 2).fill_(-INFINITY);            // the last two keys are masked for all queries
  const at::Tensor visible = boolean_mask(mask, 4, 6, at::kCPU), r = normal({2, 3, 4, 6}, 2);
  for (auto type : {at::kFloat, at::kDouble})  // fp32 has a kernel, double precision uses LibTorch operations
    for (auto normalise : {masked_softmax, masked_sigmoid_softmax}) {
      at::Tensor a = normal({2, 3, 4, 6}, 1).to(type).requires_grad_();
      const at::Tensor p = normalise(a + mask.additive, visible, {});
      CHECK(agree(p, normalise(a, mask.additive.expand(a.sizes()) > -1, {}), num_roundings(6)));
      CHECK((p[1].select(1, 2) == 0).all().item<bool>());
      CHECK((p.narrow(3, 4, 2) == 0).all().item<bool>());
      CHECK(agree(p.sum(), at::full({}, 2 * 3 * 4 - 3, type), p.numel()));
      p.backward(r.to(type));
      CHECK(at::isfinite(a.grad()).all().item<bool>());
      CHECK((a.grad()[1].select(1, 2) == 0).all().item<bool>());
      CHECK((a.grad()[0].narrow(2, 0, 4) != 0).all().item<bool>());
    }
  // A NaN in a visible entry propagates.
  at::Tensor logits_with_nan = at::zeros({2, 1, 4, 6}, at::kDouble);
  logits_with_nan[0][0][0][0] = NAN;
  CHECK(masked_softmax(logits_with_nan, visible).isnan().any().item<bool>());
}
