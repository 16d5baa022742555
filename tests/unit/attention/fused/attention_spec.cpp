// Every option of AttentionSpec in the CPU kernels, with head mixing and without, against tensor operations in double
// precision: relative positions with gaps between keys, windows, soft caps, sinks, position biases, Sigsoftmax,
// dropout, shared key/value heads and head scales, in any combination.
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "attention/fused/fused_cpu.h"
#include "attention/fused/head_mixing_cpu.h"
#include "cpu/simd_level.h"
#include "fixtures/aten.h"
#include "fixtures/errors.h"
#include "fixtures/layers.h"
#include "fixtures/numbers.h"
#include "nn/ops.h"
#include "oracle/spec_attention.h"

using namespace mh;
using attention::AttentionSpec;
using numbers::find_excess_error;
using namespace reference::spec;

namespace {

at::Tensor attend_fused(const Inputs& x, const Tensors& leaves) {
  AttentionSpec spec = x.spec;
  spec.relative_positions.u = leaves[kContentBias], spec.relative_positions.v = leaves[kPositionBias],
  spec.relative_positions.r = leaves[kDistanceRows];
  spec.head_scales = leaves[kHeadScales];
  spec.sinks = operand(leaves, kSinks), spec.position_bias.bias = operand(leaves, kDistanceBias);
  return leaves[kMatrix].defined()
             ? attention::head_mixing_cpu(leaves[kQ], leaves[kK], leaves[kV], leaves[kMatrix], spec)
             : attention::fused_cpu(leaves[kQ], leaves[kK], leaves[kV], spec);
}

int64_t pick(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }

// Draws key ranges that cover all keys, with gaps between their distances, and returns the number of distances.
int64_t draw_key_ranges(bool causal, int64_t num_queries, int64_t num_keys,
                        std::vector<kernels::KeyRange>& key_ranges) {
  int64_t num_rows = 0;
  for (int64_t first = 0; first < num_keys;) {
    const int64_t count = pick(1, num_keys - first);
    const int64_t num_visible = causal ? std::min(count, num_keys - num_queries - first + 1) : count;
    key_ranges.push_back({first, count, num_rows});
    num_rows += std::max<int64_t>(1, num_queries + num_visible - 1);
    first += count;
  }
  return num_rows;
}

// Adds relative positions: random key ranges, and random distance embeddings.
void add_relative_positions(Inputs& x, int64_t num_heads, int64_t num_queries, int64_t num_keys, int64_t size) {
  x.operands[kContentBias] = at::randn({num_heads, size}), x.operands[kPositionBias] = at::randn({num_heads, size});
  const int64_t num_rows = draw_key_ranges(x.spec.causal, num_queries, num_keys, x.spec.relative_positions.key_ranges);
  x.operands[kDistanceRows] = at::randn({num_heads, num_rows, size});
}

// Adds a soft cap, sinks and a position bias, each to half of the cases.
void add_logit_terms(Inputs& x, int64_t num_heads, int64_t num_queries, int64_t num_keys) {
  if (pick(0, 1) == 1) x.spec.soft_cap = *rc::gen::element(1.0, 5.0, 50.0);
  if (pick(0, 1) == 1) x.operands[kSinks] = at::randn({num_heads}) * 2;
  if (pick(0, 1) == 1) {
    const int64_t num_rows = draw_key_ranges(x.spec.causal, num_queries, num_keys, x.spec.position_bias.key_ranges);
    x.operands[kDistanceBias] = at::randn({num_heads, num_rows}) * 2;
  }
}

// Draws random operands and options of a case, with head mixing if `with_mixing`.
Inputs random_inputs(bool with_mixing) {
  at::manual_seed(static_cast<uint64_t>(pick(0, 1 << 30)));  // so that rapidcheck's seed reproduces the tensors
  Inputs x;
  const int64_t batch_size = pick(1, 3), num_heads = pick(1, 5), num_value_heads = with_mixing ? pick(1, 5) : num_heads,
                num_queries = pick(1, 80);
  const int64_t dk = with_mixing ? pick(1, 40) : 16 * pick(1, 3), dv = with_mixing ? pick(1, 40) : dk;
  x.spec.causal = pick(0, 2) > 0;
  const int64_t num_keys = x.spec.causal ? num_queries + pick(0, 150) : pick(1, 200);
  if (pick(0, 1) == 1) x.spec.window = pick(1, num_keys + 10);
  if (pick(0, 1) == 1) x.spec.normaliser = kernels::Normaliser::sigsoftmax;
  // In half of the cases with h = hv, draws the key/value head that each query head reads: a rotation of all heads, or
  // a random choice among 1 to 6 key/value heads.
  int64_t k_heads = num_heads, v_heads = num_value_heads;
  if (num_heads == num_value_heads && pick(0, 1) == 1) {
    std::vector<int64_t>& kv_head_of = x.spec.kv_head_of;
    for (int64_t i = 0; i < num_heads; ++i) kv_head_of.push_back(i);
    if (pick(0, 1) == 1) std::rotate(kv_head_of.begin(), kv_head_of.begin() + pick(0, num_heads - 1), kv_head_of.end());
    else {
      k_heads = v_heads = pick(1, 6);
      for (int64_t& head : kv_head_of) head = pick(0, k_heads - 1);
    }
  }
  x.operands.resize(kNumOperands);
  if (pick(0, 1) == 1) {
    at::Tensor& scales = x.operands[kHeadScales];
    scales = at::randn(pick(0, 1) == 1 ? std::vector<int64_t>{num_value_heads}
                                       : std::vector<int64_t>{batch_size, num_value_heads});
    if (pick(0, 1) == 1) scales.select(-1, pick(0, num_value_heads - 1)).zero_();  // the scale of a closed gate
  }
  x.operands[kQ] = at::randn({batch_size, num_heads, num_queries, dk}) * 2,
  x.operands[kK] = at::randn({batch_size, k_heads, num_keys, dk});
  x.operands[kV] = at::randn({batch_size, v_heads, num_keys, dv}),
  x.dout = at::randn({batch_size, num_value_heads, num_queries, dv});
  if (with_mixing)
    x.operands[kMatrix] = pick(0, 1) == 1 ? at::randn({batch_size, num_queries, num_heads, num_value_heads})
                                          : at::randn({num_heads, num_value_heads});
  if (pick(0, 2) > 0) add_relative_positions(x, num_heads, num_queries, num_keys, dk);
  else if (!x.spec.causal && pick(0, 1) == 1)
    x.spec.key_lengths = at::randint(0, num_keys + 1, {batch_size}, at::kLong);
  if (pick(0, 1) == 1) add_logit_terms(x, num_heads, num_queries, num_keys);
  return x;
}

// Adds dropout of probabilities to a third of the cases.
void add_dropout(Inputs& x) {
  if (pick(0, 2) > 0) return;
  const nn::ForwardContext forward_context{true, 3, *rc::gen::inRange(0U, 9U), pick(0, 5),
                                           pick(0, 1) == 1 ? nn::DropoutIndex::position : nn::DropoutIndex::padded};
  const double p = *rc::gen::element(0.1, 0.5);
  x.spec.dropout_before_mixing = x.operands[kMatrix].defined() && pick(0, 1) == 1;
  const int64_t num_heads = x.spec.dropout_before_mixing ? x.operands[kQ].size(1) : x.dout.size(1);
  const at::Tensor &q = x.operands[kQ], &k = x.operands[kK];
  x.dropout_mask = nn::dropout(at::ones({q.size(0), num_heads, q.size(2), k.size(2)}), p, forward_context, "place", 4);
  x.spec.dropout = nn::dropout_range_of(x.dropout_mask.sizes(), p, forward_context, "place", 4);
}

}  // namespace

