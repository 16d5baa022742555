// Cross-entropy over slices of rows; the gradient is made in the forward pass, so no logits outlive their slice.
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "cpu/cross_entropy.h"
#include "model/ops.h"
#include "model/product.h"

namespace mh::model {

namespace {

// Bytes of logits held at once. Larger slices write the weight's gradient less often, smaller ones stay in cache.
constexpr int64_t kSliceBytes = 32 << 20;

int64_t rows_of_slice(int64_t columns) { return std::max<int64_t>(64, kSliceBytes / (4 * columns) / 64 * 64); }

struct Output {
  at::Tensor hidden;   // (N, d), in the weight's type
  at::Tensor weight;   // the rows that take part
  at::Tensor bias;
  at::Tensor targets;  // (N) int64, contiguous
};

Output prepare(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& targets,
               int64_t vocabulary) {
  Output o;
  o.weight = weight.narrow(0, 0, vocabulary);
  o.hidden = hidden.to(weight.scalar_type()).contiguous();
  if (bias.defined()) o.bias = bias.narrow(0, 0, vocabulary).to(weight.scalar_type());
  o.targets = targets.contiguous();
  return o;
}

// Calls visit(first row, rows, logits fp32 (rows, vocabulary), contiguous) for each slice.
template <class Visit>
void each_slice(const Output& o, const Visit& visit) {
  const int64_t n = o.hidden.size(0), slice = rows_of_slice(o.weight.size(0));
  for (int64_t first = 0; first < n; first += slice) {
    int64_t rows = std::min(slice, n - first);
    visit(first, rows, product_nt(o.hidden.narrow(0, first, rows), o.weight, o.bias).to(at::kFloat));
  }
}

struct Rows {
  at::Tensor nll, mean;  // (N) fp32
};

void losses_of_slice(const Output& o, int64_t first, int64_t rows, const at::Tensor& logits, double smoothing,
                     bool gradient, Rows& out) {
  const int64_t columns = logits.size(1);
  auto* x = logits.mutable_data_ptr<float>();
  const auto* target = o.targets.const_data_ptr<int64_t>() + first;
  auto* nll = out.nll.mutable_data_ptr<float>() + first;
  auto* mean = out.mean.mutable_data_ptr<float>() + first;
  kernels::CrossEntropyPlan plan{columns, columns, static_cast<float>(smoothing)};
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    kernels::cross_entropy_rows(plan, end - begin, target + begin, x + begin * columns, nll + begin, mean + begin,
                                gradient);
  });
}

class CrossEntropy : public torch::autograd::Function<CrossEntropy> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& targets,
                            int64_t vocabulary, double smoothing, bool train, SlicedLoss* loss) {
    Output o = prepare(hidden, weight, bias, targets, vocabulary);
    const int64_t n = hidden.size(0);
    Rows rows{at::empty({n}), at::empty({n})};
    at::Tensor dh, dw, db;
    if (train) {
      dh = at::empty(hidden.sizes(), hidden.options());
      dw = at::zeros(weight.sizes(), weight.options().dtype(at::kFloat));
      if (bias.defined()) db = at::zeros(bias.sizes(), bias.options().dtype(at::kFloat));
    }
    each_slice(o, [&](int64_t first, int64_t count, const at::Tensor& logits) {
      losses_of_slice(o, first, count, logits, smoothing, train, rows);
      if (!train) return;
      at::Tensor dl = logits.to(o.weight.scalar_type());
      dh.narrow(0, first, count).copy_(product_nt(dl, o.weight.t(), {}));
      dw.narrow(0, 0, vocabulary).add_(product_tn(dl, o.hidden.narrow(0, first, count)));
      if (db.defined()) db.narrow(0, 0, vocabulary).add_(logits.sum(0));
    });
    at::Tensor nll = rows.nll.sum(at::kDouble);
    loss->nll = nll.item<double>();
    loss->scored = (targets >= 0).sum().item<int64_t>();
    context->save_for_backward({dh, dw, db});
    context->saved_data["type"] = static_cast<int64_t>(weight.scalar_type());
    at::Tensor smoothed = (1 - smoothing) * nll + smoothing * rows.mean.sum(at::kDouble);
    return smoothed.to(at::kFloat);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto saved = context->get_saved_variables();
    auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    const at::Tensor& g = gradients[0];
    const bool one = g.item<float>() == 1;
    auto scaled = [&](const at::Tensor& t) { return !t.defined() || one ? t : t * g; };
    at::Tensor dw = scaled(saved[1]).to(type);
    return {scaled(saved[0]), dw, scaled(saved[2]), {}, {}, {}, {}, {}};
  }
};

}  // namespace

SlicedLoss sliced_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                const at::Tensor& targets, int64_t vocabulary, double label_smoothing) {
  SlicedLoss loss;
  const bool train = c10::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
  loss.smoothed = CrossEntropy::apply(hidden, weight, bias, targets, vocabulary, label_smoothing, train, &loss);
  return loss;
}

at::Tensor sliced_log_probabilities(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                    const at::Tensor& targets, int64_t vocabulary) {
  c10::NoGradGuard no_gradient;
  Output o = prepare(hidden, weight, bias, targets, vocabulary);
  Rows rows{at::empty({hidden.size(0)}), at::empty({hidden.size(0)})};
  each_slice(o, [&](int64_t first, int64_t count, const at::Tensor& logits) {
    losses_of_slice(o, first, count, logits, 0, false, rows);
  });
  return -rows.nll;
}

}  // namespace mh::model
