// The gate of a mixture of attentive experts (Peng et al. 2020), which computes the weight of each expert from the
// input x of the query projection,
//
//   g = softmax(W_down dropout(tanh(W_up norm(mean of x) + b_up)) + b_down),   norm: batch norm
//
// Difference from the paper: in a decoder the mean is a running mean (mean = "causal"), since a mean over the whole
// target would reveal later tokens to the gate. Padding is excluded from means and statistics.
#pragma once

#include "attention/pruned_heads.h"
#include "attention/stage.h"

namespace mh::attention {

struct MaeOptions : OptionsOf<MaeOptions> {
  enum class Gate { learned, uniform };
  enum class Mean { causal, full };
  enum class Unit { position, sequence };
  enum class Statistics { running, batch };
  enum class GateInit { usual, zero };

  int64_t drop = 1;
  Gate gate = Gate::learned;
  int64_t hidden = 256;
  double dropout = 0.1;
  Mean mean = Mean::causal;
  int64_t window = 0;
  Unit sample_unit = Unit::sequence;
  Statistics norm_statistics = Statistics::running;
  GateInit init = GateInit::usual;
  OriginalHeads heads;
  void describe(Fields& f) override;
};

class ExpertGate {
 public:
  // options.heads must have the defaults of the layer filled in (OriginalHeads::in).
  ExpertGate(const MaeOptions& options, int64_t experts) : options_(options), experts_(experts) {}
  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec);

  // Returns gates (B, Tq, E) for a causal mean, else (B, E), in fp32; rows sum to 1. In a step that samples experts, or
  // with untrained gate parameters, the gate is frozen: no dropout, and no update of the batch norm's statistics.
  at::Tensor operator()(const Context& c);

 private:
  bool rests(const nn::ForwardContext& step) const;
  at::Tensor running_means(const Context& c, const at::Tensor& real) const;
  at::Tensor normalise(const nn::ForwardContext& step, const at::Tensor& x, const at::Tensor& real);
  at::Tensor of_means(const Context& c, const at::Tensor& x, const at::Tensor& real);

  MaeOptions options_;
  int64_t experts_;
  nn::Parameter *norm_weight_ = nullptr, *norm_bias_ = nullptr, *mean_ = nullptr, *variance_ = nullptr;
  nn::Parameter *up_ = nullptr, *up_bias_ = nullptr, *down_ = nullptr, *down_bias_ = nullptr;
};

// Returns which queries are real (not padding), (B, Tq) bool; undefined: all.
at::Tensor real_queries(const Context& c);

// Returns the mean (B, c) of x (B, T, c) over the positions where real (B, T) is true, over all if it is undefined; 0
// for a row without real positions.
at::Tensor mean_over(const at::Tensor& x, const at::Tensor& real);

}  // namespace mh::attention
