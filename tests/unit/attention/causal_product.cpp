// The products of the composed path against plain loops in double precision, with their gradients, over lengths on both
// sides of a block of queries.
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "attention/methods/relative/relative_product.h"
#include "fixtures/errors.h"

using namespace mh::attention;

namespace {

at::Tensor normals(at::IntArrayRef sizes) {
  return at::randn(sizes, at::TensorOptions().dtype(at::kDouble)).requires_grad_(true);
}

struct Sizes {
  int64_t batch, heads, queries, keys, size;
  CausalOffset offset;
  bool sees(int64_t t, int64_t s) const { return !offset || s <= t + *offset; }
};

Sizes drawn() {
  Sizes n{*rc::gen::inRange(1, 3),   *rc::gen::inRange(1, 3), *rc::gen::inRange(1, 300),
          *rc::gen::inRange(1, 300), *rc::gen::inRange(1, 4), {}};
  // Beyond both ends: queries that see nothing, and those that see all.
  if (*rc::gen::inRange(0, 4) > 0) n.offset = *rc::gen::inRange<int64_t>(-n.queries - 5, n.keys + 5);
  return n;
}

// visit(row, head, query, key) for every pair that the offset does not hide
template <class Visit>
void each_pair(const Sizes& n, Visit&& visit) {
  for (int64_t b = 0; b < n.batch; ++b)
    for (int64_t h = 0; h < n.heads; ++h)
      for (int64_t t = 0; t < n.queries; ++t)
        for (int64_t s = 0; s < n.keys; ++s)
          if (n.sees(t, s)) visit(b, h, t, s);
}

using View = at::TensorAccessor<double, 4>;
View of(const at::Tensor& x) { return const_cast<at::Tensor&>(x).accessor<double, 4>(); }

double difference(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
}

// What stands where nothing may be seen is replaced by 0, so that the rest can be compared and weighed.
at::Tensor visible(const at::Tensor& x, const Sizes& n) {
  at::Tensor mask = at::ones({n.queries, n.keys}, x.options());
  return n.offset ? x * mask.tril(*n.offset) : x;
}

constexpr double kDoubleError = 1e-11;  // sums of 300 numbers near 1

}  // namespace

TEST_CASE("logits under a causal mask and their gradients are those of plain loops", "[causal-product]") {
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::arbitrary<uint32_t>());
    const Sizes n = drawn();
    const at::Tensor q = normals({n.batch, n.heads, n.queries, n.size}),
                     k = normals({n.batch, n.heads, n.keys, n.size});
    const at::Tensor found = product_with_keys(q, k, n.offset);
    RC_ASSERT(found.isfinite().all().item<bool>());
    const at::Tensor weights = at::randn(found.sizes(), found.options());
    visible(found * weights, n).sum().backward();
    at::Tensor wanted = at::zeros(found.sizes(), found.options()), dq = at::zeros_like(q), dk = at::zeros_like(k);
    each_pair(n, [&, Q = of(q), K = of(k), W = of(weights), A = of(wanted), DQ = of(dq), DK = of(dk)](
                     int64_t b, int64_t h, int64_t t, int64_t s) mutable {
      for (int64_t c = 0; c < n.size; ++c) {
        A[b][h][t][s] += Q[b][h][t][c] * K[b][h][s][c];
        DQ[b][h][t][c] += W[b][h][t][s] * K[b][h][s][c];
        DK[b][h][s][c] += W[b][h][t][s] * Q[b][h][t][c];
      }
    });
    RC_ASSERT(difference(visible(found, n), wanted) < kDoubleError);
    RC_ASSERT(difference(q.grad(), dq) < kDoubleError);
    RC_ASSERT(difference(k.grad(), dk) < kDoubleError);
  }));
}

TEST_CASE("products by blocks of queries in fp32 and bf16 are those in double precision", "[causal-product]") {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (int64_t offset : {0, 7}) {
      const Sizes n{2, 2, 300, 300 + offset, 32, offset};
      const at::Tensor q = normals({n.batch, n.heads, n.queries, n.size}).detach().to(type),
                       k = normals({n.batch, n.heads, n.keys, n.size}).detach().to(type),
                       p = visible(normals({n.batch, n.heads, n.queries, n.keys}).detach(), n).to(type);
      // The product of a (…, i, n) and b (…, n, j), both in double.
      auto errs = [&](const at::Tensor& found, const at::Tensor& a, const at::Tensor& b, bool hide = false) {
        CHECK(found.scalar_type() == type);
        at::Tensor wanted = at::matmul(a, b), sizes = at::matmul(a.abs(), b.abs());
        if (hide) wanted = visible(wanted, n), sizes = visible(sizes, n);
        CHECK(difference(found.to(at::kDouble), wanted) <=
              tolerance::of_sum(a.size(-1), numbers::rounding_unit(type), sizes.max().item<double>()));
      };
      const at::Tensor qd = q.to(at::kDouble), kd = k.to(at::kDouble), pd = p.to(at::kDouble);
      errs(visible(plain::product_with_keys(q, k, n.offset), n), qd, kd.transpose(-1, -2), true);
      errs(plain::product_with_values(p, k, n.offset), pd, kd);
      errs(plain::transposed_product(p, q, n.offset), pd.transpose(-1, -2), qd);
    }
}

