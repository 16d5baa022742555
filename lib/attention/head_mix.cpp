// Linear maps across heads: the kernel of cpu/head_mix.h for fp32 and bf16 on a CPU, LibTorch operations otherwise.
#include "attention/head_mix.h"

#include <ATen/Parallel.h>
#include <ATen/ops/bmm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "attention/buffer_reuse.h"
#include "attention/row_layout.h"
#include "cpu/head_mix.h"

namespace mh::attention {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kLanes = 16;
constexpr int64_t kRows = 16;  // positions per work item; a constant, so that results do not depend on the thread count

bool has_cpu_kernel(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// The data pointer of a tensor (B, h, T, S), and its strides in elements.
template <class T>
struct View {
  T* data;
  int64_t row, head, position;
  template <class Pointer>
  View(Pointer pointer, const at::Tensor& x)
      : data(static_cast<T*>(pointer)), row(x.stride(0)), head(x.stride(1)), position(x.stride(2)) {}
  T* at(int64_t b, int64_t t) const { return data + b * row + t * position; }
};
template <class T>
View<const T> reading(const at::Tensor& x) {
  return {x.const_data_ptr(), x};
}
template <class T>
View<T> writing(const at::Tensor& x) {
  return {x.data_ptr(), x};
}

// The mixing matrix (h_in, h_out) of all positions, or the matrices (B, T, h_in, h_out) of each position.
struct Matrices {
  const float* data;
  int64_t row, position;  // strides in elements; 0: one matrix for all positions
  explicit Matrices(const at::Tensor& m)
      : data(m.const_data_ptr<float>()),
        row(m.dim() == 4 ? m.stride(0) : 0),
        position(m.dim() == 4 ? m.stride(1) : 0) {}
  const float* at(int64_t b, int64_t t) const { return data + b * row + t * position; }
};

// Calls visit(item, b, begin, end, scratch), in parallel, for each work item: at most kRows positions [begin, end) of
// batch row b, with `scratch` floats of memory.
template <class Visit>
void for_each_work_item(const at::Tensor& x, int64_t scratch, const Visit& visit) {
  const int64_t positions = x.size(2), pieces = (positions + kRows - 1) / kRows;
  at::parallel_for(0, x.size(0) * pieces, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> memory(static_cast<size_t>(scratch));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % pieces * kRows;
      visit(i, i / pieces, first, std::min(first + kRows, positions), memory.data());
    }
  });
}

// Returns how many of `all` keys the query at position t sees.
int64_t num_visible_keys(const MixOptions& mixing, int64_t t, int64_t all) {
  return mixing.causal_offset ? std::clamp<int64_t>(t + *mixing.causal_offset + 1, 0, all) : all;
}

// Sets the entries [from, to) of each of `heads` heads to 0; `stride` is the head stride.
template <class T>
void clear_range(T* data, int64_t stride, int64_t heads, int64_t from, int64_t to) {
  if (from == to) return;
  for (int64_t i = 0; i < heads; ++i) std::fill(data + i * stride + from, data + i * stride + to, T{0});
}

// Allocates a tensor (B, heads, T, S) for x (B, h, T, S). `by_position`: stored as (B, T, heads, S).
at::Tensor like(const at::Tensor& x, int64_t heads, bool by_position) {
  if (by_position) return attention::by_position(x, heads, x.size(2), x.size(3));
  return at::empty({x.size(0), heads, x.size(2), x.size(3)}, x.options());
}

template <class T>
void run_forward_kernel(const at::Tensor& x, const at::Tensor& m, const MixOptions& mixing, at::Tensor& y) {
  const int64_t in = x.size(1), out = y.size(1), keys = x.size(3);
  const auto from = reading<T>(x);
  const auto to = writing<T>(y);
  const Matrices matrices(m);
  for_each_work_item(x, kernels::head_mix_scratch(in, out),
                     [&](int64_t, int64_t b, int64_t begin, int64_t end, float* scratch) {
                       for (int64_t t = begin; t < end; ++t) {
                         const int64_t count = num_visible_keys(mixing, t, keys);
                         kernels::mix_heads({in, out, from.head, to.head, count}, matrices.at(b, t), from.at(b, t),
                                            to.at(b, t), scratch);
                         clear_range(to.at(b, t), to.head, out, count, keys);
                       }
                     });
}

// Adds to each of `count` sums the kLanes partial sums of the kernel: sums (count), lanes (count, kLanes).
void add_lanes(const float* lanes, int64_t count, float* sums) {
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int l = 0; l < kLanes; ++l) sum += lanes[i * kLanes + l];
    sums[i] += sum;
  }
}

