// Causal matrix products of the composed path and their gradients against a naive reference in double precision, for
// fewer queries than a block and for several blocks of queries.
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "attention/methods/relative/relative_product.h"
#include "fixtures/errors.h"
#include "fixtures/rounding.h"

using namespace mh::attention;

namespace {

at::Tensor normal_leaf(at::IntArrayRef sizes) {
  return at::randn(sizes, at::TensorOptions().dtype(at::kDouble)).requires_grad_(true);
}

struct Sizes {
  int64_t batch, heads, queries, keys, size;
  CausalOffset offset;
  bool is_visible(int64_t t, int64_t s) const { return !offset || s <= t + *offset; }
};

Sizes random_sizes() {
  Sizes sizes{*rc::gen::inRange(1, 3),   *rc::gen::inRange(1, 3), *rc::gen::inRange(1, 300),
              *rc::gen::inRange(1, 300), *rc::gen::inRange(1, 4), {}};
  // A negative offset gives fully masked queries; with an offset of at least keys - 1, all queries see all keys.
  if (*rc::gen::inRange(0, 4) > 0) sizes.offset = *rc::gen::inRange<int64_t>(-sizes.queries - 5, sizes.keys + 5);
  return sizes;
}

// Calls visit(row, head, query, key) for every visible pair of query and key.
template <class Visit>
void for_each_visible(const Sizes& sizes, Visit&& visit) {
  for (int64_t b = 0; b < sizes.batch; ++b)
    for (int64_t h = 0; h < sizes.heads; ++h)
      for (int64_t t = 0; t < sizes.queries; ++t)
        for (int64_t s = 0; s < sizes.keys; ++s)
          if (sizes.is_visible(t, s)) visit(b, h, t, s);
}

using View = at::TensorAccessor<double, 4>;
View view_of(const at::Tensor& x) { return const_cast<at::Tensor&>(x).accessor<double, 4>(); }

// Returns x (…, Tq, Tk) with masked entries, whose contents the products do not specify, set to 0.
at::Tensor zero_masked(const at::Tensor& x, const Sizes& sizes) {
  at::Tensor mask = at::ones({sizes.queries, sizes.keys}, x.options());
  return sizes.offset ? x * mask.tril(*sizes.offset) : x;
}

// Upper bound on the number of terms of a sum in these tests: 300 queries or keys of 2 heads in 2 rows, all of which
// read the same operand.
constexpr int64_t kMaxTerms = 1200;

// Returns whether two products agree. Their terms have a magnitude of about 1 and may cancel.
bool agree(const at::Tensor& actual, const at::Tensor& expected) {
  return rounding::agree(actual, expected, kMaxTerms, 1);
}

}  // namespace

TEST_CASE("causal product_with_keys and its gradients match a naive reference", "[causal-product]") {
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::arbitrary<uint32_t>());
    const Sizes sizes = random_sizes();
    const at::Tensor q = normal_leaf({sizes.batch, sizes.heads, sizes.queries, sizes.size}),
                     k = normal_leaf({sizes.batch, sizes.heads, sizes.keys, sizes.size});
    const at::Tensor actual = product_with_keys(q, k, sizes.offset);
    RC_ASSERT(actual.isfinite().all().item<bool>());
    const at::Tensor weights = at::randn(actual.sizes(), actual.options());
    zero_masked(actual * weights, sizes).sum().backward();
    at::Tensor expected = at::zeros(actual.sizes(), actual.options()), dq = at::zeros_like(q), dk = at::zeros_like(k);
    for_each_visible(sizes, [&, Q = view_of(q), K = view_of(k), W = view_of(weights), A = view_of(expected),
                             DQ = view_of(dq), DK = view_of(dk)](int64_t b, int64_t h, int64_t t, int64_t s) mutable {
      for (int64_t c = 0; c < sizes.size; ++c) {
        A[b][h][t][s] += Q[b][h][t][c] * K[b][h][s][c];
        DQ[b][h][t][c] += W[b][h][t][s] * K[b][h][s][c];
        DK[b][h][s][c] += W[b][h][t][s] * Q[b][h][t][c];
      }
    });
    RC_ASSERT(agree(zero_masked(actual, sizes), expected));
    RC_ASSERT(agree(q.grad(), dq));
    RC_ASSERT(agree(k.grad(), dk));
  }));
}

