// All that a policy may say, in the kernels of plain attention and of mixed heads, against operations in double
// precision: relative positions with gaps between keys, windows, Sigsoftmax, dropout, heads that
// read those of others, scales of heads, in any combination.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "attention/fused/fused_cpu.h"
#include "attention/fused/mixed_cpu.h"
#include "cpu/level.h"
#include "fixtures/layers.h"
#include "fixtures/numbers.h"
#include "nn/ops.h"

using namespace mh;
using attention::FusedPolicy;
using numbers::error;
using numbers::size_of;

namespace {

struct Inputs {
  at::Tensor q, k, v, m, dout;
  FusedPolicy policy;
  at::Tensor kept;  // of dropout, (B, h, Tq, Tk), or undefined
};

// q, k, v, m, head scales, u, v, r: those that are not there are undefined.
enum { kQ, kK, kV, kM, kScales, kU, kBias, kR };

// Row of r of query t and key s: (Tq, Tk); where a mask hides the key, any row.
at::Tensor rows_of(const std::vector<kernels::Run>& runs, int64_t queries, int64_t keys, int64_t rows) {
  const at::Tensor t = at::arange(queries, at::kLong).unsqueeze(1), s = at::arange(keys, at::kLong).unsqueeze(0);
  at::Tensor all = at::zeros({queries, keys}, at::kLong);
  for (const kernels::Run& run : runs)
    all = at::where((s >= run.first).logical_and(s < run.first + run.count), run.row + queries - 1 - t + s - run.first,
                    all);
  return all.clamp(0, rows - 1);
}

at::Tensor hidden_keys(const FusedPolicy& p, int64_t queries, int64_t keys) {
  const at::Tensor t = at::arange(queries, at::kLong).unsqueeze(1), s = at::arange(keys, at::kLong).unsqueeze(0);
  at::Tensor hidden = at::zeros({1, 1, queries, keys}, at::kBool);
  if (p.causal) hidden = hidden.logical_or(s > t + keys - queries);
  if (p.window > 0) hidden = hidden.logical_or(s <= t + keys - queries - p.window);
  if (p.key_lengths.defined()) hidden = hidden.logical_or(s.ge(p.key_lengths.view({-1, 1, 1, 1})));
  return hidden;
}

at::Tensor by_equation(const Inputs& x, const std::vector<at::Tensor>& leaves) {
  const std::vector<int64_t>& pairs = x.policy.key_heads;
  const auto read = [&](const at::Tensor& t) {
    return pairs.empty() ? t : t.index_select(1, at::tensor(pairs, at::kLong));
  };
  const at::Tensor q = leaves[kQ], k = read(leaves[kK]), v = read(leaves[kV]), m = leaves[kM];
  const int64_t queries = q.size(2), keys = k.size(2);
  at::Tensor logits;
  if (leaves[kU].defined()) {
    const at::Tensor &u = leaves[kU], &bias = leaves[kBias], &r = leaves[kR];
    const at::Tensor of_pairs = r.index_select(1, rows_of(x.policy.relative.runs, queries, keys, r.size(1)).flatten())
                                    .view({r.size(0), queries, keys, r.size(2)});
    logits = at::matmul(q + u.unsqueeze(1), k.transpose(2, 3)) +
             at::einsum("bhtd,htsd->bhts", {q + bias.unsqueeze(1), of_pairs});
  } else {
    logits = at::matmul(q, k.transpose(2, 3));
  }
  logits = logits / std::sqrt(static_cast<double>(q.size(3)));
  if (x.policy.normaliser == kernels::Normaliser::sigsoftmax) logits = 2 * logits - at::softplus(logits, 1, 40);
  const at::Tensor hidden = hidden_keys(x.policy, queries, keys);
  at::Tensor p = at::softmax(logits.masked_fill(hidden, -INFINITY), -1).masked_fill(hidden, 0);
  const at::Tensor kept = x.kept.defined() ? x.kept.to(at::kDouble) : at::Tensor();
  if (kept.defined() && x.policy.dropped_before_mixing) p = p * kept;
  if (m.defined()) p = at::einsum(m.dim() == 4 ? "bjts,btji->bits" : "bjts,ji->bits", {p, m});
  if (kept.defined() && !x.policy.dropped_before_mixing) p = p * kept;
  const at::Tensor out = at::matmul(p, v), &scales = leaves[kScales];
  if (!scales.defined()) return out;
  return out * (scales.dim() == 2 ? scales : scales.unsqueeze(0)).unsqueeze(-1).unsqueeze(-1);
}

at::Tensor by_kernel(const Inputs& x, const std::vector<at::Tensor>& leaves) {
  FusedPolicy policy = x.policy;
  policy.relative.u = leaves[kU], policy.relative.v = leaves[kBias], policy.relative.r = leaves[kR];
  policy.head_scales = leaves[kScales];
  return leaves[3].defined() ? attention::mixed_cpu(leaves[0], leaves[1], leaves[2], leaves[3], policy)
                             : attention::fused_cpu(leaves[0], leaves[1], leaves[2], policy);
}

// The result, then the gradients of what is given.
template <class F>
std::vector<at::Tensor> run(const Inputs& x, at::ScalarType rounded, at::ScalarType type, const F& f) {
  const auto& p = x.policy.relative;
  std::vector<at::Tensor> leaves{x.q, x.k, x.v, x.m, x.policy.head_scales, p.u, p.v, p.r};
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].defined()) continue;
    // Weights of the mixing and biases stay fp32 beside bf16.
    const bool weight = i >= kM && i <= kBias;
    at::Tensor t = weight ? leaves[i] : leaves[i].to(rounded);
    leaves[i] = t.to(weight && type == at::kBFloat16 ? at::kFloat : type).detach().clone().requires_grad_();
  }
  const at::Tensor out = f(x, leaves);
  out.backward(x.dout.to(rounded).to(type));
  std::vector<at::Tensor> results{out.detach()};
  for (const at::Tensor& t : leaves)
    if (t.defined()) results.push_back(t.grad());
  return results;
}

