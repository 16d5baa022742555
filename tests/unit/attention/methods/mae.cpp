// The mixture of attentive experts (MAE) against explicit sums over experts in double precision; identities of MAE with
// multi-head attention; sampling of experts; decoding, memories and padding; block coordinate descent, whose G passes
// train the gate on the whole mixture and whose F passes sample one expert.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <memory>
#include <set>

#include "attention/gated_combiner.h"
#include "attention/methods/mae/experts.h"
#include "attention/methods/mae/sample_experts.h"
#include "fixtures/every_model.h"
#include "fixtures/gradients.h"
#include "fixtures/pick.h"
#include "fixtures/processes.h"
#include "fixtures/runs.h"
#include "train/procedure.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using layers::causal_mask;
using layers::LayerRounding;
using layers::rounding_of;
using numbers::doubles;
using numbers::normal;
using reference::Sizes;
using reference::Vector;

namespace {

// A layer of one kind of attention, configured by lines of [attention].
struct Layer : layers::Layer {
  explicit Layer(const std::string& toml, int64_t width, AttentionKind kind = AttentionKind::decoder_self,
                 uint64_t seed = 3)
      : layers::Layer(toml, width, seed, kind) {}
  bool has(const std::string& name) { return parameters.find("x." + name) != nullptr; }
  // Randomises the statistics and parameters of the batch norm and the last projection of the gate, so that gates are
  // far from uniform.
  void randomise_gate(uint64_t seed) {
    const int64_t d = (*this)["gate.norm.mean"].size(0);
    set("gate.norm.mean", normal({d}, seed) * 0.3);
    set("gate.norm.variance", normal({d}, seed + 1).abs() + 0.2);
    set("gate.norm.weight", normal({d}, seed + 2) + 1);
    set("gate.norm.bias", normal({d}, seed + 3) * 0.3);
    set("gate.down.weight", normal((*this)["gate.down.weight"].sizes().vec(), seed + 4) * 2);
  }
  at::Tensor forward(const at::Tensor& x, const Mask& mask, const ForwardContext& forward_context = {},
                     Observer* observer = nullptr, Cache* cache = nullptr) {
    return layer->forward(x, x, mask, forward_context, cache, observer);
  }
};

struct RecordingObserver : Observer, Subscriber<GateObservation> {
  at::Tensor g;
  bool retains_gradient = false;
  void receive(const LayerSpec&, GateObservation& observation) override {
    g = observation.gates;
    if (retains_gradient) g.retain_grad();
  }
};

at::Tensor gates_of(Layer& l, const at::Tensor& x, const Mask& mask, const ForwardContext& forward_context = {}) {
  RecordingObserver recorder;
  l.forward(x, mask, forward_context, &recorder);
  return recorder.g;
}

ForwardContext training_context(uint32_t update = 0, bool samples_experts = false, int64_t row_offset = 0) {
  static const Requests sample_requests = [] {
    Requests requests;
    requests.add(std::make_shared<SampleExpertsRequest>());
    return requests;
  }();
  return {true, 7, update, row_offset, nn::DropoutIndex::position, samples_experts ? &sample_requests : nullptr};
}

// Returns all sets of `num_dropped` dropped heads out of `heads` in lexicographic order, each as one flag per head.
// omitted_heads_by_expert() has another algorithm.
std::vector<std::vector<bool>> dropped_sets(int64_t heads, int64_t num_dropped) {
  std::vector<bool> is_dropped(static_cast<size_t>(heads));
  std::fill(is_dropped.begin(), is_dropped.begin() + num_dropped, true);
  std::vector<std::vector<bool>> all;
  do all.push_back(is_dropped);
  while (std::prev_permutation(is_dropped.begin(), is_dropped.end()));
  return all;
}

// The mixture of attentive experts in naive loops, written from the equations of the paper.
struct Reference {
  Sizes sizes;
  int64_t num_dropped = 1;         // number of dropped heads of an expert
  int64_t hidden = 0, window = 0;  // hidden units of the gate; positions in the mean of its input, 0: all
  bool has_causal_mean = true;
  bool uses_batch_statistics = false;
  bool is_cross = false;
  std::vector<int64_t> num_real;  // (B): number of real queries of each row
  reference::MayAttend may_attend;

  // Returns the gates (B, num_units, E) for inputs x (B, Tq, d) and m (B, Tk, d); num_units: Tq, or 1 for a full mean.
  // If `norm_variance` is not null, sets it to the variances (d) of the batch norm.
  Vector gates(const Vector& x, const Vector& m, const reference::Weights& w, Vector* norm_variance = nullptr) const {
    const int64_t d = sizes.width, num_units = has_causal_mean ? sizes.queries : 1,
                  memory = is_cross ? 0 : sizes.keys - sizes.queries;
    auto input = [&](int64_t b, int64_t t, int64_t c) {  // t < 0: position in the memory
      return t < 0 ? m[static_cast<size_t>((b * sizes.keys + memory + t) * d + c)]
                   : x[static_cast<size_t>((b * sizes.queries + t) * d + c)];
    };
    Vector mean(static_cast<size_t>(sizes.batch * num_units * d));
    std::vector<bool> is_real(static_cast<size_t>(sizes.batch * num_units));
    for (int64_t b = 0; b < sizes.batch; ++b)
      for (int64_t u = 0; u < num_units; ++u) {
        const int64_t length = num_real[static_cast<size_t>(b)];
        is_real[static_cast<size_t>(b * num_units + u)] = has_causal_mean ? u < length : length > 0;
        const int64_t last = has_causal_mean ? std::min(u, length - 1) : length - 1;
        int64_t first = has_causal_mean ? -memory : 0;
        if (has_causal_mean && window > 0) first = std::max(first, u - window + 1);
        for (int64_t c = 0; c < d; ++c) {
          double sum = 0;
          for (int64_t t = first; t <= last; ++t) sum += input(b, t, c);
          mean[static_cast<size_t>((b * num_units + u) * d + c)] =
              sum / static_cast<double>(std::max<int64_t>(1, last - first + 1));
        }
      }
    const Vector &gamma = w.at("gate.norm.weight"), &beta = w.at("gate.norm.bias");
    Vector mu = w.at("gate.norm.mean"), variance = w.at("gate.norm.variance");
    if (uses_batch_statistics)
      for (int64_t c = 0; c < d; ++c) {
        double n = 0, sum = 0, squares = 0;
        for (size_t r = 0; r < is_real.size(); ++r)
          if (is_real[r]) n += 1, sum += mean[r * static_cast<size_t>(d) + static_cast<size_t>(c)];
        if (n == 0) continue;
        for (size_t r = 0; r < is_real.size(); ++r)
          if (is_real[r]) squares += std::pow(mean[r * static_cast<size_t>(d) + static_cast<size_t>(c)] - sum / n, 2);
        mu[static_cast<size_t>(c)] = sum / n;
        variance[static_cast<size_t>(c)] = squares / n;
      }
    if (norm_variance != nullptr) *norm_variance = variance;
    const auto all_sets = dropped_sets(sizes.heads, num_dropped);
    Vector g;
    for (int64_t r = 0; r < sizes.batch * num_units; ++r) {
      Vector inner(static_cast<size_t>(hidden)), out(all_sets.size());
      for (int64_t o = 0; o < hidden; ++o) {
        double sum = w.at("gate.up.bias")[static_cast<size_t>(o)];
        for (int64_t c = 0; c < d; ++c) {
          const auto k = static_cast<size_t>(c);
          const double normed =
              (mean[static_cast<size_t>(r * d + c)] - mu[k]) / std::sqrt(variance[k] + 1e-5) * gamma[k] + beta[k];
          sum += w.at("gate.up.weight")[static_cast<size_t>(o * d + c)] * normed;
        }
        inner[static_cast<size_t>(o)] = std::tanh(sum);
      }
      double total = 0;
      for (size_t e = 0; e < all_sets.size(); ++e) {
        double sum = w.at("gate.down.bias")[e];
        for (size_t o = 0; o < inner.size(); ++o) sum += w.at("gate.down.weight")[e * inner.size() + o] * inner[o];
        total += out[e] = std::exp(sum);
      }
      for (double v : out) g.push_back(v / total);
    }
    return g;
  }

