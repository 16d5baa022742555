// Repeats the batch rows of tensors for variants.
#include "attention/variants.h"

#include <algorithm>

#include "attention/stage.h"
#include "nn/aten.h"

namespace mh::attention {

at::Tensor Variants::repeat(const at::Tensor& x) const {
  if (!x.defined() || count == 0) return x;
  const int64_t sources = from.empty() ? 1 : *std::max_element(from.begin(), from.end()) + 1;
  if (sources == count) return x;
  const at::Tensor blocks = x.unflatten(0, {sources, x.size(0) / sources});
  std::vector<at::Tensor> parts{x};
  for (int64_t f = sources; f < count; ++f) parts.push_back(blocks[from.empty() ? 0 : from[static_cast<size_t>(f)]]);
  return at::cat(parts);
}

void Variants::repeat_inputs(Context& c) const {
  const int64_t rows = c.v.size(0);
  if (at::Tensor& a = c.mask.additive; a.defined() && a.dim() == 4 && a.size(0) == rows) a = repeat(a);
  for (at::Tensor* t : {&c.q, &c.k, &c.v, &c.query_input, &c.key_input, &c.mask.key_lengths, &c.mask.query_lengths})
    *t = repeat(*t);
}

void Variants::repeat_weights(Context& c) const {
  if (c.weights.defined() && c.weights.dim() > 1) c.weights = repeat(c.weights);
}

}  // namespace mh::attention
