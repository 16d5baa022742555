// The CPU attention kernel against the equation in double precision. The bound on the error of the kernel follows from
// the error of the composed path.
#include "attention/fused/fused_cpu.h"

#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "attention/fused/split_projection.h"
#include "fixtures/aten.h"
#include "fixtures/errors.h"
#include "fixtures/layers.h"
#include "fixtures/numbers.h"
#include "fixtures/status.h"
#include "nn/ops.h"
#include "oracle/spec_attention.h"

using namespace mh;
using numbers::error;
using numbers::find_excess_error;

namespace {

// Returns softmax(q kᵀ / √d) v (B, h, Tq, d), query by query, as differentiable operations on double tensors. `causal`:
// whether query t sees only the first Tk - Tq + t + 1 keys.
at::Tensor attention_by_query(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < q.size(2); ++i) {
    int64_t num_visible_keys = causal ? k.size(2) - q.size(2) + i + 1 : k.size(2);
    at::Tensor logits = at::matmul(q.narrow(2, i, 1), k.narrow(2, 0, num_visible_keys).transpose(2, 3)) /
                        std::sqrt(static_cast<double>(q.size(3)));
    rows.push_back(at::matmul(at::softmax(logits, -1), v.narrow(2, 0, num_visible_keys)));
  }
  return nn::cat(rows, 2);
}

at::Tensor composed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  at::Tensor logits = at::matmul(q, k.transpose(2, 3)).to(at::kFloat) / std::sqrt(static_cast<double>(q.size(3)));
  const int64_t queries = q.size(2), keys = k.size(2);
  if (causal)
    logits = logits.masked_fill(at::ones({queries, keys}, at::kBool).tril(keys - queries).logical_not(), -INFINITY);
  return at::matmul(at::softmax(logits, -1).to(v.scalar_type()), v);
}

at::Tensor fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  return attention::fused_cpu(q, k, v, {causal});
}

struct Results {
  at::Tensor out, dq, dk, dv;
  std::vector<at::Tensor> all() const { return {out, dq, dk, dv}; }
};

// Runs f(q, k, v, causal) and its backward pass in `type`, and returns the output and the gradients.
template <class F>
Results run(const F& f, const at::Tensor& q0, const at::Tensor& k0, const at::Tensor& v0, const at::Tensor& dout,
            bool causal, at::ScalarType type) {
  auto leaf = [&](const at::Tensor& t) { return t.to(type).detach().clone().requires_grad_(); };
  at::Tensor q = leaf(q0), k = leaf(k0), v = leaf(v0);
  at::Tensor out = f(q, k, v, causal);
  out.backward(dout.to(type));
  return {out.detach(), q.grad(), k.grad(), v.grad()};
}

}  // namespace

TEST_CASE("error of the CPU attention kernel is at most twice the error of composed attention", "[attention]") {
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
      auto round = [&](const at::Tensor& t) { return t.to(type); };
      Results exact =
          run(attention_by_query, round(q), round(k), round(v), round(dout).to(at::kDouble), c.causal, at::kDouble);
      Results composed_results = run(composed_attention, q, k, v, dout, c.causal, type);
      Results fused_results = run(fused_attention, q, k, v, dout, c.causal, type);
      CHECK(find_excess_error(fused_results.all(), composed_results.all(), exact.all(), type) == "");
    }
  }
}

TEST_CASE("the CPU attention kernel reads strided heads of a joint projection and returns its gradient",
          "[attention]") {
  const int64_t batch = 2, length = 40, heads = 3, size = 16;
  at::Tensor joint_projection = at::randn({batch, length, 3 * heads * size}),
             dout = at::randn({batch, heads, length, size});
  at::Tensor fused_leaf = joint_projection.clone().requires_grad_();
  auto qkv = attention::split_projection(fused_leaf, {heads, heads, heads, size, size});
  attention::fused_cpu(qkv[0], qkv[1], qkv[2], {true}).backward(dout);
  auto gradient = [&](const auto& f, at::ScalarType type) {
    at::Tensor leaf = joint_projection.to(type).detach().clone().requires_grad_();
    auto slice = [&](int64_t i) {
      return leaf.narrow(2, i * heads * size, heads * size).view({batch, length, heads, size}).transpose(1, 2);
    };
    f(slice(0), slice(1), slice(2), true).backward(dout.to(type));
    return leaf.grad();
  };
  CHECK(find_excess_error({fused_leaf.grad()}, {gradient(composed_attention, at::kFloat)},
                          {gradient(attention_by_query, at::kDouble)}, at::kFloat) == "");
}

