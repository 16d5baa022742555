#include "task/candidates.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace mh::task {

using kernels::Entry;

namespace {

Candidates on_cpu(const at::Tensor& given, const Wanted& wanted) {
  const at::Tensor logits = given.stride(1) == 1 ? given : given.contiguous();
  const int64_t rows = logits.size(0), entries = logits.size(1), stride = logits.stride(0);
  const auto* x = logits.const_data_ptr<float>();
  Candidates c{std::vector<double>(static_cast<size_t>(rows)),
               std::vector<std::vector<Entry>>(static_cast<size_t>(rows))};
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const auto row = static_cast<size_t>(r);
      const std::span<const float> values{x + r * stride, static_cast<size_t>(entries)};
      const int32_t forced = wanted.forced.empty() ? -1 : wanted.forced[row];
      std::vector<Entry>& best = c.rows[row];
      if (forced < 0) best.resize(static_cast<size_t>(std::min(wanted.count, entries)));
      best.resize(static_cast<size_t>(kernels::best_entries(values, wanted.never, best, &c.log_sums[row])));
      if (forced >= 0) best = {{values[static_cast<size_t>(forced)], forced}};
    }
  });
  return c;
}

Candidates on_device(const at::Tensor& logits, const Wanted& wanted) {
  const int64_t rows = logits.size(0);
  const int64_t count = std::min<int64_t>(wanted.count, logits.size(1) - static_cast<int64_t>(wanted.never.size()));
  const at::Tensor log_sums = at::logsumexp(logits, 1).to(at::kDouble).to(at::kCPU);
  at::Tensor open = logits;
  if (!wanted.never.empty()) {
    open = logits.clone();
    for (int32_t token : wanted.never) open.select(1, token).fill_(-INFINITY);
  }
  const auto [values, indices] = at::topk(open, count, 1);
  std::vector<int64_t> asked(static_cast<size_t>(rows), 0);
  for (size_t r = 0; r < wanted.forced.size(); ++r) asked[r] = std::max(0, wanted.forced[r]);
  const at::Tensor at_forced =
      wanted.forced.empty()
          ? at::Tensor()
          : logits.gather(1, at::tensor(asked, at::kLong).to(logits.device()).unsqueeze(1)).to(at::kCPU);
  const at::Tensor v = values.to(at::kCPU).contiguous(), i = indices.to(at::kCPU).contiguous();
  Candidates c;
  c.log_sums.assign(log_sums.const_data_ptr<double>(), log_sums.const_data_ptr<double>() + rows);
  c.rows.resize(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<Entry>& best = c.rows[static_cast<size_t>(r)];
    if (!wanted.forced.empty() && wanted.forced[static_cast<size_t>(r)] >= 0) {
      best = {{at_forced.const_data_ptr<float>()[r], wanted.forced[static_cast<size_t>(r)]}};
      continue;
    }
    for (int64_t k = 0; k < count; ++k)
      if (const float logit = v.const_data_ptr<float>()[r * count + k]; logit > -INFINITY)
        best.push_back({logit, static_cast<int32_t>(i.const_data_ptr<int64_t>()[r * count + k])});
    std::stable_sort(best.begin(), best.end(), [](const Entry& a, const Entry& b) {
      return a.logit != b.logit ? a.logit > b.logit : a.index < b.index;
    });
  }
  return c;
}

}  // namespace

Candidates candidates_of(const at::Tensor& logits, const Wanted& wanted) {
  Candidates c = logits.is_cpu() ? on_cpu(logits, wanted) : on_device(logits, wanted);
  for (double sum : c.log_sums)
    if (!std::isfinite(sum))
      throw Error(Exit::failed, Problem{"decoding", "finite scores of the next token", str(sum),
                                        "the model's weights are spoilt, or too large for --precision bf16"});
  return c;
}

}  // namespace mh::task
