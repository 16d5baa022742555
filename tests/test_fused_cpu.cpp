// The attention kernel against loops in double precision, and against the composed path's own error.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "attention/fused_cpu.h"

using namespace mh;

namespace {

double error(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}
double size_of(const at::Tensor& a) { return a.to(at::kDouble).abs().max().item<double>(); }

// From the equation, one query after the other. Differentiable by at:: operations on double tensors.
at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < q.size(2); ++i) {
    int64_t seen = causal ? i + 1 : k.size(2);
    at::Tensor logits =
        at::matmul(q.narrow(2, i, 1), k.narrow(2, 0, seen).transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
    rows.push_back(at::matmul(at::softmax(logits, -1), v.narrow(2, 0, seen)));
  }
  return at::cat(rows, 2);
}

at::Tensor composed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  at::Tensor logits = at::matmul(q, k.transpose(2, 3)).to(at::kFloat) / std::sqrt(static_cast<double>(q.size(3)));
  if (causal) logits = logits.masked_fill(at::ones({q.size(2), k.size(2)}, at::kBool).tril().logical_not(), -INFINITY);
  return at::matmul(at::softmax(logits, -1).to(v.scalar_type()), v);
}

struct Run {
  at::Tensor out, dq, dk, dv;
};
template <class F>
Run run(const F& f, const at::Tensor& q0, const at::Tensor& k0, const at::Tensor& v0, const at::Tensor& dout,
        bool causal, at::ScalarType type) {
  auto leaf = [&](const at::Tensor& t) { return t.to(type).detach().clone().requires_grad_(); };
  at::Tensor q = leaf(q0), k = leaf(k0), v = leaf(v0);
  at::Tensor out = f(q, k, v, causal);
  out.backward(dout.to(type));
  return {out.detach(), q.grad(), k.grad(), v.grad()};
}

}  // namespace

TEST_CASE("the attention kernel errs at most twice as much as composed attention", "[attention]") {
  at::manual_seed(5);
  struct Case {
    int64_t batch, heads, queries, keys, size;
    bool causal;
  };
  for (Case c : {Case{1, 1, 1, 1, 16, true},
                 {2, 3, 7, 7, 16, true},
                 {1, 2, 33, 33, 32, true},
                 {2, 2, 100, 100, 48, true},
                 {1, 1, 256, 256, 64, true},
                 {1, 2, 5, 50, 32, false},
                 {2, 1, 70, 31, 80, false},
                 {1, 1, 64, 64, 128, false}}) {
    at::Tensor q = at::randn({c.batch, c.heads, c.queries, c.size}) * 2,
               k = at::randn({c.batch, c.heads, c.keys, c.size});
    at::Tensor v = at::randn_like(k), dout = at::randn_like(q);
    for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      INFO(c.queries << " x " << c.keys << " size " << c.size << (type == at::kFloat ? " fp32" : " bf16"));
      auto rounded = [&](const at::Tensor& t) { return t.to(type); };
      Run exact =
          run(reference, rounded(q), rounded(k), rounded(v), rounded(dout).to(at::kDouble), c.causal, at::kDouble);
      Run plain = run(composed, q, k, v, dout, c.causal, type);
      Run fast = run(attention::fused_cpu, q, k, v, dout, c.causal, type);
      double unit = type == at::kFloat ? 0x1p-20 : 0x1p-8;
      auto within = [&](const at::Tensor& mine, const at::Tensor& other, const at::Tensor& truth) {
        CHECK(error(mine, truth) <= 2 * error(other, truth) + unit * size_of(truth));
      };
      within(fast.out, plain.out, exact.out);
      within(fast.dq, plain.dq, exact.dq);
      within(fast.dk, plain.dk, exact.dk);
      within(fast.dv, plain.dv, exact.dv);
    }
  }
}

TEST_CASE("the attention kernel reads strided heads of a joint projection and gives its gradient", "[attention]") {
  const int64_t batch = 2, length = 40, heads = 3, size = 16;
  at::Tensor joint = at::randn({batch, length, 3 * heads * size}), dout = at::randn({batch, heads, length, size});
  at::Tensor a = joint.clone().requires_grad_();
  auto parts = attention::split_projection(a, heads, size, heads, size);
  attention::fused_cpu(parts[0], parts[1], parts[2], true).backward(dout);
  at::Tensor b = joint.to(at::kDouble).requires_grad_();
  auto part = [&](int64_t i) {
    return b.narrow(2, i * heads * size, heads * size).view({batch, length, heads, size}).transpose(1, 2);
  };
  reference(part(0), part(1), part(2), true).backward(dout.to(at::kDouble));
  CHECK(error(a.grad(), b.grad()) <= 1e-5 * size_of(b.grad()));
}

TEST_CASE("split_projection joins gradients that come from anywhere", "[attention]") {
  at::Tensor joint = at::randn({2, 5, 2 * (3 + 3) + 3 * 4}).requires_grad_();
  auto parts = attention::split_projection(joint, 2, 3, 3, 4);
  (parts[0].sum() + 2 * parts[1].sum() + 3 * parts[2].sum()).backward();
  at::Tensor expected = at::cat({at::full({6}, 1.0F), at::full({6}, 2.0F), at::full({12}, 3.0F)}).expand({2, 5, 24});
  CHECK(at::equal(joint.grad(), expected));
  // One part alone: the others' gradient is zero.
  joint.mutable_grad() = at::Tensor();
  attention::split_projection(joint, 2, 3, 3, 4)[1].sum().backward();
  CHECK(at::equal(joint.grad(), at::cat({at::zeros({6}), at::ones({6}), at::zeros({12})}).expand({2, 5, 24})));
}

TEST_CASE("the attention kernel repeats itself bit for bit and stands extreme logits", "[attention]") {
  at::Tensor q = at::randn({2, 2, 65, 32}), k = at::randn_like(q), v = at::randn_like(q), dout = at::randn_like(q);
  Run a = run(attention::fused_cpu, q, k, v, dout, true, at::kFloat),
      b = run(attention::fused_cpu, q, k, v, dout, true, at::kFloat);
  CHECK(at::equal(a.out, b.out));
  CHECK(at::equal(a.dk, b.dk));
  Run large = run(attention::fused_cpu, q * 1e4, k, v, dout, true, at::kFloat);
  CHECK(large.out.isfinite().all().item<bool>());
  CHECK(large.dk.isfinite().all().item<bool>());
  q[0][0][3][0] = std::numeric_limits<float>::quiet_NaN();
  at::Tensor out = attention::fused_cpu(q, k, v, true);
  CHECK(out[0][0][3].isnan().all().item<bool>());
  CHECK_FALSE(out[0][0][4].isnan().any().item<bool>());
}
