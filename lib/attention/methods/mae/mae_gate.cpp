// Options and computation of the gate: running means of the inputs, batch norm, and a feed-forward network of two
// layers.
#include "attention/methods/mae/mae_gate.h"

#include <c10/core/GradMode.h>

#include <cmath>

#include "attention/methods/mae/sample_experts.h"
#include "nn/device.h"
#include "nn/ops.h"

namespace mh::attention {

namespace {

constexpr double kNormEpsilon = 1e-5, kNormMomentum = 0.1;

// Returns the sums (B, n, c), for each position of x (B, n, c), of x over this position and the window - 1 positions
// before it; window = 0: over all earlier positions. The computation never subtracts, so that positions outside of the
// window do not leave even a rounding error: a sum is the prefix sum of the position's block of `window` positions plus
// a suffix sum of the previous block.
at::Tensor window_sums(const at::Tensor& x, int64_t window) {
  const int64_t rows = x.size(0), n = x.size(1), columns = x.size(2);
  const at::Tensor transposed = x.transpose(1, 2).contiguous();  // a third of the time of sums along the strided axis
  if (window == 0 || window >= n) return transposed.cumsum(2).transpose(1, 2).contiguous();
  const int64_t blocks = (n + window - 1) / window;
  at::Tensor in = at::constant_pad_nd(transposed, {0, blocks * window - n}).view({rows, columns, blocks, window});
  at::Tensor to_end = in.flip(3).cumsum(3).flip(3);
  at::Tensor earlier = at::constant_pad_nd(to_end.narrow(2, 0, blocks - 1).narrow(3, 1, window - 1), {0, 1, 1, 0});
  return (in.cumsum(3) + earlier).view({rows, columns, blocks * window}).narrow(2, 0, n).transpose(1, 2).contiguous();
}

// Returns whether each of n positions is below the length of its batch row, (B, n) bool; undefined if `lengths` is
// undefined, which means all.
at::Tensor within(const at::Tensor& lengths, int64_t n, at::Device device) {
  if (!lengths.defined()) return {};
  return at::arange(n, at::TensorOptions().dtype(at::kLong).device(device)).unsqueeze(0) <
         nn::to_device(lengths, device).unsqueeze(1);
}

// Returns the number of real (not padding) queries of each batch row, (B) int64; undefined if no query is padding.
at::Tensor query_lengths(const Context& c) {
  if (c.mask.query_lengths.defined()) return c.mask.query_lengths;
  if (c.layer_spec.kind == AttentionKind::decoder_cross || !c.mask.key_lengths.defined()) return {};
  return c.mask.key_lengths - (c.v.size(2) - c.query_input.size(1));  // the queries are the last keys
}

}  // namespace

void MaeOptions::describe(Fields& f) {
  f.field("drop", drop, "number of heads that each expert omits", at_least(1));
  f.choice("gate", gate, {{Gate::learned, "learned"}, {Gate::uniform, "uniform"}},
           "gate of the experts; uniform: without parameters, uniform sampling of experts in training and plain "
           "attention in evaluation");
  f.field("hidden", hidden, "inner width of the network that computes the gate", between(1, 1 << 16));
  f.field("dropout", dropout, "dropout rate of the inner layer of the gate network", between(0, 0.999));
  f.choice("mean", mean, {{Mean::causal, "causal"}, {Mean::full, "full"}},
           "input of the gate network; causal: mean of the layer inputs up to each position; full: mean over the whole "
           "sequence of an encoder");
  f.field("window", window, "number of latest positions in the causal mean; 0: all", at_least(0));
  f.choice("sample_unit", sample_unit, {{Unit::sequence, "sequence"}, {Unit::position, "position"}},
           "unit for which one expert is sampled in training: sequence (batch row, as in the publication) or position; "
           "always a sequence with mean = full");
  f.choice("norm_statistics", norm_statistics, {{Statistics::running, "running"}, {Statistics::batch, "batch"}},
           "statistics that the batch norm of the gate network uses in passes that sample experts");
  f.choice("init", init, {{GateInit::usual, "default"}, {GateInit::zero, "zero"}},
           "initial values of the last layer of the gate network; zero: gates are uniform at the start");
  heads.describe(f);
}

void ExpertGate::add_parameters(nn::ParameterList& parameters, const LayerSpec& layer_spec) {
  const std::string name = layer_spec.name + ".gate.";
  const int64_t d = layer_spec.width, hidden = options_.hidden;
  using nn::Init;
  const Init up = Init::uniform(1 / std::sqrt(static_cast<double>(d)));
  const Init down = options_.init == MaeOptions::GateInit::zero
                        ? Init::constant(0)
                        : Init::uniform(1 / std::sqrt(static_cast<double>(hidden)));
  auto plain = [](const Init& init) { return nn::Traits{init, false, false}; };
  auto statistic = [&](double first) {
    nn::Traits traits = plain(Init::constant(first));
    traits.trainable = false;
    return traits;
  };
  norm_weight_ = &parameters.add(name + "norm.weight", {d}, plain(Init::constant(1)));
  norm_bias_ = &parameters.add(name + "norm.bias", {d}, plain(Init::constant(0)));
  mean_ = &parameters.add(name + "norm.mean", {d}, statistic(0));
  variance_ = &parameters.add(name + "norm.variance", {d}, statistic(1));
  nn::Traits product = plain(up);
  product.product = true;  // may use reduced precision; the last layer is small and stays fp32
  up_ = &parameters.add(name + "up.weight", {hidden, d}, product);
  up_bias_ = &parameters.add(name + "up.bias", {hidden}, plain(up));
  nn::Traits last = plain(down);
  // With drop = 1 expert i omits head i, so the expert's row of the weight moves with the head.
  if (options_.drop == 1) last.head_axes = {options_.heads.axis(0)};
  down_ = &parameters.add(name + "down.weight", {experts_, hidden}, last);
  down_bias_ = &parameters.add(name + "down.bias", {experts_}, last);
}

at::Tensor real_queries(const Context& c) {
  return within(query_lengths(c), c.query_input.size(1), c.query_input.device());
}

at::Tensor mean_over(const at::Tensor& x, const at::Tensor& real) {
  if (!real.defined()) return x.mean(1);
  at::Tensor weight = real.to(x.scalar_type()).unsqueeze(-1);
  return (x * weight).sum(1) / weight.sum(1).clamp_min(1);
}

bool ExpertGate::is_frozen(const nn::ForwardContext& step) const {
  return step.request<SampleExperts>() != nullptr || !norm_weight_->master().requires_grad();
}

at::Tensor ExpertGate::operator()(const Context& c) {
  const c10::AutoGradMode mode(c10::GradMode::is_enabled() && c.step.request<SampleExperts>() == nullptr);
  const at::Tensor real = real_queries(c);
  if (options_.mean == MaeOptions::Mean::causal) return gates_from_means(c, running_means(c, real), real);
  return gates_from_means(c, mean_over(c.query_input.to(at::kFloat), real), real.defined() ? real.any(1) : real);
}

// Returns the mean (B, Tq, d), fp32, of the layer inputs up to each query, at most of the last `window` positions. It
// includes inputs of a memory and of earlier decoding steps while the layer retains their keys. c.state stores the
// inputs of earlier steps, with a window only the last window - 1.
at::Tensor ExpertGate::running_means(const Context& c, const at::Tensor& real) const {
  const int64_t queries = c.query_input.size(1), window = options_.window;
  at::Tensor x = c.query_input.to(at::kFloat);
  at::Tensor one = real.defined() ? real.to(at::kFloat).unsqueeze(-1)
                                  : at::ones({x.size(0), queries, 1}, x.options());  // (B, n, 1): 1 if real, else 0
  if (real.defined()) x = x * one;
  const bool self = c.layer_spec.kind != AttentionKind::decoder_cross;
  if (const int64_t memory = c.key_input.size(1) - queries; self && memory > 0) {
    at::Tensor m = c.key_input.narrow(1, 0, memory).to(at::kFloat);
    at::Tensor there = within(c.mask.key_lengths, memory, x.device());
    at::Tensor ones =
        there.defined() ? there.to(at::kFloat).unsqueeze(-1) : at::ones({x.size(0), memory, 1}, x.options());
    x = at::cat({there.defined() ? m * ones : m, x}, 1);
    one = at::cat({ones, one}, 1);
  }
  if (c.state != nullptr) {
    at::Tensor &latest = (*c.state)["mae.latest"], &latest_real = (*c.state)["mae.latest_real"];
    if (latest.defined()) {
      // Inputs are dropped together with their keys.
      const int64_t there = latest.size(1), past = c.keys - queries;
      const int64_t kept = self ? std::min(there, past) : there;
      x = at::cat({latest.narrow(1, there - kept, kept), x}, 1);
      one = at::cat({latest_real.narrow(1, there - kept, kept), one}, 1);
    }
    const int64_t n = x.size(1), keep = window > 0 ? std::min(window - 1, n) : n;
    latest = x.detach().narrow(1, n - keep, keep);
    latest_real = one.narrow(1, n - keep, keep);
  }
  const at::Tensor sum = window_sums(x, window), count = window_sums(one, window);
  const int64_t front = sum.size(1) - queries;
  return sum.narrow(1, front, queries) / count.narrow(1, front, queries).clamp_min(1);
}

// Returns the batch norm of x (…, d), fp32. The statistics include the rows where `real` (…) is true, all rows if
// `real` is undefined. As in PyTorch, x is normalised with the biased variance, and the running statistics are updated
// with the unbiased variance. Each micro-batch is normalised separately.
at::Tensor ExpertGate::normalise(const nn::ForwardContext& step, const at::Tensor& x, const at::Tensor& real) {
  at::Tensor mean = mean_->master(), variance = variance_->master();
  if (step.training && (!is_frozen(step) || options_.norm_statistics == MaeOptions::Statistics::batch)) {
    at::Tensor rows = x.flatten(0, -2);
    if (real.defined()) rows = rows.index_select(0, real.flatten().nonzero().squeeze(1));
    if (const int64_t n = rows.size(0); n > 0) {
      mean = rows.mean(0);
      variance = (rows - mean).square().mean(0);
      if (!is_frozen(step)) {
        c10::NoGradGuard no_gradient;
        const double unbiased = static_cast<double>(n) / static_cast<double>(std::max<int64_t>(1, n - 1));
        mean_->master().mul_(1 - kNormMomentum).add_(mean, kNormMomentum);
        variance_->master().mul_(1 - kNormMomentum).add_(variance, kNormMomentum * unbiased);
      }
    }
  }
  return at::addcmul(norm_bias_->value(), x - mean, norm_weight_->value() * at::rsqrt(variance + kNormEpsilon));
}

// Returns the gates (…, E), fp32, for means x (…, d), fp32; rows sum to 1.
at::Tensor ExpertGate::gates_from_means(const Context& c, const at::Tensor& x, const at::Tensor& real) {
  at::Tensor in = normalise(c.step, x, real);
  at::Tensor inner = at::tanh(nn::linear(in, up_->value(), up_bias_->value()).to(at::kFloat));
  nn::ForwardContext step = c.step;
  step.training = step.training && !is_frozen(step);
  inner = nn::dropout(inner, options_.dropout, step, std::string(name_of(c.layer_spec.kind)) + ".gate",
                      static_cast<uint32_t>(c.layer_spec.layer));
  return at::softmax(nn::linear(inner, down_->value(), down_bias_->value()), -1);
}

}  // namespace mh::attention
