// Multi-head attention as a pipeline of stages (described in stage.h):
//
//   q, k, v = projections -> transforms (q, k) -> pairing -> score -> soft cap, position bias -> mixer (logits) ->
//   mask, sinks, normaliser -> mixer -> dropout -> · v -> combiner -> output projection
//
// Source: Vaswani et al. 2017, section 3.2, with head sizes independent of the width (Bhojanapalli et al. 2020).
//
// A layer without heads has no stages and returns the bias of its output projection, or zeros if there is no bias.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/cache.h"
#include "attention/dispatch.h"
#include "attention/stages.h"

namespace mh::attention {

struct AttentionSpec;  // attention/fused/attention_spec.h

class AttentionLayer {
 public:
  // Initialisers of the projections, which the model's initialisation scheme defines.
  struct Inits {
    nn::Init query_key_value;
    nn::Init query_key_value_bias;
    nn::Init output;
  };
  AttentionLayer(nn::ParameterList& parameters, const AttentionOptions& options, const LayerSpec& layer_spec,
                 const Inits& inits);

  const LayerSpec& layer_spec() const { return layer_spec_; }
  const std::string& mixer_name() const { return options_.mixer; }

  // Returns the output (B, Tq, d) of the layer for query_input (B, Tq, d) and key_input (B, Tk, d), where Tk excludes
  // cached positions. If the interceptor has variants, the batch rows of the output are repeated as by
  // Variants::repeat(). In self-attention without memory, query_input and key_input are the same tensor; with a memory,
  // key_input begins with the memory's positions and Tk > Tq. With a cache, self-attention appends the new keys and
  // values, and cross-attention fills the cache in the first call and ignores key_input in later calls. Throws
  // Error(usage) under Path::fused if the forward pass does not meet all constraints, for example because of the
  // observer.
  at::Tensor forward(const at::Tensor& query_input, const at::Tensor& key_input, const Mask& mask,
                     const nn::ForwardContext& forward_context, Cache* cache = nullptr, Observer* observer = nullptr);

  // Returns the kinds and modes of attention that all stages of the layer support.
  Capabilities capabilities() const;
  // Returns whether, in all stages, the result of a query is independent of the other queries of its batch row
  // (Stage::is_per_query).
  bool is_per_query() const;
  // Returns the type and name of a stage that samples on the host in training (Stage::samples_on_host), such as
  // "pairing 'cross-head'"; empty if no stage does.
  std::string stage_sampling_on_host() const;
  // Returns the maximum number of positions that all stages support, and the configuration key that sets it; 0 if
  // unlimited.
  std::pair<int64_t, std::string> max_length_and_key() const;

  // Returns whether the layer has separate heads on this side: value heads always, score heads if the mixer mixes
  // heads, output heads if a combiner mixes heads. False for every side of a layer without heads.
  bool has_separate_heads(HeadSide side) const;
  MixerInput mixer_input() const {
    return stages_.mixer != nullptr ? stages_.mixer->mixer_input() : MixerInput::nothing;
  }
  // Returns whether a combiner has gates of heads (Combiner::has_head_gates).
  bool has_head_gates() const;

  // Returns whether the caller can choose the heads to prune on this side. True for value heads. False for score or
  // output heads that are pruned together with the value heads of the same indices, and in a layer without heads.
  bool can_prune_separately(HeadSide side) const;
  // Returns the options of the layer after pruning all heads but `remaining_heads`. The pruned layer has no heads if
  // `remaining_heads` has no value head or no output head, or, if the mixer mixes probabilities, no score head. Throws
  // Error(usage) if a stage ties score, value or output heads together and only some of the tied heads are in
  // `remaining_heads`, or if a mixer of logits would have no score heads.
  AttentionOptions options_after_pruning(const RemainingHeads& remaining_heads) const;

  // Returns the options of the layer after the queries, keys and values of every head are padded with zeros to
  // `head_size` elements, at least the sizes of the layer; the factor of the logits is unchanged. Throws Error(usage)
  // if zeros would change the results of a stage.
  AttentionOptions options_after_padding(int64_t head_size) const;

  // Returns the keys, such as "attention.window", of the options in which this layer and `other` differ and which a
  // swap of heads leaves with their layers: all options except numbers of heads, sizes and biases, which belong to the
  // parameters that a head takes along. A scale of 0 counts as its value, 1/√dk.
  std::vector<std::string> differing_head_options(const AttentionLayer& other) const;

  // Returns the matrix (hv, ho) of the combiners that fold into the output projection: the product, in evaluation, of
  // the matrices (Combiner::as_linear_map) of the combiners at the end of the list that have a matrix. Returns an
  // undefined tensor if the last combiner has no matrix.
  at::Tensor as_linear_map() const;
  // Returns the options of the layer after as_linear_map() was folded into the output projection: without the combiners
  // that it includes.
  AttentionOptions options_after_folding() const;

