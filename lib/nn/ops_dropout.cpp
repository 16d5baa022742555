// Dropout with counter-based random numbers, on a CPU and on a GPU.
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/random.h"
#include "ceil_div.h"
#include "cpu/dropout.h"
#include "cuda/cuda_api.h"
#include "nn/device.h"
#include "nn/ops.h"

namespace mh::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Writes x with dropout to y. `stream_offset`: index, in the random stream, of the number for the first element of x.
void run_dropout_kernel(const kernels::DropoutParams& params, uint64_t stream_offset, const at::Tensor& x,
                        at::Tensor& y) {
  if (const Gpu gpu = gpu_of(x.device())) {
    check_cuda(gpu.kernels->dropout(*dtype_of(x.scalar_type()), params, stream_offset, x.const_data_ptr(), y.data_ptr(),
                                    x.numel(), gpu.stream));
    return;
  }
  // Elements per work item: a few microseconds of work, and a multiple of the 64 elements that the kernel processes at
  // once.
  constexpr int64_t elements_per_item = 16384;
  int64_t n = x.numel();
  at::parallel_for(0, ceil_div(n, elements_per_item), 1, [&](int64_t begin, int64_t end) {
    int64_t offset = begin * elements_per_item, count = std::min(end * elements_per_item, n) - offset;
    if (x.scalar_type() == at::kBFloat16)
      kernels::dropout(params, stream_offset + static_cast<uint64_t>(offset),
                       static_cast<const uint16_t*>(x.const_data_ptr()) + offset,
                       static_cast<uint16_t*>(y.data_ptr()) + offset, count);
    else
      kernels::dropout(params, stream_offset + static_cast<uint64_t>(offset), x.const_data_ptr<float>() + offset,
                       y.data_ptr<float>() + offset, count);
  });
}

at::Tensor apply_dropout(const kernels::DropoutParams& params, uint64_t stream_offset, const at::Tensor& input) {
  at::Tensor x = input.contiguous();
  const at::ScalarType type = x.scalar_type();
  if (type == at::kFloat || type == at::kBFloat16 || (type == at::kHalf && gpu_of(x.device()))) {
    at::Tensor y = at::empty_like(x);
    run_dropout_kernel(params, stream_offset, x, y);
    return y;
  }
  // For any other type (fp64 in tests), multiplies x by a mask: a tensor of ones after dropout.
  at::Tensor ones = at::ones(x.sizes(), x.options().dtype(at::kFloat)), dropout_mask = at::empty_like(ones);
  run_dropout_kernel(params, stream_offset, ones, dropout_mask);
  return x * dropout_mask.to(type);
}

struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const kernels::DropoutParams& params,
                            uint64_t stream_offset) {
    // The backward pass recomputes the random numbers, which is cheaper than storing and reading a mask.
    context->saved_data["params"] = std::string(reinterpret_cast<const char*>(&params), sizeof params);
    context->saved_data["first"] = static_cast<int64_t>(stream_offset);
    return apply_dropout(params, stream_offset, x);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    kernels::DropoutParams params;
    std::memcpy(&params, context->saved_data["params"].toStringRef().data(), sizeof params);
    auto stream_offset = static_cast<uint64_t>(context->saved_data["first"].toInt());
    return {apply_dropout(params, stream_offset, gradients[0]), {}, {}};
  }
};

}  // namespace

kernels::DropoutRange dropout_range_of(int64_t row_size, double p, const nn::ForwardContext& forward_context,
                                       std::string_view stream_name, uint32_t site) {
  const auto key = RandomStream(forward_context.seed, stream_name).key();
  kernels::DropoutParams params = kernels::make_dropout(key.data(), forward_context.update, site, p);
  params.update_ptr = forward_context.update_ptr;
  return {params, static_cast<uint64_t>(forward_context.row_offset * row_size)};
}

at::Tensor dropout(const at::Tensor& x, double p, const nn::ForwardContext& forward_context,
                   std::string_view stream_name, uint32_t site) {
  if (!forward_context.training || p == 0 || x.numel() == 0) return x;
  const kernels::DropoutRange range = dropout_range_of(x.numel() / x.size(0), p, forward_context, stream_name, site);
  return Dropout::apply(x, range.params, range.stream_offset);
}

}  // namespace mh::nn
