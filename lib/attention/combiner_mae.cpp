// Mixture of attentive experts (Peng et al. 2020, "A Mixture of h - 1 Heads is Better than h Heads"). With
// H_j = Z_j W^O_j what head j adds to the output, expert D leaves out the t heads of the set D,
//
//   f_D = h / (h - t) Σ_{j ∉ D} H_j,      y = Σ_D g_D f_D + b_O,      g = gate(x), Σ_D g_D = 1
//
// Exactly the same without a loop over experts: every head is scaled before the output projection,
//
//   y = Σ_j w_j H_j + b_O,      w_j = h / (h - t) (1 - Σ_{D ∋ j} g_D),      Σ_j w_j = h
//
//   gate(x) = softmax(W_down dropout(tanh(W_up norm(mean of x) + b_up)) + b_down),      norm: batch norm
//
// x are the vectors that queries are made of. Training alternates between two kinds of steps. A G step is the whole
// mixture; it trains the gate. An F step (Step::sample_experts) takes g as given, draws one expert D ~ g for each unit,
// and trains everything else: heads in D get no gradient from that unit, and the gate none at all.
//
// Where this departs from the paper: a decoder's mean is a running one (mean = "causal"), since one over the whole
// target would tell the gate of tokens to come. Padding is left out of means and of statistics.
#include <c10/core/GradMode.h>

#include <cmath>

#include "attention/experts.h"
#include "attention/stage.h"
#include "base/error.h"
#include "base/random.h"
#include "model/ops.h"

namespace mh::attention {
namespace {

constexpr int64_t kMostExperts = 10000;  // a gate with more outputs would be the largest part of its layer
constexpr double kNormEpsilon = 1e-5, kNormMomentum = 0.1;

enum class Gate { learned, uniform };
enum class Mean { causal, full };
enum class Unit { position, sequence };
enum class Statistics { running, batch };
enum class GateInit { usual, zero };

struct MaeOptions : OptionsOf<MaeOptions> {
  int64_t drop = 1;
  Gate gate = Gate::learned;
  int64_t hidden = 256;
  double dropout = 0.1;
  Mean mean = Mean::causal;
  int64_t window = 0;
  Unit sample_unit = Unit::position;
  Statistics norm_statistics = Statistics::running;
  GateInit init = GateInit::usual;

  void describe(Fields& f) override {
    f.field("drop", drop, "heads that each expert leaves out", at_least(1));
    f.choice("gate", gate, {{Gate::learned, "learned"}, {Gate::uniform, "uniform"}},
             "uniform: no gate, experts drawn evenly in training, plain attention else");
    f.field("hidden", hidden, "inner width of the gate", between(1, 1 << 16));
    f.field("dropout", dropout, "dropout inside the gate", between(0, 0.999));
    f.choice("mean", mean, {{Mean::causal, "causal"}, {Mean::full, "full"}},
             "what the gate sees: inputs up to each position, or an encoder's whole sequence");
    f.field("window", window, "causal mean: over so many of the latest inputs; 0: all", at_least(0));
    f.choice("sample_unit", sample_unit, {{Unit::position, "position"}, {Unit::sequence, "sequence"}},
             "causal mean: what an expert is drawn for; a full mean: the sequence");
    f.choice("norm_statistics", norm_statistics, {{Statistics::running, "running"}, {Statistics::batch, "batch"}},
             "of the gate's batch norm while experts are drawn");
    f.choice("init", init, {{GateInit::usual, "default"}, {GateInit::zero, "zero"}},
             "first values of the gate's last layer; zero: even gates");
  }
};

// x (B, n, c) -> (B, n, c): sums over the `window` latest of the n; 0: over all so far. Never takes back what it has
// added, so what is outside of a window leaves no trace, not even of rounding: a sum is that from the start of a block
// of `window`, and that to the end of the block before.
at::Tensor window_sums(const at::Tensor& x, int64_t window) {
  const int64_t rows = x.size(0), n = x.size(1), columns = x.size(2);
  const at::Tensor along = x.transpose(1, 2).contiguous();  // a third of the time of sums across rows of memory
  if (window == 0 || window >= n) return along.cumsum(2).transpose(1, 2).contiguous();
  const int64_t blocks = (n + window - 1) / window;
  at::Tensor in = at::constant_pad_nd(along, {0, blocks * window - n}).view({rows, columns, blocks, window});
  at::Tensor to_end = in.flip(3).cumsum(3).flip(3);
  at::Tensor earlier = at::constant_pad_nd(to_end.narrow(2, 0, blocks - 1).narrow(3, 1, window - 1), {0, 1, 1, 0});
  return (in.cumsum(3) + earlier).view({rows, columns, blocks * window}).narrow(2, 0, n).transpose(1, 2).contiguous();
}

// (B, n) bool: which of n positions come before the row's length. Undefined lengths: undefined, all do.
at::Tensor within(const at::Tensor& lengths, int64_t n, at::Device device) {
  if (!lengths.defined()) return {};
  return at::arange(n, at::TensorOptions().dtype(at::kLong).device(device)).unsqueeze(0) <
         lengths.to(device).unsqueeze(1);
}

class MixtureOfExperts : public Combiner {
 public:
  MixtureOfExperts(const MaeOptions& options, const Shape& shape)
      : options_(options), heads_(shape.heads), experts_(expert_count(shape.heads, options.drop)) {
    auto refuse = [&](const char* key, const std::string& expected, const std::string& found, const std::string& next) {
      throw Error(Exit::usage, Problem{str(shape.name, ", attention.mae.", key), expected, found, next});
    };
    if (options.drop >= heads_)
      refuse("drop", str("less than the ", heads_, " heads"), str(options.drop), "lower it, or raise attention.heads");
    if (experts_ > kMostExperts)
      refuse("drop", str("at most ", kMostExperts, " experts"), str(options.drop, " of ", heads_, " heads: more"),
             "lower it");
    if (options.mean == Mean::full && options.window > 0)
      refuse("window", "0 with mean = \"full\"", str(options.window), "the window is of the causal mean");
    const bool decodes = shape.kind != Kind::encoder_self;
    if (!places().causal && decodes)
      refuse("mean", "\"causal\", where queries are a decoder's", "\"full\": gates would see later tokens",
             str("set attention.", name_of(shape.kind), ".mae.mean"));
  }

