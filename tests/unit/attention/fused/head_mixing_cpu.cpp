// The CPU kernel of attention with head mixing against the reference equations in double precision: output and every
// gradient, over random shapes, masks, matrices and dropout. Layers on the fused and on the composed path.
#include "attention/fused/head_mixing_cpu.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <vector>

#include "attention/fused/fused_cpu.h"
#include "attention/fused/split_projection.h"
#include "fixtures/aten.h"
#include "fixtures/errors.h"
#include "fixtures/layers.h"
#include "fixtures/numbers.h"
#include "fixtures/peak_memory.h"
#include "fixtures/pick.h"
#include "fixtures/skip.h"
#include "fixtures/status.h"
#include "nn/ops.h"
#include "oracle/spec_attention.h"

using namespace mh;
using numbers::find_excess_error;
using namespace reference::spec;

namespace {

at::Tensor attend_fused(const Inputs& x, const Tensors& leaves) {
  return attention::head_mixing_cpu(leaves[kQ], leaves[kK], leaves[kV], leaves[kMatrix], x.spec);
}

// Returns the output and the gradients of q, k, v and m from the CPU kernel.
Tensors fused_results(const Inputs& x, at::ScalarType type = at::kFloat) {
  return run_with_gradients(x, type, type, at::kCPU, attend_fused);
}

// Returns the output and the gradients of q, k, v and m from composed operations in `type`.
Tensors composed_results(const Inputs& x, at::ScalarType type = at::kFloat) {
  return run_with_gradients(x, type, type, at::kCPU, composed_attention);
}

// Returns the output and the gradients of q, k, v and m from composed operations in double precision, for q, k and v
// rounded to `type`.
Tensors exact_results(const Inputs& x, at::ScalarType type = at::kFloat) {
  return run_with_gradients(x, type, at::kDouble, at::kCPU, composed_attention);
}

bool are_bit_identical(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

struct Sizes {
  int64_t batch, heads, value_heads, queries, keys, dk, dv;
  bool causal;
  bool has_matrix_per_query;
};

Inputs random_inputs(const Sizes& sizes) {
  Inputs x{{at::randn({sizes.batch, sizes.heads, sizes.queries, sizes.dk}) * 2,
            at::randn({sizes.batch, sizes.heads, sizes.keys, sizes.dk}),
            at::randn({sizes.batch, sizes.value_heads, sizes.keys, sizes.dv}),
            sizes.has_matrix_per_query ? at::randn({sizes.batch, sizes.queries, sizes.heads, sizes.value_heads})
                                       : at::randn({sizes.heads, sizes.value_heads}),
            {},
            {},
            {},
            {}},
           at::randn({sizes.batch, sizes.value_heads, sizes.queries, sizes.dv}),
           {},
           {}};
  x.spec.causal = sizes.causal;
  return x;
}

}  // namespace

TEST_CASE("the CPU head mixing kernel and its gradients match the reference equations over random shapes",
          "[attention][head-mixing]") {
  CHECK(rc::check([] {
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1 << 30));
    Sizes sizes{pick(1, 3),  pick(1, 9),  pick(1, 9),      pick(1, 90),    0,
                pick(1, 40), pick(1, 40), pick(0, 1) == 1, pick(0, 1) == 1};
    sizes.keys = sizes.causal ? sizes.queries + pick(0, 150) : pick(1, 300);
    Inputs x = random_inputs(sizes);
    if (!sizes.causal && pick(0, 1) == 1) {
      std::vector<int64_t> lengths;
      for (int64_t b = 0; b < sizes.batch; ++b) lengths.push_back(pick(0, sizes.keys));
      x.spec.key_lengths = at::tensor(lengths, at::kLong);
    }
    if (pick(0, 2) == 0) {
      const nn::ForwardContext forward_context{true, 3, *rc::gen::inRange(0U, 9U), pick(0, 5),
                                               pick(0, 1) == 1 ? nn::DropoutIndex::position : nn::DropoutIndex::padded};
      const double p = *rc::gen::element(0.1, 0.5, 0.9);
      x.spec.dropout_before_mixing = pick(0, 1) == 1;
      const int64_t heads = x.spec.dropout_before_mixing ? sizes.heads : sizes.value_heads;
      x.dropout_mask =
          nn::dropout(at::ones({sizes.batch, heads, sizes.queries, sizes.keys}), p, forward_context, "place", 4);
      x.spec.dropout = nn::dropout_range_of(x.dropout_mask.sizes(), p, forward_context, "place", 4);
    }
    for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const Tensors exact = exact_results(x, type), composed = composed_results(x, type),
                    magnitudes = term_magnitudes(x, type);
      const std::string excess_error = find_excess_error(fused_results(x, type), composed, exact, type, magnitudes);
      RC_LOG() << excess_error << "\n";
      RC_ASSERT(excess_error.empty());
      c10::NoGradGuard no_gradient;  // so that up to kMaxDecodeQueries queries without dropout take the decoding path
      RC_ASSERT(find_excess_error({attend_fused(x, leaves_of(x, type, type, at::kCPU))}, {composed[0]}, {exact[0]},
                                  type, {magnitudes[0]})
                    .empty());
    }
  }));
}