TEST_CASE("fused attention and its gradients match the reference equations over random options at each SIMD level",
          "[attention][policy]") {
  struct RestoreLevel {
    ~RestoreLevel() { kernels::set_simd_level(kernels::best_simd_level()), kernels::set_l2_cache_bytes(0); }
  } restore_level;
  using kernels::SimdLevel;
  for (const auto& [level, name] : {std::pair{SimdLevel::baseline, "baseline"},
                                    {SimdLevel::avx2, "AVX2"},
                                    {SimdLevel::avx512, "AVX-512"},
                                    {SimdLevel::avx512_bf16, "AVX-512 with bf16"}})
    for (const bool with_mixing : {false, true}) {
      if (level > kernels::best_simd_level()) {
        if (with_mixing) WARN("skipped: this processor has no " << name);
        continue;
      }
      kernels::set_simd_level(level);
      INFO((with_mixing ? "with head mixing, " : "without head mixing, ") << name);
      CHECK(rc::check([&] {
        Inputs x = random_inputs(with_mixing);
        add_dropout(x);
        kernels::set_l2_cache_bytes(int64_t{1} << pick(10, 20));  // often too small for all keys in one span
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
          const Tensors exact = run_with_gradients(x, type, at::kDouble, at::kCPU, composed_attention),
                        composed_results = run_with_gradients(x, type, type, at::kCPU, composed_attention),
                        magnitudes = term_magnitudes(x, type);
          const std::string excess_error = find_excess_error(run_with_gradients(x, type, type, at::kCPU, attend_fused),
                                                             composed_results, exact, type, magnitudes);
          RC_LOG() << excess_error << "\n";
          RC_ASSERT(excess_error.empty());
          // Without gradients, cases of up to kMaxDecodeQueries queries take the decoding path if it supports their
          // options.
          const c10::NoGradGuard no_gradient;
          const std::string inference_excess_error =
              find_excess_error({attend_fused(x, leaves_of(x, type, type, at::kCPU))}, {composed_results[0]},
                                {exact[0]}, type, {magnitudes[0]});
          RC_LOG() << "without gradients: " << inference_excess_error << "\n";
          RC_ASSERT(inference_excess_error.empty());
        }
      }));
    }
}