  void add_parameters(model::ParameterList& parameters, const Shape& shape) override {
    if (options_.gate == Gate::uniform) return;
    const std::string name = shape.name + ".gate.";
    const int64_t d = shape.width, hidden = options_.hidden;
    using model::Init;
    const Init up = Init::uniform(1 / std::sqrt(static_cast<double>(d)));
    const Init down =
        options_.init == GateInit::zero ? Init::constant(0) : Init::uniform(1 / std::sqrt(static_cast<double>(hidden)));
    auto plain = [](const Init& init) { return model::Traits{init, false, false, std::nullopt, 0}; };
    auto statistic = [&](double first) {
      model::Traits traits = plain(Init::constant(first));
      traits.trainable = false;
      return traits;
    };
    norm_weight_ = &parameters.add(name + "norm.weight", {d}, plain(Init::constant(1)));
    norm_bias_ = &parameters.add(name + "norm.bias", {d}, plain(Init::constant(0)));
    mean_ = &parameters.add(name + "norm.mean", {d}, statistic(0));
    variance_ = &parameters.add(name + "norm.variance", {d}, statistic(1));
    model::Traits product = plain(up);
    product.product = true;  // the last layer is small, and its sums stay fp32
    up_ = &parameters.add(name + "up.weight", {hidden, d}, product);
    up_bias_ = &parameters.add(name + "up.bias", {hidden}, plain(up));
    model::Traits last = plain(down);
    // Expert i leaves out head i, so where a head goes its expert goes.
    if (options_.drop == 1) last.head_axis = 0, last.heads = heads_;
    down_ = &parameters.add(name + "down.weight", {experts_, hidden}, last);
    down_bias_ = &parameters.add(name + "down.bias", {experts_}, last);
  }

  Places places() const override {
    Places p;
    if (options_.gate == Gate::learned && options_.mean == Mean::full) p.causal = p.cross = p.incremental = false;
    return p;
  }

  std::string unfused_because() const override { return ""; }  // it begins where the fused path ends

  at::Tensor combine(const Context& c, const at::Tensor& z) override {
    const at::Tensor w = options_.gate == Gate::learned ? learned(c) : uniform(c);
    at::Tensor joined = z.transpose(1, 2);  // (B, Tq, h, dv)
    if (w.defined()) joined = joined * (w.dim() == 2 ? w.unsqueeze(1) : w).unsqueeze(-1).to(z.scalar_type());
    return joined.reshape({z.size(0), z.size(2), z.size(1) * z.size(3)});
  }

 private:
  // Each gives what scales the heads: (B, h) or (B, Tq, h); undefined where that is 1 throughout.
  at::Tensor learned(const Context& c) {
    // An F step takes the gates as they are.
    const c10::AutoGradMode mode(c10::GradMode::is_enabled() && !c.step.sample_experts);
    const at::Tensor lengths = query_lengths(c);
    at::Tensor real = within(lengths, c.query_input.size(1), c.query_input.device());
    at::Tensor g;
    if (options_.mean == Mean::causal) {
      g = gate(c, running_means(c, real), real);
    } else {
      g = gate(c, average(c.query_input.to(at::kFloat), real), real.defined() ? real.any(1) : real);
    }
    if (c.observer != nullptr) c.observer->gates(c.shape, g);
    if (c.step.sample_experts) {
      // A sequence of many gates draws from their mean.
      if (g.dim() == 3 && options_.sample_unit == Unit::sequence) g = average(g, real);
      return scale_of_drawn(draw(c, g.dim() == 3, g));
    }
    return scale() * (1 - at::matmul(g, drops(g.device())));
  }

