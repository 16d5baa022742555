// Dropout with counter-based random numbers, on a CPU and on a GPU.
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "ceil_div.h"
#include "cpu/dropout.h"
#include "cuda/cuda_api.h"
#include "nn/device.h"
#include "nn/ops.h"

namespace mh::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Sizes, in bits, of the fields of an index with DropoutIndex::position. The row of the batch has 18 bits. The other 46
// belong to the head (10), the query (18) and the key (18) of a probability, or to the element of a row in a tensor
// without heads.
constexpr int kKeyBits = 18, kQueryBits = 18, kHeadBits = 10, kBatchBits = 18;
static_assert(kKeyBits + kQueryBits + kHeadBits + kBatchBits == 64);

// Throws if the indices 0 … size - 1 do not fit into `bits` bits.
void require_bits(std::string_view noun, int64_t size, int bits) {
  if (const int64_t limit = int64_t{1} << bits; size > limit)
    refuse_usage("dropout", str("at most ", limit, " ", noun), str(size),
                 "lower the size, or set train.dropout_index = \"padded\"");
}

// Writes `count` elements of x with dropout to y, from element `offset` on. `position`: index of element `offset` in
// the random stream.
void run_cpu_kernel(const kernels::DropoutParams& params, uint64_t position, const at::Tensor& x, const at::Tensor& y,
                    int64_t offset, int64_t count) {
  if (x.scalar_type() == at::kBFloat16)
    kernels::dropout(params, position, static_cast<const uint16_t*>(x.const_data_ptr()) + offset,
                     static_cast<uint16_t*>(y.data_ptr()) + offset, count);
  else kernels::dropout(params, position, x.const_data_ptr<float>() + offset, y.data_ptr<float>() + offset, count);
}

// Writes x with dropout to y, both contiguous.
void run_dropout_kernel(const kernels::DropoutRange& range, const at::Tensor& x, at::Tensor& y) {
  if (const Gpu gpu = gpu_of(x.device())) {
    check_cuda(gpu.kernels->dropout(*dtype_of(x.scalar_type()), range, x.const_data_ptr(), y.data_ptr(), x.numel(),
                                    gpu.stream));
    return;
  }
  // Elements per work item: a few microseconds of work, and a multiple of the 64 elements that the kernel processes at
  // once. A work item is a chunk of a long run, or several short runs.
  constexpr int64_t elements_per_item = 16384;
  const int64_t chunks_per_run = ceil_div(range.run_size, elements_per_item);
  const int64_t chunk_size = std::min(range.run_size, elements_per_item);
  at::parallel_for(0, x.numel() / range.run_size * chunks_per_run, elements_per_item / chunk_size,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const int64_t run = i / chunks_per_run, offset = i % chunks_per_run * chunk_size;
                       run_cpu_kernel(range.params, range.run_begin(run) + static_cast<uint64_t>(offset), x, y,
                                      run * range.run_size + offset, std::min(chunk_size, range.run_size - offset));
                     }
                   });
}

at::Tensor apply_dropout(const kernels::DropoutRange& range, const at::Tensor& input) {
  at::Tensor x = input.contiguous();
  const at::ScalarType type = x.scalar_type();
  if (type == at::kFloat || type == at::kBFloat16 || (type == at::kHalf && gpu_of(x.device()))) {
    at::Tensor y = at::empty_like(x);
    run_dropout_kernel(range, x, y);
    return y;
  }
  // For any other type (fp64 in tests), multiplies x by a mask, the result of dropout on a tensor of ones.
  at::Tensor ones = at::ones(x.sizes(), x.options().dtype(at::kFloat)), dropout_mask = at::empty_like(ones);
  run_dropout_kernel(range, ones, dropout_mask);
  return x * dropout_mask.to(type);
}

struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const kernels::DropoutRange& range) {
    // The backward pass recomputes the random numbers, which is cheaper than storing and reading a mask.
    context->saved_data["range"] = std::string(reinterpret_cast<const char*>(&range), sizeof range);
    return apply_dropout(range, x);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    kernels::DropoutRange range;
    std::memcpy(&range, context->saved_data["range"].toStringRef().data(), sizeof range);
    return {apply_dropout(range, gradients[0]), {}};
  }
};

}  // namespace

kernels::DropoutRange dropout_range_of(at::IntArrayRef sizes, double p, const nn::ForwardContext& forward_context,
                                       std::string_view stream_name, uint32_t site) {
  const auto key = RandomStream(forward_context.seed, stream_name).key();
  kernels::DropoutRange range;
  range.params = kernels::make_dropout(key.data(), forward_context.update, site, p);
  range.params.update_ptr = forward_context.update_ptr;
  const bool has_heads = sizes.size() == 4;
  const int64_t row_size = c10::multiply_integers(sizes.slice(1));
  if (forward_context.dropout_index == DropoutIndex::padded) {
    range.run_size = sizes[0] * row_size;
    range.batch_stride = row_size;
    range.run_stride = sizes.back(), range.head_stride = has_heads ? sizes[2] * sizes[3] : 0;
  } else {
    range.run_size = row_size;
    range.batch_stride = int64_t{1} << (64 - kBatchBits);
    range.run_stride = int64_t{1} << kKeyBits, range.head_stride = int64_t{1} << (kKeyBits + kQueryBits);
    require_bits("rows of a batch", forward_context.row_offset + sizes[0], kBatchBits);
    if (has_heads) {
      range.run_size = sizes[3], range.runs_per_head = sizes[2], range.num_heads = sizes[1];
      require_bits("heads", sizes[1], kHeadBits);
      require_bits("queries", sizes[2], kQueryBits);
      require_bits("keys", sizes[3], kKeyBits);
    } else {
      require_bits("elements of a batch row", row_size, 64 - kBatchBits);
    }
  }
  range.stream_offset = static_cast<uint64_t>(forward_context.row_offset) * static_cast<uint64_t>(range.batch_stride);
  return range;
}

at::Tensor dropout(const at::Tensor& x, double p, const nn::ForwardContext& forward_context,
                   std::string_view stream_name, uint32_t site) {
  if (!forward_context.training || p == 0 || x.numel() == 0) return x;
  return Dropout::apply(x, dropout_range_of(x.sizes(), p, forward_context, stream_name, site));
}

}  // namespace mh::nn
