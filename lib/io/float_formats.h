// Conversion between fp32 and the floating-point formats of tensors in files: F64, F32, F16 (IEEE 754 half precision)
// and BF16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/checkpoint.h"

namespace mh::io {

// Returns whether `type` is F64, F32, F16 or BF16.
bool is_floating_point(DType type);
// Converts `count` numbers of the format `type`, a floating-point format, to fp32. F64 is rounded to the nearest
// number; the other formats are exact. `source`: little-endian, of any alignment; it may not overlap `out`.
void to_fp32(DType type, const void* source, size_t count, float* out);
// Converts `count` fp32 numbers to the format `type`: F32, F16 or BF16. Rounds to the nearest number, ties to even; a
// number past the range of F16 becomes infinite, and NaN stays NaN. `out`: of any alignment; it may equal `source`.
void from_fp32(DType type, const float* source, size_t count, void* out);
// Throws Error(input) for a finite number that is infinite in F16. `where`: file and tensor of the numbers, for the
// message.
void require_half_range(const std::string& where, const float* numbers, size_t count);

}  // namespace mh::io