int64_t pick(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }

// Keys with gaps between them, and a table of their distances.
void add_positions(Inputs& x, int64_t heads, int64_t queries, int64_t keys, int64_t size) {
  auto& p = x.policy.relative;
  p.u = at::randn({heads, size}), p.v = at::randn({heads, size});
  int64_t rows = 0;
  for (int64_t first = 0; first < keys;) {
    const int64_t count = pick(1, keys - first);
    const int64_t seen = x.policy.causal ? std::min(count, keys - queries - first + 1) : count;
    p.runs.push_back({first, count, rows});
    rows += std::max<int64_t>(1, queries + seen - 1);
    first += count;
  }
  p.r = at::randn({heads, rows, size});
}

Inputs drawn(bool mixed) {
  at::manual_seed(static_cast<uint64_t>(pick(0, 1 << 30)));  // a case found once is found again
  Inputs x;
  const int64_t batch = pick(1, 3), in = pick(1, 5), out = mixed ? pick(1, 5) : in, queries = pick(1, 80);
  const int64_t dk = mixed ? pick(1, 40) : 16 * pick(1, 3), dv = mixed ? pick(1, 40) : dk;
  x.policy.causal = pick(0, 2) > 0;
  const int64_t keys = x.policy.causal ? queries + pick(0, 150) : pick(1, 200);
  if (x.policy.causal && pick(0, 1) == 1) x.policy.window = pick(1, keys + 10);
  if (pick(0, 1) == 1) x.policy.normaliser = kernels::Normaliser::sigsoftmax;
  // Heads read those of others where there are as many of both: each once, or some of fewer.
  int64_t read_keys = in, read_values = out;
  if (in == out && pick(0, 1) == 1) {
    std::vector<int64_t>& pairs = x.policy.key_heads;
    for (int64_t i = 0; i < in; ++i) pairs.push_back(i);
    if (pick(0, 1) == 1) std::rotate(pairs.begin(), pairs.begin() + pick(0, in - 1), pairs.end());
    else {
      read_keys = read_values = pick(1, 6);
      for (int64_t& head : pairs) head = pick(0, read_keys - 1);
    }
  }
  if (pick(0, 1) == 1) {
    x.policy.head_scales = at::randn(pick(0, 1) == 1 ? std::vector<int64_t>{out} : std::vector<int64_t>{batch, out});
    if (pick(0, 1) == 1) x.policy.head_scales.select(-1, pick(0, out - 1)).zero_();  // of a gate that is closed
  }
  x.q = at::randn({batch, in, queries, dk}) * 2, x.k = at::randn({batch, read_keys, keys, dk});
  x.v = at::randn({batch, read_values, keys, dv}), x.dout = at::randn({batch, out, queries, dv});
  if (mixed) x.m = pick(0, 1) == 1 ? at::randn({batch, queries, in, out}) : at::randn({in, out});
  if (pick(0, 2) > 0) add_positions(x, in, queries, keys, dk);
  else if (!x.policy.causal && pick(0, 1) == 1) x.policy.key_lengths = at::randint(0, keys + 1, {batch}, at::kLong);
  return x;
}

