// The interceptor that multiplies tensors of heads by scale factors.
#include "attention/head_scales.h"

#include <memory>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "nn/aten.h"

namespace mh::attention {

namespace {

class HeadScalingInterceptor : public Interceptor {
 public:
  explicit HeadScalingInterceptor(HeadScales scales) : scales_(std::move(scales)) {}
  const HeadScales& scales() const { return scales_; }

  at::Tensor intercept_heads(HeadSide side, const LayerSpec&, const at::Tensor& x) override {
    at::Tensor s = scales_.scales_of(side).to(x.scalar_type());
    if (const int64_t count = scales_.variants.count; count > 0) s = s.repeat_interleave(x.size(0) / count, 0);
    if (s.dim() == 1) s = s.unsqueeze(0);
    while (s.dim() < x.dim()) s = s.unsqueeze(-1);
    return x * s;
  }
  bool acts_on(HeadSide side) const override { return scales_.scales_of(side).defined(); }
  const char* why_composed() const override {
    return scales_.score.defined()
               ? "scale factors of score heads act on probabilities, which the fused path does not store"
               : nullptr;
  }
  const Variants* variants() const override { return &scales_.variants; }

 private:
  HeadScales scales_;
};

}  // namespace

void set_head_scales(AttentionLayer& layer, HeadScales scales) {
  if (scales.score.defined() && layer.layer_spec().heads > 0 && !layer.has_separate_heads(HeadSide::score))
    refuse_usage(layer.layer_spec().name,
                 "a layer whose mixer mixes heads, so that score heads differ from value heads",
                 str("mixer '", layer.mixer_name(), "'"), "scale value heads instead");
  const bool has_scales = scales.score.defined() || scales.value.defined() || scales.output.defined();
  layer.set_interceptor(
      has_scales || scales.variants.count > 0 ? std::make_shared<HeadScalingInterceptor>(std::move(scales)) : nullptr);
}

HeadScales head_scales(const AttentionLayer& layer) {
  if (layer.interceptor() == nullptr) return {};
  const auto* interceptor = dynamic_cast<const HeadScalingInterceptor*>(layer.interceptor().get());
  if (interceptor == nullptr)
    throw std::logic_error("head_scales: the interceptor of the layer was not set by set_head_scales()");
  return interceptor->scales();
}

}  // namespace mh::attention
