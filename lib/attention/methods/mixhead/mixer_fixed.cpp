// Ablations of Mixhead (Zhang et al. 2022) without learned mixing: P̄_i = Σ_j M[j, i] P_j, where the initial matrix M
// is saved with the model and never trained. Each column of a random M is divided by its sum. The sum of a column of
// normally distributed numbers may be almost 0, and then the entries of the column are large.
#include "attention/matrix_mixer.h"

namespace mh::attention {
namespace {

class FixedMixer : public MatrixMixer {
 public:
  bool can_change_head_count() const override { return true; }
  bool is_per_query() const override { return true; }
  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) override {
    nn::ParameterTraits traits = mixing_matrix_traits(layer_spec, matrix_init(layer_spec));
    traits.trainable = false;
    matrix_ = &parameters.add(layer_spec.name + kMixingMatrixName, {layer_spec.heads, layer_spec.value_heads}, traits);
  }
  at::Tensor matrix(const Context&) override { return matrix_->value(); }

 private:
  virtual nn::Init matrix_init(const LayerSpec& layer_spec) const = 0;
  nn::Parameter* matrix_ = nullptr;
};

class RandomNormalMixer : public FixedMixer {
  nn::Init matrix_init(const LayerSpec&) const override { return nn::Init::normal_columns(); }
};
class RandomUniformMixer : public FixedMixer {
  nn::Init matrix_init(const LayerSpec&) const override { return nn::Init::uniform_columns(); }
};
// The value heads all use the mean of the probabilities of the score heads.
class MeanMixer : public FixedMixer {
  nn::Init matrix_init(const LayerSpec& layer_spec) const override {
    return nn::Init::constant(1 / static_cast<double>(layer_spec.heads));
  }
};

const Registration<RandomNormalMixer> normal_mixer_entry(
    mixers(), "random-normal",
    "mixing of probabilities by a fixed matrix of normal random numbers, each column divided by its sum");
const Registration<RandomUniformMixer> uniform_mixer_entry(
    mixers(), "random-uniform",
    "mixing of probabilities by a fixed matrix of uniform random numbers from 0 to 1, each column divided by its sum");
const Registration<MeanMixer> mean_mixer_entry(mixers(), "mean",
                                               "mean of the probabilities of all heads, for every head");

}  // namespace
}  // namespace mh::attention
