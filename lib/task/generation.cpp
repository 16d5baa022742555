#include "task/generation.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"

namespace mh::task {

namespace {

int32_t choose(const at::Tensor& logits, const GenerationOptions& o, RandomSequence& random) {
  at::Tensor row = logits.to(at::kCPU).contiguous();
  const auto* x = row.const_data_ptr<float>();
  const auto n = static_cast<size_t>(row.numel());
  if (o.temperature == 0) return static_cast<int32_t>(std::max_element(x, x + n) - x);
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  const size_t kept = o.top_k > 0 ? std::min(n, static_cast<size_t>(o.top_k)) : n;
  // Ties go to the smaller token, so that the choice does not depend on the sort.
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(kept), order.end(),
                    [&](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
  std::vector<double> sums(kept);
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    sum += std::exp((static_cast<double>(x[order[i]]) - static_cast<double>(x[order[0]])) / o.temperature);
    sums[i] = sum;
  }
  auto it = std::upper_bound(sums.begin(), sums.end(), random.uniform() * sum);
  return order[std::min(static_cast<size_t>(it - sums.begin()), kept - 1)];
}

}  // namespace

void generate(model::LanguageModel& model, const std::vector<int32_t>& prompt, const GenerationOptions& o,
              int64_t sample, const std::function<bool(int32_t)>& each) {
  c10::NoGradGuard no_gradient;
  RandomSequence random(RandomStream(static_cast<uint64_t>(o.seed), "generate"), static_cast<uint32_t>(sample));
  auto state = model.new_state(1);
  std::vector<int64_t> next(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < o.length; ++i) {
    at::Tensor tokens = at::empty({1, static_cast<int64_t>(next.size())}, at::kLong);
    std::copy(next.begin(), next.end(), tokens.mutable_data_ptr<int64_t>());
    at::Tensor hidden = model.hidden(tokens.to(model.parameters().device()), {}, state.get());
    int32_t token = choose(model.logits(hidden.narrow(1, hidden.size(1) - 1, 1)).flatten(), o, random);
    if (!each(token)) return;
    next = {token};
  }
}

}  // namespace mh::task
