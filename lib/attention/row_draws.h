// Random numbers for stages that sample once for each row of the batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace mh::attention {

struct Context;

// Returns (B, count) fp32 numbers, uniform in [0, 1), on the CPU, from the random stream "KIND.name". A number depends
// only on the index of its row in the whole batch of the update and on its column, so neither micro-batches nor `count`
// change it.
at::Tensor draw_rows(const Context& context, const std::string& name, int64_t count);

}  // namespace mh::attention
