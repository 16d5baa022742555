// Linear maps across heads: the kernel of cpu/head_mix.h for fp32 and bf16 on a CPU, LibTorch operations otherwise.
#include "attention/head_mix.h"

#include <ATen/Parallel.h>
#include <ATen/ops/bmm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "attention/buffer_reuse.h"
#include "attention/row_layout.h"
#include "ceil_div.h"
#include "cpu/head_mix.h"
#include "nn/element_type.h"

namespace mh::attention {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kLanes = 16;  // number of partial sums of each element of dm in the kernel
// Positions per work item; a constant, so that results do not depend on the number of threads.
constexpr int64_t kPositionsPerItem = 16;

// The data pointer of a tensor (B, h, Tq, n), and its strides in elements.
template <class T>
struct HeadsView {
  T* data;
  int64_t batch_stride, head_stride, position_stride;
  template <class Pointer>
  HeadsView(Pointer pointer, const at::Tensor& x)
      : data(static_cast<T*>(pointer)),
        batch_stride(x.stride(0)),
        head_stride(x.stride(1)),
        position_stride(x.stride(2)) {}
  T* at(int64_t b, int64_t t) const { return data + b * batch_stride + t * position_stride; }
};
template <class T>
HeadsView<const T> const_view(const at::Tensor& x) {
  return {x.const_data_ptr(), x};
}
template <class T>
HeadsView<T> mutable_view(const at::Tensor& x) {
  return {x.data_ptr(), x};
}

// The mixing matrix (h, hv) that all positions share, or one matrix per position, (B, Tq, h, hv).
struct MatrixView {
  const float* data;
  int64_t batch_stride, position_stride;  // strides in elements; 0: one matrix for all positions
  explicit MatrixView(const at::Tensor& m)
      : data(m.const_data_ptr<float>()),
        batch_stride(m.dim() == 4 ? m.stride(0) : 0),
        position_stride(m.dim() == 4 ? m.stride(1) : 0) {}
  const float* at(int64_t b, int64_t t) const { return data + b * batch_stride + t * position_stride; }
};

// Calls visit(item, b, begin, end, scratch), in parallel, for each work item: at most kPositionsPerItem positions
// [begin, end) of batch row b, with `scratch_floats` floats of memory.
template <class Visit>
void for_each_work_item(const at::Tensor& x, int64_t scratch_floats, const Visit& visit) {
  const int64_t num_positions = x.size(2), items_per_row = ceil_div(num_positions, kPositionsPerItem);
  at::parallel_for(0, x.size(0) * items_per_row, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> memory(static_cast<size_t>(scratch_floats));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first_position = i % items_per_row * kPositionsPerItem;
      visit(i, i / items_per_row, first_position, std::min(first_position + kPositionsPerItem, num_positions),
            memory.data());
    }
  });
}

// Returns how many of the `num_columns` entries of a row are not hidden at position t: the keys that the query at this
// position sees, or all entries without a causal offset.
int64_t num_visible_columns(const MixOptions& options, int64_t t, int64_t num_columns) {
  return options.causal_offset ? std::clamp<int64_t>(t + *options.causal_offset + 1, 0, num_columns) : num_columns;
}

// Sets the entries [begin, end) of each of `num_heads` heads to 0. `head_stride`: in elements.
template <class T>
void clear_range(T* data, int64_t head_stride, int64_t num_heads, int64_t begin, int64_t end) {
  if (begin == end) return;
  for (int64_t i = 0; i < num_heads; ++i) std::fill(data + i * head_stride + begin, data + i * head_stride + end, T{0});
}

// Allocates a tensor (B, num_heads, Tq, n) for x (B, h, Tq, n). `stores_by_position`: stored as (B, Tq, num_heads, n).
at::Tensor allocate_output(const at::Tensor& x, int64_t num_heads, bool stores_by_position) {
  if (stores_by_position) return attention::allocate_by_position(x, num_heads, x.size(2), x.size(3));
  return at::empty({x.size(0), num_heads, x.size(2), x.size(3)}, x.options());
}