TEST_CASE("the CPU attention kernel is deterministic, finite for extreme logits, and confines a NaN to its query",
          "[attention]") {
  at::Tensor q = at::randn({2, 2, 65, 32}), k = at::randn_like(q), v = at::randn_like(q), dout = at::randn_like(q);
  Results first_results = run(fused_attention, q, k, v, dout, true, at::kFloat),
          second_results = run(fused_attention, q, k, v, dout, true, at::kFloat);
  CHECK(at::equal(first_results.out, second_results.out));
  CHECK(at::equal(first_results.dk, second_results.dk));
  Results extreme_results = run(fused_attention, q * 1e4, k, v, dout, true, at::kFloat);
  CHECK(extreme_results.out.isfinite().all().item<bool>());
  CHECK(extreme_results.dk.isfinite().all().item<bool>());
  q[0][0][3][0] = std::numeric_limits<float>::quiet_NaN();
  at::Tensor out = attention::fused_cpu(q, k, v, {true});
  CHECK(out[0][0][3].isnan().all().item<bool>());
  CHECK_FALSE(out[0][0][4].isnan().any().item<bool>());
}

TEST_CASE("the CPU attention kernel ignores keys past the key length of each batch row, even NaN", "[attention]") {
  const int64_t heads = 3, size = 32;
  CHECK(rc::check([&] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t batch = *rc::gen::inRange(1, 5), queries = *rc::gen::inRange(1, 40), keys = *rc::gen::inRange(1, 40);
    std::vector<int64_t> lengths;
    for (int64_t b = 0; b < batch; ++b) lengths.push_back(*rc::gen::inRange<int64_t>(0, keys + 1));
    at::Tensor q = at::randn({batch, heads, queries, size}) * 2, k = at::randn({batch, heads, keys, size});
    at::Tensor v = at::randn_like(k), dout = at::randn_like(q);
    // Keys and values past the length are NaN, so that reading one would make the result NaN.
    for (int64_t b = 0; b < batch; ++b)
      for (at::Tensor* t : {&k, &v}) t->select(0, b).slice(1, lengths[static_cast<size_t>(b)]).fill_(NAN);
    for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const Results padded_results = run(
          [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, bool) {
            return attention::fused_cpu(a, b, c, {false, 0, at::tensor(lengths, at::kLong)});
          },
          q, k, v, dout, false, type);
      for (int64_t b = 0; b < batch; ++b) {
        const int64_t n = lengths[static_cast<size_t>(b)];
        auto row = [&](const at::Tensor& t) { return t.narrow(0, b, 1); };
        RC_ASSERT(row(padded_results.dk).slice(2, n).eq(0).all().item<bool>());
        RC_ASSERT(row(padded_results.dv).slice(2, n).eq(0).all().item<bool>());
        if (n == 0) {
          RC_ASSERT(row(padded_results.out).eq(0).all().item<bool>() &&
                    row(padded_results.dq).eq(0).all().item<bool>());
          continue;
        }
        // The same row as a batch of one row, without padding.
        const Results unpadded_results =
            run(fused_attention, row(q), row(k).slice(2, 0, n), row(v).slice(2, 0, n), row(dout), false, type);
        RC_ASSERT(at::equal(row(padded_results.out), unpadded_results.out) &&
                  at::equal(row(padded_results.dq), unpadded_results.dq));
        RC_ASSERT(at::equal(row(padded_results.dk).slice(2, 0, n), unpadded_results.dk) &&
                  at::equal(row(padded_results.dv).slice(2, 0, n), unpadded_results.dv));
      }
    }
  }));
}