TEST_CASE("fused Sigsoftmax is accurate and finite for extreme logits", "[attention][policy]") {
  at::manual_seed(42);
  for (const bool with_mixing : {false, true}) {
    const at::Tensor q = at::randn({1, 2, 40, 16}) * 1e4, k = at::randn_like(q), v = at::randn_like(q);
    Inputs x{{q, k, v, with_mixing ? at::eye(2) : at::Tensor(), {}, {}, {}, {}}, at::randn_like(q), {}, {}};
    x.spec.causal = true, x.spec.normaliser = kernels::Normaliser::sigsoftmax;
    const Tensors fused = run_with_gradients(x, at::kFloat, at::kFloat, at::kCPU, attend_fused);
    CHECK(find_excess_error(
              {fused[0]}, {run_with_gradients(x, at::kFloat, at::kFloat, at::kCPU, composed_attention)[0]},
              {run_with_gradients(x, at::kFloat, at::kDouble, at::kCPU, composed_attention)[0]}, at::kFloat) == "");
    for (const at::Tensor& t : fused) CHECK(t.isfinite().all().item<bool>());
  }
}

TEST_CASE(
    "fused attention with relative positions, sinks and a position bias is bit-identical for any number of threads",
    "[attention][policy]") {
  at::manual_seed(43);
  const int num_threads = at::get_num_threads();
  for (const bool with_mixing : {false, true}) {
    const at::Tensor q = at::randn({3, 2, 70, 16}), k = at::randn({3, 2, 100, 16}), v = at::randn_like(k);
    Inputs x{{q,
              k,
              v,
              with_mixing ? at::randn({2, 2}) : at::Tensor(),
              {},
              at::randn({2, 16}),
              at::randn({2, 16}),
              at::randn({2, 100, 16}),
              at::randn({2}),
              at::randn({2, 100})},
             at::randn_like(q),
             {},
             {}};
    x.spec.causal = true, x.spec.soft_cap = 5;
    x.spec.relative_positions.key_ranges = x.spec.position_bias.key_ranges = {{0, 100, 0}};
    std::vector<Tensors> results_by_threads;
    for (const int n : {1, 2, 5}) {
      at::set_num_threads(n);
      results_by_threads.push_back(run_with_gradients(x, at::kFloat, at::kFloat, at::kCPU, attend_fused));
    }
    at::set_num_threads(num_threads);
    for (size_t i = 0; i < results_by_threads[0].size(); ++i) {
      CHECK(at::equal(results_by_threads[0][i], results_by_threads[1][i]));
      CHECK(at::equal(results_by_threads[0][i], results_by_threads[2][i]));
    }
  }
}

