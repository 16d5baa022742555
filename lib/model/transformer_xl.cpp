// Transformer-XL (Dai et al. 2019): a decoder in which each layer also attends to its own inputs in earlier segments.
#include <c10/core/GradMode.h>

#include <deque>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "model/block.h"
#include "model/memories.h"
#include "model/output.h"
#include "model/skip_layers.h"

namespace mh::model {

namespace {

class TransformerXl : public LanguageModel {
 public:
  TransformerXl(const ModelConfig& config, int64_t vocabulary_size, const nn::ParameterPlacement& placement)
      : options_(config.model), vocabulary_size_(vocabulary_size), parameters_(placement) {
    if (options_.positions != Positions::none)
      refuse_usage("model.positions",
                   "none, since a token's absolute position changes when the token moves to the memory",
                   options_.positions == ModelOptions{}.positions ? "the default, sinusoidal" : "learned",
                   "set model.positions=none, and attention.score=relative for relative positions");
    if (options_.transformer_xl.same_length && options_.transformer_xl.memory == 0)
      refuse_usage("model.transformer-xl.same_length",
                   "model.transformer-xl.memory above 0, the number of keys of every query",
                   "the default, model.transformer-xl.memory=0",
                   "raise model.transformer-xl.memory, or set model.transformer-xl.same_length=false");
    embedding_ = make_token_embedding(parameters_, options_, vocabulary_size);
    for (int64_t i = 0; i < options_.layers; ++i) {
      blocks_.emplace_back(parameters_, config, attention::AttentionKind::decoder_self, i, str("decoder.layers.", i));
      const attention::AttentionLayer& self_attention = blocks_.back().self_attention();
      if (options_.transformer_xl.memory > 0 && !self_attention.capabilities().supports_memory)
        refuse_usage(self_attention.layer_spec().name, "stages that support a memory", "a stage without this support",
                     "choose stages with this support, or set model.transformer-xl.memory=0");
    }
    final_norm_ = make_final_norm(parameters_, "decoder.norm", options_);
    output_layer_ = make_output(parameters_, options_, *embedding_, vocabulary_size);
  }

  nn::ParameterList& parameters() override { return parameters_; }
  VocabularySizes vocabulary_sizes() const override { return {vocabulary_size_}; }
  int64_t memory_length() const override { return options_.transformer_xl.memory; }
  int64_t num_skippable_layers() const override { return options_.layers; }

  at::Tensor hidden(const Input& input, const nn::ForwardContext& forward_context, DecodingState* state,
                    attention::Observer* observer) override {
    const at::Tensor& tokens = input.tokens;
    auto* memories = static_cast<Memories*>(state);
    at::Tensor x = nn::dropout((*embedding_)(tokens), options_.dropout_embedding, forward_context, "embedding", 0);
    const auto* skip_layers = forward_context.request<SkipLayersRequest>();
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (skip_layers != nullptr && skip_layers->is_skipped[i]) continue;
      if (memories == nullptr)
        x = blocks_[i].forward(x, segment_mask({}, options_.transformer_xl.memory, 0), forward_context, {}, observer);
      else x = forward_with_memory(blocks_[i], x, forward_context, *memories, memories->layers[i], observer);
    }
    if (memories != nullptr) memories->next_position += tokens.size(1);
    if (final_norm_ != nullptr) x = (*final_norm_)(x);
    return nn::dropout(x, options_.dropout_output, forward_context, "output", 0);
  }

  std::unique_ptr<DecodingState> new_state() override { return new_memory(options_.transformer_xl.memory); }
  std::unique_ptr<Memories> new_memory(int64_t capacity) override {
    return std::make_unique<Memories>(blocks_.size(), capacity);
  }

  std::vector<attention::AttentionLayer*> attention_layers() override { return attention_layers_of({&blocks_}); }

 protected:
  const OutputLayer& output_layer() const override { return *output_layer_; }

 private:
  // Returns the mask of a segment that has the positions next_position, …, next_position + length - 1. The keys of a
  // memory with the positions `positions` precede the keys of the segment. `capacity`: maximum number of positions in
  // the memory. `length` may be 0 if `positions` is empty.
  attention::Mask segment_mask(const std::vector<int64_t>& positions, int64_t capacity, int64_t next_position,
                               int64_t length = 0) const {
    const auto memory_length = static_cast<int64_t>(positions.size());
    attention::Mask mask;
    mask.causal = true;
    mask.offset = memory_length;
    mask.first_position = next_position;
    mask.window = options_.transformer_xl.same_length ? capacity : 0;
    if (memory_length > 0 && positions.front() != next_position - memory_length) {
      mask.key_positions = at::empty({memory_length + length}, at::kLong);
      auto* p = mask.key_positions.mutable_data_ptr<int64_t>();
      for (int64_t s = 0; s < memory_length; ++s) p[s] = positions[static_cast<size_t>(s)] - next_position;
      std::iota(p + memory_length, p + memory_length + length, 0);
    }
    return mask;
  }

