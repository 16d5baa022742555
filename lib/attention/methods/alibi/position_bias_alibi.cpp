// ALiBi, attention with linear biases (Press et al. 2022): A_j[t, s] -= m_j |t - s| for head j = 0 … h-1, with fixed
// slopes m_j. With p the largest power of two that is at most h,
//
//   m_j = 2^(-8 (j + 1) / p) for j < p,   m_{p + i} = 2^(-4 (2 i + 1) / p) for the other heads, i = 0, 1, …
//
// The paper has causal models only; in an encoder, the bias is symmetric. Subtracting m_j (t - s) exactly, instead of
// adding m_j s, matters for functions that change if a constant is added to a row of logits: sinks and Sigsoftmax.
#include <cmath>

#include "attention/stage.h"
#include "base/error.h"
#include "base/text.h"
#include "nn/device.h"

namespace mh::attention {
namespace {

struct AlibiOptions : OptionsOf<AlibiOptions> {
  std::vector<double> slopes = {};
  void describe(Fields& f) override {
    f.field(
        "slopes", slopes,
        "slope of each head, by which the logit decreases per position of distance; []: slopes of the paper for this "
        "number of heads",
        at_least(0));
  }
};

std::vector<double> slopes_of_paper(int64_t num_heads) {
  int64_t power = 1;
  while (2 * power <= num_heads) power *= 2;
  std::vector<double> slopes;
  for (int64_t j = 0; j < num_heads; ++j) {
    const auto numerator = static_cast<double>(j < power ? 8 * (j + 1) : 4 * (2 * (j - power) + 1));
    slopes.push_back(std::exp2(-numerator / static_cast<double>(power)));
  }
  return slopes;
}

class Alibi : public PositionBiasStage {
 public:
  using Options = AlibiOptions;
  Alibi(const AlibiOptions& options, const LayerSpec& layer_spec)
      : slopes_(options.slopes.empty() ? slopes_of_paper(layer_spec.heads) : options.slopes),
        device_slopes_(at::tensor(slopes_, at::kFloat)) {
    if (const auto count = static_cast<int64_t>(slopes_.size()); count != layer_spec.heads)
      refuse_usage(layer_spec.name + ", attention.alibi.slopes",
                   str("[] or a slope for each of ", count_of(layer_spec.heads, "head")), count_of(count, "slope"),
                   "correct the list, or leave attention.alibi.slopes out");
  }

  // A layer with pruned heads keeps the slopes of the remaining heads.
  std::shared_ptr<StageOptions> options_after_pruning(const RemainingHeads& remaining_heads,
                                                      const LayerSpec& layer_spec) const override {
    if (static_cast<int64_t>(remaining_heads.score.size()) == layer_spec.heads) return nullptr;
    auto new_options = std::make_shared<AlibiOptions>();
    for (const int64_t head : remaining_heads.score) new_options->slopes.push_back(slopes_[static_cast<size_t>(head)]);
    return new_options;
  }

  Capabilities capabilities() const override {
    Capabilities result;
    result.supports_cross_attention = false;
    return result;
  }
  std::string why_not_fused() const override { return ""; }

  at::Tensor bias(const Context&, const at::Tensor& distances) override {
    if (device_slopes_.device() != distances.device())
      device_slopes_ = nn::to_device(device_slopes_, distances.device());
    return device_slopes_.unsqueeze(1) * (distances.clamp_max(0) - distances.clamp_min(0));  // minus |distance|
  }

 private:
  std::vector<double> slopes_;
  at::Tensor device_slopes_;  // (h), fp32
};

const Registration<Alibi> alibi_entry(position_biases(), "alibi",
                                      "penalty proportional to the distance between query and key (ALiBi)");

}  // namespace
}  // namespace mh::attention