  at::Tensor uniform(const Context& c) {
    const int64_t rows = c.query_input.size(0);
    if (c.observer != nullptr)
      c.observer->gates(c.shape, at::full({rows, experts_}, 1 / static_cast<double>(experts_),
                                          c.query_input.options().dtype(at::kFloat)));
    // Even gates scale every head by 1: the mixture is plain attention.
    if (!c.step.training) return {};
    return scale_of_drawn(draw(c, options_.mean == Mean::causal && options_.sample_unit == Unit::position, {}));
  }

  double scale() const { return static_cast<double>(heads_) / static_cast<double>(heads_ - options_.drop); }

  // (E, h): 1 where the expert leaves out the head.
  const at::Tensor& drops(at::Device device) {
    if (drops_.defined() && drops_.device() == device) return drops_;
    at::Tensor made = at::zeros({experts_, heads_}, at::kFloat);
    auto* row = made.mutable_data_ptr<float>();
    for (const auto& expert : experts(heads_, options_.drop)) {
      for (int64_t head : expert) row[head] = 1;
      row += heads_;
    }
    return drops_ = made.to(device);
  }

  // (B) or (B, Tq) experts -> (B, h) or (B, Tq, h)
  at::Tensor scale_of_drawn(const at::Tensor& drawn) {
    auto sizes = drawn.sizes().vec();
    sizes.push_back(heads_);
    return (scale() * (1 - drops(drawn.device()).index_select(0, drawn.flatten()))).view(sizes);
  }

  // (B) or (B, Tq) int64: an expert for each row or position, from gates (B, E) or (B, Tq, E), or evenly without. A
  // unit draws by its place in the update's whole batch; places of positions do not depend on how far rows are padded.
  at::Tensor draw(const Context& c, bool by_position, const at::Tensor& g) const {
    const int64_t rows = c.query_input.size(0), units = by_position ? c.query_input.size(1) : 1;
    const RandomStream stream(c.step.seed, std::string(name_of(c.shape.kind)) + ".experts");
    at::Tensor u = at::empty({rows, units}, at::kFloat);
    auto* out = u.mutable_data_ptr<float>();
    for (int64_t b = 0; b < rows; ++b)
      for (int64_t t = 0; t < units; ++t)
        *out++ = stream.uniform(c.step.update, static_cast<uint32_t>(c.shape.layer),
                                static_cast<uint64_t>(c.step.row_offset + b) << 32 | static_cast<uint64_t>(t));
    if (!by_position) u = u.squeeze(1);
    u = u.to(c.query_input.device());
    if (!g.defined()) return (u.to(at::kDouble) * static_cast<double>(experts_)).to(at::kLong);
    return (g.cumsum(-1) <= u.unsqueeze(-1)).sum(-1).clamp_max(experts_ - 1);
  }

  // (B) int64, or undefined: how many of the queries are real.
  at::Tensor query_lengths(const Context& c) const {
    if (c.mask.query_lengths.defined()) return c.mask.query_lengths;
    if (c.shape.kind == Kind::decoder_cross || !c.mask.key_lengths.defined()) return {};
    return c.mask.key_lengths - (c.v.size(2) - c.query_input.size(1));  // the queries are the last keys
  }

  // x (B, T, c) and real (B, T) or undefined -> (B, c), the mean over real positions; 0 where there is none.
  static at::Tensor average(const at::Tensor& x, const at::Tensor& real) {
    if (!real.defined()) return x.mean(1);
    at::Tensor weight = real.to(x.scalar_type()).unsqueeze(-1);
    return (x * weight).sum(1) / weight.sum(1).clamp_min(1);
  }

