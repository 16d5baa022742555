// Mixing of differential attention (differential.h): P̄_2i = P̄_2i+1 = P_2i - λ P_2i+1, so both value heads of a pair
// are multiplied by the same probabilities. Each layer has one λ for all pairs, a function of four vectors (dk) whose
// initial values have standard deviation 0.1.
#include "attention/matrix_mixer.h"
#include "attention/methods/differential/differential.h"
#include "base/error.h"

namespace mh::attention {

void require_whole_pairs(const std::vector<int64_t>& heads, const LayerSpec& layer_spec, const std::string& stage) {
  for (size_t i = 0; i < heads.size(); i += 2)
    if (heads[i] % 2 != 0 || i + 1 == heads.size() || heads[i + 1] != heads[i] + 1) {
      const int64_t first = heads[i] - heads[i] % 2;
      refuse_usage(str(layer_spec.name, ", ", stage), "heads pruned in pairs: 0 and 1, 2 and 3, …",
                   str("only one of heads ", first, " and ", first + 1), "prune both heads of a pair or neither");
    }
}

namespace {

class Differential : public MatrixMixer {
 public:
  explicit Differential(const LayerSpec& layer_spec) {
    if (layer_spec.heads % 2 != 0)
      refuse_usage(layer_spec.name + ", mixer 'differential'", "an even number of score heads, since heads form pairs",
                   str(layer_spec.heads), "set attention.heads to an even number");
    // Rows are source heads. In both columns of a pair, `first_head_mask_` is 1 in the row of the pair's first head,
    // and `second_head_mask_` is 1 in the row of the second head.
    first_head_mask_ = at::zeros({layer_spec.heads, layer_spec.heads});
    for (int64_t i = 0; i < layer_spec.heads; ++i) first_head_mask_[i - i % 2][i] = 1;
    second_head_mask_ = first_head_mask_.roll(1, 0);
  }
  std::shared_ptr<StageOptions> options_after_pruning(const RemainingHeads& remaining_heads,
                                                      const LayerSpec& layer_spec) const override {
    require_whole_pairs(remaining_heads.value, layer_spec, "mixer 'differential'");
    return nullptr;
  }
  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) override {
    lambda_init_ = lambda_init(layer_spec.layer);
    auto add = [&](const char* name) {
      return &parameters.add(layer_spec.name + ".mixer." + name, {layer_spec.key_size},
                             {nn::Init::normal(0.1), false, false});
    };
    lambda_query1_ = add("lambda_query1"), lambda_key1_ = add("lambda_key1");
    lambda_query2_ = add("lambda_query2"), lambda_key2_ = add("lambda_key2");
  }
  at::Tensor matrix(const Context&) override {
    const at::Tensor lambda = at::exp(at::dot(lambda_query1_->value(), lambda_key1_->value())) -
                              at::exp(at::dot(lambda_query2_->value(), lambda_key2_->value())) + lambda_init_;
    first_head_mask_ = first_head_mask_.to(lambda.device()), second_head_mask_ = second_head_mask_.to(lambda.device());
    return first_head_mask_ - lambda * second_head_mask_;
  }

 private:
  double lambda_init_ = 0;
  at::Tensor first_head_mask_, second_head_mask_;  // (h, h)
  nn::Parameter *lambda_query1_ = nullptr, *lambda_key1_ = nullptr, *lambda_query2_ = nullptr, *lambda_key2_ = nullptr;
};

const Registration<Differential> differential_entry(
    mixers(), "differential",
    "difference of the probabilities of two heads, P_(2i) - λ P_(2i+1), for both heads of a pair");

}  // namespace
}  // namespace mh::attention