TEST_CASE("a query past its window and the padding of its batch row has an output of 0", "[attention][policy]") {
  // 60 queries of batch row 0 see keys 0 … 9; with a window of 4, queries 13 … 59 see none of them.
  for (const bool with_mixing : {false, true}) {
    const at::Tensor q = at::randn({2, 2, 60, 16}), k = at::randn({2, 2, 60, 16}), v = at::randn_like(k);
    Inputs x{{q, k, v, with_mixing ? at::randn({2, 2}) : at::Tensor(), {}, {}, {}, {}, at::randn({2})},
             at::randn_like(q),
             {},
             {}};
    x.spec.window = 4, x.spec.key_lengths = at::tensor({10, 60}, at::kLong);
    const auto results_in = [&](at::ScalarType type, const auto& attend) {
      return run_with_gradients(x, at::kFloat, type, at::kCPU, attend);
    };
    const Tensors fused = results_in(at::kFloat, attend_fused);
    CHECK(find_excess_error(fused, results_in(at::kFloat, composed_attention),
                            results_in(at::kDouble, composed_attention), at::kFloat,
                            term_magnitudes(x, at::kFloat)) == "");
    for (const size_t i : {size_t{0}, size_t{1}}) {  // the output and the gradient of q
      CHECK(fused[i][0].slice(1, 13).eq(0).all().item<bool>());
      CHECK(fused[i][0].slice(1, 0, 13).ne(0).any(-1).all().item<bool>());
    }
  }
}

TEST_CASE("a position bias and sinks give the same bits with and without a gradient", "[attention][policy]") {
  for (const bool with_mixing : {false, true}) {
    const at::Tensor q = at::randn({2, 2, 40, 16}), k = at::randn_like(q), v = at::randn_like(q),
                     sinks = at::randn({2}), bias = at::randn({2, 40});
    const auto results_of = [&](bool requires_gradient) {
      AttentionSpec spec;
      spec.causal = true;
      spec.sinks = sinks.clone().requires_grad_(requires_gradient);
      spec.position_bias = {bias.clone().requires_grad_(requires_gradient), {{0, 40, 0}}};
      const at::Tensor leaf = q.clone().requires_grad_();
      const at::Tensor out = with_mixing ? attention::head_mixing_cpu(leaf, k, v, at::ones({2, 2}), spec)
                                         : attention::fused_cpu(leaf, k, v, spec);
      out.sum().backward();
      CHECK(spec.sinks.grad().defined() == requires_gradient);
      CHECK(spec.position_bias.bias.grad().defined() == requires_gradient);
      return Tensors{out.detach(), leaf.grad()};
    };
    const Tensors with_gradient = results_of(true), without_gradient = results_of(false);
    CHECK(at::equal(with_gradient[0], without_gradient[0]));
    CHECK(at::equal(with_gradient[1], without_gradient[1]));
  }
}