TEST_CASE("batch rows with key lengths from 0 to Tk equal rows without padding, for 1 to 40 queries", "[attention]") {
  at::manual_seed(9);
  for (int64_t queries : {1, 5, 8, 9, 40}) {
    const at::Tensor q = at::randn({4, 2, queries, 32}), k = at::randn({4, 2, 21, 32}), v = at::randn_like(k),
                     dout = at::randn_like(q);
    const at::Tensor lengths = at::tensor({21, 7, 0, 16}, at::kLong);
    auto leaf = [](const at::Tensor& t) { return t.detach().clone().requires_grad_(); };
    const at::Tensor q_leaf = leaf(q), k_leaf = leaf(k), v_leaf = leaf(v);
    const at::Tensor out = attention::fused_cpu(q_leaf, k_leaf, v_leaf, {false, 0, lengths});
    out.backward(dout);
    for (int64_t b = 0; b < 4; ++b) {
      INFO("row " << b << " of " << queries << " queries");
      const int64_t n = lengths[b].item<int64_t>();
      for (const at::Tensor& gradient : {k_leaf.grad(), v_leaf.grad()})
        CHECK(gradient[b].narrow(1, n, 21 - n).abs().sum().item<double>() == 0);
      if (n == 0) {
        CHECK(out[b].abs().sum().item<double>() == 0);
        CHECK(q_leaf.grad()[b].abs().sum().item<double>() == 0);
        continue;
      }
      auto row = [&](const at::Tensor& t, int64_t length) { return t.narrow(0, b, 1).narrow(2, 0, length); };
      const auto run_unpadded = [&](const auto& f, at::ScalarType type) {
        return run(f, row(q, queries), row(k, n), row(v, n), row(dout, queries), false, type);
      };
      const Results exact = run_unpadded(attention_by_query, at::kDouble),
                    composed_results = run_unpadded(composed_attention, at::kFloat);
      CHECK(find_excess_error(
                {row(out, queries), row(q_leaf.grad(), queries), row(k_leaf.grad(), n), row(v_leaf.grad(), n)},
                composed_results.all(), exact.all(), at::kFloat) == "");
      c10::NoGradGuard no_gradient;  // so that up to kMaxDecodeQueries queries take the decoding path
      CHECK(find_excess_error({row(attention::fused_cpu(q, k, v, {false, 0, lengths}), queries)},
                              {composed_results.out}, {exact.out}, at::kFloat) == "");
    }
  }
}

TEST_CASE("the CPU attention kernel drops the same probabilities as nn::dropout", "[attention][dropout]") {
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    const int64_t batch = *rc::gen::inRange(1, 4), heads = *rc::gen::inRange(1, 4), size = 16 * *rc::gen::inRange(1, 4);
    const bool causal = *rc::gen::arbitrary<bool>();
    const int64_t queries = *rc::gen::inRange(1, 90);
    const int64_t keys = causal ? queries + *rc::gen::inRange(0, 40) : *rc::gen::inRange(1, 150);
    const nn::ForwardContext forward_context{true, 3, *rc::gen::inRange(0U, 9U), *rc::gen::inRange(0, 5),
                                             *rc::gen::element(nn::DropoutIndex::position, nn::DropoutIndex::padded)};
    const double p = *rc::gen::element(0.1, 0.5, 0.9);
    using namespace reference::spec;
    Inputs x;
    x.operands = {at::randn({batch, heads, queries, size}) * 2, at::randn({batch, heads, keys, size}),
                  at::randn({batch, heads, keys, size})};
    x.operands.resize(kDistanceRows + 1);
    x.dout = at::randn({batch, heads, queries, size});
    x.dropout_mask = nn::dropout(at::ones({batch, heads, queries, keys}), p, forward_context, "place", 4);
    x.spec.causal = causal;
    if (!causal && *rc::gen::arbitrary<bool>()) x.spec.key_lengths = at::randint(1, keys + 1, {batch}, at::kLong);
    x.spec.dropout = nn::dropout_range_of(x.dropout_mask.sizes(), p, forward_context, "place", 4);
    const auto attend_fused = [](const Inputs& inputs, const Tensors& t) {
      return attention::fused_cpu(t[kQ], t[kK], t[kV], inputs.spec);
    };
    const auto results_in = [&](at::ScalarType type, const auto& attend) {
      return run_with_gradients(x, at::kFloat, type, at::kCPU, attend);
    };
    const Tensors exact = results_in(at::kDouble, reference::spec::composed_attention),
                  composed_results = results_in(at::kFloat, reference::spec::composed_attention),
                  magnitudes = term_magnitudes(x, at::kFloat);
    const std::string excess_error =
        find_excess_error(results_in(at::kFloat, attend_fused), composed_results, exact, at::kFloat, magnitudes);
    RC_LOG() << excess_error << "\n";
    RC_ASSERT(excess_error.empty());
    c10::NoGradGuard no_gradient;  // dropout must keep short batches off the decoding path, which has no dropout
    RC_ASSERT(
        find_excess_error({attend_fused(x, x.operands)}, {composed_results[0]}, {exact[0]}, at::kFloat, {magnitudes[0]})
            .empty());
  }));
}