template <class T>
void run_forward_kernel(const at::Tensor& x, const at::Tensor& m, const MixOptions& options, at::Tensor& y) {
  const int64_t num_in_heads = x.size(1), num_out_heads = y.size(1), num_columns = x.size(3);
  const auto x_view = const_view<T>(x);
  const auto y_view = mutable_view<T>(y);
  const MatrixView matrix_view(m);
  for_each_work_item(x, kernels::head_mix_scratch_floats(num_in_heads, num_out_heads),
                     [&](int64_t, int64_t b, int64_t begin, int64_t end, float* scratch) {
                       for (int64_t t = begin; t < end; ++t) {
                         const int64_t count = num_visible_columns(options, t, num_columns);
                         kernels::mix_heads(
                             {num_in_heads, num_out_heads, x_view.head_stride, y_view.head_stride, count},
                             matrix_view.at(b, t), x_view.at(b, t), y_view.at(b, t), scratch);
                         clear_range(y_view.at(b, t), y_view.head_stride, num_out_heads, count, num_columns);
                       }
                     });
}

// Adds the kLanes partial sums lane_sums[i] to sums[i], for `sums` (count) and `lane_sums` (count, kLanes).
void add_lanes(const float* lane_sums, int64_t count, float* sums) {
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int l = 0; l < kLanes; ++l) sum += lane_sums[i * kLanes + l];
    sums[i] += sum;
  }
}

// Writes the gradient dx and adds to the gradient dm; an undefined dx or dm is skipped. dm must be zero before the
// call. With one matrix per position dm has the shape (B, Tq, h, hv). Otherwise it has the shape (work items, h, hv),
// and the caller sums it over the work items.
template <class T>
void run_backward_kernel(const at::Tensor& x, const at::Tensor& m, const MixOptions& options, const at::Tensor& dy,
                         const at::Tensor& dx, const at::Tensor& dm) {
  const int64_t num_in_heads = x.size(1), num_out_heads = dy.size(1), num_columns = x.size(3),
                matrix_size = num_in_heads * num_out_heads;
  const bool has_matrix_per_position = m.dim() == 4;
  const auto x_view = const_view<T>(x), dy_view = const_view<T>(dy);
  const auto dx_view = dx.defined() ? mutable_view<T>(dx) : HeadsView<T>(nullptr, x);
  auto* dm_data = dm.defined() ? dm.data_ptr<float>() : nullptr;
  const MatrixView matrix_view(m);
  const int64_t kernel_scratch_floats = kernels::head_mix_scratch_floats(num_in_heads, num_out_heads);
  for_each_work_item(
      x, kernel_scratch_floats + matrix_size * kLanes,
      [&](int64_t item, int64_t b, int64_t begin, int64_t end, float* scratch) {
        float* lane_sums = scratch + kernel_scratch_floats;
        std::fill_n(lane_sums, matrix_size * kLanes, 0.0F);
        for (int64_t t = begin; t < end; ++t) {
          const int64_t count = num_visible_columns(options, t, num_columns);
          T* dx_row = dx.defined() ? dx_view.at(b, t) : nullptr;
          const kernels::HeadMixGradients<T> g{x_view.at(b, t), dy_view.at(b, t), dx_row, dx_view.head_stride,
                                               dm_data != nullptr ? lane_sums : nullptr};
          kernels::mix_heads_backward({num_in_heads, num_out_heads, x_view.head_stride, dy_view.head_stride, count},
                                      matrix_view.at(b, t), g, scratch);
          if (dx_row != nullptr) clear_range(dx_row, dx_view.head_stride, num_in_heads, count, num_columns);
          if (dm_data != nullptr && has_matrix_per_position) {
            add_lanes(lane_sums, matrix_size, dm_data + (b * x.size(2) + t) * matrix_size);
            std::fill_n(lane_sums, matrix_size * kLanes, 0.0F);
          }
        }
        if (dm_data != nullptr && !has_matrix_per_position)
          add_lanes(lane_sums, matrix_size, dm_data + item * matrix_size);
      });
}

// Mixes heads with LibTorch operations, for devices and types that the kernel does not support.
at::Tensor mix_by_matmul(const at::Tensor& x, const at::Tensor& matrix) {
  const at::Tensor m = matrix.to(x.scalar_type());
  if (m.dim() == 4) return at::matmul(m.transpose(-1, -2), x.transpose(1, 2)).transpose(1, 2);
  return at::bmm(m.t().expand({x.size(0), m.size(1), m.size(0)}), x.flatten(2))
      .view({x.size(0), m.size(1), x.size(2), x.size(3)});
}

at::Tensor matrix_gradient(const at::Tensor& x, const at::Tensor& dy, const at::Tensor& m) {
  if (m.dim() == 4) return at::matmul(x.transpose(1, 2), dy.permute({0, 2, 3, 1})).to(m.scalar_type());
  return at::bmm(x.flatten(2), dy.flatten(2).transpose(1, 2)).sum(0).to(m.scalar_type());
}