// The probability of being dropped.
double add_dropout(Inputs& x) {
  if (pick(0, 2) > 0) return 0;
  const nn::ForwardContext step{true, 3, *rc::gen::inRange(0U, 9U), pick(0, 5)};
  const double p = *rc::gen::element(0.1, 0.5);
  x.policy.dropped_before_mixing = x.m.defined() && pick(0, 1) == 1;
  const int64_t heads = x.policy.dropped_before_mixing ? x.q.size(1) : x.dout.size(1);
  x.kept = nn::dropout(at::ones({x.q.size(0), heads, x.q.size(2), x.k.size(2)}), p, step, "place", 4);
  x.policy.drops = nn::dropout_from(heads * x.q.size(2) * x.k.size(2), p, step, "place", 4);
  return p;
}

}  // namespace

TEST_CASE("fused attention does all that a policy says, and its gradient", "[attention][policy]") {
  struct Back {  // whatever fails
    ~Back() { kernels::use_level(kernels::best_level()), kernels::use_second_level_cache(0); }
  } back;
  using kernels::Level;
  for (const auto& [level, name] : {std::pair{Level::baseline, "baseline"},
                                    {Level::avx2, "AVX2"},
                                    {Level::avx512, "AVX-512"},
                                    {Level::avx512_bf16, "AVX-512 with bf16"}})
    for (const bool mixed : {false, true}) {
      if (level > kernels::best_level()) {
        if (mixed) WARN("skipped: this processor has no " << name);
        continue;
      }
      kernels::use_level(level);
      INFO((mixed ? "mixed heads, " : "plain, ") << name);
      CHECK(rc::check([&] {
        Inputs x = drawn(mixed);
        const double p = add_dropout(x);
        kernels::use_second_level_cache(int64_t{1} << pick(10, 20));  // keys are cut, or not
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
          const auto truth = run(x, type, at::kDouble, by_equation), fast = run(x, type, type, by_kernel);
          // In bf16 plain attention takes dO · O from a rounded O, and Sigsoftmax's slope doubles that. A gradient that
          // is zero, as of the query of one key, is the difference of two as large as what is put out; of a key, or a
          // distance, it is the sum of many of these, as its value's is.
          const auto gathered = [&](size_t i) {
            return i == 2 || (x.policy.relative.r.defined() && i + 3 >= truth.size()) ? size_of(truth[3]) : 0;
          };
          const double unit = (type == at::kFloat ? 3e-5 : 4e-2) / (1 - p);
          for (size_t i = 0; i < truth.size(); ++i) {
            RC_LOG() << "result " << i << (type == at::kFloat ? " fp32" : " bf16") << ": error "
                     << error(fast[i], truth[i]) << " of " << size_of(truth[i]) << "\n";
            RC_ASSERT(error(fast[i], truth[i]) <=
                      unit * (1 + std::max(size_of(truth[i]), gathered(i)) + size_of(truth[0])));
          }
          const c10::NoGradGuard no_gradient;  // a few queries go another way
          const auto& r = x.policy.relative;
          const std::vector<at::Tensor> given{
              x.q.to(type),         x.k.to(type), x.v.to(type), x.m,
              x.policy.head_scales, r.u,          r.v,          r.r.defined() ? r.r.to(type) : r.r};
          const double off = error(by_kernel(x, given), truth[0]);
          RC_LOG() << "without gradients: error " << off << "\n";
          RC_ASSERT(off <= unit * (1 + size_of(truth[0])));
        }
      }));
    }
}

TEST_CASE("fused Sigsoftmax stands extreme logits", "[attention][policy]") {
  at::manual_seed(42);
  for (const bool mixed : {false, true}) {
    Inputs x;
    x.q = at::randn({1, 2, 40, 16}) * 1e4, x.k = at::randn_like(x.q), x.v = at::randn_like(x.q);
    x.dout = at::randn_like(x.q);
    if (mixed) x.m = at::eye(2);
    x.policy.causal = true, x.policy.normaliser = kernels::Normaliser::sigsoftmax;
    const auto truth = run(x, at::kFloat, at::kDouble, by_equation), fast = run(x, at::kFloat, at::kFloat, by_kernel);
    CHECK(error(fast[0], truth[0]) <= 1e-3);
    for (const at::Tensor& t : fast) CHECK(t.isfinite().all().item<bool>());
  }
}

