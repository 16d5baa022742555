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
  const auto sum = [](at::Tensor& total, const at::Tensor& x) {  // x: (h, Tq)
    const at::Tensor now = x.sum(-1).to(at::kCPU, at::kDouble);
    total = total.defined() ? total + now : now;
  };
  for (int64_t b = 0; b < p.size(0); ++b) {
    const at::Tensor h = entropy_of_rows(p[b]);             // (h, Tq)
    const at::Tensor visible = (p[b] != 0).any(0).sum(-1);  // (Tq)
    const at::Tensor finite = h.isfinite(), many = finite & (visible > 1);
    const at::Tensor none = at::zeros_like(h);
    sum(sums_, at::where(finite, h, none));
    sum(queries_, finite);
    sum(normalised_sums_, at::where(many, h / visible.to(at::kDouble).log(), none));
    sum(normalised_queries_, many);
  }
}

at::Tensor EntropyMeans::entropy() const { return sums_ / queries_; }

at::Tensor EntropyMeans::share() const { return normalised_sums_ / normalised_queries_; }

}  // namespace mh::analysis
