// Repeats the batch rows of tensors for variants.
#include "attention/variants.h"

#include <algorithm>

#include "attention/stage.h"
#include "nn/aten.h"

namespace mh::attention {

at::Tensor Variants::repeat(const at::Tensor& x) const {
  if (!x.defined() || count == 0) return x;
  const int64_t num_groups =
      source_groups.empty() ? 1 : *std::max_element(source_groups.begin(), source_groups.end()) + 1;
  if (num_groups == count) return x;
  const at::Tensor groups = x.unflatten(0, {num_groups, x.size(0) / num_groups});
  std::vector<at::Tensor> copies{x};
  for (int64_t v = num_groups; v < count; ++v)
    copies.push_back(groups[source_groups.empty() ? 0 : source_groups[static_cast<size_t>(v)]]);
  return nn::cat(copies);
}

void Variants::repeat_inputs(Context& c) const {
  const int64_t batch_size = c.v.size(0);
  if (at::Tensor& a = c.mask.additive; a.defined() && a.dim() == 4 && a.size(0) == batch_size) a = repeat(a);
  for (at::Tensor* t :
       {&c.q, &c.k, &c.v, &c.mixing_query, &c.query_input, &c.key_input, &c.mask.key_lengths, &c.mask.query_lengths})
    *t = repeat(*t);
}

void Variants::repeat_head_weights(Context& c) const {
  for (at::Tensor& w : c.head_weights)
    if (w.defined() && w.dim() > 1) w = repeat(w);
}

}  // namespace mh::attention
