// Random numbers for stages that sample separately for each batch row.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace mh::attention {

struct Context;

// Returns random numbers (B, count), fp32, uniform in [0, 1), on the CPU, from the random stream "KIND.name", where
// KIND is the kind of the layer ("decoder.self"). A number is a function of seed, update, layer, column, and the index
// of the batch row within the whole batch of the update. Neither micro-batches nor `count` change a number.
at::Tensor uniform_per_row(const Context& context, const std::string& name, int64_t count);

}  // namespace mh::attention