  // Returns Σ_D g_D h / (h - t) Σ_{j ∉ D} H_j + b_O (B, Tq, d), over the sets D of t = num_dropped heads, for the
  // contributions H_j of the heads. If `norm_variance` is not null, sets it to the variances (d) of the batch norm.
  Vector mixture(const Vector& x, const Vector& m, const reference::Weights& w, Vector* norm_variance = nullptr) const {
    std::vector<Vector> head_outputs;
    for (int64_t j = 0; j < sizes.heads; ++j)
      head_outputs.push_back(reference::head_output(sizes, j, x, m, w, may_attend));
    const Vector g = gates(x, m, w, norm_variance);
    const auto all_sets = dropped_sets(sizes.heads, num_dropped);
    const double scale = static_cast<double>(sizes.heads) / static_cast<double>(sizes.heads - num_dropped);
    Vector y(x.size());
    for (int64_t b = 0; b < sizes.batch; ++b)
      for (int64_t t = 0; t < sizes.queries; ++t)
        for (int64_t o = 0; o < sizes.width; ++o) {
          const auto index = static_cast<size_t>((b * sizes.queries + t) * sizes.width + o);
          const auto unit = static_cast<size_t>(has_causal_mean ? b * sizes.queries + t : b);
          auto bias = w.find("output.bias");
          y[index] = bias == w.end() ? 0 : bias->second[static_cast<size_t>(o)];
          for (size_t e = 0; e < all_sets.size(); ++e) {
            double expert_output = 0;
            for (size_t j = 0; j < head_outputs.size(); ++j)
              if (!all_sets[e][j]) expert_output += head_outputs[j][index];
            y[index] += g[unit * all_sets.size() + e] * scale * expert_output;
          }
        }
    return y;
  }
};

std::string config_of(const Reference& oracle, const std::string& extra_lines = "") {
  return str("heads = ", oracle.sizes.heads, "\nhead_size = ", oracle.sizes.key_size,
             "\nvalue_size = ", oracle.sizes.value_size, "\ncombiner = 'mae'\nmae.omitted_heads = ", oracle.num_dropped,
             "\nmae.hidden = ", oracle.hidden, "\nmae.window = ", oracle.window, "\nmae.mean = '",
             oracle.has_causal_mean ? "causal" : "full", "'\nmae.dropout = 0\n", extra_lines);
}

// Returns the length of the chain of roundings in the gates: a term per token in the mean, d and `hidden` terms in the
// products, a term per expert in the sum of the softmax.
int64_t num_gate_roundings(Layer& l, int64_t num_tokens) {
  const at::Tensor& down = l["gate.down.weight"];  // (E, hidden)
  return num_tokens + l["gate.up.weight"].size(1) + down.size(1) + down.size(0) + layers::kElementwiseRoundings;
}

// Returns whether gates (…, E) agree. An error ε of the logits changes a gate by at most ε / 2; the logits are known,
// up to a constant, from the logarithms of the gates.
bool gates_agree(Layer& l, const at::Tensor& a, const at::Tensor& b, int64_t num_tokens) {
  const double logit = numbers::max_abs(b.clamp_min(std::numeric_limits<float>::min()).log());
  return rounding::agree(a, b, num_gate_roundings(l, num_tokens), std::max(1.0, logit / 2));
}

// Returns an estimate of the largest gate logit for inputs up to `input_size`: the largest output of a batch norm with
// the variances `variance` (d), times the largest row norms of the two projections of the gate.
double gate_logit_size(Layer& l, double input_size, const Vector& variance) {
  const Vector gamma = doubles(l["gate.norm.weight"]);
  double normed = 0;
  for (size_t c = 0; c < variance.size(); ++c)
    normed = std::max(normed, std::abs(gamma[c]) * input_size / std::sqrt(variance[c] + 1e-5));
  for (const char* name : {"gate.up.weight", "gate.down.weight"})
    normed *= std::sqrt(numbers::max_abs(l[name].square().sum(1)));
  return normed;
}

// Returns the bounds for a mixture of attentive experts, including the roundings and the gain of the gates.
// `norm_variance`: variances (d) of the batch norm. Batch statistics of nearly equal means divide by a small variance,
// which amplifies the rounding error of the gates. An error ε of the gate logits changes a gate by at most ε / 2.
LayerRounding mae_rounding_of(Layer& l, const at::Tensor& x, const at::Tensor& m, const Mask& mask,
                              const Vector& norm_variance) {
  const double input_size = std::max({numbers::max_abs(x), numbers::max_abs(m), numbers::max_abs(l["gate.norm.mean"])});
  LayerRounding rounding = rounding_of(l, x, m, mask);
  rounding.num_roundings += num_gate_roundings(l, m.size(1));
  rounding.gain += gate_logit_size(l, input_size, norm_variance) / 2;
  return rounding;
}

// A layer whose output (B, Tq, h) is the head weights w: values are 1 and the output projection is the identity.
struct HeadWeightLayer : Layer {
  HeadWeightLayer(int64_t heads, const std::string& extra_lines, AttentionKind kind = AttentionKind::decoder_self)
      : Layer(str("heads = ", heads, "\nhead_size = 1\ncombiner = 'mae'\n", extra_lines), heads, kind) {
    set("value.weight", at::zeros({heads, heads}));
    set("value.bias", at::ones({heads}));
    set("output.weight", at::eye(heads));
  }
  // Returns whether head weights agree; `num_tokens`: number of keys.
  bool agree(const at::Tensor& a, const at::Tensor& b, int64_t num_tokens) const {
    return rounding::agree(a, b, layers::num_roundings(layer->layer_spec(), num_tokens));
  }
};

}  // namespace

TEST_CASE(
    "omitted_heads_by_expert() lists all sets of dropped heads in lexicographic order, and expert_count() counts the "
    "sets",
    "[mae]") {
  CHECK(omitted_heads_by_expert(4, 2) ==
        std::vector<std::vector<int64_t>>{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}});
  for (int64_t heads = 1; heads < 9; ++heads)
    for (int64_t drop = 0; drop <= heads; ++drop) {
      const auto omitted_heads = omitted_heads_by_expert(heads, drop);
      const auto expected = dropped_sets(heads, drop);
      REQUIRE(omitted_heads.size() == expected.size());
      CHECK(expert_count(heads, drop) == static_cast<int64_t>(omitted_heads.size()));
      for (size_t e = 0; e < omitted_heads.size(); ++e) {
        std::vector<bool> is_dropped(static_cast<size_t>(heads));
        for (int64_t head : omitted_heads[e]) is_dropped[static_cast<size_t>(head)] = true;
        CHECK(is_dropped == expected[e]);
      }
    }
  CHECK(expert_count(8, 2) == 28);
  CHECK(expert_count(64, 32) > 1000000000);
  CHECK(expert_count(65536, 30000) > 1000000000);
  CHECK(omitted_heads_by_expert(3, 4).empty());
}

TEST_CASE("the MAE gate adds 2 d + (d + 1) hidden + (hidden + 1) E parameters; uniform sampling adds none", "[mae]") {
  auto num_added_parameters = [](int64_t width, const std::string& extra_lines) {
    auto count = [&](const std::string& toml) { return Layer(toml, width).parameters.num_trainable_elements(); };
    return count("heads = 8\ncombiner = 'mae'\n" + extra_lines) - count("heads = 8\n");
  };
  CHECK(num_added_parameters(512, "") == 134408);
  CHECK(18 * num_added_parameters(512, "") == 2419344);
  CHECK(18 * num_added_parameters(512, "mae.omitted_heads = 2\n") == 2511864);
  CHECK(num_added_parameters(1024, "") == 2 * 1024 + 1024 * 256 + 256 + 256 * 8 + 8);
  CHECK(num_added_parameters(512, "mae.gate = 'uniform'\n") == 0);
}