// Returns x and m in the memory layout of the kernel, or unchanged if the kernel does not support x.
std::pair<at::Tensor, at::Tensor> in_kernel_layout(const at::Tensor& x, const at::Tensor& m) {
  if (!nn::has_cpu_kernel(x)) return {x, m};
  return {with_contiguous_rows(x), m.to(at::kFloat).contiguous()};
}

at::Tensor mix_without_autograd(const at::Tensor& x, const at::Tensor& m, const MixOptions& options) {
  if (!nn::has_cpu_kernel(x)) return mix_by_matmul(x, m);
  at::Tensor y = allocate_output(x, m.size(-1), options.stores_by_position);
  if (x.scalar_type() == at::kFloat) run_forward_kernel<float>(x, m, options, y);
  else run_forward_kernel<uint16_t>(x, m, options, y);
  return y;
}

// Returns the gradients (dx, dm) of x and m; a gradient that is not needed is undefined. If `can_overwrite`, dx may
// overwrite `grad_output`, the gradient of the result, if the two have the same shape.
std::pair<at::Tensor, at::Tensor> mix_gradients(const at::Tensor& x, const at::Tensor& m, const MixOptions& options,
                                                const at::Tensor& grad_output, bool can_overwrite, bool needs_dx,
                                                bool needs_dm) {
  at::Tensor dx, dm;
  if (!nn::has_cpu_kernel(x)) {
    if (needs_dx) dx = mix_by_matmul(grad_output, m.transpose(-1, -2));
    if (needs_dm) dm = matrix_gradient(x, grad_output, m);
    return {dx, dm};
  }
  const at::Tensor dy = with_contiguous_rows(grad_output);
  if (needs_dx)
    dx = can_overwrite && grad_output.sizes() == x.sizes() && dy.is_same(grad_output) ? dy : at::empty_like(x);
  if (needs_dm) {
    std::vector<int64_t> sizes = m.sizes().vec();
    if (m.dim() == 2) sizes.insert(sizes.begin(), x.size(0) * ceil_div(x.size(2), kPositionsPerItem));
    dm = at::zeros(sizes, m.options());
  }
  if (x.scalar_type() == at::kFloat) run_backward_kernel<float>(x, m, options, dy, dx, dm);
  else run_backward_kernel<uint16_t>(x, m, options, dy, dx, dm);
  if (needs_dm && m.dim() == 2) dm = dm.sum(0, false, at::kDouble).to(at::kFloat);
  return {dx, dm};
}

struct MixHeads : torch::autograd::Function<MixHeads> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& matrix,
                            const MixOptions& options) {
    const auto [x, m] = in_kernel_layout(input, matrix);
    context->save_for_backward({x, m});
    no_autograd::save_offset(context->saved_data, options.causal_offset);
    return mix_without_autograd(x, m, options);
  }

  // `gradients` is a reference because a copy would hold another reference to the storage, which can_reuse_storage()
  // counts.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto [dx, dm] =
        mix_gradients(saved[0], saved[1], MixOptions{no_autograd::load_offset(context->saved_data)}, gradients[0],
                      can_reuse_storage(gradients[0]), context->needs_input_grad(0), context->needs_input_grad(1));
    return {dx, dm, {}};
  }
};

// Returns the matrices of the positions [first_position, first_position + count), or m if all positions share one
// matrix.
at::Tensor matrices_at(const at::Tensor& m, int64_t first_position, int64_t count) {
  return m.dim() == 4 ? m.narrow(1, first_position, count) : m;
}

