#include "search/candidates.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/error.h"
#include "ceil_div.h"
#include "nn/aten.h"

namespace mh::search {

using kernels::Entry;

namespace {

Candidates candidates_on_cpu(const at::Tensor& input, const CandidateConstraints& constraints) {
  const at::Tensor logits = input.stride(1) == 1 ? input : input.contiguous();
  const int64_t num_rows = logits.size(0), vocab_size = logits.size(1), stride = logits.stride(0);
  const auto* x = logits.const_data_ptr<float>();
  Candidates c{std::vector<double>(static_cast<size_t>(num_rows)),
               std::vector<std::vector<Entry>>(static_cast<size_t>(num_rows))};
  at::parallel_for(0, num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const auto row = static_cast<size_t>(r);
      const std::span<const float> row_logits{x + r * stride, static_cast<size_t>(vocab_size)};
      const int32_t forced_token = constraints.forced_tokens.empty() ? -1 : constraints.forced_tokens[row];
      std::vector<Entry>& row_entries = c.entries[row];
      if (forced_token < 0) row_entries.resize(static_cast<size_t>(std::min(constraints.max_candidates, vocab_size)));
      row_entries.resize(static_cast<size_t>(
          kernels::best_entries(row_logits, constraints.excluded_tokens, row_entries, &c.lse[row])));
      if (forced_token >= 0) row_entries = {{row_logits[static_cast<size_t>(forced_token)], forced_token}};
    }
  });
  return c;
}

Candidates candidates_on_gpu(const at::Tensor& logits, const CandidateConstraints& constraints) {
  const int64_t num_rows = logits.size(0);
  const BestCandidates device_candidates =
      best_candidates(logits, constraints.max_candidates, constraints.excluded_tokens);
  const int64_t count = device_candidates.tokens.size(1);
  std::vector<int64_t> gather_tokens(static_cast<size_t>(num_rows), 0);
  for (size_t r = 0; r < constraints.forced_tokens.size(); ++r)
    gather_tokens[r] = std::max(0, constraints.forced_tokens[r]);
  const at::Tensor forced_logits =
      constraints.forced_tokens.empty()
          ? at::Tensor()
          : logits.gather(1, at::tensor(gather_tokens, at::kLong).to(logits.device()).unsqueeze(1)).to(at::kCPU);
  const at::Tensor lse = device_candidates.lse.to(at::kCPU),
                   best_logits = device_candidates.logits.to(at::kCPU).contiguous(),
                   best_tokens = device_candidates.tokens.to(at::kCPU).contiguous();
  Candidates c;
  c.lse.assign(lse.const_data_ptr<double>(), lse.const_data_ptr<double>() + num_rows);
  c.entries.resize(static_cast<size_t>(num_rows));
  for (int64_t r = 0; r < num_rows; ++r) {
    std::vector<Entry>& row_entries = c.entries[static_cast<size_t>(r)];
    if (!constraints.forced_tokens.empty() && constraints.forced_tokens[static_cast<size_t>(r)] >= 0) {
      row_entries = {{forced_logits.const_data_ptr<float>()[r], constraints.forced_tokens[static_cast<size_t>(r)]}};
      continue;
    }
    for (int64_t k = 0; k < count; ++k)
      if (const float logit = best_logits.const_data_ptr<float>()[r * count + k]; logit > -INFINITY)
        row_entries.push_back({logit, static_cast<int32_t>(best_tokens.const_data_ptr<int64_t>()[r * count + k])});
  }
  return c;
}

// Returns the values and indices (R, count) of the `count` largest elements of each row of x (R, n), in descending
// order. Equal values are in ascending order of indices, which topk() does not guarantee.
std::tuple<at::Tensor, at::Tensor> largest_first(const at::Tensor& x, int64_t count) {
  const auto [values, indices] = at::sort(x, /*stable=*/true, 1, /*descending=*/true);
  return {values.narrow(1, 0, count), indices.narrow(1, 0, count)};
}

// Number of logits in a block. best_candidates() divides each row into blocks, and sorts first the maxima of all
// blocks, then the logits of a few blocks. Smaller blocks mean more maxima and fewer logits to sort.
constexpr int64_t kBlockLogits = 64;

}  // namespace

void require_finite(std::span<const double> lse) {
  for (double row_lse : lse)
    if (!std::isfinite(row_lse))
      throw Error(Exit::failed, Problem{"decoding", "finite logits of the next token", str("the log-sum-exp ", row_lse),
                                        "check the weights of the model for damage, or use --precision fp32"});
}

Candidates candidates_of(const at::Tensor& logits, const CandidateConstraints& constraints) {
  Candidates c = logits.is_cpu() ? candidates_on_cpu(logits, constraints) : candidates_on_gpu(logits, constraints);
  require_finite(c.lse);
  return c;
}

// Selects blocks before logits: the `count` largest logits of a row are in the `count` blocks with the largest maxima,
// since the `count` maxima of these blocks are no smaller than any logit of another block.
BestCandidates best_candidates(const at::Tensor& logits, int64_t count, const std::vector<int32_t>& excluded_tokens) {
  const int64_t num_rows = logits.size(0), vocab_size = logits.size(1), num_blocks = ceil_div(vocab_size, kBlockLogits);
  const at::Tensor max_logits = logits.amax(1, true);
  const at::Tensor exp_sums = (logits - max_logits).exp_().sum(1, false, at::kDouble);
  BestCandidates candidates{max_logits.squeeze(1).to(at::kDouble) + exp_sums.log(), {}, {}};
  count = std::min(count, vocab_size);
  at::Tensor allowed_logits = at::full({num_rows, num_blocks * kBlockLogits}, -INFINITY, logits.options());
  allowed_logits.narrow(1, 0, vocab_size).copy_(logits);
  for (int32_t token : excluded_tokens) allowed_logits.select(1, token).fill_(-INFINITY);
  allowed_logits = allowed_logits.view({num_rows, num_blocks, kBlockLogits});
  const int64_t num_selected_blocks = std::min(count, num_blocks);
  // The selected blocks are sorted by token, so the smaller token comes first if two logits are equal.
  const at::Tensor block_indices =
      std::get<0>(std::get<1>(largest_first(allowed_logits.amax(2), num_selected_blocks)).sort(1)).unsqueeze(2);
  const at::Tensor tokens = block_indices * kBlockLogits + at::arange(kBlockLogits, block_indices.options());
  const auto [values, indices] = largest_first(
      allowed_logits.gather(1, block_indices.expand({num_rows, num_selected_blocks, kBlockLogits})).flatten(1), count);
  candidates.logits = values;
  candidates.tokens = tokens.flatten(1).gather(1, indices);
  return candidates;
}

}  // namespace mh::search