TEST_CASE("MAE equals the explicit sum over experts over random shapes and masks", "[mae]") {
  CHECK(rc::check([] {
    const auto random_bool = [] { return *rc::gen::arbitrary<bool>(); };
    Reference oracle;
    const int64_t setting = pick(0, 3);  // 0: encoder; 1: decoder; 2: decoder with a memory; 3: cross-attention
    const AttentionKind kind = setting == 0   ? AttentionKind::encoder_self
                               : setting == 3 ? AttentionKind::decoder_cross
                                              : AttentionKind::decoder_self;
    oracle.sizes = {pick(1, 3), pick(1, 7), 0, pick(1, 6), pick(2, 5), pick(1, 3), pick(1, 3)};
    oracle.sizes.keys = setting == 2   ? oracle.sizes.queries + pick(1, 4)
                        : setting == 3 ? pick(1, 6)
                                       : oracle.sizes.queries;
    oracle.num_dropped = pick(1, oracle.sizes.heads - 1);
    oracle.hidden = pick(1, 5);
    oracle.has_causal_mean = setting != 0 || random_bool();
    oracle.window = oracle.has_causal_mean && random_bool() ? pick(1, 8) : 0;
    oracle.uses_batch_statistics = random_bool();
    oracle.is_cross = setting == 3;
    const bool has_bias = random_bool(), is_padded = random_bool(),
               has_query_lengths = is_padded && (oracle.is_cross || random_bool());
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    Layer l(config_of(oracle, has_bias ? "" : "bias = false\n"), oracle.sizes.width, kind, seed);
    l.randomise_gate(seed);

    Mask mask;
    mask.causal = setting == 1 || setting == 2;
    mask.offset = setting == 2 ? oracle.sizes.keys - oracle.sizes.queries : 0;
    std::vector<int64_t> key_lengths;
    for (int64_t b = 0; b < oracle.sizes.batch; ++b) {
      oracle.num_real.push_back(is_padded ? pick(0, oracle.sizes.queries) : oracle.sizes.queries);
      key_lengths.push_back(oracle.is_cross ? oracle.sizes.keys
                                            : oracle.num_real.back() + oracle.sizes.keys - oracle.sizes.queries);
    }
    if (is_padded && !oracle.is_cross) mask.key_lengths = at::tensor(key_lengths, at::kLong);
    if (has_query_lengths) mask.query_lengths = at::tensor(oracle.num_real, at::kLong);
    oracle.may_attend = [&](int64_t b, int64_t t, int64_t s) {
      return (!mask.causal || s <= t + mask.offset) && s < key_lengths[static_cast<size_t>(b)];
    };
    at::Tensor m = normal({oracle.sizes.batch, oracle.sizes.keys, oracle.sizes.width}, seed + 9);
    at::Tensor x = oracle.is_cross ? normal({oracle.sizes.batch, oracle.sizes.queries, oracle.sizes.width}, seed + 8)
                   : setting == 2  ? m.narrow(1, oracle.sizes.keys - oracle.sizes.queries, oracle.sizes.queries)
                                   : m;
    Vector norm_variance;
    const Vector expected = oracle.mixture(doubles(x), doubles(m), l.weights(), &norm_variance);
    const LayerRounding rounding = mae_rounding_of(l, x, m, mask, norm_variance);
    const double scale = static_cast<double>(oracle.sizes.heads) /
                         static_cast<double>(oracle.sizes.heads - oracle.num_dropped),
                 bound = tolerance::chain_error_bound(rounding.num_roundings, tolerance::kFp32,
                                                      scale * rounding.gain * rounding.magnitude);
    const auto mean = l["gate.norm.mean"].clone(), variance = l["gate.norm.variance"].clone();
    for (Path path : {Path::composed, Path::automatic}) {
      l.set("gate.norm.mean", mean);
      l.set("gate.norm.variance", variance);
      l.layer->set_path(path);
      const Vector actual =
          doubles(l.layer->forward(x, m, mask, oracle.uses_batch_statistics ? training_context() : ForwardContext{}));
      for (int64_t b = 0; b < oracle.sizes.batch; ++b)
        for (int64_t i = 0; i < oracle.num_real[static_cast<size_t>(b)] * oracle.sizes.width; ++i) {
          const auto index = static_cast<size_t>(b * oracle.sizes.queries * oracle.sizes.width + i);
          RC_ASSERT(std::abs(actual[index] - expected[index]) <= bound);
        }
    }
  }));
}

TEST_CASE("gradients of MAE equal finite differences of the sum over experts", "[mae]") {
  for (auto [drop, causal, is_cross] :
       {std::tuple{1, true, false}, {2, true, false}, {1, false, false}, {2, true, true}}) {
    Reference oracle;
    oracle.sizes = {3, 4, is_cross ? 5 : 4, 4, 3, 2, 2};
    oracle.num_dropped = drop, oracle.hidden = 3, oracle.has_causal_mean = causal, oracle.window = drop == 2 ? 2 : 0;
    oracle.uses_batch_statistics = true;
    oracle.is_cross = is_cross;
    oracle.num_real = {4, 2, 3};
    oracle.may_attend = [&](int64_t b, int64_t t, int64_t s) {
      return is_cross || ((!causal || s <= t) && s < oracle.num_real[static_cast<size_t>(b)]);
    };
    Layer l(config_of(oracle), oracle.sizes.width,
            is_cross ? AttentionKind::decoder_cross
            : causal ? AttentionKind::decoder_self
                     : AttentionKind::encoder_self,
            5);
    l.randomise_gate(6);
    Mask mask;
    mask.causal = causal && !is_cross;
    if (is_cross) mask.query_lengths = at::tensor(oracle.num_real, at::kLong);
    else mask.key_lengths = at::tensor(oracle.num_real, at::kLong);
    at::Tensor x = normal({3, 4, 4}, 7).requires_grad_(), m = is_cross ? normal({3, 5, 4}, 8) : x;
    at::Tensor r = normal({3, 4, 4}, 9);  // gradient of the loss with respect to the output; 0 at padding
    for (int64_t b = 0; b < 3; ++b)
      r[b].narrow(0, oracle.num_real[static_cast<size_t>(b)], 4 - oracle.num_real[static_cast<size_t>(b)]).zero_();
    const Vector rd = doubles(r);
    auto loss = [&](const Vector& xs, const reference::Weights& w) {
      const Vector y = oracle.mixture(xs, is_cross ? doubles(m) : xs, w);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * rd[i];
      return sum;
    };
    (l.layer->forward(x, m, mask, training_context()) * r).sum().backward();
    const auto weights = l.weights();
    Vector norm_variance;
    oracle.gates(doubles(x), doubles(m), weights, &norm_variance);
    const LayerRounding rounding = mae_rounding_of(l, x, m, mask, norm_variance);
    const double bound = rounding.gradient_bound(layers::largest_gradient(l, {x}));
    auto compare = [&](const at::Tensor& gradient, const std::function<double(size_t, double)>& shifted_loss) {
      layers::check_slopes(gradient, static_cast<size_t>(gradient.numel()), bound, rounding.num_roundings + r.numel(),
                           shifted_loss);
    };
    for (auto& p : l.parameters.all()) {
      if (!p.traits().trainable) {
        CHECK(!p.master().requires_grad());
        continue;
      }
      INFO(p.name());
      compare(p.master().grad(), [&](size_t i, double step) {
        auto w = weights;
        w[p.name().substr(2)][i] += step;
        return loss(doubles(x), w);
      });
    }
    compare(x.grad(), [&](size_t i, double step) {
      Vector xs = doubles(x);
      xs[i] += step;
      return loss(xs, weights);
    });
  }
}

TEST_CASE("MAE with uniform gates equals multi-head attention for any number of dropped heads", "[mae]") {
  Layer plain_layer("heads = 4\n", 12);
  at::Tensor x = normal({2, 6, 12}, 1), expected = plain_layer.forward(x, causal_mask());
  for (int drop : {1, 2, 3}) {
    Layer l(str("heads = 4\ncombiner = 'mae'\nmae.init = 'zero'\nmae.omitted_heads = ", drop), 12);
    at::Tensor g = gates_of(l, x, causal_mask());
    CHECK(g.sizes() == at::IntArrayRef({2, 6, expert_count(4, drop)}));
    const LayerRounding rounding = rounding_of(l, x, x, causal_mask());
    CHECK(rounding.agree(l.forward(x, causal_mask()), expected));
    CHECK(rounding.agree(l.forward(x, causal_mask(), training_context()), expected));
  }
  // The entropy of uniform gates in nats is log E.
  for (auto [drop, num_experts] : {std::pair{1, 8}, {2, 28}}) {
    Layer l(str("heads = 8\ncombiner = 'mae'\nmae.init = 'zero'\nmae.omitted_heads = ", drop), 16);
    const at::Tensor g = gates_of(l, normal({1, 3, 16}, 1), causal_mask()), entropy = -(g * g.log()).sum(-1);
    CHECK(
        rounding::agree(entropy, at::full({1, 3}, std::log(num_experts)), num_experts + layers::kElementwiseRoundings));
  }
}