TEST_CASE("AttentionSpec refuses sinks and position biases of other shapes, and key ranges without columns",
          "[attention][policy]") {
  const at::Tensor q = at::randn({1, 2, 10, 16}), k = at::randn({1, 2, 14, 16});
  const auto error_of = [&](bool causal, const at::Tensor& sinks, const at::Tensor& bias,
                            const std::vector<kernels::KeyRange>& key_ranges) -> std::string {
    AttentionSpec spec;
    spec.causal = causal, spec.sinks = sinks, spec.position_bias = {bias, key_ranges};
    try {
      attention::fused_cpu(q, k, k, spec);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  const at::Tensor no_tensor;
  CHECK(error_of(true, at::zeros({2}), at::zeros({2, 14}), {{0, 14, 0}}).empty());
  CHECK(error_of(false, {}, at::zeros({2, 23}), {{0, 14, 0}}).empty());
  CHECK(error_of(true, at::zeros({3}), no_tensor, {}).find("sinks: expected") != std::string::npos);
  CHECK(error_of(true, at::zeros({2}, at::kDouble), no_tensor, {}).find("sinks: expected") != std::string::npos);
  for (const at::Tensor& bias : {at::zeros({1, 14}), at::zeros({14, 2}).t(), at::zeros({2})})
    CHECK(error_of(true, no_tensor, bias, {{0, 14, 0}}).find("position_bias.bias: expected") != std::string::npos);
  for (const std::vector<kernels::KeyRange>& key_ranges :
       {std::vector<kernels::KeyRange>{}, {{0, 13, 0}}, {{1, 13, 0}}, {{0, 4, 0}, {5, 9, 0}}, {{0, 14, 0}, {14, 0, 0}}})
    CHECK(error_of(true, no_tensor, at::zeros({2, 40}), key_ranges).find("position_bias.key_ranges: expected") !=
          std::string::npos);
  CHECK(error_of(true, no_tensor, at::zeros({2, 13}), {{0, 14, 0}}).find("found columns from 0 to 13") !=
        std::string::npos);
  CHECK(error_of(true, no_tensor, at::zeros({2, 14}), {{0, 14, -1}}).find("found columns from -1 to 12") !=
        std::string::npos);
  CHECK(error_of(false, no_tensor, at::zeros({2, 22}), {{0, 14, 0}}).find("found columns from 0 to 22") !=
        std::string::npos);
}

TEST_CASE(
    "layers with Sigsoftmax, relative positions, windows or head weights are equal on the fused and composed path",
    "[attention][policy]") {
  for (const char* stages :
       {"normaliser = 'sigsoftmax'\n", "score = 'relative'\n",
        "score = 'relative'\nnormaliser = 'sigsoftmax'\nmixer = 'mixhead-a'\n",
        "score = 'relative'\nmixer = 'mixhead-b'\npairing = 'cross-head'\n", "", "combiner = 'mae'\n",
        "combiner = 'gates'\nscore = 'relative'\n", "combiner = 'drop-head'\npairing = 'cross-head'\n",
        "combiner = 'mae'\nmixer = 'mixhead-a'\n", "combiner = 'drop-head'\nmixer = 'mixhead-a'\n",
        "combiner = 'drop-head'\nmixer = 'mixhead-b'\n"})
    for (const int64_t window : {0, 7})
      for (const bool has_gaps : {false, true}) {
        const bool has_relative_positions = std::string(stages).find("relative") != std::string::npos;
        if (has_gaps && !has_relative_positions) continue;
        INFO(stages << ", window " << window << (has_gaps ? ", a memory with gaps" : ""));
        layers::Layer l(std::string("heads = 2\ndropout = 0.2\n") + stages, 32);
        l.perturb_parameters(3);
        REQUIRE(l.layer->describe_path(true) == "fused");
        const int64_t num_queries = 40, memory_length = 23;
        const at::Tensor x = numbers::normal({2, num_queries, 32}, 8),
                         m = nn::cat({numbers::normal({2, memory_length, 32}, 9), x}, 1);
        attention::Mask mask;
        mask.causal = true, mask.offset = memory_length, mask.window = window;
        if (has_gaps) {
          mask.key_positions = at::arange(-memory_length, num_queries, at::kLong);
          mask.key_positions.narrow(0, 0, 9).sub_(4);  // a gap of four positions after the ninth key
        }
        const nn::ForwardContext forward_context{true, 5, 2, 3};
        const auto [fused, composed, exact, magnitudes] =
            layers::results_of_paths(l, m, [&](const at::Tensor& key_inputs) {
              return l(key_inputs.narrow(1, memory_length, num_queries), key_inputs, mask, forward_context);
            });
        CHECK(find_excess_error(fused, composed, exact, at::kFloat, magnitudes) == "");
      }
}
