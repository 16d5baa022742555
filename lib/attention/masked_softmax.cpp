// Masked softmax: the row kernel of cpu/softmax.h for fp32 on a CPU, LibTorch operations otherwise.
#include "attention/masked_softmax.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "attention/buffer_reuse.h"
#include "cpu/softmax.h"

namespace mh::attention {

namespace {

using kernels::SoftmaxKind;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool has_row_kernel(const at::Tensor& logits) { return logits.is_cpu() && logits.scalar_type() == at::kFloat; }

// Calls visit(r), in parallel, for each row r of x; a row is a vector along the last axis.
template <class Visit>
void for_each_row(const at::Tensor& x, const Visit& visit) {
  const int64_t size = x.size(-1), num_rows = size > 0 ? x.numel() / size : 0;
  at::parallel_for(0, num_rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(size, 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t r = begin; r < end; ++r) visit(r);
                   });
}

void softmax_rows(const at::Tensor& a, const at::Tensor& attention_mask, SoftmaxKind softmax_kind, at::Tensor& p) {
  const int64_t size = a.size(-1);
  const auto* a_data = a.const_data_ptr<float>();
  auto* p_data = p.data_ptr<float>();
  if (!attention_mask.defined())
    return for_each_row(
        a, [&](int64_t r) { kernels::softmax_row(softmax_kind, a_data + r * size, nullptr, p_data + r * size, size); });
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
        softmax_kind, a_data + r * size,
        mask_data + b * expanded_mask.stride(0) + h * expanded_mask.stride(1) + t * expanded_mask.stride(2),
        p_data + r * size, size);
  });
}

// Computes the masked softmax with LibTorch operations, for devices and types that the row kernel does not support.
at::Tensor softmax_by_tensor_ops(const at::Tensor& a, const at::Tensor& attention_mask, SoftmaxKind softmax_kind) {
  // exp(a) σ(a) = exp(a + log σ(a)) = exp(2a - softplus(a))
  const at::Tensor x = softmax_kind == SoftmaxKind::sigsoftmax ? a + at::log_sigmoid(a) : a;
  if (!attention_mask.defined()) return at::softmax(x, -1);
  return at::softmax(x.masked_fill(~attention_mask, -INFINITY), -1).masked_fill_(~attention_mask, 0);
}

struct MaskedSoftmax : torch::autograd::Function<MaskedSoftmax> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits,
                            const std::optional<at::Tensor>& optional_mask, int64_t kind, bool in_place) {
    const auto softmax_kind = static_cast<SoftmaxKind>(kind);
    const at::Tensor attention_mask = optional_mask.value_or(at::Tensor());
    at::Tensor a = logits.contiguous(), p;
    if (has_row_kernel(a)) {
      p = in_place ? a.tensor_data() : at::empty_like(a);
      softmax_rows(a, attention_mask, softmax_kind, p);
    } else {
      p = softmax_by_tensor_ops(a, attention_mask, softmax_kind);
    }
    context->save_for_backward({p, softmax_kind == SoftmaxKind::sigsoftmax ? a : at::Tensor()});
    context->saved_data["kind"] = kind;
    return p;
  }

  // `gradients` is a reference because a copy would hold another reference to the storage, which can_reuse_storage()
  // counts.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &p = saved[0], &a = saved[1];
    const auto softmax_kind = static_cast<SoftmaxKind>(context->saved_data["kind"].toInt());
    if (!has_row_kernel(p)) {
      at::Tensor da = at::_softmax_backward_data(gradients[0], p, -1, p.scalar_type());
      if (softmax_kind == SoftmaxKind::sigsoftmax) da = da * (1 + at::sigmoid(-a));
      return {da, {}, {}, {}};
    }
    const bool can_overwrite = can_reuse_storage(gradients[0]) && gradients[0].is_contiguous();
    const at::Tensor dp = gradients[0].contiguous(), da = can_overwrite ? dp : at::empty_like(p);
    const int64_t size = p.size(-1);
    const auto *p_data = p.const_data_ptr<float>(), *dp_data = dp.const_data_ptr<float>(),
               *a_data = a.defined() ? a.const_data_ptr<float>() : nullptr;
    auto* da_data = da.data_ptr<float>();
    for_each_row(p, [&](int64_t r) {
      const int64_t row_offset = r * size;
      kernels::softmax_row_backward(softmax_kind, a_data != nullptr ? a_data + row_offset : nullptr,
                                    p_data + row_offset, dp_data + row_offset, da_data + row_offset, size);
    });
    return {da, {}, {}, {}};
  }
};

at::Tensor apply(const at::Tensor& logits, const at::Tensor& attention_mask, SoftmaxKind softmax_kind, bool in_place) {
  std::optional<at::Tensor> optional_mask;
  if (attention_mask.defined()) optional_mask = attention_mask;
  return MaskedSoftmax::apply(logits, optional_mask, static_cast<int64_t>(softmax_kind), in_place);
}

}  // namespace

at::Tensor masked_softmax(const at::Tensor& logits, const at::Tensor& attention_mask) {
  return apply(logits, attention_mask, SoftmaxKind::softmax, false);
}

at::Tensor masked_softmax_in_place(const at::Tensor& logits, const at::Tensor& attention_mask) {
  return apply(logits, attention_mask, SoftmaxKind::softmax, can_reuse_storage(logits) && logits.is_contiguous());
}

at::Tensor masked_sigmoid_softmax(const at::Tensor& logits, const at::Tensor& attention_mask) {
  return apply(logits, attention_mask, SoftmaxKind::sigsoftmax, false);
}

}  // namespace mh::attention