TEST_CASE("an MAE gate of 1 for one expert scales the heads of the expert by h / (h - t) and drops the others",
          "[mae]") {
  Layer plain_layer("heads = 4\n", 12);
  at::Tensor x = normal({2, 6, 12}, 1);
  const LayerRounding rounding = rounding_of(plain_layer, x, x, causal_mask());
  for (int64_t drop : {1, 2}) {
    const auto omitted_heads = omitted_heads_by_expert(4, drop);
    for (size_t e = 0; e < omitted_heads.size(); ++e) {
      Layer l(str("heads = 4\ncombiner = 'mae'\nmae.init = 'zero'\nmae.omitted_heads = ", drop), 12);
      l["gate.down.bias"].detach()[static_cast<int64_t>(e)] = 300;  // exp(-300) is 0, so all other gates are 0
      const double factor = 4 / static_cast<double>(4 - drop);
      at::Tensor scale = at::full({4}, factor);
      for (int64_t head : omitted_heads[e]) scale[head] = 0;
      set_head_scales(*plain_layer.layer, {{}, scale, {}});
      CHECK(rounding.agree(l.forward(x, causal_mask()), plain_layer.forward(x, causal_mask()), factor));
    }
  }
}

TEST_CASE("head weights of MAE sum to h and lie in [0, h / (h - t)]", "[mae]") {
  CHECK(rc::check([] {
    const int64_t heads = *rc::gen::inRange<int64_t>(2, 7), drop = *rc::gen::inRange<int64_t>(1, heads);
    HeadWeightLayer l(heads, str("mae.omitted_heads = ", drop));
    const auto seed = static_cast<uint64_t>(*rc::gen::inRange(0, 100000));
    l.randomise_gate(seed);
    at::Tensor x = normal({2, 5, heads}, seed + 9), w = l.forward(x, causal_mask());
    // The terms of a head weight and of the sum of all head weights are at most h.
    const auto h = static_cast<double>(heads);
    const int64_t num_roundings = layers::num_roundings(l.layer->layer_spec(), 5) + expert_count(heads, drop) + heads;
    const double error = rounding::bound(at::kFloat, at::kFloat, num_roundings, h);
    RC_ASSERT(numbers::error(w.sum(-1), at::full({2, 5}, h)) <= error);
    RC_ASSERT(w.min().item<double>() >= -error);
    RC_ASSERT(w.max().item<double>() <= h / static_cast<double>(heads - drop) + error);
    // The weight of head j is h / (h - t) times the sum of the gates of the experts that do not drop head j.
    at::Tensor g = gates_of(l, x, causal_mask()), expected = at::zeros_like(w);
    const auto omitted_heads = omitted_heads_by_expert(heads, drop);
    for (int64_t j = 0; j < heads; ++j)
      for (size_t e = 0; e < omitted_heads.size(); ++e)
        if (std::find(omitted_heads[e].begin(), omitted_heads[e].end(), j) == omitted_heads[e].end())
          expected.select(-1, j) += g.select(-1, static_cast<int64_t>(e)) * h / static_cast<double>(heads - drop);
    RC_ASSERT(numbers::error(w, expected) <= error);
  }));
}

TEST_CASE("the gradient of an MAE gate is -h / (h - 1) times the output of the dropped head", "[mae]") {
  Reference oracle;
  oracle.sizes = {2, 3, 3, 6, 3, 2, 2};
  oracle.hidden = 4;
  oracle.may_attend = [](int64_t, int64_t t, int64_t s) { return s <= t; };
  Layer l(config_of(oracle), 6);
  l.randomise_gate(2);
  at::Tensor x = normal({2, 3, 6}, 4), r = normal({2, 3, 6}, 5);
  RecordingObserver recorder;
  recorder.retains_gradient = true;
  (l.forward(x, causal_mask(), {}, &recorder) * r).sum().backward();
  // Since Σ g_i = 1, the combiner computes Y = h / (h - 1) Σ (1 - g_i) H_i for h heads, so ∂Y/∂g_i = -h / (h - 1) H_i.
  const LayerRounding rounding = rounding_of(l, x, x, causal_mask());
  for (int64_t i = 0; i < 3; ++i) {
    const at::Tensor head_output =
        at::tensor(reference::head_output(oracle.sizes, i, doubles(x), doubles(x), l.weights(), oracle.may_attend),
                   at::kDouble)
            .view({2, 3, 6});
    CHECK(rounding::agree(recorder.g.grad().select(-1, i), (head_output * r.to(at::kDouble)).sum(-1) * -1.5,
                          rounding.num_roundings + 6, 1.5 * rounding.gain * rounding.magnitude * numbers::max_abs(r)));
  }
}

TEST_CASE("uniform MAE equals multi-head attention in evaluation, and on average over experts in training", "[mae]") {
  Layer plain_layer("heads = 4\n", 12),
      uniform_layer("heads = 4\ncombiner = 'mae'\nmae.gate = 'uniform'\nmae.omitted_heads = 2\n", 12);
  at::Tensor x = normal({1, 6, 12}, 1), expected = plain_layer.forward(x, causal_mask());
  CHECK(!uniform_layer.has("gate.up.weight"));
  for (Path path : {Path::composed, Path::automatic}) {
    uniform_layer.layer->set_path(path);
    plain_layer.layer->set_path(path);
    CHECK(at::equal(uniform_layer.forward(x, causal_mask()), plain_layer.forward(x, causal_mask())));
  }
  CHECK(at::equal(gates_of(uniform_layer, x, causal_mask()), at::full({1, 6}, 1.0F / 6)));
  // 200 updates draw all six experts, whose mean is multi-head attention. An expert scales its heads by 2.
  const LayerRounding rounding = rounding_of(uniform_layer, x, x, causal_mask());
  std::vector<at::Tensor> distinct_outputs;
  for (uint32_t update = 0; update < 200; ++update) {
    at::Tensor y = uniform_layer.forward(x, causal_mask(), training_context(update));
    CHECK(at::equal(y, uniform_layer.forward(x, causal_mask(), training_context(update, true))));
    if (std::none_of(distinct_outputs.begin(), distinct_outputs.end(),
                     [&](const at::Tensor& s) { return rounding.agree(s, y, 2); }))
      distinct_outputs.push_back(y);
  }
  REQUIRE(distinct_outputs.size() == 6);
  CHECK(rounding.agree(at::stack(distinct_outputs).mean(0), expected, 2));
  // The experts are drawn uniformly, 6,000 times: once per row or once per position. The margin is four standard
  // deviations of a frequency.
  const double p = 1.0 / 6, margin = 4 * std::sqrt(p * (1 - p) / 6000);
  for (const auto& [unit, sizes] :
       {std::pair("sequence", std::vector<int64_t>{6000, 2, 4}), {"position", {60, 100, 4}}}) {
    HeadWeightLayer sampling_layer(
        4, str("mae.gate = 'uniform'\nmae.omitted_heads = 2\nmae.sample_unit = '", unit, "'\n"));
    at::Tensor w = sampling_layer.forward(at::zeros(sizes), causal_mask(), training_context());
    const auto omitted_heads = omitted_heads_by_expert(4, 2);
    for (const auto& omitted : omitted_heads) {
      at::Tensor is_dropped = (w.select(-1, omitted[0]) == 0) & (w.select(-1, omitted[1]) == 0);
      CHECK(is_dropped.to(at::kDouble).mean().item<double>() == rounding::within(p, margin));
    }
  }
}

