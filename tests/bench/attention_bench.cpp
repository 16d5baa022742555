// Attention by itself, forward and backward, of one layer's heads under a causal mask, as ./run bench times it:
// attention_bench plain|mixhead-a|mixhead-b|relative|decode-a|decode-b BATCH HEADS LENGTH SIZE fp32|bf16 THREADS
// relative: Transformer-XL's, with a memory of the same length. decode: one query after so many keys, forward alone.
// Milliseconds of a call, the median of those of about a second, and the peak of memory that a call adds besides its
// results, in MB.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "../peak.h"
#include "attention/fused_cpu.h"
#include "attention/mixed_cpu.h"
#include "model/ops.h"

using namespace mh;

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  const std::string kind = argv[1];
  const int64_t batch = std::atoll(argv[2]), heads = std::atoll(argv[3]), n = std::atoll(argv[4]),
                d = std::atoll(argv[5]);
  const at::ScalarType type = argv[6] == std::string("bf16") ? at::kBFloat16 : at::kFloat;
  model::prepare_cpu(std::atoi(argv[7]));
  // As a joint projection gives them.
  const bool decodes = kind.starts_with("decode"), relative = kind == "relative", by_query = kind.ends_with("-b");
  const auto leaf = [&](int64_t length) {
    return at::randn({batch, length, heads, d}).to(type).transpose(1, 2).detach().requires_grad_();
  };
  const int64_t queries = decodes ? 1 : n, keys = relative ? 2 * n : n;
  const at::Tensor q = leaf(queries), k = decodes ? leaf(keys).detach().contiguous() : leaf(keys),
                   v = decodes ? leaf(keys).detach().contiguous() : leaf(keys), dout = leaf(queries).detach();
  const at::Tensor eye = at::eye(heads) + 0.1 * at::randn({heads, heads});
  const at::Tensor m = (by_query ? eye.expand({batch, queries, heads, heads}).contiguous() : eye).requires_grad_();
  attention::FusedPolicy policy;
  policy.causal = !decodes;
  attention::RelativePositions& p = policy.relative;
  if (relative) {
    p = {at::randn({heads, d}).requires_grad_(),
         at::randn({heads, d}).requires_grad_(),
         at::randn({heads, keys, d}).to(type).requires_grad_(),
         {{0, keys, 0}}};
  }
  const auto call = [&] {
    for (const at::Tensor& t : {q, k, v, m, p.u, p.v, p.r})
      if (t.defined()) t.mutable_grad() = at::Tensor();
    const c10::AutoGradMode gradient(!decodes);
    const at::Tensor out =
        kind == "plain" || relative ? attention::fused_cpu(q, k, v, policy) : attention::mixed_cpu(q, k, v, m, policy);
    if (!decodes) out.backward(dout);
  };
  reset_peak();
  const int64_t before = peak_kb();
  call();
  const double results = static_cast<double>(2 * q.nbytes() + k.nbytes() + v.nbytes()) / (1 << 20);
  const double mb = static_cast<double>(peak_kb() - before) / 1024 - results;
  std::vector<double> times;
  const auto began = std::chrono::steady_clock::now();
  for (double all = 0; times.size() < 3 || all < 1;) {
    const auto first = std::chrono::steady_clock::now();
    call();
    const auto last = std::chrono::steady_clock::now();
    times.push_back(std::chrono::duration<double, std::milli>(last - first).count());
    all = std::chrono::duration<double>(last - began).count();
  }
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
  std::printf("%.3f %.1f\n", times[times.size() / 2], mb);
}