// Writes the gradient dx and adds to the gradient dm; an undefined dx or dm is skipped. dm must be zero before the
// call. It has the shape (B, T, in, out) with one matrix per position, otherwise (work items, in, out) for the caller
// to sum.
template <class T>
void run_backward_kernel(const at::Tensor& x, const at::Tensor& m, const MixOptions& mixing, const at::Tensor& dy,
                         const at::Tensor& dx, const at::Tensor& dm) {
  const int64_t in = x.size(1), out = dy.size(1), keys = x.size(3), numbers = in * out;
  const bool by_position = m.dim() == 4;
  const auto from = reading<T>(x), grad_output = reading<T>(dy);
  const auto to = dx.defined() ? writing<T>(dx) : View<T>(nullptr, x);
  auto* sums = dm.defined() ? dm.data_ptr<float>() : nullptr;
  const Matrices matrices(m);
  const int64_t scratch_size = kernels::head_mix_scratch(in, out);
  for_each_work_item(
      x, scratch_size + numbers * kLanes, [&](int64_t piece, int64_t b, int64_t begin, int64_t end, float* scratch) {
        float* lanes = scratch + scratch_size;
        std::fill_n(lanes, numbers * kLanes, 0.0F);
        for (int64_t t = begin; t < end; ++t) {
          const int64_t count = num_visible_keys(mixing, t, keys);
          T* target = dx.defined() ? to.at(b, t) : nullptr;
          const kernels::HeadMixGradients<T> g{from.at(b, t), grad_output.at(b, t), target, to.head,
                                               sums != nullptr ? lanes : nullptr};
          kernels::mix_heads_backward({in, out, from.head, grad_output.head, count}, matrices.at(b, t), g, scratch);
          if (target != nullptr) clear_range(target, to.head, in, count, keys);
          if (sums != nullptr && by_position) {
            add_lanes(lanes, numbers, sums + (b * x.size(2) + t) * numbers);
            std::fill_n(lanes, numbers * kLanes, 0.0F);
          }
        }
        if (sums != nullptr && !by_position) add_lanes(lanes, numbers, sums + piece * numbers);
      });
}

// Mixes heads with LibTorch operations, for devices and types that the kernel does not support.
at::Tensor mixed(const at::Tensor& x, const at::Tensor& matrix) {
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
  if (!has_cpu_kernel(x)) return {x, m};
  return {with_contiguous_rows(x), m.to(at::kFloat).contiguous()};
}

at::Tensor mix_without_autograd(const at::Tensor& x, const at::Tensor& m, const MixOptions& mixing) {
  if (!has_cpu_kernel(x)) return mixed(x, m);
  at::Tensor y = like(x, m.size(-1), mixing.by_position);
  if (x.scalar_type() == at::kFloat) run_forward_kernel<float>(x, m, mixing, y);
  else run_forward_kernel<uint16_t>(x, m, mixing, y);
  return y;
}

// Returns the gradients (dx, dm) of x and m; a gradient that is not needed is undefined. If `reusable`, dx may
// overwrite `grad_output`, the gradient of the result, if the two have the same shape.
std::pair<at::Tensor, at::Tensor> mix_gradients(const at::Tensor& x, const at::Tensor& m, const MixOptions& mixing,
                                                const at::Tensor& grad_output, bool reusable, bool needs_x,
                                                bool needs_m) {
  at::Tensor dx, dm;
  if (!has_cpu_kernel(x)) {
    if (needs_x) dx = mixed(grad_output, m.transpose(-1, -2));
    if (needs_m) dm = matrix_gradient(x, grad_output, m);
    return {dx, dm};
  }
  const at::Tensor dy = with_contiguous_rows(grad_output);
  if (needs_x) dx = reusable && grad_output.sizes() == x.sizes() && dy.is_same(grad_output) ? dy : at::empty_like(x);
  if (needs_m) {
    std::vector<int64_t> sizes = m.sizes().vec();
    if (m.dim() == 2) sizes.insert(sizes.begin(), x.size(0) * ((x.size(2) + kRows - 1) / kRows));
    dm = at::zeros(sizes, m.options());
  }
  if (x.scalar_type() == at::kFloat) run_backward_kernel<float>(x, m, mixing, dy, dx, dm);
  else run_backward_kernel<uint16_t>(x, m, mixing, dy, dx, dm);
  if (needs_m && m.dim() == 2) dm = dm.sum(0, false, at::kDouble).to(at::kFloat);
  return {dx, dm};
}

struct Mix : torch::autograd::Function<Mix> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& grad_output, const at::Tensor& matrix,
                            const MixOptions& mixing) {
    const auto [x, m] = in_kernel_layout(grad_output, matrix);
    context->save_for_backward({x, m});
    plain::save_offset(context->saved_data, mixing.causal_offset);
    return mix_without_autograd(x, m, mixing);
  }

  // The parameter is a reference because a copy would hold another reference to the storage, which can_reuse_storage()
  // counts.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto [dx, dm] =
        mix_gradients(saved[0], saved[1], MixOptions{plain::saved_offset(context->saved_data)}, gradients[0],
                      can_reuse_storage(gradients[0]), context->needs_input_grad(0), context->needs_input_grad(1));
    return {dx, dm, {}};
  }
};