TEST_CASE("a layer drops the same probabilities on the fused and the composed path", "[attention][dropout]") {
  const nn::ForwardContext forward_context{true, 5, 2, 3};
  for (const auto& [kind, has_lengths] : {std::pair{attention::AttentionKind::decoder_self, false},
                                          {attention::AttentionKind::encoder_self, true},
                                          {attention::AttentionKind::encoder_self, false}}) {
    layers::Layer l("heads = 2\ndropout = 0.4\n", 32, 1, kind);
    REQUIRE(l.layer->describe_path(true) == "fused");
    const at::Tensor x = numbers::normal({3, 37, 32}, 8);
    attention::Mask mask;
    mask.causal = kind == attention::AttentionKind::decoder_self;
    if (has_lengths) mask.key_lengths = at::tensor({37, 5, 20}, at::kLong);
    const auto [fused, composed, exact, magnitudes] =
        layers::results_of_paths(l, x, [&](const at::Tensor& input) { return l(input, input, mask, forward_context); });
    CHECK(find_excess_error(fused, composed, exact, at::kFloat, magnitudes) == "");
  }
  // The kernel does not support an additive mask: Path::fused throws, Path::automatic falls back to the composed path.
  layers::Layer l("heads = 2\ndropout = 0.4\n", 32);
  attention::Mask mask;
  mask.causal = true;
  mask.additive = numbers::normal({20, 20}, 9);
  const at::Tensor x = numbers::normal({2, 20, 32}, 8);
  const at::Tensor y = l(x, x, mask, forward_context);
  l.layer->set_path(attention::Path::composed);
  CHECK(at::equal(l(x, x, mask, forward_context), y));
  l.layer->set_path(attention::Path::fused);
  CHECK(refusal([&] { l(x, x, mask, forward_context); }).find("an additive mask") != std::string::npos);
  CHECK(layers::Layer("heads = 4\ndropout = 0.4\n", 32).layer->describe_path(true).find("head_size 8") !=
        std::string::npos);
}

TEST_CASE("causal queries after a memory see the entire memory and no later position", "[attention]") {
  at::manual_seed(14);
  for (const auto& [queries, memory_length] : {std::pair<int64_t, int64_t>{1, 6}, {5, 1}, {33, 40}, {64, 100}}) {
    INFO(queries << " queries after a memory of " << memory_length);
    const at::Tensor q = at::randn({2, 3, queries, 32}), k = at::randn({2, 3, queries + memory_length, 32});
    const at::Tensor v = at::randn_like(k), dout = at::randn_like(q);
    const Results exact = run(attention_by_query, q, k, v, dout, true, at::kDouble),
                  fused_results = run(fused_attention, q, k, v, dout, true, at::kFloat),
                  composed_results = run(composed_attention, q, k, v, dout, true, at::kFloat);
    CHECK(find_excess_error(fused_results.all(), composed_results.all(), exact.all(), at::kFloat) == "");
  }
}
