// Computes singular values from the eigenvalues of Gram matrices, and statistics of spectra.
#include "analysis/spectrum.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "cpu/eigenvalues.h"
#include "nn/aten.h"

namespace mh::analysis {

namespace {

// The number of columns of x xᵀ that one matrix product computes. Products of blocks of columns skip trailing zeros of
// rows (masked keys) and most of the upper triangle: a causal 512 × 512 matrix takes a quarter of the work of the full
// product.
constexpr int64_t kGramColumns = 64;
constexpr int64_t kMaxLoopSize = 16;  // largest number of rows for which plain loops are faster than at::mm
// Maximum number of matrix elements that batched_singular_values() converts to fp64 at once (0.5 GB); a larger matrix
// is converted alone.
constexpr int64_t kMaxChunkElements = int64_t{1} << 26;

// Writes the lower triangle of x xᵀ, for contiguous fp64 x (m, n), in the layout of kernels::symmetric_eigenvalues().
void compute_gram(const at::Tensor& x, double* a) {
  const int64_t m = x.size(0), n = x.size(1), stride = kernels::eigenvalue_stride(m);
  const auto* elements = x.const_data_ptr<double>();
  if (m <= kMaxLoopSize) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j <= i; ++j) {
        double sum = 0;
        for (int64_t c = 0; c < n; ++c) sum += elements[i * n + c] * elements[j * n + c];
        a[i * stride + j] = sum;
      }
    return;
  }
  at::Tensor out = at::from_blob(a, {m, m}, {stride, 1}, at::kDouble);
  for (int64_t first = 0; first < m; first += kGramColumns) {
    const int64_t count = std::min(kGramColumns, m - first);
    int64_t width = 0;  // columns [width, n) of the rows [first, first + count) are zero
    for (int64_t i = first; i < first + count; ++i) {
      const double* row = elements + i * n;
      int64_t end = n;
      while (end > width && row[end - 1] == 0) --end;
      width = std::max(width, end);
    }
    at::Tensor out_block = out.narrow(0, first, m - first).narrow(1, first, count);
    if (width == 0) out_block.zero_();
    else
      at::mm_out(out_block, x.narrow(0, first, m - first).narrow(1, 0, width),
                 x.narrow(0, first, count).narrow(1, 0, width).t());
  }
}

// Computes the singular values of matrices (m, n), m ≤ n, one after the other. The scratch memory is reused, since
// page faults of new memory would cost 10% of the time.
class SingularValueSolver {
 public:
  SingularValueSolver(int64_t m, int64_t n)
      : x_(at::empty({m, n}, at::kDouble)),
        a_(static_cast<size_t>(kernels::eigenvalue_rows(m) * kernels::eigenvalue_stride(m))),
        scratch_(static_cast<size_t>(kernels::eigenvalue_scratch_doubles(m))) {}

  // Writes the singular values of x to `values` (m); returns false if x is not finite or the eigenvalues do not
  // converge.
  bool solve(const at::Tensor& x, double* values) {
    const int64_t m = x_.size(0);
    x_.copy_(x);
    compute_gram(x_, a_.data());
    if (!kernels::symmetric_eigenvalues(a_.data(), m, values, scratch_.data())) return false;
    std::sort(values, values + m, std::greater<>());
    const double threshold = values[0] * 0x1p-48;
    for (int64_t i = 0; i < m; ++i) values[i] = values[i] > threshold ? std::sqrt(values[i]) : 0;
    return true;
  }

 private:
  at::Tensor x_;
  std::vector<double> a_, scratch_;
};

void throw_not_finite() {
  throw Error(Exit::failed, Problem{"singular values", "finite numbers", "NaN or infinity",
                                    "use another checkpoint: the parameters are damaged, or training diverged"});
}

void throw_not_converged() {
  throw Error(Exit::failed,
              Problem{"singular values", "an eigenvalue iteration that converges",
                      "no convergence on a matrix of finite numbers",
                      "use --device cuda, which computes eigenvalues by another method, or another checkpoint"});
}

}  // namespace

at::Tensor batched_singular_values(const at::Tensor& matrices) {
  c10::NoGradGuard no_gradient;
  at::Tensor x = matrices.detach();
  if (x.size(-2) > x.size(-1)) x = x.transpose(-1, -2);
  auto sizes = x.sizes().vec();
  sizes.pop_back();
  const at::Tensor values = at::empty(sizes, x.options().dtype(at::kDouble));
  if (values.numel() == 0) return values;
  const at::Tensor flat_matrices = x.reshape({-1, x.size(-2), x.size(-1)}),
                   out = values.view({flat_matrices.size(0), flat_matrices.size(1)});
  const int64_t chunk_size = std::max<int64_t>(1, kMaxChunkElements / std::max<int64_t>(1, flat_matrices[0].numel()));
  for (int64_t first = 0; first < flat_matrices.size(0); first += chunk_size) {
    const int64_t count = std::min(chunk_size, flat_matrices.size(0) - first);
    const at::Tensor chunk = flat_matrices.narrow(0, first, count).to(at::kDouble);
    const at::Tensor eigenvalues = at::linalg_eigvalsh(at::bmm(chunk, chunk.transpose(1, 2))).flip(1);
    const at::Tensor threshold = eigenvalues.narrow(1, 0, 1) * 0x1p-48;
    out.narrow(0, first, count).copy_(eigenvalues.masked_fill(eigenvalues.le(threshold), 0).sqrt());
  }
  return values;
}

