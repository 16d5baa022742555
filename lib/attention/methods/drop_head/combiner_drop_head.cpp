// DropHead (Zhou et al. 2020): dropout of whole heads. In training each head of each batch row is dropped with
// probability p, and the other heads are rescaled, Z'_i = ξ_i Z_i hv / Σ_j ξ_j, where ξ_i is 0 for a dropped head and 1
// otherwise. If all heads of a batch row would be dropped, no head is dropped. Evaluation is plain attention.
#include "attention/gated_combiner.h"
#include "attention/uniform_per_row.h"
#include "nn/device.h"

namespace mh::attention {
namespace {

struct DropHeadOptions : OptionsOf<DropHeadOptions> {
  double rate = 0.1;
  void describe(Fields& f) override {
    f.field("rate", rate, "probability that a head is dropped, separately for each batch row", between(0, 0.999));
  }
};

class DropHead : public GatedCombiner {
 public:
  using Options = DropHeadOptions;
  DropHead(const DropHeadOptions& options, const LayerSpec& layer_spec)
      : options_(options), num_heads_(layer_spec.value_heads) {}
  at::Tensor head_weights(const Context& c) override {
    if (!c.forward_context.training || options_.rate == 0) return {};
    return show_gates(c, nn::to_device(sample_gates(c), c.query_input.device()));
  }
  bool samples_on_host() const override { return options_.rate > 0; }
  at::Tensor as_linear_map() const override { return at::eye(num_heads_); }

 private:
  // Returns the factor of each head, (B, hv): hv / Σξ for heads that are not dropped, 0 for dropped heads.
  at::Tensor sample_gates(const Context& c) const {
    at::Tensor undropped_mask = uniform_per_row(c, "drop-head", num_heads_);
    auto* uniforms = undropped_mask.mutable_data_ptr<float>();
    for (int64_t i = 0; i < undropped_mask.numel(); ++i) uniforms[i] = uniforms[i] < options_.rate ? 0.0F : 1.0F;
    const at::Tensor num_undropped_heads = undropped_mask.sum(1, true);
    undropped_mask = at::where(num_undropped_heads == 0, at::ones({}), undropped_mask);
    return undropped_mask * (static_cast<double>(num_heads_) / undropped_mask.sum(1, true));
  }

  DropHeadOptions options_;
  int64_t num_heads_;
};

const Registration<DropHead> drop_head_entry(combiners(), "drop-head",
                                             "dropout of whole heads, separately for each batch row");

}  // namespace
}  // namespace mh::attention
