// Computes the entropy of attention rows and its means.
#include "analysis/entropy.h"

#include <c10/core/GradMode.h>

#include "nn/aten.h"

namespace mh::analysis {

at::Tensor entropy_of_rows(const at::Tensor& p) {
  // For x = |P| with sum S: H(x / S) = ln S - Σ x ln x / S.
  const at::Tensor x = p.detach().abs(), sum = x.sum(-1, false, at::kDouble);
  return sum.log() - at::xlogy(x, x).sum(-1, false, at::kDouble) / sum;
}

at::Tensor EntropyMeans::sums_over_queries(const at::Tensor& p) {
  c10::NoGradGuard no_gradient;
  const at::Tensor sums = at::zeros({p.size(0), 4, p.size(1)}, at::kDouble);
  for (int64_t b = 0; b < p.size(0); ++b) {
    const at::Tensor entropies = entropy_of_rows(p[b]);         // (h, Tq)
    const at::Tensor num_visible = (p[b] != 0).any(0).sum(-1);  // (Tq)
    const at::Tensor is_finite = entropies.isfinite(), has_many_keys = is_finite & (num_visible > 1);
    const at::Tensor zeros = at::zeros_like(entropies);
    const auto set_sums = [&](int64_t index, const at::Tensor& x) { sums[b][index].copy_(x.sum(-1)); };  // x: (h, Tq)
    set_sums(0, at::where(is_finite, entropies, zeros));
    set_sums(1, is_finite);
    set_sums(2, at::where(has_many_keys, entropies / num_visible.to(at::kDouble).log(), zeros));
    set_sums(3, has_many_keys);
  }
  return sums;
}

void EntropyMeans::add_sums(const at::Tensor& sums) {
  for (int64_t b = 0; b < sums.size(0); ++b) {
    int64_t index = 0;
    for (at::Tensor* total : {&sums_, &num_queries_, &normalised_sums_, &num_normalised_queries_}) {
      const at::Tensor head_sums = sums[b][index++];
      *total = total->defined() ? *total + head_sums : head_sums;
    }
  }
}

at::Tensor EntropyMeans::entropy() const { return sums_ / num_queries_; }

at::Tensor EntropyMeans::normalised_entropy() const { return normalised_sums_ / num_normalised_queries_; }

}  // namespace mh::analysis