at::Tensor singular_values(const at::Tensor& matrices) {
  c10::NoGradGuard no_gradient;
  if (!matrices.is_cpu()) {
    // The check precedes the solver, which may fail or not terminate on values that are not finite.
    if (!matrices.detach().isfinite().all().item<bool>()) throw_not_finite();
    return batched_singular_values(matrices).to(at::kCPU);
  }
  at::Tensor x = matrices.detach();
  auto sizes = x.sizes().vec();
  if (x.size(-2) > x.size(-1)) x = x.transpose(-1, -2), std::swap(sizes[sizes.size() - 2], sizes.back());
  sizes.pop_back();
  at::Tensor values = at::empty(sizes, at::kDouble);
  if (values.numel() == 0) return values;
  const at::Tensor flat_matrices = x.reshape({-1, x.size(-2), x.size(-1)});
  const int64_t m = flat_matrices.size(1);
  auto* out = values.mutable_data_ptr<double>();
  std::atomic<bool> is_solved{true};
  at::parallel_for(0, flat_matrices.size(0), 1, [&](int64_t begin, int64_t end) {
    c10::NoGradGuard thread_no_gradient;
    SingularValueSolver solver(m, flat_matrices.size(2));
    for (int64_t i = begin; i < end; ++i)
      if (!solver.solve(flat_matrices[i], out + i * m)) is_solved = false;
  });
  if (!is_solved && !x.isfinite().all().item<bool>()) throw_not_finite();
  if (!is_solved) throw_not_converged();
  return values;
}

at::Tensor singular_values_of_product(const at::Tensor& a, const at::Tensor& b) {
  c10::NoGradGuard no_gradient;
  // With a = Q_a R_a and bᵀ = Q_b R_b, the product a b = Q_a R_a R_bᵀ Q_bᵀ has the singular values of R_a R_bᵀ.
  const at::Tensor r_a = std::get<1>(at::linalg_qr(a.detach().to(at::kDouble), "r"));
  const at::Tensor r_b = std::get<1>(at::linalg_qr(b.detach().to(at::kDouble).transpose(-1, -2).contiguous(), "r"));
  return singular_values(at::matmul(r_a, r_b.transpose(-1, -2)));
}

RankMeasures rank_measures_of(const at::Tensor& values) {
  const at::Tensor p = values / values.sum(-1, true);
  RankMeasures r;
  r.curve = p.cumsum(-1);
  r.first_fraction = r.curve.select(-1, 0);
  r.area = r.curve.mean(-1);
  // xlogy(0, 0) = 0, and NaN (a matrix of zeros) stays NaN.
  r.effective_rank = (-at::xlogy(p, p).sum(-1)).exp();
  r.rank_share = r.effective_rank / static_cast<double>(values.size(-1));
  r.stable_rank = values.square().sum(-1) / values.select(-1, 0).square();
  return r;
}

at::Tensor resample_curve(const at::Tensor& curve) {
  const int64_t n = curve.size(-1);
  const at::Tensor padded_curve = at::constant_pad_nd(curve, {1, 0});
  // Grid points are computed in integers, so that a grid point at k / n gives c_k without rounding.
  const at::Tensor scaled_indices = at::arange(1, kGridPoints + 1, at::kLong) * n;
  const at::Tensor index_below = scaled_indices.floor_divide(kGridPoints),
                   remainder = scaled_indices - index_below * kGridPoints;
  const at::Tensor low = padded_curve.index_select(-1, index_below),
                   high = padded_curve.index_select(-1, (index_below + 1).clamp_max(n));
  return low + (high - low) * (remainder.to(at::kDouble) / static_cast<double>(kGridPoints));
}

void SpectrumMeans::add(const at::Tensor& values) {
  if (values.size(0) == 0) return;
  RankMeasures r = rank_measures_of(values);
  if (has_varying_size_) r.curve = resample_curve(r.curve);
  size_sum_ += static_cast<double>(values.size(0) * values.size(-1));
  const auto accumulate = [&](at::Tensor& total, const at::Tensor& x) {
    const at::Tensor block_sum = x.sum(0);
    total = num_blocks_ == 0 ? block_sum : total + block_sum;
  };
  accumulate(sums_.curve, r.curve), accumulate(sums_.first_fraction, r.first_fraction), accumulate(sums_.area, r.area);
  accumulate(sums_.effective_rank, r.effective_rank), accumulate(sums_.rank_share, r.rank_share),
      accumulate(sums_.stable_rank, r.stable_rank);
  for (int64_t b = 0; b < values.size(0); ++b) {
    ++num_blocks_;
    if (!samples_curves_) continue;
    // Reservoir sampling: every block so far is in the sample with the same probability.
    if (num_blocks_ <= kSampleSize) {
      sample_.push_back(r.curve[b].to(at::kFloat));
    } else if (const auto slot = random_.uniform_below(static_cast<uint64_t>(num_blocks_));
               slot < static_cast<uint64_t>(kSampleSize)) {
      sample_[slot] = r.curve[b].to(at::kFloat);
    }
  }
}

RankMeasures SpectrumMeans::means() const {
  const auto n = static_cast<double>(std::max<int64_t>(1, num_blocks_));
  return {sums_.curve / n,          sums_.first_fraction / n, sums_.area / n,
          sums_.effective_rank / n, sums_.rank_share / n,     sums_.stable_rank / n};
}

at::Tensor SpectrumMeans::curve_quantile(double quantile) const {
  const at::Tensor sorted_curves = std::get<0>(at::stack(sample_).to(at::kDouble).sort(0));
  const double position = quantile * static_cast<double>(sorted_curves.size(0) - 1);
  const auto low = static_cast<int64_t>(position);
  const auto high = std::min(low + 1, sorted_curves.size(0) - 1);
  return sorted_curves[low] + (position - static_cast<double>(low)) * (sorted_curves[high] - sorted_curves[low]);
}

}  // namespace mh::analysis
