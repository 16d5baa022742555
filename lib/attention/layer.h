// Multi-head attention as a row of stages (facts of each in stage.h):
//
//   q, k, v = projections -> pairing -> score -> mixer (logits) -> mask, normaliser -> mixer -> dropout -> · v
//           -> combiner -> output projection
//
// Source: Vaswani et al. 2017, section 3.2, with head sizes free of the width (Bhojanapalli et al. 2020).
//
// A layer without heads has no stage and gives the bias of its output projection.
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
  // How the projections are initialised, by the initialisation scheme of the model.
  struct Inits {
    nn::Init query_key_value;
    nn::Init query_key_value_bias;
    nn::Init output;
  };
  AttentionLayer(nn::ParameterList& parameters, const AttentionOptions& options, const Shape& shape,
                 const Inits& inits);

  const Shape& shape() const { return shape_; }
  const std::string& mixer_name() const { return options_.mixer; }

  // query_input (B, Tq, d); key_input (B, Tk, d), the same tensor for self-attention (with memory in front, Tk > Tq)
  // -> (B, Tq, d). With a cache, self-attention appends the new keys; cross-attention fills it once and then ignores
  // key_input. An observer that needs the composed path is an error under Path::fused. With variants of rows
  // (Interceptor::variants) -> (count·B, Tq, d).
  at::Tensor forward(const at::Tensor& query_input, const at::Tensor& key_input, const Mask& mask,
                     const nn::ForwardContext& step, Cache* cache = nullptr, Observer* observer = nullptr);

  // Where the layer can act, all its stages considered.
  Places places() const;
  // Whether all its stages give a query the same whatever other queries its row has.
  bool by_query() const;
  // The stage that draws in training what it does (Stage::draws), in words; empty: none.
  std::string draws() const;
  // The most positions that all its stages can act on, and the key that says so; 0 where there is no bound.
  std::pair<int64_t, std::string> longest() const;

  // Whether a side's heads are something of their own: values always, the others where something mixes. None in a layer
  // that has lost all its heads.
  bool has_side(HeadSide side) const;
  Mixes mixes() const { return stages_.mixer != nullptr ? stages_.mixer->mixes() : Mixes::nothing; }
  bool weighs() const { return stages_.combiner != nullptr && stages_.combiner->weighs(); }

  // Whether heads of this side can be cut while the heads of the other sides stay.
  bool can_part(HeadSide side) const;
  // The options of the layer that is left where only these heads stay; without values, or outputs, no head does.
  // Error(usage) where they cannot part from the others.
  AttentionOptions keep(const KeptHeads& kept) const;

  // The matrix of the combiner outside of training where it folds into the output projection (Combiner::folded), and
  // the options of the layer without it: head outputs side by side.
  at::Tensor folded() const;
  AttentionOptions without_combiner() const;

  // Sets what sees, and may replace, the heads' tensors in every pass (attention/interceptor.h); null: nothing does.
  void set_interceptor(std::shared_ptr<Interceptor> interceptor) { interceptor_ = std::move(interceptor); }
  const std::shared_ptr<Interceptor>& interceptor() const { return interceptor_; }
  // Repeats x (B, …), which accompanies the rows of forward(), for the variants that the interceptor makes of them.
  at::Tensor repeat_for_variants(const at::Tensor& x) const {
    const Variants* variants = variants_of_rows();
    return variants != nullptr ? variants->repeat(x) : x;
  }

  // Layers that share `log` log each reason once for their kind.
  void set_path(Path path, std::shared_ptr<PathLog> log = std::make_shared<PathLog>()) {
    dispatcher_.set_path(path, std::move(log));
  }
  // The path that forward() takes, with the reason where it is the composed one. What only a forward pass knows, such
  // as its mask, may still need the composed path. `training`: dropout of probabilities acts.
  std::string describe_path(bool training) const { return dispatcher_.describe(view(), training); }
  // Error(usage) with the reasons where the fused path cannot take the layer.
  void require_fused(bool training) const { dispatcher_.require_fused(view(), training); }
  // Why the fused path cannot take the layer, one reason each; empty where it can.
  std::vector<std::string> unfused_reasons(bool training) const {
    return dispatcher_.unfused_reasons(view(), training);
  }
  // Whether the fused path takes the layer, unless a forward pass needs the composed one.
  bool takes_fused(bool training) const { return dispatcher_.takes_fused(view(), training); }

 private:
  struct Projected {
    at::Tensor q, k, v;
    bool cached = false;  // k and v are all that the cache holds
  };
  static void gather_key_heads(Context& c);
  Projected project(const at::Tensor& query_input, const at::Tensor& key_input, Cache* cache);
  at::Tensor read_in_place(const Context& c, Cache& cache);
  void check_heads() const;
  nn::HeadRole role_of(const Stage& stage) const;
  at::Tensor composed(Context& context);
  const Variants* variants_of_rows() const { return interceptor_ != nullptr ? interceptor_->variants() : nullptr; }
  // Returns the replacement of x (B, h, …), the tensor of a side's heads, with a copy of each row for each variant from
  // the first side on that the interceptor acts on.
  at::Tensor intercept(HeadSide side, Context& context, const at::Tensor& x) const;
  LayerView view() const;
  at::Tensor fused(Context& context, const Choice& choice);
  // By the tensor library's fused attention; `square`: causal, as many keys as queries, nothing else hidden.
  at::Tensor by_library(Context& context, bool square) const;
  bool drops(bool training) const { return training && options_.dropout > 0; }
  std::string probabilities_stream() const;  // of the dropout of probabilities
  at::Tensor without_heads(const at::Tensor& query_input, const at::Tensor& key_input, Cache* cache) const;

  Shape shape_;
  AttentionOptions options_;
  Dispatcher dispatcher_;
  std::shared_ptr<Interceptor> interceptor_;
  Stages stages_;
  nn::Parameter *query_ = nullptr, *key_ = nullptr, *value_ = nullptr, *output_ = nullptr;
  nn::Parameter *query_bias_ = nullptr, *key_bias_ = nullptr, *value_bias_ = nullptr, *output_bias_ = nullptr;
};

}  // namespace mh::attention
