// Counter-based random numbers for each batch row.
#include "attention/uniform_per_row.h"

#include <ATen/ops/empty.h>

#include "attention/stage.h"
#include "base/random.h"

namespace mh::attention {

at::Tensor uniform_per_row(const Context& c, const std::string& name, int64_t count) {
  const RandomStream stream(c.forward_context.seed, std::string(name_of(c.layer_spec.kind)) + "." + name);
  const int64_t batch_size = c.query_input.size(0);
  at::Tensor uniforms = at::empty({batch_size, count}, at::kFloat);
  auto* out = uniforms.mutable_data_ptr<float>();
  for (int64_t b = 0; b < batch_size; ++b)
    for (int64_t i = 0; i < count; ++i)
      *out++ = stream.uniform(c.forward_context.update, static_cast<uint32_t>(c.layer_spec.layer),
                              static_cast<uint64_t>(c.forward_context.row_offset + b) << 32 | static_cast<uint64_t>(i));
  return uniforms;
}

}  // namespace mh::attention
