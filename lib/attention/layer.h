// Multi-head attention as a pipeline of stages (described in stage.h):
//
//   q, k, v = projections -> pairing -> score -> mixer (logits) -> mask, normaliser -> mixer -> dropout -> · v
//           -> combiner -> output projection
//
// Source: Vaswani et al. 2017, section 3.2, with head sizes independent of the width (Bhojanapalli et al. 2020).
//
// A layer without heads has no stages and returns the bias of its output projection.
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

class AttentionLayer {
 public:
  // Initialisers of the projections, from the initialisation scheme of the model.
  struct Inits {
    nn::Init query_key_value;
    nn::Init query_key_value_bias;
    nn::Init output;
  };
  AttentionLayer(nn::ParameterList& parameters, const AttentionOptions& options, const LayerSpec& layer_spec,
                 const Inits& inits);

  const LayerSpec& layer_spec() const { return layer_spec_; }
  const std::string& mixer_name() const { return options_.mixer; }

  // Returns (B, Tq, d), or (count·B, Tq, d) with variants of rows (Interceptor::variants), for query_input (B, Tq, d)
  // and key_input (B, Tk, d). Self-attention passes one tensor as both; with a memory, key_input begins with the
  // memory's positions and Tk > Tq. With a cache, self-attention appends the new keys; cross-attention fills the cache
  // once and then ignores key_input. Throws Error(usage) under Path::fused if the observer needs the composed path.
  at::Tensor forward(const at::Tensor& query_input, const at::Tensor& key_input, const Mask& mask,
                     const nn::ForwardContext& step, Cache* cache = nullptr, Observer* observer = nullptr);

  // Returns the settings that all stages of the layer support.
  Capabilities capabilities() const;
  // Returns whether, in all stages, the result of a query is independent of the other queries of its row
  // (Stage::is_per_query).
  bool is_per_query() const;
  // Returns the type and name of a stage that samples on the host in training (Stage::samples_on_host); empty if there
  // is none.
  std::string samples_on_host() const;
  // Returns the maximum number of positions that all stages support, and the configuration key that sets it; 0:
  // unlimited.
  std::pair<int64_t, std::string> max_length() const;

  // Returns whether this side has heads of its own: value heads always do; score heads only if a mixer, output heads
  // only if a combiner mixes heads. False if the layer has lost all its heads.
  bool has_side(HeadSide side) const;
  Mixes mixes() const { return stages_.mixer != nullptr ? stages_.mixer->mixes() : Mixes::nothing; }
  bool has_head_gates() const { return stages_.combiner != nullptr && stages_.combiner->has_head_gates(); }

  // Returns whether heads of this side can be pruned while the heads of the other sides are kept.
  bool can_prune_separately(HeadSide side) const;
  // Returns the options of the layer after pruning all heads but `kept`. The layer loses all heads if no value head or
  // no output head is kept, or, if it mixes probabilities, no score head. Throws Error(usage) if these heads cannot be
  // pruned separately from the other sides.
  AttentionOptions options_after_pruning(const KeptHeads& kept) const;

  // Returns the matrix of the combiner in evaluation if it folds into the output projection (Combiner::as_linear_map);
  // otherwise undefined.
  at::Tensor as_linear_map() const;
  // Returns the options of the layer with `concatenate` as its combiner, for use after folding.
  AttentionOptions without_combiner() const;

  // Sets the interceptor that reads, and may replace, the heads' tensors in every pass (attention/interceptor.h); null
  // removes it.
  void set_interceptor(std::shared_ptr<Interceptor> interceptor) { interceptor_ = std::move(interceptor); }
  const std::shared_ptr<Interceptor>& interceptor() const { return interceptor_; }
  // Repeats x (B, …), a tensor with the rows of forward(), for the variants of the interceptor.
  at::Tensor repeat_for_variants(const at::Tensor& x) const {
    const Variants* variants = variants_of_rows();
    return variants != nullptr ? variants->repeat(x) : x;
  }

  // Sets the requested path. Layers that share `log` log each reason once per kind.
  void set_path(Path path, std::shared_ptr<PathLog> log = std::make_shared<PathLog>()) {
    dispatcher_.set_path(path, std::move(log));
  }
  // Describes the path that forward() takes, with the reasons if it is the composed one. A forward pass may still fall
  // back, for example because of its mask. `training`: probabilities are dropped.
  std::string describe_path(bool training) const { return dispatcher_.describe(view(), training); }
  // Throws Error(usage) with the reasons if the layer cannot take the fused path.
  void require_fused(bool training) const { dispatcher_.require_fused(view(), training); }
  // Returns the reasons why the layer cannot take the fused path; empty if it can.
  std::vector<std::string> unfused_reasons(bool training) const {
    return dispatcher_.unfused_reasons(view(), training);
  }
  // Returns whether the layer takes the fused path; a forward pass may still fall back.
  bool takes_fused(bool training) const { return dispatcher_.takes_fused(view(), training); }

 private:
  struct Projected {
    at::Tensor q, k, v;
    bool cached = false;  // k and v come from the cache and are complete
  };
  static void gather_key_heads(Context& c);
  Projected project(const at::Tensor& query_input, const at::Tensor& key_input, Cache* cache);
  at::Tensor read_in_place(const Context& c, Cache& cache);
  void check_heads() const;
  nn::HeadRole role_of(const Stage& stage) const;
  at::Tensor composed(Context& context);
  const Variants* variants_of_rows() const { return interceptor_ != nullptr ? interceptor_->variants() : nullptr; }
  // Passes x (B, h, …), the tensor of a side's heads, through the observer and the interceptor and returns the result.
  // At the first side that the interceptor acts on, rows are repeated for its variants.
  at::Tensor intercept(HeadSide side, Context& context, const at::Tensor& x) const;
  LayerView view() const;
  // Computes the head outputs with the fused kernel of `choice`.
  at::Tensor fused(Context& context, const Choice& choice);
  // Computes the head outputs with SDPA. `square`: causal, as many keys as queries, nothing else hidden.
  at::Tensor by_library(Context& context, bool square) const;
  bool has_dropout(bool training) const { return training && options_.dropout > 0; }
  std::string probabilities_stream() const;  // random stream of the dropout of probabilities
  at::Tensor without_heads(const at::Tensor& query_input, const at::Tensor& key_input, Cache* cache) const;

  LayerSpec layer_spec_;
  AttentionOptions options_;
  Dispatcher dispatcher_;
  std::shared_ptr<Interceptor> interceptor_;
  Stages stages_;
  nn::Parameter *query_ = nullptr, *key_ = nullptr, *value_ = nullptr, *output_ = nullptr;
  nn::Parameter *query_bias_ = nullptr, *key_bias_ = nullptr, *value_bias_ = nullptr, *output_bias_ = nullptr;
};

}  // namespace mh::attention
