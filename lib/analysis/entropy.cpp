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

void EntropyMeans::add(const at::Tensor& p) {
  c10::NoGradGuard no_gradient;
  const auto accumulate = [](at::Tensor& total, const at::Tensor& x) {  // x: (h, Tq)
    const at::Tensor head_sums = x.sum(-1).to(at::kCPU, at::kDouble);
    total = total.defined() ? total + head_sums : head_sums;
  };
  for (int64_t b = 0; b < p.size(0); ++b) {
    const at::Tensor entropies = entropy_of_rows(p[b]);         // (h, Tq)
    const at::Tensor num_visible = (p[b] != 0).any(0).sum(-1);  // (Tq)
    const at::Tensor is_finite = entropies.isfinite(), has_many_keys = is_finite & (num_visible > 1);
    const at::Tensor zeros = at::zeros_like(entropies);
    accumulate(sums_, at::where(is_finite, entropies, zeros));
    accumulate(num_queries_, is_finite);
    accumulate(normalised_sums_, at::where(has_many_keys, entropies / num_visible.to(at::kDouble).log(), zeros));
    accumulate(num_normalised_queries_, has_many_keys);
  }
}

at::Tensor EntropyMeans::entropy() const { return sums_ / num_queries_; }

at::Tensor EntropyMeans::normalised_entropy() const { return normalised_sums_ / num_normalised_queries_; }

}  // namespace mh::analysis
