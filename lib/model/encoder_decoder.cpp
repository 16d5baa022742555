// The encoder-decoder of Vaswani et al. 2017: the encoder reads the source, and the decoder generates the target; every
// decoder layer attends to the last hidden states of the encoder. With post-norm and a tied target embedding it is
// fairseq's `transformer_iwslt_de_en` and `transformer_wmt_en_de`.
#include <algorithm>
#include <deque>
#include <numeric>

#include "base/error.h"
#include "model/block.h"
#include "model/output.h"
#include "model/positions.h"

namespace mh::model {

namespace {

using attention::AttentionKind;

// The decoding state of a translation model, for a batch whose rows are hypotheses. The cross-attention caches store
// the keys and values of each source once if all sources have the same number of consecutive rows and the layers
// support this (`shares_sources`); otherwise the caches store keys and values once per row.
class TranslationState : public DecodingState {
 public:
  TranslationState(size_t num_layers, bool shares_sources)
      : self_caches(num_layers), cross_caches(num_layers), shares_sources_(shares_sources) {}
  // Stores the output of the encoder. Decoder row i attends to source i.
  void set_sources(const EncoderOutput& sources) {
    encoder_output = sources;
    source_of_row_.resize(static_cast<size_t>(sources.states.size(0)));
    std::iota(source_of_row_.begin(), source_of_row_.end(), 0);
  }
  int64_t length() const override { return self_caches.front().length(); }
  void reorder(const at::Tensor& old_rows) override {
    if (!encoder_output.states.defined()) return;  // no forward pass has encoded the sources yet
    for (auto& cache : self_caches) cache.reorder(old_rows);
    for (auto& cache : cross_caches) cache.reorder_stage_states(old_rows);
    const at::Tensor row_indices = old_rows.to(at::kCPU).contiguous();
    // Source of each new row: first an index into the cached sources; replaced below by an index into
    // `selected_sources`.
    std::vector<int64_t> sources;
    for (int64_t i = 0; i < row_indices.numel(); ++i)
      sources.push_back(source_of_row_[static_cast<size_t>(row_indices.const_data_ptr<int64_t>()[i])]);
    const size_t group_size = shares_sources_ ? rows_per_source(sources) : 1;
    std::vector<int64_t> selected_sources;
    for (size_t i = 0; i < sources.size(); i += group_size) selected_sources.push_back(sources[i]);
    for (size_t i = 0; i < sources.size(); ++i) sources[i] = static_cast<int64_t>(i / group_size);
    source_of_row_ = std::move(sources);
    select_sources(selected_sources);
  }
  void reorder_within_sources(
      const at::Tensor& old_rows) override {  // the keys and values of cross-attention stay in place
    for (auto& cache : self_caches) cache.reorder(old_rows);
    for (auto& cache : cross_caches) cache.reorder_stage_states(old_rows);
  }
  std::vector<attention::Cache> self_caches, cross_caches;  // one cache per decoder layer
  EncoderOutput encoder_output;

 private:
  // Returns the number of consecutive rows per source if this number is the same for all sources; otherwise 1.
  static size_t rows_per_source(const std::vector<int64_t>& sources) {
    size_t group_size = 0;
    for (size_t i = 0, first = 0; i < sources.size(); ++i) {
      if (i + 1 < sources.size() && sources[i + 1] == sources[first]) continue;
      const size_t count = i + 1 - first;
      if (group_size != 0 && count != group_size) return 1;
      group_size = count;
      first = i + 1;
    }
    return std::max<size_t>(1, group_size);
  }
  // Reorders the cached sources: source i becomes the former source `sources[i]`.
  void select_sources(const std::vector<int64_t>& sources) {
    bool is_identity = static_cast<int64_t>(sources.size()) == encoder_output.states.size(0);
    for (size_t i = 0; i < sources.size(); ++i) is_identity = is_identity && sources[i] == static_cast<int64_t>(i);
    if (is_identity) return;
    const at::Tensor rows = at::tensor(sources, at::kLong), device_rows = rows.to(encoder_output.states.device());
    for (auto& cache : cross_caches) cache.reorder_keys_and_values(rows);
    for (at::Tensor* t : {&encoder_output.states, &encoder_output.mask.key_lengths})
      if (t->defined()) *t = t->index_select(0, device_rows);
  }

