// Talking-heads attention (Shazeer et al. 2020): a matrix that mixes the logits of the heads before the mask, Ā_k = Σ_j
// L[j, k] A_j, and a matrix that mixes the probabilities, P̄_i = Σ_k W[k, i] P_k. The heads between the two matrices
// have the index k; their number is an option.
#include "attention/matrix_mixer.h"
#include "base/error.h"

namespace mh::attention {
namespace {

struct TalkingHeadsOptions : OptionsOf<TalkingHeadsOptions> {
  bool pre = true;
  bool post = true;
  int64_t inner_heads = 0;
  std::string init = "identity";
  void describe(Fields& f) override {
    f.field("pre", pre, "mix the attention logits across heads by a learned matrix, before the softmax");
    f.field("post", post, "mix the attention probabilities across heads by a learned matrix, after the softmax");
    f.field("inner_heads", inner_heads,
            "number of heads in the softmax, between the matrix of logits and the matrix of probabilities; 0: the "
            "number of score heads",
            between(0, 1 << 16));
    f.field("init", init, "initial values of the mixing matrices", {"identity", "xavier"});
  }
};

class TalkingHeads : public MatrixMixer {
 public:
  using Options = TalkingHeadsOptions;
  TalkingHeads(const TalkingHeadsOptions& options, const LayerSpec& layer_spec)
      : options_(options), num_inner_heads_(options.inner_heads > 0 ? options.inner_heads : layer_spec.heads) {
    if (!options.pre && !options.post)
      refuse_usage(layer_spec.name + ", mixer 'talking-heads'",
                   "attention.talking-heads.pre or attention.talking-heads.post to be true", "false for both",
                   "set one of the two keys to true, or set attention.mixer = \"none\"");
    if (options.inner_heads > 0 && !(options.pre && options.post))
      refuse_usage(layer_spec.name + ", attention.talking-heads.inner_heads",
                   "0 unless both attention.talking-heads.pre and attention.talking-heads.post are true",
                   str(options.inner_heads), "set inner_heads to 0, or set both pre and post to true");
  }

  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) override {
    const nn::Init init = options_.init == "identity" ? nn::Init::identity() : nn::Init::xavier_uniform();
    // With both matrices, the axis between them belongs to no side of the layer's heads. With one matrix, both of its
    // axes are head axes of the layer.
    nn::ParameterTraits pre_traits = mixing_matrix_traits(layer_spec, init), post_traits = pre_traits;
    const bool has_both_matrices = options_.pre && options_.post;
    if (has_both_matrices) pre_traits.head_axes.pop_back(), post_traits.head_axes.erase(post_traits.head_axes.begin());
    if (options_.pre)
      logit_matrix_ = &parameters.add(layer_spec.name + ".mixer.logits",
                                      {layer_spec.heads, has_both_matrices ? num_inner_heads_ : layer_spec.value_heads},
                                      pre_traits);
    if (options_.post)
      probability_matrix_ = &parameters.add(
          layer_spec.name + kMixingMatrixName,
          {has_both_matrices ? num_inner_heads_ : layer_spec.heads, layer_spec.value_heads}, post_traits);
  }
  bool can_change_head_count() const override { return true; }
  bool is_per_query() const override { return true; }
  std::shared_ptr<StageOptions> options_after_pruning(const RemainingHeads&, const LayerSpec&) const override {
    if (!options_.pre || !options_.post) return nullptr;
    auto new_options = std::make_shared<TalkingHeadsOptions>(options_);
    new_options->inner_heads = num_inner_heads_;
    return new_options;
  }

  MixerInput mixer_input() const override { return options_.pre ? MixerInput::logits : MixerInput::probabilities; }

  at::Tensor mix_logits(const Context& c, const at::Tensor& logits) override {
    return logit_matrix_ != nullptr ? mix_heads(logits, logit_matrix_->value(), causal_mix_options(c)) : logits;
  }

  at::Tensor mix(const Context& c, const at::Tensor& probabilities) override {
    if (probability_matrix_ != nullptr) show_matrix(c, probability_matrix_->value());
    return MatrixMixer::mix(c, probabilities);
  }
  at::Tensor matrix(const Context&) override {
    return probability_matrix_ != nullptr ? probability_matrix_->value() : at::Tensor();
  }
  std::string why_not_fused() const override { return logit_matrix_ != nullptr ? "the mixer mixes logits" : ""; }

 private:
  TalkingHeadsOptions options_;
  int64_t num_inner_heads_;
  nn::Parameter *logit_matrix_ = nullptr, *probability_matrix_ = nullptr;
};

const Registration<TalkingHeads> talking_heads_entry(mixers(), "talking-heads",
                                                     "learned matrices that mix logits and probabilities across heads");

}  // namespace
}  // namespace mh::attention
