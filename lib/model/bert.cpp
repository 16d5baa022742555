// The encoder of Devlin et al. 2019: token, position and segment embeddings, a stack of bidirectional transformer
// layers, and a task head (task_head.h). With post-norm, layer norm of the embeddings, GELU and learned positions
// the model is BERT. The size of an attention head may differ from width / heads (Bhojanapalli et al. 2020).
#include <deque>

#include "base/error.h"
#include "model/block.h"
#include "model/inits.h"
#include "model/positions.h"
#include "model/task_head.h"

namespace mh::model {

namespace {

using attention::AttentionKind;

class Bert : public LanguageModel {
 public:
  Bert(const ModelConfig& config, int64_t vocabulary_size, const nn::ParameterPlacement& placement)
      : options_(config.model), vocabulary_size_(vocabulary_size), parameters_(placement) {
    const auto head = make_task_head(options_.bert);
    embedding_ = make_encoder_embedding(parameters_, options_, num_table_rows(options_, vocabulary_size),
                                        head->scores_entries() && options_.tied);
    position_encoding_ = std::make_unique<PositionEncoding>(parameters_, options_, "encoder");
    if (options_.bert.segments > 0)
      segment_table_ = &parameters_.add("encoder.segments.weight", {options_.bert.segments, options_.width},
                                        {embedding_init(options_, options_.width), true, false});
    if (options_.bert.embedding_norm)
      embedding_norm_ = std::make_unique<NormLayer>(parameters_, "encoder.embedding_norm", options_);
    for (int64_t i = 0; i < options_.layers; ++i)
      blocks_.emplace_back(parameters_, config, AttentionKind::encoder_self, i, str("encoder.layers.", i));
    final_norm_ = make_final_norm(parameters_, "encoder.norm", options_);
    output_layer_ = head->make(parameters_, options_, *embedding_, vocabulary_size);
  }

  nn::ParameterList& parameters() override { return parameters_; }
  VocabularySizes vocabulary_sizes() const override { return {vocabulary_size_}; }
  int64_t max_positions() const override { return position_encoding_->max_positions(); }

  at::Tensor hidden(const Input& input, const nn::ForwardContext& forward_context, DecodingState*,
                    attention::Observer* observer) override {
    at::Tensor x = position_encoding_->add((*embedding_)(input.tokens), 0);
    if (segment_table_ != nullptr) x = x + segment_vectors(input);
    if (embedding_norm_ != nullptr) x = (*embedding_norm_)(x);
    x = nn::dropout(x, options_.dropout_embedding, forward_context, "embedding", 0);
    attention::Mask mask;
    mask.key_lengths = mask.query_lengths =
        attention::lengths_if_padded(input.lengths.encoder, input.tokens.size(1), x.device());
    for (Block& block : blocks_) {
      x = block.forward(x, mask, forward_context, {}, observer);
      for (at::Tensor* t : {&mask.key_lengths, &mask.query_lengths}) *t = block.repeat_for_variants(*t);
    }
    return final_norm_ != nullptr ? (*final_norm_)(x) : x;
  }

  std::unique_ptr<DecodingState> new_state() override {
    refuse_usage("model.backbone", "a backbone that generates tokens from left to right, such as 'decoder'",
                 "'bert', which encodes whole texts", "use this model only to score texts");
  }

  std::vector<attention::AttentionLayer*> attention_layers() override { return attention_layers_of({&blocks_}); }

 protected:
  const OutputLayer& output_layer() const override { return *output_layer_; }

 private:
  // Returns the segment embeddings (B, T, d) of the input, or the embedding (d) of segment 0 if input.segments is
  // undefined or the model has one segment, as RoBERTa.
  at::Tensor segment_vectors(const Input& input) const {
    const at::Tensor& table = segment_table_->value();
    return input.segments.defined() && options_.bert.segments > 1 ? nn::embedding(input.segments, table, 1.0)
                                                                  : table.select(0, 0);
  }

  ModelOptions options_;
  int64_t vocabulary_size_;
  nn::ParameterList parameters_;
  std::unique_ptr<TokenEmbedding> embedding_;
  std::unique_ptr<PositionEncoding> position_encoding_;
  nn::Parameter* segment_table_ = nullptr;
  std::unique_ptr<NormLayer> embedding_norm_, final_norm_;
  std::deque<Block> blocks_;
  std::unique_ptr<OutputLayer> output_layer_;
};

class BertBackbone : public Backbone {
 public:
  // Leaves out the groups of the output layer: task heads have no options of logits, the bias of the task head `words`
  // is not optional, and one table holds all entries of the vocabulary.
  std::set<OptionGroup> option_groups() const override { return {OptionGroup::parallel_residual}; }
  std::unique_ptr<LanguageModel> make(const ModelConfig& config, const VocabularySizes& vocabulary_sizes,
                                      const nn::ParameterPlacement& placement) const override {
    check_head(config.model.bert);
    return std::make_unique<Bert>(config, vocabulary_sizes.target, placement);
  }
  std::vector<std::pair<AttentionKind, int64_t>> layer_counts(const ModelOptions& options) const override {
    return {{AttentionKind::encoder_self, options.layers}};
  }
  ExampleType example_type() const override { return ExampleType::examples; }
};

const Registration<BertBackbone> bert_backbone_entry(
    backbones(), "bert", "bidirectional encoder for pre-training on masked words and for fine-tuning");

}  // namespace

}  // namespace mh::model
