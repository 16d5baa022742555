// Variants of a layer: copies of the rows of a pass, each under its own scales of heads.
#include <ATen/ATen.h>

#include <algorithm>

#include "attention/layer.h"
#include "base/error.h"
#include "base/text.h"

namespace mh::attention {

void AttentionLayer::set_head_scales(const HeadScales& scales) {
  if (scales.score.defined() && shape_.heads > 0 && !has_side(HeadSide::score))
    throw Error(Exit::usage, Problem{shape_.name, "a mixer, for score heads that are not value heads",
                                     str("mixer '", options_.mixer, "'"), "take both sides of a head together"});
  scales_ = scales;
}

at::Tensor AttentionLayer::scaled(const at::Tensor& x, const at::Tensor& scale, int64_t copies) {
  at::Tensor s = scale.to(x.scalar_type());
  if (copies > 0) s = s.repeat_interleave(x.size(0) / copies, 0);
  if (s.dim() == 1) s = s.unsqueeze(0);
  while (s.dim() < x.dim()) s = s.unsqueeze(-1);
  return x * s;
}

at::Tensor AttentionLayer::copied(const at::Tensor& x) const {
  if (!x.defined() || scales_.copies == 0) return x;
  const auto& from = scales_.from;
  const int64_t given = from.empty() ? 1 : *std::max_element(from.begin(), from.end()) + 1;
  if (given == scales_.copies) return x;
  const at::Tensor blocks = x.unflatten(0, {given, x.size(0) / given});
  std::vector<at::Tensor> parts{x};
  for (int64_t f = given; f < scales_.copies; ++f)
    parts.push_back(blocks[from.empty() ? 0 : from[static_cast<size_t>(f)]]);
  return at::cat(parts);
}

void AttentionLayer::copy_weights(Context& c) const {
  if (c.weights.defined() && c.weights.dim() > 1) c.weights = copied(c.weights);
}

at::Tensor AttentionLayer::to_mixer(Context& c, const at::Tensor& x) {
  at::Tensor y = c.observer != nullptr ? c.observer->mixer_inputs(shape_, x) : x;
  if (!scales_.score.defined()) return y;
  if (at::Tensor& a = c.mask.additive; a.defined() && a.dim() == 4 && a.size(0) == y.size(0)) a = copied(a);
  for (at::Tensor* t : {&y, &c.q, &c.k, &c.v, &c.query_input, &c.key_input, &c.mask.key_lengths, &c.mask.query_lengths})
    *t = copied(*t);
  copy_weights(c);
  return scaled(y, scales_.score, scales_.copies);
}

}  // namespace mh::attention