namespace {

// Records the kind of each attention layer and a mask of its dropped heads, (B, h) or (B, Tq, h) of type bool, in the
// order of the layers.
struct DroppedHeads : Observer, Subscriber<HeadWeightObservation> {
  std::vector<std::pair<AttentionKind, at::Tensor>> masks;
  void receive(const LayerSpec& shape, HeadWeightObservation& observation) override {
    masks.emplace_back(shape.kind, observation.weights == 0);
  }
};

// Returns four standard deviations of the frequency of an event in `num_draws` draws, for the probability 1/2, which
// gives the largest standard deviation.
double frequency_margin(int64_t num_draws) { return 4 * std::sqrt(0.25 / static_cast<double>(num_draws)); }

// Returns whether all positions of each row drop the same heads.
bool is_equal_in_row(const at::Tensor& is_dropped) {
  return is_dropped.dim() == 2 || at::equal(is_dropped, is_dropped.narrow(1, 0, 1).expand_as(is_dropped));
}

}  // namespace

TEST_CASE("MAE samples one expert per row and layer in every backbone; with sample_unit = position, one per position",
          "[mae]") {
  const std::string mae = "[attention]\nheads = 4\ncombiner = 'mae'\n",
                    sizes = "layers = 2\nwidth = 32\nffn_dim = 24\n";
  struct Case {
    std::string toml;
    bool is_encoder_only;
    size_t num_layers;
  };
  const std::vector<Case> cases{
      {"[model]\n" + sizes + mae, false, 2},
      {"[model]\nbackbone = 'encoder-decoder'\nencoder-decoder.encoder_layers = 2\n" + sizes + mae, false, 6},
      {"[model]\nbackbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = 6\n" + sizes + mae +
           "score = 'relative'\n",
       false, 2},
      {"[model]\nbackbone = 'bert'\npositions = 'learned'\nbert.segments = 2\nbert.embedding_norm = true\n" + sizes +
           mae,
       true, 2}};
  for (const Case& c : cases)
    for (const char* gate : {"learned", "uniform"}) {
      auto dropped_heads = [&](const std::string& unit, uint32_t update) {
        const auto model = translators::build_model(c.toml + str("[attention.mae]\ngate = '", gate, "'\n", unit));
        DroppedHeads observer;
        model->hidden(every_model::input(*model, c.is_encoder_only, 9), training_context(update, true), nullptr,
                      &observer);
        return observer.masks;
      };
      INFO(c.toml << gate);
      bool rows_differ = false, layers_differ = false, positions_differ = false;
      for (uint32_t update = 0; update < 8; ++update) {
        const auto dropped_by_layer = dropped_heads("", update);
        REQUIRE(dropped_by_layer.size() == c.num_layers);
        for (const auto& [kind, is_dropped] : dropped_by_layer) {
          CHECK(is_equal_in_row(is_dropped));
          CHECK(at::equal(is_dropped.sum(-1), at::ones_like(is_dropped.sum(-1))));
          rows_differ |= !at::equal(is_dropped[0], is_dropped[1]);
          const at::Tensor first = dropped_by_layer[0].second;
          layers_differ |= !at::equal(is_dropped.dim() == 2 ? is_dropped : is_dropped.select(1, 0),
                                      first.dim() == 2 ? first : first.select(1, 0));
        }
        for (const auto& [kind, is_dropped] : dropped_heads("sample_unit = 'position'\n", update))
          positions_differ |= !is_equal_in_row(is_dropped);
      }
      CHECK(rows_differ);
      CHECK(layers_differ);
      CHECK(positions_differ);
    }
}

TEST_CASE("the probabilities of the MAE experts of a row are the means of the gates over its real positions", "[mae]") {
  HeadWeightLayer l(3, "mae.hidden = 4\n");
  l.randomise_gate(5);
  const int64_t rows = 4000, num_real = 5;
  at::Tensor x = normal({1, 8, 3}, 1).expand({rows, 8, 3});
  Mask mask = causal_mask();
  mask.key_lengths = at::full({rows}, num_real, at::kLong);
  RecordingObserver recorder;
  at::Tensor w = l.forward(x, mask, training_context(3, true), &recorder);
  const at::Tensor frequency = (w.select(1, 0) == 0).to(at::kFloat).mean(0),
                   g = recorder.g[0].narrow(0, 0, num_real).mean(0);
  CHECK(numbers::error(frequency, g) <= frequency_margin(rows));
  CHECK(numbers::error(recorder.g[0].mean(0), g) > frequency_margin(rows));
}

TEST_CASE("errors of sampled MAE experts on the fused path are at most twice those on the composed path", "[mae]") {
  for (const char* unit : {"sequence", "position"})
    for (const char* gate : {"learned", "uniform"}) {
      INFO(unit << " " << gate);
      Layer l(
          str("heads = 2\ndropout = 0.3\ncombiner = 'mae'\nmae.sample_unit = '", unit, "'\nmae.gate = '", gate, "'\n"),
          32);
      const bool has_unused_gate = std::string(gate) == "learned";  // a pass that samples experts does not train it
      const auto [fused, composed, exact, magnitudes] = layers::results_of_paths(
          l, normal({3, 9, 32}, 1),
          [&](const at::Tensor& input) { return l.forward(input, causal_mask(), training_context(5, true)); },
          has_unused_gate);
      CHECK(numbers::find_excess_error(fused, composed, exact, at::kFloat, magnitudes) == "");
    }
}

TEST_CASE("resume with mae.sample_unit = position is bit-identical; resume with another sample_unit is rejected",
          "[mae]") {
  Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::repeating_tokens(400));
  const std::string uniform_lines = "[attention]\ncombiner = 'mae'\n[attention.mae]\ngate = 'uniform'\n",
                    position_line = "sample_unit = 'position'\n";
  auto stop_after = [](int num_updates) {
    return str("[train]\nlength = '", num_updates, "u'\nschedule.length = '6u'\n");
  };
  auto uninterrupted_model = runs::train_in_folder(folder, "whole", uniform_lines + position_line + stop_after(6));
  runs::train_in_folder(folder, "run", uniform_lines + position_line + stop_after(3));
  try {
    runs::train_in_folder(folder, "run", uniform_lines + stop_after(6), true);
    FAIL("resume accepted another sample_unit");
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::usage);
    CHECK(std::string(error.what()).find("attention.mae.sample_unit: \"position\" -> \"sequence\"") !=
          std::string::npos);
  }
  auto resumed_model = runs::train_in_folder(folder, "run", uniform_lines + position_line + stop_after(6), true),
       sequence_model = runs::train_in_folder(folder, "rows", uniform_lines + stop_after(6));
  const std::string name = "decoder.layers.0.self.value.weight";
  CHECK(at::equal(runs::find(resumed_model, name), runs::find(uninterrupted_model, name)));
  CHECK_FALSE(at::equal(runs::find(sequence_model, name), runs::find(uninterrupted_model, name)));
}

TEST_CASE(
    "an MAE pass with sampled experts has gradients for the heads of the sampled expert only, and none for the gate",
    "[mae]") {
  Layer l("heads = 4\ncombiner = 'mae'\nmae.omitted_heads = 2\n", 12);
  l.randomise_gate(1);
  at::Tensor x = normal({1, 6, 12}, 1).requires_grad_(), r = normal({1, 6, 12}, 2);
  const at::Tensor mean = l["gate.norm.mean"].clone(), variance = l["gate.norm.variance"].clone();
  const at::Tensor g = gates_of(l, x, causal_mask());
  std::set<std::set<int64_t>> drawn_sets;
  for (uint32_t update = 0; update < 12; ++update) {
    l.parameters.zero_gradients();
    // A pass that samples experts has the gates of evaluation, from the running statistics and without dropout. These
    // gates have no gradient.
    RecordingObserver recorder;
    (l.forward(x, causal_mask(), training_context(update, true), &recorder) * r).sum().backward();
    CHECK(!recorder.g.requires_grad());
    CHECK(at::equal(recorder.g, g));
    std::set<int64_t> dropped_heads;
    for (auto& p : l.parameters.all()) {
      INFO(p.name());
      if (p.name().find(".gate.") != std::string::npos) {
        CHECK(!p.master().grad().defined());
        continue;
      }
      if (p.traits().head_axes.empty() || p.name() == "x.key.bias")
        continue;  // the gradient of key.bias is 0 for every head
      std::set<int64_t> zero_heads;
      auto blocks = p.master().grad().chunk(4, p.traits().head_axes[0].axis);
      for (int64_t j = 0; j < 4; ++j)
        if (blocks[static_cast<size_t>(j)].abs().max().item<float>() == 0) zero_heads.insert(j);
      CHECK(zero_heads.size() == 2);
      if (dropped_heads.empty()) dropped_heads = zero_heads;
      CHECK(zero_heads == dropped_heads);
    }
    drawn_sets.insert(dropped_heads);
  }
  CHECK(drawn_sets.size() > 1);
  CHECK(at::equal(l["gate.norm.mean"], mean));
  CHECK(at::equal(l["gate.norm.variance"], variance));
}

