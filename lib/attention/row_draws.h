// Random numbers of stages that draw for each row of a batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace mh::attention {

struct Context;

// Draws (B, count) fp32 numbers from [0, 1), on the CPU, from the stream "KIND.name" of the pass. A number depends on
// the place of its row in the update's whole batch and on its column, so neither micro-batches nor `count` change it.
at::Tensor draw_rows(const Context& context, const std::string& name, int64_t count);

}  // namespace mh::attention
