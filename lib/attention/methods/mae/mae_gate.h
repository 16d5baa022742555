// The gate of a mixture of attentive experts (Peng et al. 2020), which computes the weight of each expert from the
// input x of the query projection,
//
//   g = softmax(W_down dropout(tanh(W_up norm(mean of x) + b_up)) + b_down),   norm: batch norm
//
// Difference from the paper: in a decoder the mean at a position includes the inputs up to this position only (mean =
// "causal"), since a mean over the whole target would reveal later tokens to the gate. Means and statistics exclude
// padding.
#pragma once

#include "attention/pruned_heads.h"
#include "attention/stage.h"

namespace mh::attention {

constexpr const char* kExpertGatePrefix = ".gate.";  // follows the layer name in the names of parameters
// Pattern of the names of all parameters of gates of experts. It excludes the parameters .combiner.gate.weight and
// .gate.weight of other gates.
constexpr const char* kExpertGatePattern = "*.gate.*.*";

struct MaeOptions : OptionsOf<MaeOptions> {
  enum class Gate { learned, uniform };
  enum class Mean { causal, full };
  enum class Unit { position, sequence };
  enum class Statistics { running, batch };
  enum class GateInit { standard, zero };

  int64_t omitted_heads = 1;
  Gate gate = Gate::learned;
  int64_t hidden_size = 256;
  double dropout = 0.1;
  Mean mean = Mean::causal;
  int64_t window = 0;
  Unit sample_unit = Unit::sequence;
  Statistics norm_statistics = Statistics::running;
  GateInit init = GateInit::standard;
  OriginalHeads original_heads;
  void describe(Fields& f) override;
};

class ExpertGate {
 public:
  // options.original_heads must be a result of OriginalHeads::resolve_for().
  ExpertGate(const MaeOptions& options, int64_t num_experts) : options_(options), num_experts_(num_experts) {}
  void add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec);

  // Returns the gates of the E experts, fp32: (B, Tq, E) with a causal mean, otherwise (B, E); rows sum to 1. In a pass
  // that samples experts, or if the gate is not trainable, the gate has no dropout and does not update the statistics
  // of its batch norm.
  at::Tensor operator()(const Context& c);

 private:
  // Returns whether the gate is frozen: the pass samples experts, or the gate is not trainable.
  bool is_frozen(const nn::ForwardContext& forward_context) const;
  at::Tensor causal_means(const Context& c, const at::Tensor& query_mask) const;
  // Mean and biased variance of rows, (d) fp32, and the number of rows.
  struct RowStatistics {
    at::Tensor mean, variance;
    int64_t num_rows = 0;
  };
  static RowStatistics statistics_of(const at::Tensor& rows, const nn::ForwardContext& forward_context);
  at::Tensor normalise(const nn::ForwardContext& forward_context, const at::Tensor& x, const at::Tensor& query_mask);
  at::Tensor gates_from_means(const Context& c, const at::Tensor& x, const at::Tensor& query_mask);

  MaeOptions options_;
  int64_t num_experts_;
  nn::Parameter *norm_weight_ = nullptr, *norm_bias_ = nullptr, *running_mean_ = nullptr, *running_variance_ = nullptr;
  nn::Parameter *up_weight_ = nullptr, *up_bias_ = nullptr, *down_weight_ = nullptr, *down_bias_ = nullptr;
};

// Returns whether each query is real (not padding), (B, Tq) bool; undefined if the batch has no lengths, which means
// that all queries are real.
at::Tensor make_query_mask(const Context& c);

// Returns the mean (B, c) of x (B, T, c) over the positions where `query_mask` (B, T) is true, or over all positions if
// `query_mask` is undefined; 0 for a batch row without real positions.
at::Tensor masked_mean(const at::Tensor& x, const at::Tensor& query_mask);

}  // namespace mh::attention