TEST_CASE("causal products by blocks of queries in fp32 and bf16 equal double precision within rounding",
          "[causal-product]") {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (int64_t offset : {0, 7}) {
      const Sizes sizes{2, 2, 300, 300 + offset, 32, offset};
      const at::Tensor
          q = normal_leaf({sizes.batch, sizes.heads, sizes.queries, sizes.size}).detach().to(type),
          k = normal_leaf({sizes.batch, sizes.heads, sizes.keys, sizes.size}).detach().to(type),
          p = zero_masked(normal_leaf({sizes.batch, sizes.heads, sizes.queries, sizes.keys}).detach(), sizes).to(type);
      // Checks `actual` against the product of `a` (…, i, n) and `b` (…, n, j), which are in double precision.
      // `masks_product`: whether masked entries of the product are 0.
      auto check_product = [&](const at::Tensor& actual, const at::Tensor& a, const at::Tensor& b,
                               bool masks_product = false) {
        CHECK(actual.scalar_type() == type);
        at::Tensor expected = at::matmul(a, b), magnitudes = at::matmul(a.abs(), b.abs());
        if (masks_product) expected = zero_masked(expected, sizes), magnitudes = zero_masked(magnitudes, sizes);
        CHECK(numbers::error(actual, expected) <=
              tolerance::sum_error_bound(a.size(-1), numbers::unit_roundoff(type), magnitudes.max().item<double>()));
      };
      const at::Tensor qd = q.to(at::kDouble), kd = k.to(at::kDouble), pd = p.to(at::kDouble);
      check_product(zero_masked(no_autograd::product_with_keys(q, k, sizes.offset), sizes), qd, kd.transpose(-1, -2),
                    true);
      check_product(no_autograd::product_with_values(p, k, sizes.offset), pd, kd);
      check_product(no_autograd::transposed_product(p, q, sizes.offset), pd.transpose(-1, -2), qd);
    }
}

TEST_CASE("causal product_with_values and its gradients match a naive reference", "[causal-product]") {
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::arbitrary<uint32_t>());
    const Sizes sizes = random_sizes();
    const bool is_p_shared = *rc::gen::arbitrary<bool>();  // one `p` for all rows of the batch
    const at::Tensor p = zero_masked(at::rand({is_p_shared ? 1 : sizes.batch, sizes.heads, sizes.queries, sizes.keys},
                                              at::TensorOptions().dtype(at::kDouble)),
                                     sizes)
                             .detach()
                             .requires_grad_(true);
    const at::Tensor v = normal_leaf({sizes.batch, sizes.heads, sizes.keys, sizes.size});
    const at::Tensor actual = product_with_values(p, v, sizes.offset);
    const at::Tensor weights = at::randn(actual.sizes(), actual.options()).contiguous();
    (actual * weights).sum().backward();
    at::Tensor expected = at::zeros(weights.sizes(), v.options()), dp = at::zeros_like(p), dv = at::zeros_like(v);
    for_each_visible(sizes, [&, P = view_of(p), V = view_of(v), W = view_of(weights), Z = view_of(expected),
                             DP = view_of(dp), DV = view_of(dv)](int64_t b, int64_t h, int64_t t, int64_t s) mutable {
      const int64_t row = is_p_shared ? 0 : b;
      for (int64_t c = 0; c < sizes.size; ++c) {
        Z[b][h][t][c] += P[row][h][t][s] * V[b][h][s][c];
        DP[row][h][t][s] += W[b][h][t][c] * V[b][h][s][c];
        DV[b][h][s][c] += P[row][h][t][s] * W[b][h][t][c];
      }
    });
    RC_ASSERT(agree(actual, expected));
    RC_ASSERT(agree(zero_masked(p.grad(), sizes), dp));
    RC_ASSERT(agree(v.grad(), dv));
  }));
}

TEST_CASE("causal relative_product and its gradients match a naive reference", "[causal-product]") {
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::arbitrary<uint32_t>());
    const Sizes sizes = random_sizes();
    const bool is_r_shared = *rc::gen::arbitrary<bool>();  // one `r` for all heads
    const int64_t num_rows = num_distances(sizes.queries, sizes.keys, sizes.offset) + *rc::gen::inRange(0, 3);
    const at::Tensor x = normal_leaf({sizes.batch, sizes.heads, sizes.queries, sizes.size}),
                     y = normal_leaf({sizes.batch, sizes.heads, sizes.queries, 2});
    const at::Tensor k = normal_leaf({sizes.batch, sizes.heads, sizes.keys, sizes.size}),
                     r = normal_leaf({is_r_shared ? 1 : sizes.heads, num_rows, 2});
    const at::Tensor actual = relative_product(x, k, y, r, sizes.offset);
    RC_ASSERT(actual.isfinite().all().item<bool>());
    const at::Tensor weights = at::randn(actual.sizes(), actual.options());
    zero_masked(actual * weights, sizes).sum().backward();
    at::Tensor expected = at::zeros(actual.sizes(), actual.options()), dx = at::zeros_like(x), dk = at::zeros_like(k),
               dy = at::zeros_like(y), dr = at::zeros_like(r).unsqueeze(0), rows = r.detach().unsqueeze(0);
    for_each_visible(sizes, [&, X = view_of(x), K = view_of(k), Y = view_of(y), R = view_of(rows), W = view_of(weights),
                             A = view_of(expected), DX = view_of(dx), DK = view_of(dk), DY = view_of(dy),
                             DR = view_of(dr)](int64_t b, int64_t h, int64_t t, int64_t s) mutable {
      const int64_t row = sizes.queries - 1 - t + s, head = is_r_shared ? 0 : h;
      for (int64_t c = 0; c < sizes.size; ++c) {
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
    RC_ASSERT(agree(zero_masked(actual, sizes), expected));
    RC_ASSERT(agree(x.grad(), dx));
    RC_ASSERT(agree(k.grad(), dk));
    RC_ASSERT(agree(y.grad(), dy));
    RC_ASSERT(agree(r.grad(), dr.squeeze(0)));
  }));
}