  bool shares_sources_;
  std::vector<int64_t> source_of_row_;  // (rows): index of each row's source in the cached sources
};

// Returns the number of rows of the source embedding: model.encoder-decoder.source_rows, or if that is 0, the size of
// the source vocabulary (of the joint vocabulary if there is no source vocabulary).
int64_t num_source_rows(const ModelOptions& o, const VocabularySizes& sizes) {
  return o.encoder_decoder.source_rows > 0 ? o.encoder_decoder.source_rows
         : sizes.source > 0                ? sizes.source
                                           : sizes.target;
}

class EncoderDecoder : public LanguageModel {
 public:
  EncoderDecoder(const ModelConfig& config, const VocabularySizes& vocabulary_sizes,
                 const nn::ParameterPlacement& placement)
      : options_(config.model), vocabulary_sizes_(vocabulary_sizes), parameters_(placement) {
    if (!options_.encoder_decoder.shared_embedding)
      source_embedding_ =
          make_encoder_embedding(parameters_, options_, num_source_rows(options_, vocabulary_sizes), false);
    embedding_ = make_token_embedding(parameters_, options_, vocabulary_sizes.target);
    source_position_encoding_ = std::make_unique<PositionEncoding>(parameters_, options_, "encoder");
    position_encoding_ = std::make_unique<PositionEncoding>(parameters_, options_, "decoder");
    for (int64_t i = 0; i < num_encoder_layers(options_); ++i)
      encoder_blocks_.emplace_back(parameters_, config, AttentionKind::encoder_self, i, str("encoder.layers.", i));
    encoder_final_norm_ = make_final_norm(parameters_, "encoder.norm", options_);
    for (int64_t i = 0; i < options_.layers; ++i)
      decoder_blocks_.emplace_back(parameters_, config, AttentionKind::decoder_self, i, str("decoder.layers.", i),
                                   true);
    final_norm_ = make_final_norm(parameters_, "decoder.norm", options_);
    output_layer_ = make_output(parameters_, options_, *embedding_, vocabulary_sizes.target);
  }

  static int64_t num_encoder_layers(const ModelOptions& o) {
    return o.encoder_decoder.encoder_layers > 0 ? o.encoder_decoder.encoder_layers : o.layers;
  }

  nn::ParameterList& parameters() override { return parameters_; }
  VocabularySizes vocabulary_sizes() const override { return vocabulary_sizes_; }
  bool has_encoder() const override { return true; }
  int32_t start_token() const override { return static_cast<int32_t>(options_.encoder_decoder.start_token); }
  int64_t max_positions() const override { return position_encoding_->max_positions(); }

  at::Tensor hidden(const Input& input, const nn::ForwardContext& forward_context, DecodingState* state,
                    attention::Observer* observer) override {
    auto* decoding_state = static_cast<TranslationState*>(state);
    const int64_t past_length = decoding_state != nullptr ? decoding_state->length() : 0;
    at::Tensor x = position_encoding_->add((*embedding_)(with_start_token(input.tokens, past_length)), past_length);
    x = nn::dropout(x, options_.dropout_embedding, forward_context, "embedding", 0);
    EncoderOutput encoder_output;
    if (past_length > 0) {
      encoder_output = decoding_state->encoder_output;
    } else {
      encoder_output = encode(input, forward_context, observer);
      if (decoding_state != nullptr) decoding_state->set_sources(encoder_output);
    }
    attention::Mask mask;
    mask.causal = true;
    mask.offset = mask.first_position = past_length;
    mask.query_lengths = attention::lengths_if_padded(input.lengths.decoder, input.tokens.size(1), x.device());
    encoder_output.mask.query_lengths = mask.query_lengths;
    // If interceptors in the encoder have repeated the encoder's rows for variants, the decoder's rows must be repeated
    // in the same order.
    for (const Block& block : encoder_blocks_)
      for (at::Tensor* t : {&x, &mask.query_lengths, &encoder_output.mask.query_lengths})
        *t = block.repeat_for_variants(*t);
    for (size_t i = 0; i < decoder_blocks_.size(); ++i) {
      Block::Caches caches;
      if (decoding_state != nullptr) caches = {&decoding_state->self_caches[i], &decoding_state->cross_caches[i]};
      x = decoder_blocks_[i].forward(x, mask, forward_context, caches, observer, {}, &encoder_output);
      mask.query_lengths = decoder_blocks_[i].repeat_for_variants(mask.query_lengths);
    }
    if (final_norm_ != nullptr) x = (*final_norm_)(x);
    return nn::dropout(x, options_.dropout_output, forward_context, "output", 0);
  }

  std::unique_ptr<DecodingState> new_state() override {
    require_incremental();
    bool shares_sources = true;
    for (const attention::AttentionLayer* layer : attention_layers())
      shares_sources =
          shares_sources && (layer->layer_spec().kind != AttentionKind::decoder_cross || layer->is_per_query());
    return std::make_unique<TranslationState>(decoder_blocks_.size(), shares_sources);
  }

