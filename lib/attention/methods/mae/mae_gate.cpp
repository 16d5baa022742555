// Options and computation of the gate: means of the inputs, batch norm, and a feed-forward network of two layers.
#include "attention/methods/mae/mae_gate.h"

#include <c10/core/GradMode.h>

#include <cmath>

#include "attention/methods/mae/sample_experts.h"
#include "ceil_div.h"
#include "nn/device.h"
#include "nn/ops.h"

namespace mh::attention {

namespace {

constexpr double kNormEpsilon = 1e-5, kNormMomentum = 0.1;

// The layer inputs of earlier decoding steps, which a causal mean includes.
struct LatestInputs : StageState {
  at::Tensor inputs;   // (B, n, d), fp32
  at::Tensor weights;  // (B, n, 1): 1 if real, 0 for padding
  std::unique_ptr<StageState> clone() const override { return std::make_unique<LatestInputs>(*this); }
  void reorder(const at::Tensor& old_rows) override {
    if (!inputs.defined()) return;
    inputs = inputs.index_select(0, old_rows.to(inputs.device()));
    weights = weights.index_select(0, old_rows.to(weights.device()));
  }
};

// Returns the sums (B, n, c), at each position t, of x (B, n, c) over the positions [t - `window` + 1, t], or over [0,
// t] if `window` is 0. Positions outside of the window contribute no rounding error, since no sum is a difference of
// prefix sums: x is divided into chunks of `window` positions, and a sum is a prefix sum of the chunk of t plus a
// suffix sum of the previous chunk.
at::Tensor window_sums(const at::Tensor& x, int64_t window) {
  const int64_t batch_size = x.size(0), n = x.size(1), num_columns = x.size(2);
  const at::Tensor transposed_x = x.transpose(1, 2).contiguous();  // contiguous, so sums take a third of the time
  if (window == 0 || window >= n) return transposed_x.cumsum(2).transpose(1, 2).contiguous();
  const int64_t num_chunks = ceil_div(n, window);
  at::Tensor chunks = at::constant_pad_nd(transposed_x, {0, num_chunks * window - n})
                          .view({batch_size, num_columns, num_chunks, window});
  at::Tensor suffix_sums = chunks.flip(3).cumsum(3).flip(3);
  at::Tensor previous_chunk_sums =
      at::constant_pad_nd(suffix_sums.narrow(2, 0, num_chunks - 1).narrow(3, 1, window - 1), {0, 1, 1, 0});
  return (chunks.cumsum(3) + previous_chunk_sums)
      .view({batch_size, num_columns, num_chunks * window})
      .narrow(2, 0, n)
      .transpose(1, 2)
      .contiguous();
}

// Returns whether each of n positions is below the length of its batch row, (B, n) bool; undefined if `lengths` is
// undefined, which means that no position is padding.
at::Tensor length_mask(const at::Tensor& lengths, int64_t n, at::Device device) {
  if (!lengths.defined()) return {};
  return at::arange(n, at::TensorOptions().dtype(at::kLong).device(device)).unsqueeze(0) <
         nn::to_device(lengths, device).unsqueeze(1);
}

// Returns the number of real (not padding) queries of each batch row, (B) int64; undefined: no query is padding.
at::Tensor query_lengths(const Context& c) {
  if (c.mask.query_lengths.defined()) return c.mask.query_lengths;
  if (c.layer_spec.kind == AttentionKind::decoder_cross || !c.mask.key_lengths.defined()) return {};
  return c.mask.key_lengths - (c.v.size(2) - c.query_input.size(1));  // the queries are at the last key positions
}

}  // namespace

void MaeOptions::describe(Fields& f) {
  f.field("omitted_heads", omitted_heads, "number of heads that each expert omits", at_least(1));
  f.choice(
      "gate", gate, {{Gate::learned, "learned"}, {Gate::uniform, "uniform"}},
      "gate of the experts; uniform: without parameters, a uniformly sampled expert in training and plain attention "
      "in evaluation");
  f.field("hidden", hidden_size, "inner width of the network that computes the gate", between(1, 1 << 16));
  f.field("dropout", dropout, "dropout rate of the inner layer of the gate network", between(0, 0.999));
  f.choice("mean", mean, {{Mean::causal, "causal"}, {Mean::full, "full"}},
           "input of the gate network; causal: mean of the layer inputs up to each position; full: mean over the whole "
           "sequence of an encoder");
  f.field("window", window, "number of latest positions in the causal mean; 0: all", at_least(0));
  f.choice("sample_unit", sample_unit, {{Unit::sequence, "sequence"}, {Unit::position, "position"}},
           "unit for which one expert is sampled in training: sequence (batch row, as in the publication) or position; "
           "always sequence if attention.mae.mean = full");
  f.choice("norm_statistics", norm_statistics, {{Statistics::running, "running"}, {Statistics::batch, "batch"}},
           "statistics that the batch norm of the gate network uses in passes that sample experts");
  f.choice("init", init, {{GateInit::standard, "default"}, {GateInit::zero, "zero"}},
           "initial values of the last layer of the gate network; default: uniform in ±1/√attention.mae.hidden; zero: "
           "gates are uniform at the start");
  original_heads.describe(f);
}

void ExpertGate::add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) {
  const std::string name = layer_spec.name + kExpertGatePrefix;
  const int64_t d = layer_spec.width, hidden_size = options_.hidden_size;
  using nn::Init;
  const Init up_init = Init::uniform(1 / std::sqrt(static_cast<double>(d)));
  const Init down_init = options_.init == MaeOptions::GateInit::zero
                             ? Init::constant(0)
                             : Init::uniform(1 / std::sqrt(static_cast<double>(hidden_size)));
  auto make_traits = [](const Init& init) { return nn::ParameterTraits{init, false, false}; };
  auto statistic_traits = [&](double initial_value) {
    nn::ParameterTraits traits = make_traits(Init::constant(initial_value));
    traits.trainable = false;
    traits.is_running_statistic = true;
    return traits;
  };
  norm_weight_ = &parameters.add(name + "norm.weight", {d}, make_traits(Init::constant(1)));
  norm_bias_ = &parameters.add(name + "norm.bias", {d}, make_traits(Init::constant(0)));
  running_mean_ = &parameters.add(name + "norm.mean", {d}, statistic_traits(0));
  running_variance_ = &parameters.add(name + "norm.variance", {d}, statistic_traits(1));
  nn::ParameterTraits up_traits = make_traits(up_init);
  up_traits.is_product_operand = true;  // W_up may use reduced precision; W_down is small and stays fp32
  up_weight_ = &parameters.add(name + "up.weight", {hidden_size, d}, up_traits);
  up_bias_ = &parameters.add(name + "up.bias", {hidden_size}, make_traits(up_init));
  nn::ParameterTraits down_traits = make_traits(down_init);
  // With omitted_heads = 1, expert i omits head i, so swapping two heads also swaps the rows of the experts that omit
  // them.
  if (options_.omitted_heads == 1) down_traits.head_axes = {options_.original_heads.axis(0)};
  down_weight_ = &parameters.add(name + "down.weight", {num_experts_, hidden_size}, down_traits);
  down_bias_ = &parameters.add(name + "down.bias", {num_experts_}, down_traits);
}

