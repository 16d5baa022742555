// The ablations of Mixhead (Zhang et al. 2022) that learn nothing: P̄_i = Σ_j M[j, i] P_j with an M that is drawn once,
// saved with the model and not trained. Columns sum to 1; those of normal numbers may sum to almost 0 before, so that
// their entries are large.
#include "attention/methods/mixhead/mixhead.h"

namespace mh::attention {
namespace {

class Fixed : public Mixer {
 public:
  bool maps() const override { return true; }
  bool by_query() const override { return true; }
  void add_parameters(nn::ParameterList& parameters, const Shape& shape) override {
    nn::Traits traits = mixing_matrix(shape, first(shape));
    traits.trainable = false;
    matrix_ = &parameters.add(shape.name + ".mixer.matrix", {shape.heads, shape.value_heads}, traits);
  }
  at::Tensor mix(const Context& c, const at::Tensor& probabilities) override {
    return mix_heads(probabilities, matrix_->value(), mixing_under_mask(c));
  }
  at::Tensor matrix(const Context&) override { return matrix_->value(); }
  std::string unfused_because() const override { return ""; }
  at::Tensor mix_values(const Context& c, const at::Tensor& probabilities) override {
    return attention::mix_values(probabilities, matrix_->value(), c.v, mixing_under_mask(c));
  }

 private:
  virtual nn::Init first(const Shape& shape) const = 0;
  nn::Parameter* matrix_ = nullptr;
};

class RandomNormal : public Fixed {
  nn::Init first(const Shape&) const override { return nn::Init::normal_columns(); }
};
class RandomUniform : public Fixed {
  nn::Init first(const Shape&) const override { return nn::Init::uniform_columns(); }
};
// All heads attend alike, with the mean of their probabilities.
class Mean : public Fixed {
  nn::Init first(const Shape& shape) const override { return nn::Init::constant(1 / static_cast<double>(shape.heads)); }
};

const Registered<RandomNormal> normal_entry(mixers(), "random-normal", "a fixed matrix of normal numbers");
const Registered<RandomUniform> uniform_entry(mixers(), "random-uniform", "a fixed matrix of numbers from 0 to 1");
const Registered<Mean> mean_entry(mixers(), "mean", "every head gets the mean of all");

}  // namespace
}  // namespace mh::attention