  // Fills an empty memory with zeros, which attention does not mask, like the code released with "Skip Cross-Head
  // Transformer-XL".
  static void fill_with_zeros(Memories::Layer& layer, const at::Tensor& x, int64_t capacity) {
    layer.positions.resize(static_cast<size_t>(capacity));
    std::iota(layer.positions.begin(), layer.positions.end(), -capacity);
    if (capacity > 0) layer.inputs = at::zeros({x.size(0), capacity, x.size(2)}, x.options());
  }

  // Runs a layer on x (B, T, d) and the layer's memory, then appends the positions of x to the memory and removes the
  // oldest positions beyond the capacity of the memory. Returns the output of the layer (B, T, d).
  at::Tensor forward_with_memory(Block& block, const at::Tensor& x, const nn::ForwardContext& forward_context,
                                 const Memories& memories, Memories::Layer& layer,
                                 attention::Observer* observer) const {
    // Only evaluation caches keys and values: in training the weights change between segments, so that cached keys and
    // values would be outdated.
    const bool uses_cache = !forward_context.training && !c10::GradMode::is_enabled() &&
                            block.self_attention().capabilities().supports_incremental_decoding;
    if (!uses_cache && layer.cache.length() > 0)
      throw Error(Exit::failed,
                  "expected a memory that was created in training; found a memory that was created in evaluation; "
                  "create a new memory");
    const int64_t length = x.size(1), next_position = memories.next_position, capacity = memories.capacity;
    if (options_.transformer_xl.initial_memory == InitialMemory::zeros && layer.positions.empty())
      fill_with_zeros(layer, x, capacity);
    at::Tensor layer_output =
        block.forward(x, segment_mask(layer.positions, capacity, next_position, length), forward_context,
                      {uses_cache ? &layer.cache : nullptr}, observer, layer.inputs);
    // With capacity 0, the memory stays empty in training, where segments are independent, and stores all positions
    // outside of training, as in decoding.
    const int64_t memory_limit = capacity > 0               ? capacity
                                 : forward_context.training ? 0
                                                            : std::numeric_limits<int64_t>::max();
    auto& positions = layer.positions;
    for (int64_t t = 0; t < length; ++t) positions.push_back(next_position + t);
    if (const auto count = static_cast<int64_t>(positions.size()); count > memory_limit)
      positions.erase(positions.begin(), positions.begin() + (count - memory_limit));
    if (uses_cache) {
      layer.inputs = at::Tensor();
      layer.cache.retain_last(memory_limit);
    } else {
      at::Tensor inputs =
          layer.inputs.defined() && memory_limit > length ? nn::cat({layer.inputs, x.detach()}, 1) : x.detach();
      const auto num_positions = static_cast<int64_t>(positions.size());
      layer.inputs = num_positions > 0 ? inputs.narrow(1, inputs.size(1) - num_positions, num_positions) : at::Tensor();
    }
    return layer_output;
  }

  ModelOptions options_;
  int64_t vocabulary_size_;
  nn::ParameterList parameters_;
  std::unique_ptr<TokenEmbedding> embedding_;
  std::deque<Block> blocks_;
  std::unique_ptr<NormLayer> final_norm_;
  std::unique_ptr<OutputLayer> output_layer_;
};

class TransformerXlBackbone : public Backbone {
 public:
  std::set<OptionGroup> option_groups() const override {
    return {OptionGroup::adaptive_input, OptionGroup::adaptive_softmax, OptionGroup::output_bias,
            OptionGroup::logit_scaling, OptionGroup::parallel_residual};
  }
  std::unique_ptr<LanguageModel> make(const ModelConfig& config, const VocabularySizes& vocabulary_sizes,
                                      const nn::ParameterPlacement& placement) const override {
    return std::make_unique<TransformerXl>(config, vocabulary_sizes.target, placement);
  }
};

const Registration<TransformerXlBackbone> transformer_xl_backbone_entry(
    backbones(), "transformer-xl", "decoder language model with a memory of earlier segments");

}  // namespace

}  // namespace mh::model
