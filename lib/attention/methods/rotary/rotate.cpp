// The autograd function of the rotation, its CPU kernel calls, and its form as tensor operations.
#include "attention/methods/rotary/rotate.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "attention/row_layout.h"
#include "cpu/rotation.h"
#include "nn/aten.h"

namespace mh::attention {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kMinElementsPerThread = 16384;

enum class Direction { forward, inverse };

// Writes x (B, h, T, dk), rotated, to y, with the CPU kernel.
template <class T>
void run_kernel(const at::Tensor& x, const RotaryRows& rows, Direction direction, at::Tensor& y) {
  const int64_t num_positions = x.size(2), half = rows.cosines.size(1);
  kernels::RotationParams shared_params;
  shared_params.heads = x.size(1), shared_params.head_size = x.size(3), shared_params.size = 2 * half;
  shared_params.is_inverse = direction == Direction::inverse;
  shared_params.x_position_stride = x.stride(2), shared_params.x_head_stride = x.stride(1);
  shared_params.y_position_stride = y.stride(2), shared_params.y_head_stride = y.stride(1);
  const auto *cosines = rows.cosines.const_data_ptr<float>(), *sines = rows.sines.const_data_ptr<float>();
  const auto* x_data = static_cast<const T*>(x.const_data_ptr());
  auto* y_data = static_cast<T*>(y.mutable_data_ptr());
  const int64_t grain = std::max<int64_t>(1, kMinElementsPerThread / std::max<int64_t>(1, x.size(1) * x.size(3)));
  at::parallel_for(0, x.size(0) * num_positions, grain, [&](int64_t begin, int64_t end) {
    kernels::RotationParams params = shared_params;
    for (int64_t i = begin; i < end; i += params.positions) {
      const int64_t b = i / num_positions, t = i % num_positions;
      params.positions = std::min(num_positions - t, end - i);
      kernels::rotate<T>(params, cosines + t * half, sines + t * half, x_data + b * x.stride(0) + t * x.stride(2),
                         y_data + b * y.stride(0) + t * y.stride(2));
    }
  });
}

// Writes x (B, h, T, dk), rotated, to y, with tensor operations.
void run_operations(const at::Tensor& x, const RotaryRows& rows, Direction direction, const at::Tensor& y) {
  const int64_t half = rows.cosines.size(1), size = x.size(3);
  const at::ScalarType type = at::isReducedFloatingType(x.scalar_type()) ? at::kFloat : x.scalar_type();
  const at::Tensor first = x.narrow(3, 0, half).to(type), second = x.narrow(3, half, half).to(type),
                   cosines = rows.cosines.to(type),
                   sines = rows.sines.to(type) * (direction == Direction::forward ? 1 : -1);
  const at::Tensor rotated_first = first * cosines - second * sines, rotated_second = second * cosines + first * sines;
  y.narrow(3, 0, half).copy_(rotated_first);
  y.narrow(3, half, half).copy_(rotated_second);
  y.narrow(3, 2 * half, size - 2 * half).copy_(x.narrow(3, 2 * half, size - 2 * half));
}

void rotate_to(const at::Tensor& x, const RotaryRows& rows, Direction direction, at::Tensor& y) {
  TORCH_CHECK(rows.cosines.size(0) == x.size(2) && 2 * rows.cosines.size(1) <= x.size(3), "rotate: expected ",
              x.size(2), " rows of at most ", x.size(3) / 2, " angles; found the shape ", rows.cosines.sizes());
  if (x.is_cpu() && x.scalar_type() == at::kFloat) run_kernel<float>(with_contiguous_rows(x), rows, direction, y);
  else if (x.is_cpu() && x.scalar_type() == at::kBFloat16)
    run_kernel<uint16_t>(with_contiguous_rows(x), rows, direction, y);
  else run_operations(x, rows, direction, y);
}

at::Tensor rotated(const at::Tensor& x, const RotaryRows& rows, Direction direction) {
  at::Tensor y = allocate_by_position(x, x.size(1), x.size(2), x.size(3));
  rotate_to(x, rows, direction, y);
  return y;
}

// Returns uninitialised tensors with the shapes of q, k and v that are adjacent slices of one tensor, as in a joint
// projection. The numbers of positions must be equal.
variable_list allocate_adjacent(const variable_list& shapes) {
  int64_t width = 0, offset = 0;
  for (const at::Tensor& x : shapes) width += x.size(1) * x.size(3);
  const at::Tensor joint = at::empty({shapes[0].size(0), shapes[0].size(2), width}, shapes[0].options());
  variable_list slices;
  for (const at::Tensor& x : shapes) {
    const int64_t slice_width = x.size(1) * x.size(3);
    slices.push_back(joint.narrow(2, offset, slice_width).unflatten(2, {x.size(1), x.size(3)}).transpose(1, 2));
    offset += slice_width;
  }
  return slices;
}

struct Rotation : torch::autograd::Function<Rotation> {
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const RotaryRows& query_rows, const RotaryRows& key_rows) {
    context->set_materialize_grads(false);
    context->save_for_backward({query_rows.cosines, query_rows.sines, key_rows.cosines, key_rows.sines});
    return {rotated(q, query_rows, Direction::forward), rotated(k, key_rows, Direction::forward), v};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const RotaryRows rows[] = {{saved[0], saved[1]}, {saved[2], saved[3]}};
    const bool are_defined = gradients[0].defined() && gradients[1].defined() && gradients[2].defined();
    if (are_defined && gradients[0].size(2) == gradients[1].size(2)) {
      variable_list slices = allocate_adjacent(gradients);
      for (size_t i = 0; i < 2; ++i) rotate_to(gradients[i], rows[i], Direction::inverse, slices[i]);
      slices[2].copy_(gradients[2]);
      return {slices[0], slices[1], slices[2], {}, {}};
    }
    for (size_t i = 0; i < 2; ++i)
      if (gradients[i].defined()) gradients[i] = rotated(gradients[i], rows[i], Direction::inverse);
    return {gradients[0], gradients[1], gradients[2], {}, {}};
  }
};

}  // namespace

ProjectedHeads rotate(const ProjectedHeads& x, const RotaryRows& query_rows, const RotaryRows& key_rows) {
  if (!c10::GradMode::is_enabled() || !(x.q.requires_grad() || x.k.requires_grad()))
    return {rotated(x.q, query_rows, Direction::forward), rotated(x.k, key_rows, Direction::forward), x.v};
  const variable_list outputs = Rotation::apply(x.q, x.k, x.v, query_rows, key_rows);
  return {outputs[0], outputs[1], outputs[2]};
}

}  // namespace mh::attention