// Returns the matrices of the positions [first, first + count), or m if all positions share one matrix.
at::Tensor matrices_at(const at::Tensor& m, int64_t first, int64_t count) {
  return m.dim() == 4 ? m.narrow(1, first, count) : m;
}

// The autograd function of mix_values(). Computes one block of queries at a time, so that memory holds the mixed
// probabilities of one block only.
struct MixValues : torch::autograd::Function<MixValues> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& grad_output, const at::Tensor& matrix,
                            const at::Tensor& v, const MixOptions& mixing) {
    const auto inputs = in_kernel_layout(grad_output, matrix);
    const at::Tensor &p = inputs.first, &m = inputs.second;
    context->save_for_backward({p, m, v});
    plain::save_offset(context->saved_data, mixing.causal_offset);
    const at::Tensor values = plain::flat(v);
    at::Tensor z = at::empty({v.size(0), v.size(1), p.size(2), v.size(3)}, v.options());
    const at::Tensor to = z.flatten(0, 1);
    each_block(p, mixing, [&](const Block& block) {
      at::Tensor rows = to.narrow(1, block.first, block.count);
      if (block.seen == 0) return (void)rows.zero_();
      const at::Tensor mixed =
          mix_without_autograd(block.of(p), matrices_at(m, block.first, block.count), block.mixing);
      at::bmm_out(rows, plain::flat(mixed.to(v.scalar_type())), values.narrow(1, 0, block.seen));
    });
    return z;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &p = saved[0], &m = saved[1], &v = saved[2];
    const MixOptions mixing{plain::saved_offset(context->saved_data)};
    const bool needs_p = context->needs_input_grad(0), needs_m = context->needs_input_grad(1);
    const at::Tensor values = plain::flat(v).transpose(1, 2), dz = plain::flat(gradients[0]);
    at::Tensor dx, dm, dv;
    if (needs_p) dx = at::empty(p.sizes(), p.options());
    if (needs_m) dm = at::zeros(m.sizes(), m.options());
    if (context->needs_input_grad(2)) dv = at::zeros(v.sizes(), v.options());
    each_block(p, mixing, [&](const Block& block) {
      if (needs_p) dx.narrow(2, block.first, block.count).narrow(3, block.seen, p.size(3) - block.seen).zero_();
      if (block.seen == 0) return;
      const at::Tensor x = block.of(p), matrices = matrices_at(m, block.first, block.count),
                       grad_output = dz.narrow(1, block.first, block.count);
      if (dv.defined()) {
        const at::Tensor mixed = plain::flat(mix_without_autograd(x, matrices, block.mixing).to(v.scalar_type()));
        dv.flatten(0, 1).narrow(1, 0, block.seen).baddbmm_(mixed.transpose(1, 2), grad_output);
      }
      if (!needs_p && !needs_m) return;
      // If dy, the gradient of the mixed probabilities, has the shape and type of dx, dy is computed in the memory of
      // dx and then overwritten by dx.
      const bool same_layout = needs_p && p.size(1) == v.size(1) && p.scalar_type() == v.scalar_type();
      at::Tensor dy =
          same_layout ? block.of(dx) : at::empty({v.size(0), v.size(1), block.count, block.seen}, v.options());
      at::Tensor to = same_layout ? block.of(dx.flatten(0, 1)) : dy.flatten(0, 1);
      at::bmm_out(to, grad_output, values.narrow(2, 0, block.seen));
      const auto [dx_block, dm_block] =
          mix_gradients(x, matrices, block.mixing, dy.to(p.scalar_type()), true, needs_p, needs_m);
      if (needs_p && !dx_block.is_alias_of(dx)) block.of(dx).copy_(dx_block);
      if (needs_m) matrices_at(dm, block.first, block.count).add_(dm_block);
    });
    return {dx, dm, dv, {}};
  }

 private:
  struct Block {
    int64_t first, count, seen;
    MixOptions mixing;  // with causal_offset relative to the first query of the block
    // Returns the entries of x (…, T, S) for the queries of the block and the keys that they see.
    at::Tensor of(const at::Tensor& x) const { return x.narrow(-2, first, count).narrow(-1, 0, seen); }
  };
  // Calls visit(block) for each block of queries.
  template <class Visit>
  static void each_block(const at::Tensor& p, const MixOptions& mixing, const Visit& visit) {
    plain::each_block(p.size(2), p.size(3), mixing.causal_offset, [&](int64_t first, int64_t count, int64_t seen) {
      MixOptions block_mixing;
      if (mixing.causal_offset) block_mixing.causal_offset = *mixing.causal_offset + first;
      visit(Block{first, count, seen, block_mixing});
    });
  }
};

}  // namespace

at::Tensor mix_heads(const at::Tensor& x, const at::Tensor& m, const MixOptions& mixing) {
  return Mix::apply(x, m, mixing);
}

at::Tensor mix_values(const at::Tensor& p, const at::Tensor& m, const at::Tensor& v, const MixOptions& mixing) {
  return MixValues::apply(p, m, v, mixing);
}

}  // namespace mh::attention