  // Sets the interceptor that reads, and may replace, the tensors of heads in every forward pass
  // (attention/interceptor.h); null removes the interceptor.
  void set_interceptor(std::shared_ptr<Interceptor> interceptor) { interceptor_ = std::move(interceptor); }
  const std::shared_ptr<Interceptor>& interceptor() const { return interceptor_; }
  // Returns x (B, …), a tensor with the batch rows that forward() receives, repeated for the interceptor's variants
  // (Variants::repeat()); x itself if there are none.
  at::Tensor repeat_for_variants(const at::Tensor& x) const {
    const Variants* variants = variants_of_rows();
    return variants != nullptr ? variants->repeat(x) : x;
  }

  // Sets the requested path. Layers with the same FallbackLog report each fallback reason once for each kind of layer.
  void set_path(Path path, std::shared_ptr<FallbackLog> fallback_log = std::make_shared<FallbackLog>()) {
    dispatcher_.set_path(path, std::move(fallback_log));
  }
  // Returns the path that forward() takes, as text for logs (Dispatcher::describe()). A forward pass may still fall
  // back, for example because of its mask. `training`: for passes in training, where dropout is active.
  std::string describe_path(bool training) const { return dispatcher_.describe(view(), training); }
  // Throws Error(usage) with the reasons if the layer cannot take the fused path.
  void require_fused(bool training) const { dispatcher_.require_fused(view(), training); }
  // Returns the reasons why the layer cannot take the fused path; empty if it can.
  std::vector<std::string> reasons_not_fused(bool training) const {
    return dispatcher_.reasons_not_fused(view(), training);
  }
  // Returns whether the layer meets all constraints of the fused path that can be checked without a forward pass. A
  // forward pass may still fall back.
  bool takes_fused_path(bool training) const { return dispatcher_.takes_fused_path(view(), training); }

 private:
  struct Projections {
    at::Tensor q, k, v;
    bool is_cached = false;  // k and v are the complete content of the cache
  };
  static void gather_kv_heads(Context& c);
  Projections project(const at::Tensor& query_input, const at::Tensor& key_input, Cache* cache);
  void check_heads() const;
  void check_combiners() const;
  void check_key_options() const;
  size_t num_unfolded_combiners() const;
  void set_groups_after_pruning(const RemainingHeads& remaining_heads, AttentionOptions& new_options) const;
  nn::HeadRole role_of(const Stage& stage) const;
  // Sets context.head_weights, and shows the product of all weights to the observer.
  void set_head_weights(Context& context) const;
  // Returns the logits of the sinks (h), fp32; undefined if the layer has none.
  at::Tensor sinks() const;
  // Applies the soft cap to context.logits, then adds the position bias.
  void apply_soft_cap_and_position_bias(Context& context) const;
  // Computes the head outputs (B, hv, Tq, dv) with tensor operations.
  at::Tensor attend_composed(Context& context);
  const Variants* variants_of_rows() const { return interceptor_ != nullptr ? interceptor_->variants() : nullptr; }
  // Returns x (B, n, …), the tensor of the n heads of this side, after the observer and the interceptor. Repeats batch
  // rows for the interceptor's variants at the first side that the interceptor acts on.
  at::Tensor intercept(HeadSide side, Context& context, const at::Tensor& x) const;
  LayerView view() const;
  // Returns the arguments that the fused kernels and the in-place kernels of incremental decoding share: causal mask,
  // window, scale, key/value heads, soft cap, sinks and position bias.
  AttentionSpec inference_spec(const Context& context, const MaskForm& mask_form) const;
  // Computes the head outputs (B, hv, Tq, dv) with the kernel of `choice`.
  at::Tensor attend_fused(Context& context, const KernelChoice& choice);
  // Computes the head outputs (B, hv, 1, dv) of a step of incremental decoding with the in-place kernel of `choice`,
  // which also appends the new key and value to the cache.
  at::Tensor attend_in_place(const Context& context, const KernelChoice& choice, Cache& cache) const;
  // Computes the head outputs (B, h, Tq, dv) with SDPA. `is_square`: whether the mask is causal over equal numbers of
  // queries and keys, and no other mask applies.
  at::Tensor attend_with_sdpa(Context& context, bool is_square) const;
  bool has_dropout(bool training) const { return training && options_.dropout > 0; }
  std::string probabilities_stream() const;  // random stream of the dropout of probabilities
  at::Tensor forward_without_heads(const at::Tensor& query_input, const at::Tensor& key_input, Cache* cache) const;

  LayerSpec layer_spec_;
  AttentionOptions options_;
  Dispatcher dispatcher_;
  std::shared_ptr<Interceptor> interceptor_;
  Stages stages_;
  nn::Parameter *query_weight_ = nullptr, *key_weight_ = nullptr, *value_weight_ = nullptr, *output_weight_ = nullptr;
  nn::Parameter* sinks_ = nullptr;  // (h); null without learned sinks
  nn::Parameter *query_bias_ = nullptr, *key_bias_ = nullptr, *value_bias_ = nullptr, *output_bias_ = nullptr;
};

}  // namespace mh::attention