TEST_CASE("MAE experts are drawn with probabilities equal to their gates", "[mae]") {
  for (const char* unit : {"position", "sequence"}) {
    HeadWeightLayer l(3, str("mae.hidden = 4\nmae.sample_unit = '", unit, "'\n"));
    l.randomise_gate(5);
    at::Tensor x = normal({1, 8, 3}, 1).expand({4000, 8, 3});
    RecordingObserver recorder;
    at::Tensor w = l.forward(x, causal_mask(), training_context(3, true), &recorder);
    at::Tensor frequency = (w == 0).to(at::kFloat).mean(0), g = recorder.g[0];  // (T, h); expert i drops head i
    if (std::string(unit) == "sequence") {
      CHECK(l.agree(w, w.narrow(1, 0, 1).expand_as(w), 8));
      g = g.mean(0, true).expand({8, 3});
    } else {
      CHECK(!l.agree(w, w.narrow(1, 0, 1).expand_as(w), 8));
    }
    CHECK(g.max().item<double>() - g.min().item<double>() > 2 * frequency_margin(4000));
    CHECK(numbers::error(frequency, g) <= frequency_margin(4000));
    CHECK(at::equal((w == 0).sum(-1), at::ones({4000, 8}, at::kLong)));
    // A different update or a different seed draws different experts.
    CHECK(!at::equal(w, l.forward(x, causal_mask(), training_context(4, true))));
    ForwardContext other_seed_context = training_context(3, true);
    other_seed_context.seed = 8;
    CHECK(!at::equal(w, l.forward(x, causal_mask(), other_seed_context)));
  }
}

TEST_CASE("mae.mean = full draws one expert per sequence", "[mae]") {
  for (const char* gate : {"learned", "uniform"}) {
    HeadWeightLayer l(4, str("mae.mean = 'full'\nmae.gate = '", gate, "'\n"), AttentionKind::encoder_self);
    at::Tensor w = l.forward(normal({40, 5, 4}, 1), {}, training_context(1, true));
    CHECK(l.agree(w, w.narrow(1, 0, 1).expand_as(w), 5));
    CHECK(!l.agree(w, w.narrow(0, 0, 1).expand_as(w), 5));
  }
}

TEST_CASE("micro-batches draw the same MAE experts as the whole batch, independent of padding", "[mae]") {
  for (const char* unit : {"position", "sequence"})
    for (const char* gate : {"learned", "uniform"}) {
      Layer l(str("heads = 4\ncombiner = 'mae'\nmae.sample_unit = '", unit, "'\nmae.gate = '", gate, "'\n"), 8);
      at::Tensor x = normal({6, 5, 8}, 2);
      const LayerRounding rounding = rounding_of(l, x, x, causal_mask());
      const double scale = 4.0 / 3;  // h / (h - 1), the factor of the remaining heads
      at::Tensor batch_output = l.forward(x, causal_mask(), training_context(2, true));
      at::Tensor first_output = l.forward(x.narrow(0, 0, 2), causal_mask(), training_context(2, true)),
                 second_output = l.forward(x.narrow(0, 2, 4), causal_mask(), training_context(2, true, 2));
      CHECK(rounding.agree(nn::cat({first_output, second_output}), batch_output, scale));
      CHECK(!rounding.agree(l.forward(x.narrow(0, 2, 4), causal_mask(), training_context(2, true)), second_output,
                            scale));
      // The draw of a position does not depend on the padded length.
      at::Tensor padded_x = nn::cat({x, at::ones({6, 3, 8})}, 1);
      if (std::string(unit) == "position")
        CHECK(rounding.agree(l.forward(padded_x, causal_mask(), training_context(2, true)).narrow(1, 0, 5),
                             batch_output, scale));
    }
}

TEST_CASE("the batch norm of the MAE gate updates running statistics like at::batch_norm, over real positions only",
          "[mae]") {
  Layer l("heads = 2\ncombiner = 'mae'\nmae.dropout = 0\n", 4, AttentionKind::encoder_self),
      decoder_layer("heads = 2\ncombiner = 'mae'\n", 4);
  l.set("gate.norm.mean", at::tensor({1.0F, 2.0F, 3.0F, 4.0F}));
  at::Tensor x = normal({5, 3, 4}, 1), means = x.cumsum(1) / at::tensor({1.0F, 2.0F, 3.0F}).view({1, 3, 1});
  at::Tensor mean = l["gate.norm.mean"].clone(), variance = l["gate.norm.variance"].clone();
  at::batch_norm(means.flatten(0, 1), {}, {}, mean, variance, true, 0.1, 1e-5, false);
  l.forward(x, {}, training_context());
  // Roundings: each mean is a sum of at most 3 inputs, and each statistic a sum of 15 of these means.
  const int64_t num_roundings = 15 + 3 + layers::kElementwiseRoundings;
  CHECK(rounding::agree(l["gate.norm.mean"], mean, num_roundings));
  CHECK(rounding::agree(l["gate.norm.variance"], variance, num_roundings));
  // Evaluation and passes that sample experts do not update the running statistics.
  mean = l["gate.norm.mean"].clone();
  l.forward(x, {});
  l.forward(x, {}, training_context(0, true));
  CHECK(at::equal(l["gate.norm.mean"], mean));
  // The statistics of a padded batch include only its real positions, here the positions of the first row.
  Mask mask = causal_mask();
  mask.key_lengths = at::tensor({3, 0}, at::kLong);
  decoder_layer.forward(x.narrow(0, 0, 2), mask, training_context());
  CHECK(rounding::agree(decoder_layer["gate.norm.mean"], means[0].mean(0) * 0.1, num_roundings,
                        0.1 * numbers::max_abs(means[0])));
  CHECK(rounding::agree(decoder_layer["gate.norm.variance"], 0.9 + 0.1 * at::var(means[0], at::IntArrayRef{0}, true),
                        num_roundings));
  // A batch with one real position has no variance, a batch without real positions has no statistics; outputs are
  // finite for both.
  mask.key_lengths = at::tensor({1, 0}, at::kLong);
  CHECK(decoder_layer.forward(x.narrow(0, 0, 2), mask, training_context()).isfinite().all().item<bool>());
  mask.key_lengths = at::tensor({0, 0}, at::kLong);
  CHECK(decoder_layer.forward(x.narrow(0, 0, 2), mask, training_context()).isfinite().all().item<bool>());
}