TEST_CASE("head mixing with the identity matrix equals attention without mixing", "[attention][head-mixing]") {
  at::manual_seed(32);
  for (bool causal : {false, true}) {
    Inputs x = random_inputs({2, 4, 4, 70, 70, 32, 32, causal, false});
    x.operands[kMatrix] = at::eye(4);
    const Tensors results_without_mixing =
        run_with_gradients(x, at::kFloat, at::kFloat, at::kCPU, [&](const Inputs&, const Tensors& leaves) {
          return attention::fused_cpu(leaves[kQ], leaves[kK], leaves[kV], {causal}) + 0 * leaves[kMatrix].sum();
        });
    auto drop_matrix_gradient = [](Tensors tensors) {
      tensors.pop_back();
      return tensors;
    };
    const Tensors exact = drop_matrix_gradient(exact_results(x)), composed = drop_matrix_gradient(composed_results(x)),
                  magnitudes = drop_matrix_gradient(term_magnitudes(x, at::kFloat));
    CHECK(find_excess_error(drop_matrix_gradient(fused_results(x)), composed, exact, at::kFloat, magnitudes) == "");
    CHECK(find_excess_error(drop_matrix_gradient(results_without_mixing), composed, exact, at::kFloat, magnitudes) ==
          "");
  }
}

TEST_CASE("the CPU head mixing kernel is bit-identical for any number of threads", "[attention][head-mixing]") {
  at::manual_seed(33);
  const int num_threads = at::get_num_threads();
  for (int64_t batch : {1, 3, 9}) {
    const Inputs x = random_inputs({batch, 3, 3, 150, 150, 16, 16, true, batch == 3});
    std::vector<Tensors> results_by_threads;
    for (int n : {1, 2, 5}) {
      at::set_num_threads(n);
      results_by_threads.push_back(fused_results(x));
    }
    at::set_num_threads(num_threads);
    CHECK(are_bit_identical(results_by_threads[0], results_by_threads[1]));
    CHECK(are_bit_identical(results_by_threads[0], results_by_threads[2]));
  }
}

