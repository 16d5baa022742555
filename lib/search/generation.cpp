#include "search/generation.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "base/random.h"
#include "search/candidates.h"
#include "search/sampling.h"

namespace mh::search {

namespace {

// Returns the next token for logits (V), selected as by sample_token(). Throws Error(failed) if the distribution is not
// finite.
int32_t sample_next_token(const at::Tensor& logits, const GenerationOptions& o, RandomSequence& random) {
  const double lse = logits.to(at::kDouble).logsumexp(0).item<double>();
  require_finite({&lse, 1});
  if (o.temperature == 0 && !logits.is_cpu())
    return best_candidates(logits.unsqueeze(0), 1, {}).tokens.to(at::kCPU).item<int32_t>();
  const at::Tensor x = logits.to(at::kCPU).contiguous();
  return sample_token({x.const_data_ptr<float>(), static_cast<size_t>(x.numel())}, o.temperature, o.top_k, random);
}

}  // namespace

void generate(model::LanguageModel& model, const std::vector<int32_t>& prompt, const GenerationOptions& o,
              int64_t sample, const std::function<bool(int32_t)>& on_token) {
  c10::NoGradGuard no_gradient;
  RandomSequence random(RandomStream(static_cast<uint64_t>(o.seed), "generate"), static_cast<uint32_t>(sample));
  auto state = model.new_state();
  std::vector<int64_t> input_tokens(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < o.length; ++i) {
    at::Tensor tokens = at::empty({1, static_cast<int64_t>(input_tokens.size())}, at::kLong);
    std::copy(input_tokens.begin(), input_tokens.end(), tokens.mutable_data_ptr<int64_t>());
    at::Tensor hidden = model.hidden(model::Input{tokens.to(model.parameters().device())}, {}, state.get());
    const int32_t token = sample_next_token(model.logits(hidden.narrow(1, hidden.size(1) - 1, 1)).flatten(), o, random);
    if (!on_token(token)) return;
    input_tokens = {token};
  }
}

}  // namespace mh::search
