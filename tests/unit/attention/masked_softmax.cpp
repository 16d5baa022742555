// Normalisers of masked logits: softmax and Sigsoftmax, their rows and their gradients.
#include "attention/masked_softmax.h"

#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "attention/mask.h"
#include "fixtures/numbers.h"

using namespace mh;
using namespace mh::attention;
using numbers::normal;

TEST_CASE("probabilities take the place of logits only where nobody else holds these", "[mixing]") {
  const at::Tensor held = normal({2, 3, 4, 5}, 1), copy = held.clone(), other = held;
  masked_softmax_in_place(held, {});
  CHECK(at::equal(held, copy));
  const at::Tensor whole = normal({2, 3, 4, 5}, 2), before = whole.clone();
  masked_softmax_in_place(whole.narrow(0, 0, 1), {});
  masked_softmax_in_place(whole.unsqueeze(0).squeeze(0), {});
  CHECK(at::equal(whole, before));
  const at::Tensor own = normal({2, 3, 4, 5}, 3), wanted = masked_softmax(own.clone(), {});
  const void* memory = own.const_data_ptr();
  const at::Tensor p = masked_softmax_in_place(own, {});
  CHECK(p.const_data_ptr() == memory);
  CHECK(at::equal(p, wanted));
}

TEST_CASE("rows of a normaliser sum to 1, hidden entries are exactly 0, empty rows are zeros", "[mixing]") {
  CHECK(rc::check([] {
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    const int64_t b = pick(1, 3), h = pick(1, 3), t = pick(1, 5), s = pick(1, 70);
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    const double size = std::pow(10.0, static_cast<double>(pick(-2, 3)));
    const at::Tensor a = normal({b, h, t, s}, seed) * size;
    const at::Tensor ok =
        normal({pick(0, 1) == 1 ? b : 1, pick(0, 3) == 0 ? h : 1, t, pick(0, 5) == 0 ? 1 : s}, seed + 1) > -0.5;
    const at::Tensor seen = ok.expand(a.sizes()), some = seen.any(-1);
    for (bool sigmoid : {false, true}) {
      auto of = sigmoid ? masked_sigmoid_softmax : masked_softmax;
      at::Tensor single = a.clone().requires_grad_(), twice = a.to(at::kDouble).requires_grad_();
      const at::Tensor p = of(single, ok), q = of(twice, ok);
      RC_ASSERT(at::allclose(p.sum(-1), some.to(at::kFloat), 1e-5, 1e-5));
      RC_ASSERT((p.masked_select(~seen) == 0).all().item<bool>());
      RC_ASSERT(at::allclose(p.to(at::kDouble), q, 1e-4 * std::max(1.0, size), 1e-6));
      // The equation itself, in double precision.
      const at::Tensor d = a.to(at::kDouble), e = sigmoid ? d + at::log_sigmoid(d) : d;
      const at::Tensor wanted = at::softmax(e.masked_fill(~seen, -1e300), -1) * seen;
      RC_ASSERT(at::allclose(q, wanted, 1e-9, 1e-12));
      const at::Tensor r = normal({b, h, t, s}, seed + 2);
      p.backward(r);
      q.backward(r.to(at::kDouble));
      RC_ASSERT(at::allclose(single.grad().to(at::kDouble), twice.grad(), 1e-3 * std::max(1.0, size), 1e-5));
    }
  }));
}

TEST_CASE("rows that an additive mask empties are zeros, and have no gradient", "[mixing]") {
  Mask mask;
  mask.additive = at::zeros({2, 1, 4, 6});
  mask.additive.select(0, 1).select(1, 2).fill_(-INFINITY);  // query 2 of row 1 sees nothing
  mask.additive.narrow(3, 4, 2).fill_(-INFINITY);            // the last two keys are hidden from all
  const at::Tensor seen = allowed(mask, 4, 6, at::kCPU), r = normal({2, 3, 4, 6}, 2);
  for (auto type : {at::kFloat, at::kDouble})  // by the kernel, and by the tensor library
    for (auto of : {masked_softmax, masked_sigmoid_softmax}) {
      at::Tensor a = normal({2, 3, 4, 6}, 1).to(type).requires_grad_();
      const at::Tensor p = of(a + mask.additive, seen);
      CHECK(at::allclose(p, of(a, mask.additive.expand(a.sizes()) > -1)));
      CHECK((p[1].select(1, 2) == 0).all().item<bool>());
      CHECK((p.narrow(3, 4, 2) == 0).all().item<bool>());
      CHECK(p.sum().item<double>() == Approx(2 * 3 * 4 - 3));
      p.backward(r.to(type));
      CHECK(at::isfinite(a.grad()).all().item<bool>());
      CHECK((a.grad()[1].select(1, 2) == 0).all().item<bool>());
      CHECK((a.grad()[0].narrow(2, 0, 4) != 0).all().item<bool>());
    }
  // A number that is none in a row that is seen is passed on, not hidden.
  at::Tensor broken = at::zeros({2, 1, 4, 6}, at::kDouble);
  broken[0][0][0][0] = NAN;
  CHECK(masked_softmax(broken, seen).isnan().any().item<bool>());
}
