// Masked softmax: the row kernel of cpu/softmax.h for fp32 on a CPU, LibTorch operations otherwise.
#include "attention/masked_softmax.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "attention/softmax_function.h"

namespace mh::attention {

namespace {

using kernels::SoftmaxKind;

struct Identity {
  static constexpr SoftmaxKind kRowKernel = SoftmaxKind::softmax;
  static constexpr bool kIsIdentity = true;
};

// Calls visit(r), in parallel, for each row r of x; a row is a vector along the last axis.
template <class Visit>
void for_each_row(const at::Tensor& x, const Visit& visit) {
  const int64_t size = x.size(-1), num_rows = size > 0 ? x.numel() / size : 0;
  at::parallel_for(0, num_rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(size, 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t r = begin; r < end; ++r) visit(r);
                   });
}

}  // namespace

bool has_row_kernel(const at::Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; }

void softmax_rows(SoftmaxKind kind, const at::Tensor& a, const at::Tensor& attention_mask, at::Tensor& p) {
  const int64_t size = a.size(-1);
  const auto* a_data = a.const_data_ptr<float>();
  auto* p_data = p.data_ptr<float>();
  if (!attention_mask.defined())
    return for_each_row(
        a, [&](int64_t r) { kernels::softmax_row(kind, a_data + r * size, nullptr, p_data + r * size, size); });
  // Expands only the last axis of the mask before copying the mask: usually all heads share one mask, and a copy
  // expanded to all heads would be larger.
  at::Tensor expanded_mask =
      attention_mask.expand({attention_mask.size(0), attention_mask.size(1), attention_mask.size(2), size});
  if (expanded_mask.stride(-1) != 1) expanded_mask = expanded_mask.contiguous();
  expanded_mask = expanded_mask.expand(a.sizes());
  const auto* mask_data = expanded_mask.const_data_ptr<bool>();
  const int64_t num_heads = a.size(1), num_queries = a.size(2);
  for_each_row(a, [&](int64_t r) {
    const int64_t b = r / (num_heads * num_queries), h = r / num_queries % num_heads, t = r % num_queries;
    kernels::softmax_row(
        kind, a_data + r * size,
        mask_data + b * expanded_mask.stride(0) + h * expanded_mask.stride(1) + t * expanded_mask.stride(2),
        p_data + r * size, size);
  });
}

void softmax_rows_backward(SoftmaxKind kind, const at::Tensor& a, const at::Tensor& p, const at::Tensor& dp,
                           const at::Tensor& da) {
  const int64_t size = p.size(-1);
  const auto *p_data = p.const_data_ptr<float>(), *dp_data = dp.const_data_ptr<float>(),
             *a_data = a.defined() ? a.const_data_ptr<float>() : nullptr;
  auto* da_data = da.data_ptr<float>();
  for_each_row(p, [&](int64_t r) {
    const int64_t row_offset = r * size;
    kernels::softmax_row_backward(kind, a_data != nullptr ? a_data + row_offset : nullptr, p_data + row_offset,
                                  dp_data + row_offset, da_data + row_offset, size);
  });
}

at::Tensor softmax_by_tensor_ops(const at::Tensor& x, const at::Tensor& attention_mask) {
  if (!attention_mask.defined()) return at::softmax(x, -1);
  return at::softmax(x.masked_fill(~attention_mask, -INFINITY), -1).masked_fill_(~attention_mask, 0);
}

SinkProbabilities sink_softmax_by_tensor_ops(const at::Tensor& x, const at::Tensor& attention_mask,
                                             const at::Tensor& sinks) {
  at::Tensor logits = x;
  if (attention_mask.defined()) logits = logits.masked_fill(~attention_mask, -INFINITY);
  const at::Tensor head_sinks = sinks.view({1, -1, 1, 1}),
                   maximum = logits.amax({-1}, true).maximum(head_sinks);  // (B, h, Tq, 1)
  at::Tensor p = (logits - maximum).exp_();
  const at::Tensor sink = (head_sinks - maximum).exp(), sum = p.sum(-1, true) + sink;
  p.div_(sum);
  // With a sink of -inf, the entries of a fully masked row are NaN.
  if (attention_mask.defined()) p.masked_fill_(~attention_mask, 0);
  return {p, sink / sum};
}

at::Tensor masked_softmax(const at::Tensor& logits, const at::Tensor& attention_mask, const at::Tensor& sinks) {
  return masked_softmax_of<Identity>(logits, attention_mask, sinks);
}

at::Tensor masked_softmax_in_place(const at::Tensor& logits, const at::Tensor& attention_mask,
                                   const at::Tensor& sinks) {
  return masked_softmax_of<Identity>(logits, attention_mask, sinks,
                                     can_reuse_storage(logits) && logits.is_contiguous());
}

}  // namespace mh::attention