TEST_CASE("probabilities times values and their gradients are those of plain loops", "[causal-product]") {
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::arbitrary<uint32_t>());
    const Sizes n = drawn();
    const bool shared = *rc::gen::arbitrary<bool>();  // one p for all rows
    const at::Tensor p =
        visible(at::rand({shared ? 1 : n.batch, n.heads, n.queries, n.keys}, at::TensorOptions().dtype(at::kDouble)), n)
            .detach()
            .requires_grad_(true);
    const at::Tensor v = normals({n.batch, n.heads, n.keys, n.size});
    const at::Tensor found = product_with_values(p, v, n.offset);
    const at::Tensor weights = at::randn(found.sizes(), found.options()).contiguous();
    (found * weights).sum().backward();
    at::Tensor wanted = at::zeros(weights.sizes(), v.options()), dp = at::zeros_like(p), dv = at::zeros_like(v);
    each_pair(n, [&, P = of(p), V = of(v), W = of(weights), Z = of(wanted), DP = of(dp), DV = of(dv)](
                     int64_t b, int64_t h, int64_t t, int64_t s) mutable {
      const int64_t row = shared ? 0 : b;
      for (int64_t c = 0; c < n.size; ++c) {
        Z[b][h][t][c] += P[row][h][t][s] * V[b][h][s][c];
        DP[row][h][t][s] += W[b][h][t][c] * V[b][h][s][c];
        DV[b][h][s][c] += P[row][h][t][s] * W[b][h][t][c];
      }
    });
    RC_ASSERT(difference(found, wanted) < kDoubleError);
    RC_ASSERT(difference(visible(p.grad(), n), dp) < kDoubleError);
    RC_ASSERT(difference(v.grad(), dv) < kDoubleError);
  }));
}

TEST_CASE("logits of distances and their gradients are those of plain loops", "[causal-product]") {
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::arbitrary<uint32_t>());
    const Sizes n = drawn();
    const bool shared = *rc::gen::arbitrary<bool>();  // one r for all heads
    const int64_t count = distances_needed(n.queries, n.keys, n.offset) + *rc::gen::inRange(0, 3);
    const at::Tensor x = normals({n.batch, n.heads, n.queries, n.size}), y = normals({n.batch, n.heads, n.queries, 2});
    const at::Tensor k = normals({n.batch, n.heads, n.keys, n.size}), r = normals({shared ? 1 : n.heads, count, 2});
    const at::Tensor found = relative_product(x, k, y, r, n.offset);
    RC_ASSERT(found.isfinite().all().item<bool>());
    const at::Tensor weights = at::randn(found.sizes(), found.options());
    visible(found * weights, n).sum().backward();
    at::Tensor wanted = at::zeros(found.sizes(), found.options()), dx = at::zeros_like(x), dk = at::zeros_like(k),
               dy = at::zeros_like(y), dr = at::zeros_like(r).unsqueeze(0), rows = r.detach().unsqueeze(0);
    each_pair(n, [&, X = of(x), K = of(k), Y = of(y), R = of(rows), W = of(weights), A = of(wanted), DX = of(dx),
                  DK = of(dk), DY = of(dy), DR = of(dr)](int64_t b, int64_t h, int64_t t, int64_t s) mutable {
      const int64_t row = n.queries - 1 - t + s, head = shared ? 0 : h;
      for (int64_t c = 0; c < n.size; ++c) {
        A[b][h][t][s] += X[b][h][t][c] * K[b][h][s][c];
        DX[b][h][t][c] += W[b][h][t][s] * K[b][h][s][c];
        DK[b][h][s][c] += W[b][h][t][s] * X[b][h][t][c];
      }
      for (int64_t c = 0; c < 2; ++c) {
        A[b][h][t][s] += Y[b][h][t][c] * R[0][head][row][c];
        DY[b][h][t][c] += W[b][h][t][s] * R[0][head][row][c];
        DR[0][head][row][c] += W[b][h][t][s] * Y[b][h][t][c];
      }
    });
    RC_ASSERT(difference(visible(found, n), wanted) < kDoubleError);
    RC_ASSERT(difference(x.grad(), dx) < kDoubleError);
    RC_ASSERT(difference(k.grad(), dk) < kDoubleError);
    RC_ASSERT(difference(y.grad(), dy) < kDoubleError);
    RC_ASSERT(difference(r.grad(), dr.squeeze(0)) < kDoubleError);
  }));
}