  std::vector<attention::AttentionLayer*> attention_layers() override {
    return attention_layers_of({&encoder_blocks_, &decoder_blocks_});
  }

 protected:
  const OutputLayer& output_layer() const override { return *output_layer_; }

 private:
  // Returns `tokens` (B, T) with the start token as the first token of each target, if the model has one.
  // `first_position`: position of the first column of `tokens`.
  at::Tensor with_start_token(const at::Tensor& tokens, int64_t first_position) const {
    if (start_token() < 0 || first_position > 0) return tokens;
    at::Tensor result = tokens.clone();
    result.select(1, 0).fill_(start_token());
    return result;
  }

  EncoderOutput encode(const Input& input, const nn::ForwardContext& forward_context, attention::Observer* observer) {
    at::Tensor x = source_position_encoding_->add(
        (source_embedding_ != nullptr ? *source_embedding_ : *embedding_)(input.source), 0);
    x = nn::dropout(x, options_.dropout_embedding, forward_context, "encoder.embedding", 0);
    attention::Mask mask;
    mask.key_lengths = mask.query_lengths =
        attention::lengths_if_padded(input.lengths.encoder, input.source.size(1), x.device());
    for (Block& block : encoder_blocks_) {
      x = block.forward(x, mask, forward_context, {}, observer);
      for (at::Tensor* t : {&mask.key_lengths, &mask.query_lengths}) *t = block.repeat_for_variants(*t);
    }
    EncoderOutput encoder_output{encoder_final_norm_ != nullptr ? (*encoder_final_norm_)(x) : x, {}};
    encoder_output.mask.key_lengths = mask.key_lengths;
    return encoder_output;
  }

  ModelOptions options_;
  VocabularySizes vocabulary_sizes_;
  nn::ParameterList parameters_;
  std::unique_ptr<TokenEmbedding> source_embedding_, embedding_;  // source_embedding_: null if shared with embedding_
  std::unique_ptr<PositionEncoding> source_position_encoding_, position_encoding_;
  std::deque<Block> encoder_blocks_, decoder_blocks_;
  std::unique_ptr<NormLayer> encoder_final_norm_, final_norm_;
  std::unique_ptr<OutputLayer> output_layer_;
};

// Throws Error(usage) if options of [model.encoder-decoder] contradict the vocabularies or each other.
void check_encoder_decoder(const EncoderDecoderOptions& o, const VocabularySizes& sizes) {
  if (o.shared_embedding && sizes.source > 0 && !sizes.same_entries)
    refuse_usage("model.encoder-decoder.shared_embedding", "a joint vocabulary of source and target",
                 str("two vocabularies, of ", sizes.source, " and ", sizes.target, " entries"),
                 "prepare the data with mh-prep translation --vocab");
  if (o.shared_embedding && o.source_rows > 0)
    refuse_usage("model.encoder-decoder.source_rows",
                 "0, since model.vocabulary_rows is the size of the shared embedding", str(o.source_rows),
                 "leave model.encoder-decoder.source_rows out");
  check_rows("model.encoder-decoder.source_rows", o.source_rows, sizes.source > 0 ? sizes.source : sizes.target);
  if (o.start_token >= sizes.target)
    refuse_usage("model.encoder-decoder.start_token",
                 str("the id of a token, below ", sizes.target, ", the size of the target vocabulary, or -1"),
                 str(o.start_token),
                 "set model.encoder-decoder.start_token to an id of mh-prep vocab, or leave it out");
}

class EncoderDecoderBackbone : public Backbone {
 public:
  std::set<OptionGroup> option_groups() const override {
    return {OptionGroup::adaptive_softmax, OptionGroup::output_bias, OptionGroup::logit_scaling};
  }
  std::unique_ptr<LanguageModel> make(const ModelConfig& config, const VocabularySizes& vocabulary_sizes,
                                      const nn::ParameterPlacement& placement) const override {
    check_encoder_decoder(config.model.encoder_decoder, vocabulary_sizes);
    return std::make_unique<EncoderDecoder>(config, vocabulary_sizes, placement);
  }
  std::vector<std::pair<AttentionKind, int64_t>> layer_counts(const ModelOptions& options) const override {
    return {{AttentionKind::encoder_self, EncoderDecoder::num_encoder_layers(options)},
            {AttentionKind::decoder_self, options.layers},
            {AttentionKind::decoder_cross, options.layers}};
  }
  ExampleType example_type() const override { return ExampleType::pairs; }
};

const Registration<EncoderDecoderBackbone> encoder_decoder_backbone_entry(
    backbones(), "encoder-decoder", "translation model with an encoder and a decoder");

}  // namespace

}  // namespace mh::model
