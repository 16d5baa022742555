// The decoder-only language model: token embedding, position encoding, a stack of transformer layers, and an output
// layer. With pre-norm, sinusoidal positions and tied embeddings it is fairseq's `transformer_lm`; with adaptive input
// embeddings and adaptive softmax it is the model of Baevski & Auli 2019.
#include <deque>

#include "base/error.h"
#include "model/block.h"
#include "model/output.h"
#include "model/positions.h"

namespace mh::model {

namespace {

class DecoderState : public DecodingState {
 public:
  explicit DecoderState(size_t num_layers) : caches(num_layers) {}
  int64_t length() const override { return caches.front().length(); }
  void reorder(const at::Tensor& old_rows) override {
    for (auto& cache : caches) cache.reorder(old_rows);
  }
  std::vector<attention::Cache> caches;
};

class DecoderLm : public LanguageModel {
 public:
  DecoderLm(const ModelConfig& config, int64_t vocabulary_size, const nn::ParameterPlacement& placement)
      : options_(config.model), vocabulary_size_(vocabulary_size), parameters_(placement) {
    embedding_ = make_token_embedding(parameters_, options_, vocabulary_size);
    position_encoding_ = std::make_unique<PositionEncoding>(parameters_, options_, "decoder");
    for (int64_t i = 0; i < options_.layers; ++i)
      blocks_.emplace_back(parameters_, config, attention::AttentionKind::decoder_self, i, str("decoder.layers.", i));
    final_norm_ = make_final_norm(parameters_, "decoder.norm", options_);
    output_layer_ = make_output(parameters_, options_, *embedding_, vocabulary_size);
  }

  nn::ParameterList& parameters() override { return parameters_; }
  VocabularySizes vocabulary_sizes() const override { return {vocabulary_size_}; }
  int64_t max_positions() const override { return position_encoding_->max_positions(); }

  at::Tensor hidden(const Input& input, const nn::ForwardContext& forward_context, DecodingState* state,
                    attention::Observer* observer) override {
    auto* decoding_state = static_cast<DecoderState*>(state);
    const int64_t past_length = decoding_state != nullptr ? decoding_state->length() : 0;
    at::Tensor x = position_encoding_->add((*embedding_)(input.tokens), past_length);
    x = nn::dropout(x, options_.dropout_embedding, forward_context, "embedding", 0);
    attention::Mask mask;
    mask.causal = true;
    mask.offset = mask.first_position = past_length;
    for (size_t i = 0; i < blocks_.size(); ++i)
      x = blocks_[i].forward(x, mask, forward_context,
                             {decoding_state != nullptr ? &decoding_state->caches[i] : nullptr}, observer);
    if (final_norm_ != nullptr) x = (*final_norm_)(x);
    return nn::dropout(x, options_.dropout_output, forward_context, "output", 0);
  }

  std::unique_ptr<DecodingState> new_state() override {
    require_incremental();
    return std::make_unique<DecoderState>(blocks_.size());
  }

  std::vector<attention::AttentionLayer*> attention_layers() override { return attention_layers_of({&blocks_}); }

 protected:
  const OutputLayer& output_layer() const override { return *output_layer_; }

 private:
  ModelOptions options_;
  int64_t vocabulary_size_;
  nn::ParameterList parameters_;
  std::unique_ptr<TokenEmbedding> embedding_;
  std::unique_ptr<PositionEncoding> position_encoding_;
  std::deque<Block> blocks_;
  std::unique_ptr<NormLayer> final_norm_;
  std::unique_ptr<OutputLayer> output_layer_;
};

class DecoderBackbone : public Backbone {
 public:
  std::set<OptionGroup> option_groups() const override {
    return {OptionGroup::adaptive_input, OptionGroup::adaptive_softmax, OptionGroup::output_bias,
            OptionGroup::logit_scaling, OptionGroup::parallel_residual};
  }
  std::unique_ptr<LanguageModel> make(const ModelConfig& config, const VocabularySizes& vocabulary_sizes,
                                      const nn::ParameterPlacement& placement) const override {
    return std::make_unique<DecoderLm>(config, vocabulary_sizes.target, placement);
  }
};

const Registration<DecoderBackbone> decoder_backbone_entry(backbones(), "decoder", "decoder language model");

}  // namespace

}  // namespace mh::model