  // (B, Tq, d) fp32: at each position the mean of the inputs up to it, of the latest `window` at most. Inputs of a
  // memory in front count, and so do those of earlier steps of decoding: of these c.state keeps their sum and number,
  // or with a window the latest themselves.
  at::Tensor running_means(const Context& c, const at::Tensor& real) const {
    const int64_t queries = c.query_input.size(1), window = options_.window;
    at::Tensor x = c.query_input.to(at::kFloat);
    at::Tensor one = real.defined() ? real.to(at::kFloat).unsqueeze(-1)
                                    : at::ones({x.size(0), queries, 1}, x.options());  // (B, n, 1): 1 where real
    if (real.defined()) x = x * one;
    const bool self = c.shape.kind != Kind::decoder_cross;
    if (const int64_t memory = c.key_input.size(1) - queries; self && memory > 0) {
      at::Tensor m = c.key_input.narrow(1, 0, memory).to(at::kFloat);
      at::Tensor there = within(c.mask.key_lengths, memory, x.device());
      at::Tensor ones =
          there.defined() ? there.to(at::kFloat).unsqueeze(-1) : at::ones({x.size(0), memory, 1}, x.options());
      x = at::cat({there.defined() ? m * ones : m, x}, 1);
      one = at::cat({ones, one}, 1);
    }
    if (window > 0 && c.state != nullptr) {
      at::Tensor &latest = (*c.state)["mae.latest"], &latest_real = (*c.state)["mae.latest_real"];
      if (latest.defined()) {
        // What the layer has forgotten is forgotten here too.
        const int64_t there = latest.size(1), past = c.v.size(2) - queries;
        const int64_t kept = self ? std::min(there, past) : there;
        x = at::cat({latest.narrow(1, there - kept, kept), x}, 1);
        one = at::cat({latest_real.narrow(1, there - kept, kept), one}, 1);
      }
      const int64_t n = x.size(1), keep = std::min(window - 1, n);
      latest = x.detach().narrow(1, n - keep, keep);
      latest_real = one.narrow(1, n - keep, keep);
    }
    at::Tensor sum = window_sums(x, window), count = window_sums(one, window);
    if (window == 0 && c.state != nullptr) {
      at::Tensor &past = (*c.state)["mae.sum"], &past_count = (*c.state)["mae.count"];
      if (past.defined()) sum = sum + past, count = count + past_count;
      past = sum.detach().narrow(1, sum.size(1) - 1, 1);
      past_count = count.narrow(1, count.size(1) - 1, 1);
    }
    const int64_t front = sum.size(1) - queries;
    return sum.narrow(1, front, queries) / count.narrow(1, front, queries).clamp_min(1);
  }

  // x (…, d) fp32 and real (…) or undefined -> (…, d). Batch norm over the real ones, as torch's: a biased variance
  // normalises, an unbiased one is remembered. It sees a micro-batch at a time.
  at::Tensor normalise(const Step& step, const at::Tensor& x, const at::Tensor& real) {
    at::Tensor mean = mean_->master(), variance = variance_->master();
    if (step.training && (!step.sample_experts || options_.norm_statistics == Statistics::batch)) {
      at::Tensor rows = x.flatten(0, -2);
      if (real.defined()) rows = rows.index_select(0, real.flatten().nonzero().squeeze(1));
      if (const int64_t n = rows.size(0); n > 0) {
        mean = rows.mean(0);
        variance = (rows - mean).square().mean(0);
        if (!step.sample_experts) {
          c10::NoGradGuard no_gradient;
          const double unbiased = static_cast<double>(n) / static_cast<double>(std::max<int64_t>(1, n - 1));
          mean_->master().mul_(1 - kNormMomentum).add_(mean, kNormMomentum);
          variance_->master().mul_(1 - kNormMomentum).add_(variance, kNormMomentum * unbiased);
        }
      }
    }
    return at::addcmul(norm_bias_->value(), x - mean, norm_weight_->value() * at::rsqrt(variance + kNormEpsilon));
  }

  // x (…, d) fp32 -> (…, E) fp32, rows sum to 1
  at::Tensor gate(const Context& c, const at::Tensor& x, const at::Tensor& real) {
    at::Tensor in = normalise(c.step, x, real);
    at::Tensor inner = at::tanh(model::linear(in, up_->value(), up_bias_->value()).to(at::kFloat));
    Step step = c.step;
    step.training = step.training && !step.sample_experts;
    inner = model::dropout(inner, options_.dropout, step, std::string(name_of(c.shape.kind)) + ".gate",
                           static_cast<uint32_t>(c.shape.layer));
    return at::softmax(model::linear(inner, down_->value(), down_bias_->value()), -1);
  }

  MaeOptions options_;
  int64_t heads_, experts_;
  at::Tensor drops_;
  model::Parameter *norm_weight_ = nullptr, *norm_bias_ = nullptr, *mean_ = nullptr, *variance_ = nullptr;
  model::Parameter *up_ = nullptr, *up_bias_ = nullptr, *down_ = nullptr, *down_bias_ = nullptr;
};

const Optioned<Combiner, MixtureOfExperts, MaeOptions> entry(combiners(), "mae",
                                                             "a gated mixture of experts that each leave out heads");

}  // namespace
}  // namespace mh::attention