// The autograd function of mix_values(). Computes one block of queries at a time, so that memory holds the mixed
// probabilities of one block only.
struct MixValues : torch::autograd::Function<MixValues> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& probabilities, const at::Tensor& matrix,
                            const at::Tensor& v, const MixOptions& options) {
    const auto kernel_inputs = in_kernel_layout(probabilities, matrix);
    const at::Tensor &p = kernel_inputs.first, &m = kernel_inputs.second;
    context->save_for_backward({p, m, v});
    no_autograd::save_offset(context->saved_data, options.causal_offset);
    const at::Tensor flat_v = no_autograd::flatten_heads(v);
    at::Tensor z = at::empty({v.size(0), v.size(1), p.size(2), v.size(3)}, v.options());
    const at::Tensor flat_z = z.flatten(0, 1);
    for_each_query_block(p, options, [&](const QueryBlock& block) {
      at::Tensor rows = flat_z.narrow(1, block.first_query, block.count);
      if (block.key_end == 0) return (void)rows.zero_();
      const at::Tensor mixed_probabilities =
          mix_without_autograd(block.slice(p), matrices_at(m, block.first_query, block.count), block.options);
      at::bmm_out(rows, no_autograd::flatten_heads(mixed_probabilities.to(v.scalar_type())),
                  flat_v.narrow(1, 0, block.key_end));
    });
    return z;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &p = saved[0], &m = saved[1], &v = saved[2];
    const MixOptions options{no_autograd::load_offset(context->saved_data)};
    const bool needs_dp = context->needs_input_grad(0), needs_dm = context->needs_input_grad(1);
    const at::Tensor transposed_v = no_autograd::flatten_heads(v).transpose(1, 2),
                     flat_dz = no_autograd::flatten_heads(gradients[0]);
    at::Tensor dp, dm, dv;
    if (needs_dp) dp = at::empty(p.sizes(), p.options());
    if (needs_dm) dm = at::zeros(m.sizes(), m.options());
    if (context->needs_input_grad(2)) dv = at::zeros(v.sizes(), v.options());
    for_each_query_block(p, options, [&](const QueryBlock& block) {
      if (needs_dp)
        dp.narrow(2, block.first_query, block.count).narrow(3, block.key_end, p.size(3) - block.key_end).zero_();
      if (block.key_end == 0) return;
      const at::Tensor p_block = block.slice(p), matrices = matrices_at(m, block.first_query, block.count),
                       dz_block = flat_dz.narrow(1, block.first_query, block.count);
      if (dv.defined()) {
        const at::Tensor mixed_probabilities =
            no_autograd::flatten_heads(mix_without_autograd(p_block, matrices, block.options).to(v.scalar_type()));
        dv.flatten(0, 1).narrow(1, 0, block.key_end).baddbmm_(mixed_probabilities.transpose(1, 2), dz_block);
      }
      if (!needs_dp && !needs_dm) return;
      // If dy, the gradient of the mixed probabilities, has the shape and type of dp, dy is computed in the memory of
      // dp and then overwritten by dp.
      const bool dy_fits_dp = needs_dp && p.size(1) == v.size(1) && p.scalar_type() == v.scalar_type();
      at::Tensor dy =
          dy_fits_dp ? block.slice(dp) : at::empty({v.size(0), v.size(1), block.count, block.key_end}, v.options());
      at::Tensor flat_dy = dy_fits_dp ? block.slice(dp.flatten(0, 1)) : dy.flatten(0, 1);
      at::bmm_out(flat_dy, dz_block, transposed_v.narrow(2, 0, block.key_end));
      const auto [dp_block, dm_block] =
          mix_gradients(p_block, matrices, block.options, dy.to(p.scalar_type()), true, needs_dp, needs_dm);
      if (needs_dp && !dp_block.is_alias_of(dp)) block.slice(dp).copy_(dp_block);
      if (needs_dm) matrices_at(dm, block.first_query, block.count).add_(dm_block);
    });
    return {dp, dm, dv, {}};
  }

 private:
  struct QueryBlock {
    int64_t first_query, count, key_end;
    MixOptions options;  // with causal_offset relative to the first query of the block
    // Returns the entries of x (…, Tq, Tk) for the queries of the block and the keys that they see.
    at::Tensor slice(const at::Tensor& x) const { return x.narrow(-2, first_query, count).narrow(-1, 0, key_end); }
  };
  // Calls visit(block) for each block of queries.
  template <class Visit>
  static void for_each_query_block(const at::Tensor& p, const MixOptions& options, const Visit& visit) {
    no_autograd::for_each_query_block(p.size(2), p.size(3), options.causal_offset,
                                      [&](int64_t first_query, int64_t count, int64_t key_end) {
                                        MixOptions block_options;
                                        if (options.causal_offset)
                                          block_options.causal_offset = *options.causal_offset + first_query;
                                        visit(QueryBlock{first_query, count, key_end, block_options});
                                      });
  }
};

}  // namespace

at::Tensor mix_heads(const at::Tensor& x, const at::Tensor& m, const MixOptions& options) {
  return MixHeads::apply(x, m, options);
}

at::Tensor mix_values(const at::Tensor& p, const at::Tensor& m, const at::Tensor& v, const MixOptions& options) {
  return MixValues::apply(p, m, v, options);
}

}  // namespace mh::attention
