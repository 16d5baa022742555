// Whether a processor multiplies by packed weights.
#pragma once

#include <c10/core/ScalarType.h>

namespace mh::nn {

// Returns whether DecodingProducts packs weights of this type on a CPU: fp32, and bf16 on a processor with bf16
// instructions. Without packed weights, products of few rows are padded to a number of rows with exact bits, so one row
// costs as much as 16 or 64.
bool can_pack_weights(at::ScalarType type);

}  // namespace mh::nn
