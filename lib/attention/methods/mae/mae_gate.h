// The gate of a mixture of attentive experts (Peng et al. 2020): how much each expert counts, from what queries are
// made of,
//
//   g = softmax(W_down dropout(tanh(W_up norm(mean of x) + b_up)) + b_down),   norm: batch norm
//
// Where this departs from the paper: a decoder's mean is a running one (mean = "causal"), since one over the whole
// target would tell the gate of tokens to come. Padding is left out of means and of statistics.
#pragma once

#include "attention/outlived.h"
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
  Outlived heads;
  void describe(Fields& f) override;
};

class ExpertGate {
 public:
  // options.heads has the layer's numbers filled in (Outlived::in).
  ExpertGate(const MaeOptions& options, int64_t experts) : options_(options), experts_(experts) {}
  void add_parameters(nn::ParameterList& parameters, const Shape& shape);

  // (B, Tq, E) for a causal mean, else (B, E); fp32, rows sum to 1. A step that samples experts, or leaves the gate's
  // parameters untrained, leaves the gate unchanged: no dropout, and no update of batch norm's statistics.
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

// (B, Tq) bool: which queries are not padding; undefined: all.
at::Tensor real_queries(const Context& c);

// x (B, T, c) and real (B, T) or undefined -> (B, c), the mean over real positions; 0 where there is none.
at::Tensor mean_over(const at::Tensor& x, const at::Tensor& real);

}  // namespace mh::attention
