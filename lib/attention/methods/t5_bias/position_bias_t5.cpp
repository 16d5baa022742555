// The position bias of T5 (Raffel et al. 2020): A_j[t, s] += E[bucket(t - s), j], with a learned table E (buckets, h),
// which by default all layers of an encoder or decoder share. buckets.h has the equation of the bucket. In an encoder,
// half of the buckets belong to later keys. T5 itself does not scale logits (attention.scale = 1).
//
// The published initial table is normal with variance 1/d; here E is 0 initially, so that the layer begins without a
// bias.
#include "attention/methods/t5_bias/buckets.h"
#include "attention/stage.h"
#include "base/error.h"
#include "base/text.h"
#include "nn/device.h"

namespace mh::attention {
namespace {

struct T5Options : OptionsOf<T5Options> {
  int64_t buckets = 32;
  int64_t max_distance = 128;
  bool shared = true;
  void describe(Fields& f) override {
    f.field("buckets", buckets, "number of buckets of distances; in an encoder, half of them belong to later keys",
            between(4, 1 << 16));
    f.field("max_distance", max_distance, "distance from which on all distances have the last bucket",
            between(2, 1 << 20));
    f.field("shared", shared, "use the same table in all layers of an encoder or decoder");
  }
};

class T5Bias : public PositionBiasStage {
 public:
  using Options = T5Options;
  T5Bias(const T5Options& options, const LayerSpec& layer_spec)
      : options_(options), two_sided_(layer_spec.kind == AttentionKind::encoder_self) {
    const int64_t num_exact = options.buckets / (two_sided_ ? 4 : 2);
    if (two_sided_ && options.buckets % 2 != 0)
      refuse_usage(layer_spec.name + ", attention.t5.buckets", "an even number in an encoder", str(options.buckets),
                   "set attention.t5.buckets to an even number");
    if (options.max_distance <= num_exact)
      refuse_usage(layer_spec.name + ", attention.t5.max_distance",
                   str("more than ", num_exact, ", the number of distances with a bucket of their own"),
                   str(options.max_distance), "raise attention.t5.max_distance, or lower attention.t5.buckets");
  }

  void add_parameters(nn::ParameterList& parameters, const LayerSpec& s) override {
    const std::string name = (options_.shared ? s.name.substr(0, s.name.find('.')) : s.name) + ".position_bias.weight";
    const std::vector<int64_t> shape{options_.buckets, s.heads};
    if (const nn::Parameter* first = parameters.find(name);
        first != nullptr && first->sizes() != at::IntArrayRef(shape))
      refuse_usage(s.name,
                   str(count_of(first->sizes()[0], "bucket"), " and ", count_of(first->sizes()[1], "head"),
                       ", as in the first layer, since all layers share the table of position bias 't5'"),
                   str(count_of(shape[0], "bucket"), " and ", count_of(shape[1], "head")),
                   "set attention.t5.shared=false");
    table_ = &parameters.share(name, shape, {nn::Init::constant(0), false, false, {{1, s.heads, HeadSide::score}}});
  }

  // A layer with pruned heads does not share its table with other layers.
  std::shared_ptr<StageOptions> options_after_pruning(const RemainingHeads& remaining_heads,
                                                      const LayerSpec& s) const override {
    if (static_cast<int64_t>(remaining_heads.score.size()) == s.heads) return nullptr;
    auto new_options = std::make_shared<T5Options>(options_);
    new_options->shared = false;
    return new_options;
  }

  Capabilities capabilities() const override {
    Capabilities result;
    result.supports_cross_attention = false;
    return result;
  }
  std::string why_not_fused() const override { return ""; }

  at::Tensor bias(const Context&, const at::Tensor& distances) override {
    return at::embedding(table_->value(), buckets_of(distances)).t();
  }

 private:
  // Returns the buckets (D) of the distances (D): the distances themselves, bounded, are indices into a cached list of
  // the buckets of all distances up to max_distance, beyond which the bucket does not change.
  at::Tensor buckets_of(const at::Tensor& distances) {
    const int64_t limit = options_.max_distance;
    if (!buckets_.defined()) {
      std::vector<int64_t> buckets;
      for (int64_t d = -limit; d <= limit; ++d)
        buckets.push_back(t5_bucket(d, options_.buckets, options_.max_distance, two_sided_));
      buckets_ = at::tensor(buckets, at::kLong);
    }
    if (buckets_.device() != distances.device()) buckets_ = nn::to_device(buckets_, distances.device());
    return buckets_.index_select(0, distances.clamp(-limit, limit) + limit);
  }

  T5Options options_;
  bool two_sided_;
  nn::Parameter* table_ = nullptr;  // (buckets, h), fp32
  at::Tensor buckets_;              // (2 max_distance + 1) int64: bucket of each distance from -max_distance on
};

const Registration<T5Bias> t5_bias_entry(position_biases(), "t5",
                                         "learned bias of each head and range of distances (T5)");

}  // namespace
}  // namespace mh::attention