at::Tensor make_query_mask(const Context& c) {
  return length_mask(query_lengths(c), c.query_input.size(1), c.query_input.device());
}

at::Tensor masked_mean(const at::Tensor& x, const at::Tensor& query_mask) {
  if (!query_mask.defined()) return x.mean(1);
  at::Tensor weight = query_mask.to(x.scalar_type()).unsqueeze(-1);
  return (x * weight).sum(1) / weight.sum(1).clamp_min(1);
}

bool ExpertGate::is_frozen(const nn::ForwardContext& forward_context) const {
  return forward_context.request<SampleExpertsRequest>() != nullptr || !norm_weight_->master().requires_grad();
}

at::Tensor ExpertGate::operator()(const Context& c) {
  const c10::AutoGradMode mode(c10::GradMode::is_enabled() &&
                               c.forward_context.request<SampleExpertsRequest>() == nullptr);
  const at::Tensor query_mask = make_query_mask(c);
  if (options_.mean == MaeOptions::Mean::causal) return gates_from_means(c, causal_means(c, query_mask), query_mask);
  return gates_from_means(c, masked_mean(c.query_input.to(at::kFloat), query_mask),
                          query_mask.defined() ? query_mask.any(1) : query_mask);
}

// Returns the mean (B, Tq, d), fp32, of the layer inputs up to each query; with a window, of at most the last `window`
// inputs. The mean excludes padding. It includes inputs of a memory and of earlier decoding steps; in self-attention,
// only if the layer still retains the keys of these inputs. c.stage_states stores the inputs of earlier decoding steps:
// all of them, or with a window only the last `window` - 1.
at::Tensor ExpertGate::causal_means(const Context& c, const at::Tensor& query_mask) const {
  const int64_t num_queries = c.query_input.size(1), window = options_.window;
  at::Tensor x = c.query_input.to(at::kFloat);
  at::Tensor token_weights = query_mask.defined()
                                 ? query_mask.to(at::kFloat).unsqueeze(-1)
                                 : at::ones({x.size(0), num_queries, 1}, x.options());  // (B, n, 1): 1 if real, else 0
  if (query_mask.defined()) x = x * token_weights;
  const bool is_self_attention = c.layer_spec.kind != AttentionKind::decoder_cross;
  if (const int64_t memory_length = c.key_input.size(1) - num_queries; is_self_attention && memory_length > 0) {
    at::Tensor m = c.key_input.narrow(1, 0, memory_length).to(at::kFloat);
    at::Tensor memory_mask = length_mask(c.mask.key_lengths, memory_length, x.device());
    at::Tensor memory_weights = memory_mask.defined() ? memory_mask.to(at::kFloat).unsqueeze(-1)
                                                      : at::ones({x.size(0), memory_length, 1}, x.options());
    x = nn::cat({memory_mask.defined() ? m * memory_weights : m, x}, 1);
    token_weights = nn::cat({memory_weights, token_weights}, 1);
  }
  if (c.stage_states != nullptr) {
    auto& [latest_inputs, latest_weights] = c.stage_states->get<LatestInputs>();
    if (latest_inputs.defined()) {
      // Uses only inputs whose keys are still in the cache.
      const int64_t num_latest_inputs = latest_inputs.size(1), num_past_positions = c.num_keys - num_queries;
      const int64_t num_reused =
          is_self_attention ? std::min(num_latest_inputs, num_past_positions) : num_latest_inputs;
      x = nn::cat({latest_inputs.narrow(1, num_latest_inputs - num_reused, num_reused), x}, 1);
      token_weights = nn::cat({latest_weights.narrow(1, num_latest_inputs - num_reused, num_reused), token_weights}, 1);
    }
    const int64_t n = x.size(1), num_retained = window > 0 ? std::min(window - 1, n) : n;
    latest_inputs = x.detach().narrow(1, n - num_retained, num_retained);
    latest_weights = token_weights.narrow(1, n - num_retained, num_retained);
  }
  const at::Tensor sum = window_sums(x, window), count = window_sums(token_weights, window);
  const int64_t num_before = sum.size(1) - num_queries;
  return sum.narrow(1, num_before, num_queries) / count.narrow(1, num_before, num_queries).clamp_min(1);
}