TEST_CASE("a batch row of the CPU head mixing kernel is independent of other rows and of keys past its key length",
          "[attention][head-mixing]") {
  at::manual_seed(34);
  for (int64_t queries : {1, 5, 40}) {
    Inputs x = random_inputs({4, 3, 2, queries, 140, 16, 24, false, false});
    x.spec.key_lengths = at::tensor({140, 129, 0, 16}, at::kLong);
    for (int64_t b = 0; b < 4; ++b)
      for (at::Tensor* t : {&x.operands[kK], &x.operands[kV]})
        t->select(0, b).slice(1, x.spec.key_lengths[b].item<int64_t>()).fill_(NAN);
    const Tensors results = fused_results(x);
    const at::Tensor &out = results[0], &dq = results[1], &dk = results[2], &dv = results[3];
    at::Tensor inference_out;
    {
      c10::NoGradGuard no_gradient;
      inference_out = attend_fused(x, x.operands);
    }
    for (int64_t b = 0; b < 4; ++b) {
      INFO("row " << b << ", " << queries << " queries");
      const int64_t n = x.spec.key_lengths[b].item<int64_t>();
      CHECK(dk[b].slice(1, n).eq(0).all().item<bool>());
      CHECK(dv[b].slice(1, n).eq(0).all().item<bool>());
      if (n == 0) {
        for (const at::Tensor& t : {out, inference_out, dq}) CHECK(t[b].eq(0).all().item<bool>());
        continue;
      }
      auto row = [&](const at::Tensor& t) { return t.narrow(0, b, 1); };
      const Inputs unpadded_inputs{{row(x.operands[kQ]),
                                    row(x.operands[kK]).slice(2, 0, n),
                                    row(x.operands[kV]).slice(2, 0, n),
                                    x.operands[kMatrix],
                                    {},
                                    {},
                                    {},
                                    {}},
                                   row(x.dout),
                                   {},
                                   {}};
      Tensors exact = exact_results(unpadded_inputs), composed = composed_results(unpadded_inputs);
      exact.pop_back(), composed.pop_back();  // removes the gradient of the matrix, a sum over all batch rows
      CHECK(find_excess_error({row(out), row(dq), row(dk).slice(2, 0, n), row(dv).slice(2, 0, n)}, composed, exact,
                              at::kFloat) == "");
      CHECK(find_excess_error({row(inference_out)}, {composed[0]}, {exact[0]}, at::kFloat) == "");
    }
  }
}

TEST_CASE("results of the CPU head mixing kernel are bit-identical for any contents of padding keys and values",
          "[attention][head-mixing]") {
  at::manual_seed(38);
  Inputs x = random_inputs({3, 3, 2, 40, 140, 16, 24, false, false});
  x.spec.key_lengths = at::tensor({140, 129, 16}, at::kLong);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    INFO(type);
    const auto results_with_padding = [&](double padding) {
      for (int64_t b = 0; b < 3; ++b)
        for (at::Tensor* t : {&x.operands[kK], &x.operands[kV]})
          t->select(0, b).slice(1, x.spec.key_lengths[b].item<int64_t>()).fill_(padding);
      return fused_results(x, type);
    };
    const Tensors results = results_with_padding(0);
    for (const at::Tensor& t : results) CHECK(t.isfinite().all().item<bool>());
    for (const double padding : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
      CHECK(are_bit_identical(results_with_padding(padding), results));
  }
}

TEST_CASE("the CPU head mixing kernel reads a joint projection and returns its gradient as one tensor",
          "[attention][head-mixing]") {
  at::manual_seed(35);
  const int64_t batch = 2, length = 40, heads = 3, value_heads = 2, size = 16, value_size = 8;
  const at::Tensor joint_projection = at::randn({batch, length, 2 * heads * size + value_heads * value_size}),
                   m = at::randn({heads, value_heads}), dout = at::randn({batch, value_heads, length, value_size});
  const auto gradient = [&](at::ScalarType type, const auto& attend) {
    const at::Tensor leaf = joint_projection.to(type).detach().clone().requires_grad_();
    const auto qkv = attention::split_projection(leaf, {heads, heads, value_heads, size, value_size});
    Inputs x;
    x.spec.causal = true;
    attend(x, Tensors{qkv[0], qkv[1], qkv[2], m.to(type), {}, {}, {}, {}}).backward(dout.to(type));
    return leaf.grad();
  };
  CHECK(find_excess_error({gradient(at::kFloat, attend_fused)}, {gradient(at::kFloat, composed_attention)},
                          {gradient(at::kDouble, composed_attention)}, at::kFloat) == "");
}

TEST_CASE("the CPU head mixing kernel is finite for extreme logits and confines a NaN to its query",
          "[attention][head-mixing]") {
  at::manual_seed(36);
  Inputs x = random_inputs({2, 2, 2, 65, 65, 32, 32, true, false});
  x.operands[kQ].mul_(1e4);
  for (const at::Tensor& t : fused_results(x)) CHECK(t.isfinite().all().item<bool>());
  x.operands[kQ][0][0][3][0] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor out = attend_fused(x, x.operands);
  CHECK(out[0][1][3].isnan().all().item<bool>());  // mixing spreads the NaN over the heads of its query
  CHECK_FALSE(out[0][1][4].isnan().any().item<bool>());
  CHECK_FALSE(out[1].isnan().any().item<bool>());
}