TEST_CASE("the MAE gates of several processes have the statistics, outputs and gradients of one process with all rows",
          "[mae]") {
  const std::string toml = "heads = 2\ncombiner = 'mae'\nmae.dropout = 0\n";
  const int64_t num_rows = 5, width = 4;
  const at::Tensor x = normal({num_rows, 3, width}, 1);
  const auto run = [&](Layer& l, int64_t first_row, int64_t count, const distributed::Group* group, bool is_filler) {
    ForwardContext forward_context = training_context(0, false, first_row);
    forward_context.processes = group, forward_context.counts_rows = !is_filler;
    const at::Tensor y = l.forward(x.narrow(0, first_row, count), causal_mask(), forward_context);
    (y.square().sum() * (is_filler ? 0 : 1)).backward();
    return y.detach();
  };
  Layer whole_layer(toml, width);
  const at::Tensor whole_output = run(whole_layer, 0, num_rows, nullptr, false);
  // Process 0 has two rows, process 1 three; process 2 has none and computes row 0 as a filler.
  std::vector<std::unique_ptr<Layer>> process_layers;
  for (int rank = 0; rank < 3; ++rank) process_layers.push_back(std::make_unique<Layer>(toml, width));
  std::vector<at::Tensor> outputs(3);
  in_each_process(3, [&](const distributed::Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const int64_t first_rows[]{0, 2, 0}, counts[]{2, 3, 1};
    outputs[rank] = run(*process_layers[rank], first_rows[rank], counts[rank], &group, rank == 2);
  });
  const int64_t num_roundings = 15 + 3 + layers::kElementwiseRoundings;
  CHECK(rounding::agree(nn::cat({outputs[0], outputs[1]}), whole_output, 8 * num_roundings));
  for (const char* name : {"gate.norm.mean", "gate.norm.variance"}) {
    CHECK(rounding::agree((*process_layers[0])[name], whole_layer[name], num_roundings));
    for (size_t rank = 1; rank < 3; ++rank) CHECK(at::equal((*process_layers[rank])[name], (*process_layers[0])[name]));
  }
  for (const char* name :
       {"gate.norm.weight", "gate.norm.bias", "gate.up.weight", "gate.down.weight", "query.weight"}) {
    INFO(name);
    const at::Tensor whole_gradient = whole_layer[name].grad();
    at::Tensor gradient = at::zeros_like(whole_gradient);
    for (auto& l : process_layers) gradient += (*l)[name].grad();
    CHECK(rounding::agree(gradient, whole_gradient, 64 * num_roundings, numbers::max_abs(whole_gradient)));
  }
}

TEST_CASE("with mae.norm_statistics = batch, sampling passes use batch statistics and keep the running statistics",
          "[mae]") {
  at::Tensor x = normal({5, 3, 8}, 1) + 3;
  Layer running_statistics_layer("heads = 2\ncombiner = 'mae'\nmae.dropout = 0\n", 8),
      batch_statistics_layer("heads = 2\ncombiner = 'mae'\nmae.dropout = 0\nmae.norm_statistics = 'batch'\n", 8);
  at::Tensor evaluation_gates = gates_of(running_statistics_layer, x, causal_mask());
  CHECK(at::equal(gates_of(running_statistics_layer, x, causal_mask(), training_context(0, true)), evaluation_gates));
  at::Tensor g = gates_of(batch_statistics_layer, x, causal_mask(), training_context(0, true));
  CHECK(at::equal(batch_statistics_layer["gate.norm.mean"], at::zeros({8})));
  CHECK(gates_agree(batch_statistics_layer, g, gates_of(batch_statistics_layer, x, causal_mask(), training_context()),
                    3));
  CHECK(!gates_agree(batch_statistics_layer, g, evaluation_gates, 3));
}

TEST_CASE("dropout in the MAE gate is active in passes that train the gate and inactive in passes that sample experts",
          "[mae]") {
  Layer l("heads = 2\ncombiner = 'mae'\nmae.dropout = 0.5\n", 8);
  at::Tensor x = normal({4, 3, 8}, 1);
  CHECK(!gates_agree(l, gates_of(l, x, causal_mask(), training_context(0)),
                     gates_of(l, x, causal_mask(), training_context(1)), 3));
  CHECK(at::equal(gates_of(l, x, causal_mask(), training_context(0, true)),
                  gates_of(l, x, causal_mask(), training_context(1, true))));
}

TEST_CASE("causal MAE gates ignore later tokens and tokens before the window", "[mae]") {
  for (int64_t window : {0, 1, 3, 100}) {
    Layer l(str("heads = 4\ncombiner = 'mae'\nmae.window = ", window), 8);
    l.randomise_gate(3);
    l["gate.down.weight"].detach().mul_(0.1);  // gates of almost 0 and 1 would not show changes of the logits
    at::Tensor a = normal({2, 230, 8}, 1), b = a.clone();
    b.narrow(1, 120, 110).copy_(normal({2, 110, 8}, 2) * 5);
    CHECK(at::equal(gates_of(l, a, causal_mask()).narrow(1, 0, 120), gates_of(l, b, causal_mask()).narrow(1, 0, 120)));
    CHECK(at::equal(l.forward(a, causal_mask()).narrow(1, 0, 120), l.forward(b, causal_mask()).narrow(1, 0, 120)));
    CHECK(!gates_agree(l, gates_of(l, a, causal_mask()).narrow(1, 120, 1),
                       gates_of(l, b, causal_mask()).narrow(1, 120, 1), 120));
    // Token 7 changes the gates up to position 7 + `window` - 1 and none after; without a window, up to the last
    // position.
    at::Tensor c = a.clone();
    c.select(1, 7).add_(100);
    at::Tensor original_gates = gates_of(l, a, causal_mask()), changed_gates = gates_of(l, c, causal_mask());
    const int64_t last = window == 0 ? 229 : 7 + window - 1;
    CHECK(!gates_agree(l, original_gates.select(1, last), changed_gates.select(1, last), 230));
    if (window > 0)
      CHECK(at::equal(original_gates.narrow(1, last + 1, 229 - last), changed_gates.narrow(1, last + 1, 229 - last)));
  }
}

TEST_CASE("padding does not change MAE outputs at real positions", "[mae]") {
  for (const char* mean : {"causal", "full"}) {
    Layer l(str("heads = 4\ncombiner = 'mae'\nmae.mean = '", mean, "'\n"), 8, AttentionKind::encoder_self);
    l.randomise_gate(3);
    at::Tensor a = normal({2, 9, 8}, 1), b = a.clone();
    b[1].narrow(0, 5, 4).fill_(50);
    Mask mask;
    mask.key_lengths = at::tensor({9, 5}, at::kLong);
    at::Tensor x = l.forward(a, mask), y = l.forward(b, mask);
    CHECK(at::equal(x[0], y[0]));
    CHECK(at::equal(x[1].narrow(0, 0, 5), y[1].narrow(0, 0, 5)));
    CHECK(rounding_of(l, a, a, mask).agree(l.forward(a.narrow(0, 1, 1).narrow(1, 0, 5), {})[0], x[1].narrow(0, 0, 5)));
  }
}

TEST_CASE("incremental decoding with MAE has the gates and outputs of one forward pass, also after a reorder",
          "[mae]") {
  c10::NoGradGuard no_gradient;
  for (AttentionKind kind : {AttentionKind::decoder_self, AttentionKind::decoder_cross})
    for (int64_t window : {0, 1, 2, 4, 100}) {
      Layer l(str("heads = 4\ncombiner = 'mae'\nmae.window = ", window), 8, kind);
      l.randomise_gate(3);
      const bool is_cross = kind == AttentionKind::decoder_cross;
      at::Tensor x = normal({3, 12, 8}, 1), m = is_cross ? normal({3, 5, 8}, 2) : x;
      auto run = [&](const at::Tensor& queries, const at::Tensor& keys, Cache* cache, RecordingObserver& recorder) {
        Mask mask;
        mask.causal = !is_cross;
        mask.offset = is_cross || cache == nullptr ? 0 : cache->length();
        return l.layer->forward(queries, is_cross ? keys : queries, mask, {}, cache, &recorder);
      };
      RecordingObserver full_recorder, step_recorder;
      at::Tensor full_output = run(x, m, nullptr, full_recorder);
      const LayerRounding rounding =
          rounding_of(l, [&](Observer& observer) { l(x, m, is_cross ? Mask() : causal_mask(), {}, &observer); });
      Cache cache;
      int64_t position = 0;
      for (int64_t step : {1, 3, 1, 2, 4}) {
        at::Tensor y = run(x.narrow(1, position, step), m, &cache, step_recorder);
        CHECK(gates_agree(l, step_recorder.g, full_recorder.g.narrow(1, position, step), 12));
        CHECK(rounding.agree(y, full_output.narrow(1, position, step)));
        position += step;
      }
      // Reordered rows continue with the state of their source rows.
      at::Tensor rows = at::tensor({2, 0}, at::kLong);
      cache.reorder(rows);
      run(x.index_select(0, rows).narrow(1, position, 1), m, &cache, step_recorder);
      CHECK(gates_agree(l, step_recorder.g, full_recorder.g.index_select(0, rows).narrow(1, position, 1), 12));
    }
}