TEST_CASE("relative positions have the same bits for any number of threads", "[attention][policy]") {
  at::manual_seed(43);
  const int threads = at::get_num_threads();
  for (const bool mixed : {false, true}) {
    Inputs x;
    x.q = at::randn({3, 2, 70, 16}), x.k = at::randn({3, 2, 100, 16}), x.v = at::randn_like(x.k);
    x.dout = at::randn_like(x.q);
    if (mixed) x.m = at::randn({2, 2});
    x.policy.causal = true;
    x.policy.relative = {at::randn({2, 16}), at::randn({2, 16}), at::randn({2, 100, 16}), {{0, 100, 0}}};
    std::vector<std::vector<at::Tensor>> runs;
    for (const int n : {1, 2, 5}) {
      at::set_num_threads(n);
      runs.push_back(run(x, at::kFloat, at::kFloat, by_kernel));
    }
    at::set_num_threads(threads);
    for (size_t i = 0; i < runs[0].size(); ++i) {
      CHECK(at::equal(runs[0][i], runs[1][i]));
      CHECK(at::equal(runs[0][i], runs[2][i]));
    }
  }
}

TEST_CASE("layers with Sigsoftmax, relative positions, windows and weights of heads are the same on both paths",
          "[attention][policy]") {
  for (const char* stages :
       {"normaliser = 'sigsoftmax'\n", "score = 'relative'\n",
        "score = 'relative'\nnormaliser = 'sigsoftmax'\nmixer = 'mixhead-a'\n",
        "score = 'relative'\nmixer = 'mixhead-b'\npairing = 'cross-head'\n", "", "combiner = 'mae'\n",
        "combiner = 'gates'\nscore = 'relative'\n", "combiner = 'drop-head'\npairing = 'cross-head'\n",
        "combiner = 'mae'\nmixer = 'mixhead-a'\n", "combiner = 'drop-head'\nmixer = 'mixhead-a'\n",
        "combiner = 'drop-head'\nmixer = 'mixhead-b'\n"})
    for (const int64_t window : {0, 7})
      for (const bool gaps : {false, true}) {
        const bool relative = std::string(stages).find("relative") != std::string::npos;
        if (gaps && !relative) continue;
        INFO(stages << ", window " << window << (gaps ? ", a memory with gaps" : ""));
        layers::Layer l(std::string("heads = 2\ndropout = 0.2\n") + stages, 32);
        l.shake(3);
        REQUIRE(l.layer->describe_path(true) == "fused");
        const int64_t queries = 40, memory = 23;
        const at::Tensor x = numbers::normal({2, queries, 32}, 8),
                         m = at::cat({numbers::normal({2, memory, 32}, 9), x}, 1);
        attention::Mask mask;
        mask.causal = true, mask.offset = memory, mask.window = window;
        if (gaps) {
          mask.key_positions = at::arange(-memory, queries, at::kLong);
          mask.key_positions.narrow(0, 0, 9).sub_(4);  // four positions behind the ninth key are missing
        }
        const nn::ForwardContext step{true, 5, 2, 3};
        std::vector<at::Tensor> found[2];
        for (const bool fused : {false, true}) {
          l.layer->set_path(fused ? attention::Path::fused : attention::Path::composed);
          l.parameters.zero_gradients();
          const at::Tensor from = m.clone().requires_grad_();
          const at::Tensor y = l(from.narrow(1, memory, queries), from, mask, step);
          (y * numbers::normal(y.sizes().vec(), 4)).sum().backward();
          auto& results = found[fused ? 1 : 0];
          results = {y.detach(), from.grad()};
          for (auto& p : l.parameters.all())
            if (p.traits().trainable) results.push_back(p.master().grad().clone());
        }
        double largest = 0;
        for (const at::Tensor& t : found[0]) largest = std::max(largest, size_of(t));
        for (size_t i = 0; i < found[0].size(); ++i)
          CHECK(error(found[1][i], found[0][i]) <= 5e-6 * largest + 5e-5 * size_of(found[0][i]));
      }
}