TEST_CASE("the CPU head mixing kernel allocates nothing of size Tq x Tk", "[attention][head-mixing]") {
  if (!reset_peak_memory()) SKIP("peak memory cannot be reset on this system");
  const int64_t n = 2048, heads = 8, size = 16;
  Inputs x = random_inputs({1, heads, heads, n, n, size, size, true, false});
  fused_results(x);  // warm-up: makes the allocations that later calls reuse
  reset_peak_memory();
  const int64_t initial_kb = peak_memory_kb();
  fused_results(x);
  // The probabilities of all heads take 134 MB, and composed operations store them several times.
  CHECK(peak_memory_kb() - initial_kb < 60 * 1024);
}

TEST_CASE("layers that mix probabilities have equal outputs and gradients on the fused and composed path, with dropout",
          "[attention][head-mixing]") {
  for (const char* mixer : {"mixer = 'mixhead-a'", "mixer = 'mixhead-b'", "mixer = 'random-normal'", "mixer = 'mean'",
                            "mixer = 'differential'", "mixer = 'mixhead-b'\ncombiner = 'alphas'",
                            "mixer = 'mixhead-a'\npairing = 'cross-head'",
                            "mixer = 'mixhead-a'\n[attention.mixhead-a]\ndropout_before_mixing = true",
                            "mixer = 'talking-heads'\n[attention.talking-heads]\npre = false"})
    for (attention::AttentionKind kind :
         {attention::AttentionKind::decoder_self, attention::AttentionKind::encoder_self}) {
      INFO(mixer << " in " << name_of(kind));
      const bool causal = kind == attention::AttentionKind::decoder_self;
      layers::Layer l(str("heads = 4\nhead_size = 6\ndropout = 0.3\n", mixer), 10, 1, kind);
      l.perturb_parameters(4);
      REQUIRE(l.layer->describe_path(true) == "fused");
      const at::Tensor x = numbers::normal({3, 37, 10}, 8);
      attention::Mask mask;
      mask.causal = causal;
      if (!causal) mask.key_lengths = at::tensor({37, 5, 20}, at::kLong);
      for (bool training : {false, true}) {
        const nn::ForwardContext forward_context{training, 5, 2, 3};
        const auto [fused, composed, exact, magnitudes] = layers::results_of_paths(
            l, x, [&](const at::Tensor& input) { return l(input, input, mask, forward_context); });
        CHECK(find_excess_error(fused, composed, exact, at::kFloat, magnitudes) == "");
      }
    }
}

TEST_CASE("describe_path names the features that the head mixing kernel lacks", "[attention][head-mixing]") {
  const auto path_of = [](const std::string& toml) {
    return layers::Layer("heads = 2\n" + toml, 32).layer->describe_path(true);
  };
  CHECK(path_of("mixer = 'mixhead-a'\n[attention.mixhead-a]\nmixer_input = 'logits'").find("the mixer mixes logits") !=
        std::string::npos);
  CHECK(path_of("mixer = 'talking-heads'").find("the mixer mixes logits") != std::string::npos);
  CHECK(path_of("mixer = 'mixhead-a'\nnormaliser = 'sigsoftmax'\nscore = 'relative'") == "fused");
  CHECK(path_of("mixer = 'mixhead-a'\nvalue_size = 3") == "fused");
  CHECK(path_of("value_size = 3").find("value_size 3 differs") != std::string::npos);
  layers::Layer l("heads = 2\nmixer = 'mixhead-b'\n", 32);
  attention::Mask mask;
  mask.causal = true;
  mask.additive = numbers::normal({20, 20}, 9);
  const at::Tensor x = numbers::normal({2, 20, 32}, 8);
  const at::Tensor y = l(x, x, mask);
  l.layer->set_path(attention::Path::composed);
  CHECK(at::equal(l(x, x, mask), y));
  l.layer->set_path(attention::Path::fused);
  CHECK(refusal([&] { l(x, x, mask); }).find("an additive mask") != std::string::npos);
}