TEST_CASE("incremental decoding with MAE excludes padding from the gates, like one forward pass", "[mae]") {
  c10::NoGradGuard no_gradient;
  const std::vector<int64_t> lengths{12, 5, 8};
  for (int64_t window : {0, 3}) {
    Layer l(str("heads = 4\ncombiner = 'mae'\nmae.window = ", window), 8);
    l.randomise_gate(3);
    at::Tensor x = normal({3, 12, 8}, 1);
    Mask mask = causal_mask();
    mask.key_lengths = at::tensor(lengths, at::kLong);
    RecordingObserver full_recorder, step_recorder;
    l.forward(x, mask, {}, &full_recorder);
    Cache cache;
    std::vector<at::Tensor> gates;
    for (int64_t step : {1, 5, 4, 2}) {
      mask.offset = cache.length();
      l.forward(x.narrow(1, mask.offset, step), mask, {}, &step_recorder, &cache);
      gates.push_back(step_recorder.g);
    }
    at::Tensor step_gates = nn::cat(gates, 1);
    for (int64_t b = 0; b < 3; ++b) {
      const int64_t n = lengths[static_cast<size_t>(b)];
      CHECK(gates_agree(l, step_gates[b].narrow(0, 0, n), full_recorder.g[b].narrow(0, 0, n), 12));
    }
  }
}

TEST_CASE("the mean that the MAE gate reads includes the inputs in the memory", "[mae]") {
  for (int64_t window : {0, 3, 100}) {
    Layer l(str("heads = 4\ncombiner = 'mae'\nmae.window = ", window), 8);
    l.randomise_gate(3);
    at::Tensor x = normal({2, 9, 8}, 1);
    Mask mask = causal_mask();
    mask.offset = 6;
    CHECK(rounding_of(l, x, x, causal_mask())
              .agree(l.layer->forward(x.narrow(1, 6, 3), x, mask, {}), l.forward(x, causal_mask()).narrow(1, 6, 3)));
  }
}

TEST_CASE("permuting the heads and the experts accordingly leaves the output of MAE unchanged", "[mae]") {
  Layer l("heads = 3\ncombiner = 'mae'\n", 12);
  l.randomise_gate(3);
  at::Tensor x = normal({2, 5, 12}, 1), original_output = l.forward(x, causal_mask());
  const LayerRounding rounding = rounding_of(l, x, x, causal_mask());
  c10::NoGradGuard no_gradient;
  for (auto& p : l.parameters.all()) {
    if (p.traits().head_axes.empty()) continue;
    const nn::HeadAxis& heads = p.traits().head_axes[0];
    auto blocks = p.master().chunk(heads.heads, heads.axis);
    p.master().copy_(nn::cat({blocks[2], blocks[0], blocks[1]}, heads.axis));
  }
  CHECK(rounding.agree(l.forward(x, causal_mask()), original_output));
}

TEST_CASE("MAE takes the fused path, with at most twice the error of the composed path in fp32 and in bf16", "[mae]") {
  Layer l("heads = 4\ncombiner = 'mae'\n", 32);
  l.randomise_gate(3);
  at::Tensor x = normal({2, 9, 32}, 1) * 0.3;
  auto output = [&](Path path) {
    l.layer->set_path(path);
    return l.forward(x, causal_mask());
  };
  l.layer->set_path(Path::composed);
  l.convert(at::kDouble);
  const at::Tensor exact = l.forward(x.to(at::kDouble), causal_mask());
  l.convert(at::kFloat);
  CHECK(numbers::find_excess_error({output(Path::fused)}, {output(Path::composed)}, {exact}, at::kFloat) == "");
  l.parameters.use_bf16_copies(true);
  const at::Tensor composed = output(Path::composed), y = output(Path::fused);
  CHECK(y.scalar_type() == at::kBFloat16);
  CHECK(numbers::find_excess_error({y}, {composed}, {exact}, at::kBFloat16) == "");
  y.to(at::kFloat).sum().backward();
  l.parameters.collect_gradients();
  CHECK(l["gate.up.weight"].grad().defined());
}

TEST_CASE("invalid MAE options are rejected with the reason; the capabilities of a layer depend on mae.mean", "[mae]") {
  auto check_rejected = [](const std::string& toml, AttentionKind kind, const std::string& reason) {
    try {
      Layer l("combiner = 'mae'\n" + toml, 24, kind);
      FAIL("the layer accepted the options " << toml);
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::usage);
      INFO(error.what());
      CHECK(std::string(error.what()).find(reason) != std::string::npos);
    }
  };
  check_rejected("heads = 2\nmae.omitted_heads = 2\n", AttentionKind::decoder_self, "less than 2, the number of heads");
  check_rejected("heads = 1\n", AttentionKind::decoder_self, "less than 1, the number of heads");
  check_rejected("heads = 24\nmae.omitted_heads = 6\n", AttentionKind::decoder_self, "at most 10000 experts");
  check_rejected("heads = 2\nmae.omitted_heads = 0\n", AttentionKind::decoder_self, "mae.omitted_heads");
  check_rejected("heads = 2\nmae.mean = 'full'\n", AttentionKind::decoder_self, "later tokens");
  check_rejected("heads = 2\nmae.mean = 'full'\n", AttentionKind::decoder_cross, "later tokens");
  check_rejected("heads = 2\nmae.mean = 'full'\nmae.window = 3\n", AttentionKind::encoder_self, "attention.mae.window");
  check_rejected("heads = 2\nmae.gate = 'even'\n", AttentionKind::decoder_self, "uniform");
  Capabilities full_capabilities =
      Layer("heads = 2\ncombiner = 'mae'\nmae.mean = 'full'\n", 8, AttentionKind::encoder_self).layer->capabilities();
  CHECK((full_capabilities.supports_self_attention && !full_capabilities.supports_causal_attention &&
         !full_capabilities.supports_cross_attention && !full_capabilities.supports_incremental_decoding));
  Capabilities causal_capabilities = Layer("heads = 2\ncombiner = 'mae'\n", 8).layer->capabilities();
  CHECK((causal_capabilities.supports_self_attention && causal_capabilities.supports_causal_attention &&
         causal_capabilities.supports_cross_attention && causal_capabilities.supports_memory &&
         causal_capabilities.supports_incremental_decoding));
  // Uniform sampling has no gate, so mae.mean = 'full' cannot leak later tokens.
  CHECK(Layer("heads = 2\ncombiner = 'mae'\nmae.mean = 'full'\nmae.gate = 'uniform'\n", 8)
            .layer->capabilities()
            .supports_causal_attention);
}

TEST_CASE(
    "block coordinate descent trains the gate in some epochs, and other parameters with sampled experts in every epoch",
    "[mae]") {
  Config config;
  config.load_text("[p]\nevery = 3\nfirst_gate_epoch = 1\n", "test");
  auto every_fifth = train::procedures().make("block-coordinate", ""),
       every_third = train::procedures().make("block-coordinate", "");
  config.read("p", *every_third);
  for (int64_t epoch = 0; epoch < 23; ++epoch) {
    CHECK(every_fifth->passes({0, epoch, 0}).size() == (epoch % 5 == 0 ? 2 : 1));
    CHECK(every_third->passes({0, epoch, 0}).size() == (epoch % 3 == 1 ? 2 : 1));
  }
  const auto passes = every_fifth->passes({0, 0, 0});
  const auto samples_experts = [](const train::TrainingPass& pass) {
    return pass.requests.find<SampleExpertsRequest>() != nullptr;
  };
  CHECK((!samples_experts(passes[0]) && samples_experts(passes[1]) &&
         samples_experts(every_fifth->passes({0, 1, 0})[0])));
  Layer l("heads = 2\ncombiner = 'mae'\n", 8);
  int64_t num_gate_parameters = 0;
  for (const auto& p : l.parameters.all()) {
    CHECK(passes[0].trains_parameter(p) != passes[1].trains_parameter(p));
    num_gate_parameters += passes[0].trains_parameter(p) ? 1 : 0;
  }
  CHECK(num_gate_parameters == 8);
}