// Returns the statistics over the `rows` (n, d), fp32, of all processes together. With several processes, every
// process, even one without rows, must call this function and its backward pass.
ExpertGate::RowStatistics ExpertGate::statistics_of(const at::Tensor& rows, const nn::ForwardContext& forward_context) {
  const int64_t num_rows = rows.size(0);
  if (forward_context.processes == nullptr) {
    if (num_rows == 0) return {};
    const at::Tensor mean = rows.mean(0);
    return {mean, (rows - mean).square().mean(0), num_rows};
  }
  const nn::ProcessSum& processes = *forward_context.processes;
  const at::Tensor count = at::full({1}, static_cast<double>(num_rows), at::kDouble);
  processes.sum(count);
  const double n = std::max(1.0, count.item<double>());
  const at::Tensor mean = nn::sum_over_processes(rows.sum(0), processes) / n;
  return {mean, nn::sum_over_processes((rows - mean).square().sum(0), processes) / n, count.item<int64_t>()};
}

// Returns the batch norm of x (…, d), fp32. In evaluation, in a frozen gate with norm_statistics = running, and if the
// batch statistics would include no row, the running statistics are used; otherwise the statistics of the rows where
// `query_mask` (…) is true, or of all rows if `query_mask` is undefined. As in PyTorch, x is normalised with the biased
// variance, and the running statistics are updated with the unbiased variance. Each micro-batch is normalised
// separately; with several processes, the micro-batches of equal index of all processes are normalised together.
at::Tensor ExpertGate::normalise(const nn::ForwardContext& forward_context, const at::Tensor& x,
                                 const at::Tensor& query_mask) {
  at::Tensor mean = running_mean_->master(), variance = running_variance_->master();
  if (forward_context.training &&
      (!is_frozen(forward_context) || options_.norm_statistics == MaeOptions::Statistics::batch)) {
    at::Tensor rows = x.flatten(0, -2);
    if (query_mask.defined()) rows = rows.index_select(0, query_mask.flatten().nonzero().squeeze(1));
    if (!forward_context.counts_rows) rows = rows.narrow(0, 0, 0);
    const RowStatistics statistics = statistics_of(rows, forward_context);
    if (const int64_t n = statistics.num_rows; n > 0) {
      mean = statistics.mean, variance = statistics.variance;
      if (!is_frozen(forward_context) && !forward_context.is_recomputation) {
        c10::NoGradGuard no_gradient;
        const double unbiased_factor = static_cast<double>(n) / static_cast<double>(std::max<int64_t>(1, n - 1));
        running_mean_->master().mul_(1 - kNormMomentum).add_(mean, kNormMomentum);
        running_variance_->master().mul_(1 - kNormMomentum).add_(variance, kNormMomentum * unbiased_factor);
      }
    }
  }
  return at::addcmul(norm_bias_->value(), x - mean, norm_weight_->value() * at::rsqrt(variance + kNormEpsilon));
}

// Returns the gates (…, E), fp32, for means x (…, d), fp32; rows sum to 1.
at::Tensor ExpertGate::gates_from_means(const Context& c, const at::Tensor& x, const at::Tensor& query_mask) {
  at::Tensor normalised_x = normalise(c.forward_context, x, query_mask);
  at::Tensor activations = at::tanh(nn::linear(normalised_x, up_weight_->value(), up_bias_->value()).to(at::kFloat));
  nn::ForwardContext forward_context = c.forward_context;
  forward_context.training = forward_context.training && !is_frozen(forward_context);
  activations =
      nn::dropout(activations, options_.dropout, forward_context, std::string(name_of(c.layer_spec.kind)) + ".gate",
                  static_cast<uint32_t>(c.layer_spec.layer));
  return at::softmax(nn::linear(activations, down_weight_->value(), down_bias_->value()), -1);
}

}  // namespace mh::attention
