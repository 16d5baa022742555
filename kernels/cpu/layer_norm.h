// Layer norm of a sum, without a gradient: what stands behind each part of a layer that normalises after it.
#pragma once

#include <cstdint>

namespace mh::kernels {

// Of each row s = x + y: out = (s - mean) / √(variance + epsilon) * weight + bias. x, y and out (rows, size),
// contiguous; weight and bias (size). y is fp32 or bf16.
void norm_of_sum(const float* x, const float* y, const float* weight, const float* bias, float epsilon, int64_t rows,
                 int64_t size, float* out);
void norm_of_sum(const float* x, const uint16_t* y, const float* weight, const float* bias, float epsilon, int64_t rows,
                 int64_t size, float* out);

}  // namespace mh::kernels
