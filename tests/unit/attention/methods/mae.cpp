// The mixture of attentive experts against explicit sums over experts in double precision; the identities that it must
// keep; what a step of sampling draws; decoding, memories and padding; block coordinate descent.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <set>

#include "attention/gated_combiner.h"
#include "attention/methods/mae/experts.h"
#include "attention/methods/mae/sample_experts.h"
#include "fixtures/every_model.h"
#include "fixtures/layers.h"
#include "fixtures/runs.h"
#include "train/procedure.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using numbers::doubles;
using numbers::normal;
using reference::Sizes;
using reference::Vector;

namespace {

// A layer of the kind, configured by lines of [attention].
struct Layer : layers::Layer {
  explicit Layer(const std::string& toml, int64_t width, AttentionKind kind = AttentionKind::decoder_self,
                 uint64_t seed = 3)
      : layers::Layer(toml, width, seed, kind) {}
  bool has(const std::string& name) { return parameters.find("x." + name) != nullptr; }
  // A norm whose statistics and parameters are not those of a new one, and gates far from even.
  void stir(uint64_t seed) {
    const int64_t d = (*this)["gate.norm.mean"].size(0);
    set("gate.norm.mean", normal({d}, seed) * 0.3);
    set("gate.norm.variance", normal({d}, seed + 1).abs() + 0.2);
    set("gate.norm.weight", normal({d}, seed + 2) + 1);
    set("gate.norm.bias", normal({d}, seed + 3) * 0.3);
    set("gate.down.weight", normal((*this)["gate.down.weight"].sizes().vec(), seed + 4) * 2);
  }
  at::Tensor forward(const at::Tensor& x, const Mask& mask, const ForwardContext& step = {},
                     Observer* observer = nullptr, Cache* cache = nullptr) {
    return layer->forward(x, x, mask, step, cache, observer);
  }
};

struct Watch : Observer, Subscriber<GateObservation> {
  at::Tensor g;
  bool retain = false;
  void receive(const LayerSpec&, GateObservation& shown) override {
    g = shown.gates;
    if (retain) g.retain_grad();
  }
};

at::Tensor gates_of(Layer& l, const at::Tensor& x, const Mask& mask, const ForwardContext& step = {}) {
  Watch watch;
  l.forward(x, mask, step, &watch);
  return watch.g;
}

Mask causal_mask() {
  Mask mask;
  mask.causal = true;
  return mask;
}

ForwardContext training(uint32_t update = 0, bool sample = false, int64_t row_offset = 0) {
  static const Requests samples = [] {
    Requests requests;
    requests.add(std::make_shared<SampleExperts>());
    return requests;
  }();
  return {true, 7, update, row_offset, sample ? &samples : nullptr};
}

// Sets of `drop` of `heads` heads in lexicographic order, made in another way than the library's.
std::vector<std::vector<bool>> sets(int64_t heads, int64_t drop) {
  std::vector<bool> now(static_cast<size_t>(heads));
  std::fill(now.begin(), now.begin() + drop, true);
  std::vector<std::vector<bool>> all;
  do all.push_back(now);
  while (std::prev_permutation(now.begin(), now.end()));
  return all;
}

// The method as plain loops, written from the equations in the paper.
struct Naive {
  Sizes z;
  int64_t drop = 1, hidden = 0, window = 0;
  bool causal_mean = true;
  bool batch_statistics = false;
  bool cross = false;
  std::vector<int64_t> real;  // how many queries of each row are
  reference::Allowed allowed;

  // Inputs x (B, Tq, d) and m (B, Tk, d) -> (B, units, E); units: Tq, or 1 for a full mean
  Vector gates(const Vector& x, const Vector& m, const reference::Weights& w) const {
    const int64_t d = z.width, units = causal_mean ? z.queries : 1, memory = cross ? 0 : z.keys - z.queries;
    auto input = [&](int64_t b, int64_t t, int64_t c) {  // t < 0: in the memory
      return t < 0 ? m[static_cast<size_t>((b * z.keys + memory + t) * d + c)]
                   : x[static_cast<size_t>((b * z.queries + t) * d + c)];
    };
    Vector mean(static_cast<size_t>(z.batch * units * d));
    std::vector<bool> counts(static_cast<size_t>(z.batch * units));
    for (int64_t b = 0; b < z.batch; ++b)
      for (int64_t u = 0; u < units; ++u) {
        const int64_t length = real[static_cast<size_t>(b)];
        counts[static_cast<size_t>(b * units + u)] = causal_mean ? u < length : length > 0;
        const int64_t last = causal_mean ? std::min(u, length - 1) : length - 1;
        int64_t first = causal_mean ? -memory : 0;
        if (causal_mean && window > 0) first = std::max(first, u - window + 1);
        for (int64_t c = 0; c < d; ++c) {
          double sum = 0;
          for (int64_t t = first; t <= last; ++t) sum += input(b, t, c);
          mean[static_cast<size_t>((b * units + u) * d + c)] =
              sum / static_cast<double>(std::max<int64_t>(1, last - first + 1));
        }
      }
    const Vector &gamma = w.at("gate.norm.weight"), &beta = w.at("gate.norm.bias");
    Vector mu = w.at("gate.norm.mean"), variance = w.at("gate.norm.variance");
    if (batch_statistics)
      for (int64_t c = 0; c < d; ++c) {
        double n = 0, sum = 0, squares = 0;
        for (size_t r = 0; r < counts.size(); ++r)
          if (counts[r]) n += 1, sum += mean[r * static_cast<size_t>(d) + static_cast<size_t>(c)];
        if (n == 0) continue;
        for (size_t r = 0; r < counts.size(); ++r)
          if (counts[r]) squares += std::pow(mean[r * static_cast<size_t>(d) + static_cast<size_t>(c)] - sum / n, 2);
        mu[static_cast<size_t>(c)] = sum / n;
        variance[static_cast<size_t>(c)] = squares / n;
      }
    const auto all = sets(z.heads, drop);
    Vector g;
    for (int64_t r = 0; r < z.batch * units; ++r) {
      Vector inner(static_cast<size_t>(hidden)), out(all.size());
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
      for (size_t e = 0; e < all.size(); ++e) {
        double sum = w.at("gate.down.bias")[e];
        for (size_t o = 0; o < inner.size(); ++o) sum += w.at("gate.down.weight")[e * inner.size() + o] * inner[o];
        total += out[e] = std::exp(sum);
      }
      for (double v : out) g.push_back(v / total);
    }
    return g;
  }

  // What head j adds to the output, without the bias.
  Vector head(int64_t j, const Vector& x, const Vector& m, reference::Weights w) const {
    w.erase("output.bias");
    Vector& output = w.at("output.weight");
    for (size_t i = 0; i < output.size(); ++i)
      if (static_cast<int64_t>(i) % (z.heads * z.value_size) / z.value_size != j) output[i] = 0;
    return reference::attention(z, x, m, w, allowed);
  }

  // Σ_D g_D h / (h - t) Σ_{j ∉ D} H_j + b
  Vector mixture(const Vector& x, const Vector& m, const reference::Weights& w) const {
    std::vector<Vector> parts;
    for (int64_t j = 0; j < z.heads; ++j) parts.push_back(head(j, x, m, w));
    const Vector g = gates(x, m, w);
    const auto all = sets(z.heads, drop);
    const double scale = static_cast<double>(z.heads) / static_cast<double>(z.heads - drop);
    Vector y(x.size());
    for (int64_t b = 0; b < z.batch; ++b)
      for (int64_t t = 0; t < z.queries; ++t)
        for (int64_t o = 0; o < z.width; ++o) {
          const auto at = static_cast<size_t>((b * z.queries + t) * z.width + o);
          const auto unit = static_cast<size_t>(causal_mean ? b * z.queries + t : b);
          auto bias = w.find("output.bias");
          y[at] = bias == w.end() ? 0 : bias->second[static_cast<size_t>(o)];
          for (size_t e = 0; e < all.size(); ++e) {
            double expert = 0;
            for (size_t j = 0; j < parts.size(); ++j)
              if (!all[e][j]) expert += parts[j][at];
            y[at] += g[unit * all.size() + e] * scale * expert;
          }
        }
    return y;
  }
};

std::string settings(const Naive& n, const std::string& more = "") {
  return str("heads = ", n.z.heads, "\nhead_size = ", n.z.key_size, "\nvalue_size = ", n.z.value_size,
             "\ncombiner = 'mae'\nmae.drop = ", n.drop, "\nmae.hidden = ", n.hidden, "\nmae.window = ", n.window,
             "\nmae.mean = '", n.causal_mean ? "causal" : "full", "'\nmae.dropout = 0\n", more);
}

// A layer whose output at (b, t) is what scales its heads: values 1, and the output projection the identity.
struct Scales : Layer {
  Scales(int64_t heads, const std::string& more, AttentionKind kind = AttentionKind::decoder_self)
      : Layer(str("heads = ", heads, "\nhead_size = 1\ncombiner = 'mae'\n", more), heads, kind) {
    set("value.weight", at::zeros({heads, heads}));
    set("value.bias", at::ones({heads}));
    set("output.weight", at::eye(heads));
  }
};

}  // namespace

TEST_CASE("experts leave out sets of heads in lexicographic order", "[mae]") {
  CHECK(experts(4, 2) == std::vector<std::vector<int64_t>>{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}});
  for (int64_t heads = 1; heads < 9; ++heads)
    for (int64_t drop = 0; drop <= heads; ++drop) {
      const auto all = experts(heads, drop);
      const auto wanted = sets(heads, drop);
      REQUIRE(all.size() == wanted.size());
      CHECK(expert_count(heads, drop) == static_cast<int64_t>(all.size()));
      for (size_t e = 0; e < all.size(); ++e) {
        std::vector<bool> left(static_cast<size_t>(heads));
        for (int64_t head : all[e]) left[static_cast<size_t>(head)] = true;
        CHECK(left == wanted[e]);
      }
    }
  CHECK(expert_count(8, 2) == 28);
  CHECK(expert_count(64, 32) > 1000000000);
  CHECK(expert_count(65536, 30000) > 1000000000);
  CHECK(experts(3, 4).empty());
}

TEST_CASE("parameter counts of the gate", "[mae]") {
  auto added = [](int64_t width, const std::string& more) {
    auto count = [&](const std::string& toml) { return Layer(toml, width).parameters.count(); };
    return count("heads = 8\ncombiner = 'mae'\n" + more) - count("heads = 8\n");
  };
  CHECK(added(512, "") == 134408);
  CHECK(18 * added(512, "") == 2419344);
  CHECK(18 * added(512, "mae.drop = 2\n") == 2511864);
  CHECK(added(1024, "") == 2 * 1024 + 1024 * 256 + 256 + 256 * 8 + 8);
  CHECK(added(512, "mae.gate = 'uniform'\n") == 0);
}

TEST_CASE("the scaled heads are the sum over experts, over random shapes and masks", "[mae]") {
  CHECK(rc::check([] {
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    const auto flip = [] { return *rc::gen::arbitrary<bool>(); };
    Naive n;
    const int64_t place = pick(0, 3);  // encoder, decoder, decoder behind a memory, cross-attention
    const AttentionKind kind = place == 0   ? AttentionKind::encoder_self
                               : place == 3 ? AttentionKind::decoder_cross
                                            : AttentionKind::decoder_self;
    n.z = {pick(1, 3), pick(1, 7), 0, pick(1, 6), pick(2, 5), pick(1, 3), pick(1, 3)};
    n.z.keys = place == 2 ? n.z.queries + pick(1, 4) : place == 3 ? pick(1, 6) : n.z.queries;
    n.drop = pick(1, n.z.heads - 1);
    n.hidden = pick(1, 5);
    n.causal_mean = place != 0 || flip();
    n.window = n.causal_mean && flip() ? pick(1, 8) : 0;
    n.batch_statistics = flip();
    n.cross = place == 3;
    const bool bias = flip(), padded = flip(), by_queries = padded && (n.cross || flip());
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    Layer l(settings(n, bias ? "" : "bias = false\n"), n.z.width, kind, seed);
    l.stir(seed);

    Mask mask;
    mask.causal = place == 1 || place == 2;
    mask.offset = place == 2 ? n.z.keys - n.z.queries : 0;
    std::vector<int64_t> keys;
    for (int64_t b = 0; b < n.z.batch; ++b) {
      n.real.push_back(padded ? pick(0, n.z.queries) : n.z.queries);
      keys.push_back(n.cross ? n.z.keys : n.real.back() + n.z.keys - n.z.queries);
    }
    if (padded && !n.cross) mask.key_lengths = at::tensor(keys, at::kLong);
    if (by_queries) mask.query_lengths = at::tensor(n.real, at::kLong);
    n.allowed = [&](int64_t b, int64_t t, int64_t s) {
      return (!mask.causal || s <= t + mask.offset) && s < keys[static_cast<size_t>(b)];
    };
    at::Tensor m = normal({n.z.batch, n.z.keys, n.z.width}, seed + 9);
    at::Tensor x = n.cross      ? normal({n.z.batch, n.z.queries, n.z.width}, seed + 8)
                   : place == 2 ? m.narrow(1, n.z.keys - n.z.queries, n.z.queries)
                                : m;
    const Vector wanted = n.mixture(doubles(x), doubles(m), l.weights());
    double size = 1;
    for (double v : wanted) size = std::max(size, std::abs(v));
    // Statistics of a batch of nearly equal means divide by a small variance; that is the batch norm's own error.
    const double tolerance = (n.batch_statistics ? 1e-3 : 3e-5) * size;
    const auto mean = l["gate.norm.mean"].clone(), variance = l["gate.norm.variance"].clone();
    for (Path path : {Path::composed, Path::automatic}) {
      l.set("gate.norm.mean", mean);
      l.set("gate.norm.variance", variance);
      l.layer->set_path(path);
      const Vector found = doubles(l.layer->forward(x, m, mask, n.batch_statistics ? training() : ForwardContext{}));
      for (int64_t b = 0; b < n.z.batch; ++b)
        for (int64_t i = 0; i < n.real[static_cast<size_t>(b)] * n.z.width; ++i) {
          const auto at = static_cast<size_t>(b * n.z.queries * n.z.width + i);
          RC_ASSERT(std::abs(found[at] - wanted[at]) < tolerance);
        }
    }
  }));
}

TEST_CASE("gradients of the whole mixture equal differences of the sum over experts", "[mae]") {
  for (auto [drop, causal, cross] :
       {std::tuple{1, true, false}, {2, true, false}, {1, false, false}, {2, true, true}}) {
    Naive n;
    n.z = {3, 4, cross ? 5 : 4, 4, 3, 2, 2};
    n.drop = drop, n.hidden = 3, n.causal_mean = causal, n.window = drop == 2 ? 2 : 0;
    n.batch_statistics = true;
    n.cross = cross;
    n.real = {4, 2, 3};
    n.allowed = [&](int64_t b, int64_t t, int64_t s) {
      return cross || ((!causal || s <= t) && s < n.real[static_cast<size_t>(b)]);
    };
    Layer l(settings(n), n.z.width,
            cross    ? AttentionKind::decoder_cross
            : causal ? AttentionKind::decoder_self
                     : AttentionKind::encoder_self,
            5);
    l.stir(6);
    Mask mask;
    mask.causal = causal && !cross;
    if (cross) mask.query_lengths = at::tensor(n.real, at::kLong);
    else mask.key_lengths = at::tensor(n.real, at::kLong);
    at::Tensor x = normal({3, 4, 4}, 7).requires_grad_(), m = cross ? normal({3, 5, 4}, 8) : x;
    at::Tensor r = normal({3, 4, 4}, 9);  // of padding: 0
    for (int64_t b = 0; b < 3; ++b)
      r[b].narrow(0, n.real[static_cast<size_t>(b)], 4 - n.real[static_cast<size_t>(b)]).zero_();
    const Vector rd = doubles(r);
    auto loss = [&](const Vector& xs, const reference::Weights& w) {
      const Vector y = n.mixture(xs, cross ? doubles(m) : xs, w);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * rd[i];
      return sum;
    };
    (l.layer->forward(x, m, mask, training()) * r).sum().backward();
    const auto weights = l.weights();
    const double h = 1e-5;
    auto compare = [&](const at::Tensor& gradient, const std::function<double(size_t, double)>& shifted) {
      const Vector g = doubles(gradient);
      for (size_t i = 0; i < g.size(); ++i)
        CHECK(g[i] == Approx((shifted(i, h) - shifted(i, -h)) / (2 * h)).margin(5e-4).epsilon(5e-4));
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

TEST_CASE("even gates are plain attention, whatever the experts leave out", "[mae]") {
  Layer plain("heads = 4\n", 12);
  at::Tensor x = normal({2, 6, 12}, 1), wanted = plain.forward(x, causal_mask());
  for (int drop : {1, 2, 3}) {
    Layer l(str("heads = 4\ncombiner = 'mae'\nmae.init = 'zero'\nmae.drop = ", drop), 12);
    at::Tensor g = gates_of(l, x, causal_mask());
    CHECK(g.sizes() == at::IntArrayRef({2, 6, expert_count(4, drop)}));
    CHECK(at::allclose(l.forward(x, causal_mask()), wanted, 1e-5, 1e-6));
    CHECK(at::allclose(l.forward(x, causal_mask(), training()), wanted, 1e-5, 1e-6));
  }
  // The entropy of even gates.
  for (auto [drop, entropy] : {std::pair{1, 2.0794}, {2, 3.3322}}) {
    Layer l(str("heads = 8\ncombiner = 'mae'\nmae.init = 'zero'\nmae.drop = ", drop), 16);
    at::Tensor g = gates_of(l, normal({1, 3, 16}, 1), causal_mask());
    CHECK(-(g * g.log()).sum(-1).max().item<double>() == Approx(entropy).margin(1e-4));
  }
}

TEST_CASE("a gate that chooses one expert scales the heads it keeps", "[mae]") {
  Layer plain("heads = 4\n", 12);
  at::Tensor x = normal({2, 6, 12}, 1);
  for (int64_t drop : {1, 2}) {
    const auto all = experts(4, drop);
    for (size_t e = 0; e < all.size(); ++e) {
      Layer l(str("heads = 4\ncombiner = 'mae'\nmae.init = 'zero'\nmae.drop = ", drop), 12);
      l["gate.down.bias"].detach()[static_cast<int64_t>(e)] = 300;  // exp(-300) is 0
      at::Tensor scale = at::full({4}, 4 / static_cast<double>(4 - drop));
      for (int64_t head : all[e]) scale[head] = 0;
      set_head_scales(*plain.layer, {{}, scale, {}});
      CHECK(at::allclose(l.forward(x, causal_mask()), plain.forward(x, causal_mask()), 1e-5, 1e-6));
    }
  }
}

TEST_CASE("what scales heads sums to their number and stays in its range", "[mae]") {
  CHECK(rc::check([] {
    const int64_t heads = *rc::gen::inRange<int64_t>(2, 7), drop = *rc::gen::inRange<int64_t>(1, heads);
    Scales l(heads, str("mae.drop = ", drop));
    l.stir(static_cast<uint64_t>(*rc::gen::inRange(0, 100000)));
    at::Tensor x = normal({2, 5, heads}, 3), w = l.forward(x, causal_mask());
    RC_ASSERT(at::allclose(w.sum(-1), at::full({2, 5}, static_cast<double>(heads)), 1e-5));
    RC_ASSERT(w.min().item<float>() > -1e-5F);
    RC_ASSERT(w.max().item<float>() < static_cast<float>(heads) / static_cast<float>(heads - drop) + 1e-5F);
    // Each against the experts that leave it out.
    at::Tensor g = gates_of(l, x, causal_mask()), wanted = at::zeros_like(w);
    const auto all = experts(heads, drop);
    for (int64_t j = 0; j < heads; ++j)
      for (size_t e = 0; e < all.size(); ++e)
        if (std::find(all[e].begin(), all[e].end(), j) == all[e].end())
          wanted.select(-1, j) +=
              g.select(-1, static_cast<int64_t>(e)) * static_cast<double>(heads) / static_cast<double>(heads - drop);
    RC_ASSERT(at::allclose(w, wanted, 1e-4, 1e-5));
  }));
}

TEST_CASE("the gradient of a gate is what its expert lacks", "[mae]") {
  Naive n;
  n.z = {2, 3, 3, 6, 3, 2, 2};
  n.hidden = 4;
  n.allowed = [](int64_t, int64_t t, int64_t s) { return s <= t; };
  Layer l(settings(n), 6);
  l.stir(2);
  at::Tensor x = normal({2, 3, 6}, 4), r = normal({2, 3, 6}, 5);
  Watch watch;
  watch.retain = true;
  (l.forward(x, causal_mask(), {}, &watch) * r).sum().backward();
  // ∂Y/∂g_i = -h / (h - 1) H_i
  for (int64_t i = 0; i < 3; ++i) {
    const Vector part = n.head(i, doubles(x), doubles(x), l.weights());
    at::Tensor h = at::tensor(part, at::kDouble).view({2, 3, 6});
    CHECK(
        at::allclose(watch.g.grad().select(-1, i).to(at::kDouble), (h * r.to(at::kDouble)).sum(-1) * -1.5, 1e-4, 1e-5));
  }
}

TEST_CASE("identity 17: even sampling is plain attention in evaluation, and on average in training", "[mae]") {
  Layer plain("heads = 4\n", 12), l("heads = 4\ncombiner = 'mae'\nmae.gate = 'uniform'\nmae.drop = 2\n", 12);
  at::Tensor x = normal({1, 6, 12}, 1), wanted = plain.forward(x, causal_mask());
  CHECK(!l.has("gate.up.weight"));
  for (Path path : {Path::composed, Path::automatic}) {
    l.layer->set_path(path);
    plain.layer->set_path(path);
    CHECK(at::equal(l.forward(x, causal_mask()), plain.forward(x, causal_mask())));
  }
  CHECK(at::equal(gates_of(l, x, causal_mask()), at::full({1, 6}, 1.0F / 6)));
  // Each of the six experts in turn: their mean is plain attention.
  std::vector<at::Tensor> seen;
  for (uint32_t update = 0; update < 200; ++update) {
    at::Tensor y = l.forward(x, causal_mask(), training(update));
    CHECK(at::equal(y, l.forward(x, causal_mask(), training(update, true))));
    if (std::none_of(seen.begin(), seen.end(), [&](const at::Tensor& s) { return at::allclose(s, y, 1e-4, 1e-6); }))
      seen.push_back(y);
  }
  REQUIRE(seen.size() == 6);
  CHECK(at::allclose(at::stack(seen).mean(0), wanted, 1e-4, 1e-5));
  // Evenly: 6,000 draws, of rows or of positions; a frequency's deviation is 0.0048.
  for (const auto& [unit, sizes] :
       {std::pair("sequence", std::vector<int64_t>{6000, 2, 4}), {"position", {60, 100, 4}}}) {
    Scales drawn(4, str("mae.gate = 'uniform'\nmae.drop = 2\nmae.sample_unit = '", unit, "'\n"));
    at::Tensor w = drawn.forward(at::zeros(sizes), causal_mask(), training());
    const auto all = experts(4, 2);
    for (const auto& expert : all) {
      at::Tensor out = (w.select(-1, expert[0]) == 0) & (w.select(-1, expert[1]) == 0);
      CHECK(out.to(at::kFloat).mean().item<double>() == Approx(1.0 / 6).margin(0.02));
    }
  }
}

namespace {

// The heads that each attention layer leaves out, (B, h) or (B, Tq, h) bool, in the order of the layers.
struct Drawn : Observer, Subscriber<WeightObservation> {
  std::vector<std::pair<AttentionKind, at::Tensor>> out;
  void receive(const LayerSpec& shape, WeightObservation& shown) override {
    out.emplace_back(shape.kind, shown.weights == 0);
  }
};

bool same_in_row(const at::Tensor& out) { return out.dim() == 2 || at::equal(out, out.narrow(1, 0, 1).expand_as(out)); }

}  // namespace

TEST_CASE("an expert is drawn for each row, in every layer of every backbone, unless positions are the unit", "[mae]") {
  const std::string mae = "[attention]\nheads = 4\ncombiner = 'mae'\n", sizes = "layers = 2\nwidth = 32\nffn = 24\n";
  struct Case {
    std::string toml;
    bool encodes;
    size_t layers;
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
      auto drawn = [&](const std::string& unit, uint32_t update) {
        const auto model = translators::built(c.toml + str("[attention.mae]\ngate = '", gate, "'\n", unit));
        Drawn seen;
        model->hidden(every_model::input(*model, c.encodes, 9), training(update, true), nullptr, &seen);
        return seen.out;
      };
      INFO(c.toml << gate);
      bool rows_differ = false, layers_differ = false, positions_differ = false;
      for (uint32_t update = 0; update < 8; ++update) {
        const auto by_row = drawn("", update);
        REQUIRE(by_row.size() == c.layers);
        for (const auto& [kind, out] : by_row) {
          CHECK(same_in_row(out));
          CHECK(at::equal(out.sum(-1), at::ones_like(out.sum(-1))));
          rows_differ |= !at::equal(out[0], out[1]);
          const at::Tensor first = by_row[0].second;
          layers_differ |=
              !at::equal(out.dim() == 2 ? out : out.select(1, 0), first.dim() == 2 ? first : first.select(1, 0));
        }
        for (const auto& [kind, out] : drawn("sample_unit = 'position'\n", update))
          positions_differ |= !same_in_row(out);
      }
      CHECK(rows_differ);
      CHECK(layers_differ);
      CHECK(positions_differ);
    }
}

TEST_CASE("a row's expert is drawn from the mean of its gates over real positions", "[mae]") {
  Scales l(3, "mae.hidden = 4\n");
  l.stir(5);
  const int64_t rows = 4000, real = 5;
  at::Tensor x = normal({1, 8, 3}, 1).expand({rows, 8, 3});
  Mask mask = causal_mask();
  mask.key_lengths = at::full({rows}, real, at::kLong);
  Watch watch;
  at::Tensor w = l.forward(x, mask, training(3, true), &watch);
  const at::Tensor often = (w.select(1, 0) == 0).to(at::kFloat).mean(0), g = watch.g[0].narrow(0, 0, real).mean(0);
  CHECK((often - g).abs().max().item<float>() < 0.035F);  // four standard deviations
  CHECK((watch.g[0].mean(0) - g).abs().max().item<float>() > 0.04F);
}

TEST_CASE("drawn experts: the fused path gives the composed one's outputs and gradients", "[mae]") {
  for (const char* unit : {"sequence", "position"})
    for (const char* gate : {"learned", "uniform"}) {
      INFO(unit << " " << gate);
      Layer l(
          str("heads = 2\ndropout = 0.3\ncombiner = 'mae'\nmae.sample_unit = '", unit, "'\nmae.gate = '", gate, "'\n"),
          32);
      at::Tensor r = normal({3, 9, 32}, 2);
      auto run = [&](Path path) {
        l.layer->set_path(path);
        l.parameters.zero_gradients();
        at::Tensor x = normal({3, 9, 32}, 1).requires_grad_();
        at::Tensor y = l.forward(x, causal_mask(), training(5, true));
        (y * r).sum().backward();
        return std::vector<at::Tensor>{y.detach(), x.grad().clone(), l["value.weight"].grad().clone(),
                                       l["output.weight"].grad().clone()};
      };
      const auto composed = run(Path::composed), fused = run(Path::fused);
      for (size_t i = 0; i < composed.size(); ++i) CHECK(at::allclose(composed[i], fused[i], 1e-4, 1e-4));
    }
}

TEST_CASE("resume keeps sample_unit = position, and refuses sequence", "[mae]") {
  Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::lines(400));
  const std::string uniform = "[attention]\ncombiner = 'mae'\n[attention.mae]\ngate = 'uniform'\n",
                    position = "sample_unit = 'position'\n";
  auto until = [](int updates) { return str("[train]\nlength = '", updates, "u'\nschedule.length = '6u'\n"); };
  auto whole = runs::run_of(folder, "whole", uniform + position + until(6));
  runs::run_of(folder, "run", uniform + position + until(3));
  try {
    runs::run_of(folder, "run", uniform + until(6), true);
    FAIL("resumed");
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::usage);
    CHECK(std::string(error.what()).find("attention.mae.sample_unit: \"position\" -> \"sequence\"") !=
          std::string::npos);
  }
  auto resumed = runs::run_of(folder, "run", uniform + position + until(6), true),
       rows = runs::run_of(folder, "rows", uniform + until(6));
  const std::string name = "decoder.layers.0.self.value.weight";
  CHECK(at::equal(runs::find(resumed, name), runs::find(whole, name)));
  CHECK_FALSE(at::equal(runs::find(rows, name), runs::find(whole, name)));
}

TEST_CASE("a sampling step trains the heads it keeps and leaves the gate alone", "[mae]") {
  Layer l("heads = 4\ncombiner = 'mae'\nmae.drop = 2\n", 12);
  l.stir(1);
  const auto all = experts(4, 2);
  at::Tensor x = normal({1, 6, 12}, 1).requires_grad_(), r = normal({1, 6, 12}, 2);
  const at::Tensor mean = l["gate.norm.mean"].clone(), variance = l["gate.norm.variance"].clone();
  const at::Tensor g = gates_of(l, x, causal_mask());
  std::set<std::set<int64_t>> drawn;
  for (uint32_t update = 0; update < 12; ++update) {
    l.parameters.zero_gradients();
    // Gates as in evaluation: running statistics, no dropout, no gradient.
    Watch watch;
    (l.forward(x, causal_mask(), training(update, true), &watch) * r).sum().backward();
    CHECK(!watch.g.requires_grad());
    CHECK(at::equal(watch.g, g));
    std::set<int64_t> out;
    for (auto& p : l.parameters.all()) {
      INFO(p.name());
      if (p.name().find(".gate.") != std::string::npos) {
        CHECK(!p.master().grad().defined());
        continue;
      }
      if (p.traits().head_axes.empty() || p.name() == "x.key.bias")
        continue;  // the gradient of key.bias is 0 throughout
      std::set<int64_t> zero;
      auto blocks = p.master().grad().chunk(4, p.traits().head_axes[0].axis);
      for (int64_t j = 0; j < 4; ++j)
        if (blocks[static_cast<size_t>(j)].abs().max().item<float>() == 0) zero.insert(j);
      CHECK(zero.size() == 2);
      if (out.empty()) out = zero;
      CHECK(zero == out);
    }
    drawn.insert(out);
  }
  CHECK(drawn.size() > 1);
  CHECK(at::equal(l["gate.norm.mean"], mean));
  CHECK(at::equal(l["gate.norm.variance"], variance));
}

TEST_CASE("experts are drawn as often as their gates say", "[mae]") {
  for (const char* unit : {"position", "sequence"}) {
    Scales l(3, str("mae.hidden = 4\nmae.sample_unit = '", unit, "'\n"));
    l.stir(5);
    at::Tensor x = normal({1, 8, 3}, 1).expand({4000, 8, 3});
    Watch watch;
    at::Tensor w = l.forward(x, causal_mask(), training(3, true), &watch);
    at::Tensor often = (w == 0).to(at::kFloat).mean(0), g = watch.g[0];  // (T, h); expert i leaves out head i
    if (std::string(unit) == "sequence") {
      CHECK(at::allclose(w, w.narrow(1, 0, 1).expand_as(w)));
      g = g.mean(0, true).expand({8, 3});
    } else {
      CHECK(!at::allclose(w, w.narrow(1, 0, 1).expand_as(w)));
    }
    CHECK(g.max().item<float>() - g.min().item<float>() > 0.1F);
    CHECK((often - g).abs().max().item<float>() < 0.035F);  // four standard deviations
    CHECK(at::equal((w == 0).sum(-1), at::ones({4000, 8}, at::kLong)));
    // Other updates, layers' kinds and seeds draw others.
    CHECK(!at::equal(w, l.forward(x, causal_mask(), training(4, true))));
    ForwardContext other = training(3, true);
    other.seed = 8;
    CHECK(!at::equal(w, l.forward(x, causal_mask(), other)));
  }
}

TEST_CASE("a full mean draws for each sequence", "[mae]") {
  for (const char* gate : {"learned", "uniform"}) {
    Scales l(4, str("mae.mean = 'full'\nmae.gate = '", gate, "'\n"), AttentionKind::encoder_self);
    at::Tensor w = l.forward(normal({40, 5, 4}, 1), {}, training(1, true));
    CHECK(at::allclose(w, w.narrow(1, 0, 1).expand_as(w)));
    CHECK(w.std(0).max().item<float>() > 0.1F);
  }
}

TEST_CASE("micro-batches draw the experts of the whole batch", "[mae]") {
  for (const char* unit : {"position", "sequence"})
    for (const char* gate : {"learned", "uniform"}) {
      Layer l(str("heads = 4\ncombiner = 'mae'\nmae.sample_unit = '", unit, "'\nmae.gate = '", gate, "'\n"), 8);
      at::Tensor x = normal({6, 5, 8}, 2);
      at::Tensor whole = l.forward(x, causal_mask(), training(2, true));
      at::Tensor first = l.forward(x.narrow(0, 0, 2), causal_mask(), training(2, true)),
                 second = l.forward(x.narrow(0, 2, 4), causal_mask(), training(2, true, 2));
      CHECK(at::allclose(at::cat({first, second}), whole, 1e-5, 1e-6));
      CHECK(!at::allclose(l.forward(x.narrow(0, 2, 4), causal_mask(), training(2, true)), second, 1e-3, 1e-4));
      // However far rows are padded.
      at::Tensor padded = at::cat({x, at::ones({6, 3, 8})}, 1);
      if (std::string(unit) == "position")
        CHECK(at::allclose(l.forward(padded, causal_mask(), training(2, true)).narrow(1, 0, 5), whole, 1e-5, 1e-6));
    }
}

TEST_CASE("the gate's batch norm keeps running statistics as torch does", "[mae]") {
  Layer l("heads = 2\ncombiner = 'mae'\nmae.dropout = 0\n", 4, AttentionKind::encoder_self),
      causal("heads = 2\ncombiner = 'mae'\n", 4);
  l.set("gate.norm.mean", at::tensor({1.0F, 2.0F, 3.0F, 4.0F}));
  at::Tensor x = normal({5, 3, 4}, 1), means = x.cumsum(1) / at::tensor({1.0F, 2.0F, 3.0F}).view({1, 3, 1});
  at::Tensor mean = l["gate.norm.mean"].clone(), variance = l["gate.norm.variance"].clone();
  at::batch_norm(means.flatten(0, 1), {}, {}, mean, variance, true, 0.1, 1e-5, false);
  l.forward(x, {}, training());
  CHECK(at::allclose(l["gate.norm.mean"], mean, 1e-5, 1e-6));
  CHECK(at::allclose(l["gate.norm.variance"], variance, 1e-5, 1e-6));
  // Neither evaluation nor a sampling step moves them.
  mean = l["gate.norm.mean"].clone();
  l.forward(x, {});
  l.forward(x, {}, training(0, true));
  CHECK(at::equal(l["gate.norm.mean"], mean));
  // Of a padded batch the real positions alone: those of the first row.
  Mask mask = causal_mask();
  mask.key_lengths = at::tensor({3, 0}, at::kLong);
  causal.forward(x.narrow(0, 0, 2), mask, training());
  CHECK(at::allclose(causal["gate.norm.mean"], means[0].mean(0) * 0.1, 1e-5, 1e-6));
  CHECK(
      at::allclose(causal["gate.norm.variance"], 0.9 + 0.1 * at::var(means[0], at::IntArrayRef{0}, true), 1e-5, 1e-6));
  // A batch of one has no variance, a batch of none no statistics.
  mask.key_lengths = at::tensor({1, 0}, at::kLong);
  CHECK(causal.forward(x.narrow(0, 0, 2), mask, training()).isfinite().all().item<bool>());
  mask.key_lengths = at::tensor({0, 0}, at::kLong);
  CHECK(causal.forward(x.narrow(0, 0, 2), mask, training()).isfinite().all().item<bool>());
}

TEST_CASE("norm_statistics = batch: sampling steps see the batch's", "[mae]") {
  at::Tensor x = normal({5, 3, 8}, 1) + 3;
  Layer running("heads = 2\ncombiner = 'mae'\nmae.dropout = 0\n", 8),
      batch("heads = 2\ncombiner = 'mae'\nmae.dropout = 0\nmae.norm_statistics = 'batch'\n", 8);
  at::Tensor evaluated = gates_of(running, x, causal_mask());
  CHECK(at::equal(gates_of(running, x, causal_mask(), training(0, true)), evaluated));
  at::Tensor g = gates_of(batch, x, causal_mask(), training(0, true));
  CHECK(at::equal(batch["gate.norm.mean"], at::zeros({8})));
  CHECK(at::allclose(g, gates_of(batch, x, causal_mask(), training()), 1e-5, 1e-6));
  CHECK(!at::allclose(g, evaluated, 1e-3, 1e-3));
}

TEST_CASE("dropout in the gate acts in steps that train it", "[mae]") {
  Layer l("heads = 2\ncombiner = 'mae'\nmae.dropout = 0.5\n", 8);
  at::Tensor x = normal({4, 3, 8}, 1);
  CHECK(!at::allclose(gates_of(l, x, causal_mask(), training(0)), gates_of(l, x, causal_mask(), training(1))));
  CHECK(at::equal(gates_of(l, x, causal_mask(), training(0, true)), gates_of(l, x, causal_mask(), training(1, true))));
}

TEST_CASE("causal gates: later tokens change nothing, and nothing from before the window does", "[mae]") {
  for (int64_t window : {0, 1, 3, 100}) {
    Layer l(str("heads = 4\ncombiner = 'mae'\nmae.window = ", window), 8);
    l.stir(3);
    at::Tensor a = normal({2, 230, 8}, 1), b = a.clone();
    b.narrow(1, 120, 110).copy_(normal({2, 110, 8}, 2) * 5);
    CHECK(at::equal(gates_of(l, a, causal_mask()).narrow(1, 0, 120), gates_of(l, b, causal_mask()).narrow(1, 0, 120)));
    CHECK(at::equal(l.forward(a, causal_mask()).narrow(1, 0, 120), l.forward(b, causal_mask()).narrow(1, 0, 120)));
    CHECK(!at::allclose(gates_of(l, a, causal_mask()).narrow(1, 120, 1),
                        gates_of(l, b, causal_mask()).narrow(1, 120, 1)));
    // A token at `changed` is seen up to changed + window - 1, and not after.
    at::Tensor c = a.clone();
    c.select(1, 7).add_(100);
    at::Tensor before = gates_of(l, a, causal_mask()), after = gates_of(l, c, causal_mask());
    const int64_t last = window == 0 ? 229 : 7 + window - 1;
    CHECK(!at::equal(before.select(1, last), after.select(1, last)));
    if (window > 0) CHECK(at::equal(before.narrow(1, last + 1, 229 - last), after.narrow(1, last + 1, 229 - last)));
  }
}

TEST_CASE("padding changes nothing for the others", "[mae]") {
  for (const char* mean : {"causal", "full"}) {
    Layer l(str("heads = 4\ncombiner = 'mae'\nmae.mean = '", mean, "'\n"), 8, AttentionKind::encoder_self);
    l.stir(3);
    at::Tensor a = normal({2, 9, 8}, 1), b = a.clone();
    b[1].narrow(0, 5, 4).fill_(50);
    Mask mask;
    mask.key_lengths = at::tensor({9, 5}, at::kLong);
    at::Tensor x = l.forward(a, mask), y = l.forward(b, mask);
    CHECK(at::equal(x[0], y[0]));
    CHECK(at::equal(x[1].narrow(0, 0, 5), y[1].narrow(0, 0, 5)));
    CHECK(at::allclose(l.forward(a.narrow(0, 1, 1).narrow(1, 0, 5), {})[0], x[1].narrow(0, 0, 5), 1e-5, 1e-6));
  }
}

TEST_CASE("decoding with a cache gives the gates of the whole pass", "[mae]") {
  c10::NoGradGuard no_gradient;
  for (AttentionKind kind : {AttentionKind::decoder_self, AttentionKind::decoder_cross})
    for (int64_t window : {0, 1, 2, 4, 100}) {
      Layer l(str("heads = 4\ncombiner = 'mae'\nmae.window = ", window), 8, kind);
      l.stir(3);
      const bool cross = kind == AttentionKind::decoder_cross;
      at::Tensor x = normal({3, 12, 8}, 1), m = cross ? normal({3, 5, 8}, 2) : x;
      auto run = [&](const at::Tensor& part, const at::Tensor& keys, Cache* cache, Watch& watch) {
        Mask mask;
        mask.causal = !cross;
        mask.offset = cross || cache == nullptr ? 0 : cache->length();
        return l.layer->forward(part, cross ? keys : part, mask, {}, cache, &watch);
      };
      Watch whole, part;
      at::Tensor full = run(x, m, nullptr, whole);
      Cache cache;
      int64_t at = 0;
      for (int64_t step : {1, 3, 1, 2, 4}) {
        at::Tensor y = run(x.narrow(1, at, step), m, &cache, part);
        CHECK(at::allclose(part.g, whole.g.narrow(1, at, step), 1e-5, 1e-6));
        CHECK(at::allclose(y, full.narrow(1, at, step), 1e-4, 1e-5));
        at += step;
      }
      // Rows in another order go on as those they came from.
      at::Tensor rows = at::tensor({2, 0}, at::kLong);
      cache.reorder(rows);
      run(x.index_select(0, rows).narrow(1, at, 1), m, &cache, part);
      CHECK(at::allclose(part.g, whole.g.index_select(0, rows).narrow(1, at, 1), 1e-5, 1e-6));
    }
}

TEST_CASE("decoding leaves out padding as the whole pass does", "[mae]") {
  c10::NoGradGuard no_gradient;
  const std::vector<int64_t> lengths{12, 5, 8};
  for (int64_t window : {0, 3}) {
    Layer l(str("heads = 4\ncombiner = 'mae'\nmae.window = ", window), 8);
    l.stir(3);
    at::Tensor x = normal({3, 12, 8}, 1);
    Mask mask = causal_mask();
    mask.key_lengths = at::tensor(lengths, at::kLong);
    Watch whole, part;
    l.forward(x, mask, {}, &whole);
    Cache cache;
    std::vector<at::Tensor> gates;
    for (int64_t step : {1, 5, 4, 2}) {
      mask.offset = cache.length();
      l.forward(x.narrow(1, mask.offset, step), mask, {}, &part, &cache);
      gates.push_back(part.g);
    }
    at::Tensor all = at::cat(gates, 1);
    for (int64_t b = 0; b < 3; ++b) {
      const int64_t n = lengths[static_cast<size_t>(b)];
      CHECK(at::allclose(all[b].narrow(0, 0, n), whole.g[b].narrow(0, 0, n), 1e-5, 1e-6));
    }
  }
}

TEST_CASE("inputs in a memory count as inputs before", "[mae]") {
  for (int64_t window : {0, 3, 100}) {
    Layer l(str("heads = 4\ncombiner = 'mae'\nmae.window = ", window), 8);
    l.stir(3);
    at::Tensor x = normal({2, 9, 8}, 1);
    Mask mask = causal_mask();
    mask.offset = 6;
    CHECK(at::allclose(l.layer->forward(x.narrow(1, 6, 3), x, mask, {}), l.forward(x, causal_mask()).narrow(1, 6, 3),
                       1e-4, 1e-5));
  }
}

TEST_CASE("permuting heads, their experts with them, leaves the layer as it is", "[mae]") {
  Layer l("heads = 3\ncombiner = 'mae'\n", 12);
  l.stir(3);
  at::Tensor x = normal({2, 5, 12}, 1), before = l.forward(x, causal_mask());
  c10::NoGradGuard no_gradient;
  for (auto& p : l.parameters.all()) {
    if (p.traits().head_axes.empty()) continue;
    const nn::HeadAxis& heads = p.traits().head_axes[0];
    auto blocks = p.master().chunk(heads.heads, heads.axis);
    p.master().copy_(at::cat({blocks[2], blocks[0], blocks[1]}, heads.axis));
  }
  CHECK(at::allclose(l.forward(x, causal_mask()), before, 1e-4, 1e-5));
}

TEST_CASE("the fused path is taken, and bf16 stays near", "[mae]") {
  Layer l("heads = 4\ncombiner = 'mae'\n", 32);
  l.stir(3);
  at::Tensor x = normal({2, 9, 32}, 1) * 0.3, composed;
  l.layer->set_path(Path::composed);
  composed = l.forward(x, causal_mask());
  l.layer->set_path(Path::fused);
  CHECK(at::allclose(l.forward(x, causal_mask()), composed, 1e-4, 1e-5));
  l.parameters.set_bf16(true);
  at::Tensor y = l.forward(x, causal_mask());
  CHECK(y.scalar_type() == at::kBFloat16);
  CHECK((y.to(at::kFloat) - composed).abs().max().item<float>() < 0.05F * composed.abs().max().item<float>());
  y.to(at::kFloat).sum().backward();
  l.parameters.collect_gradients();
  CHECK(l["gate.up.weight"].grad().defined());
}

TEST_CASE("what the mixture cannot do is refused with the reason", "[mae]") {
  auto refused = [](const std::string& toml, AttentionKind kind, const std::string& reason) {
    try {
      Layer l("combiner = 'mae'\n" + toml, 24, kind);
      FAIL("taken: " << toml);
    } catch (const Error& error) {
      CHECK(error.exit() == Exit::usage);
      INFO(error.what());
      CHECK(std::string(error.what()).find(reason) != std::string::npos);
    }
  };
  refused("heads = 2\nmae.drop = 2\n", AttentionKind::decoder_self, "less than the 2 heads");
  refused("heads = 1\n", AttentionKind::decoder_self, "less than the 1 heads");
  refused("heads = 24\nmae.drop = 6\n", AttentionKind::decoder_self, "at most 10000 experts");
  refused("heads = 2\nmae.drop = 0\n", AttentionKind::decoder_self, "mae.drop");
  refused("heads = 2\nmae.mean = 'full'\n", AttentionKind::decoder_self, "later tokens");
  refused("heads = 2\nmae.mean = 'full'\n", AttentionKind::decoder_cross, "later tokens");
  refused("heads = 2\nmae.mean = 'full'\nmae.window = 3\n", AttentionKind::encoder_self, "attention.mae.window");
  refused("heads = 2\nmae.gate = 'even'\n", AttentionKind::decoder_self, "uniform");
  Capabilities full =
      Layer("heads = 2\ncombiner = 'mae'\nmae.mean = 'full'\n", 8, AttentionKind::encoder_self).layer->capabilities();
  CHECK((full.self && !full.causal && !full.cross && !full.incremental));
  Capabilities causal = Layer("heads = 2\ncombiner = 'mae'\n", 8).layer->capabilities();
  CHECK((causal.self && causal.causal && causal.cross && causal.memory && causal.incremental));
  // Without a gate nothing is averaged, so nothing leaks.
  CHECK(
      Layer("heads = 2\ncombiner = 'mae'\nmae.mean = 'full'\nmae.gate = 'uniform'\n", 8).layer->capabilities().causal);
}

TEST_CASE("block coordinate descent: gates in some epochs, all else in every one", "[mae]") {
  Config config;
  config.load_text("[p]\nevery = 3\nfirst = 1\n", "test");
  auto usual = train::procedures().make("block-coordinate", ""),
       later = train::procedures().make("block-coordinate", "");
  config.read("p", *later);
  for (int64_t epoch = 0; epoch < 23; ++epoch) {
    CHECK(usual->passes({0, epoch, 0}).size() == (epoch % 5 == 0 ? 2 : 1));
    CHECK(later->passes({0, epoch, 0}).size() == (epoch % 3 == 1 ? 2 : 1));
  }
  const auto both = usual->passes({0, 0, 0});
  const auto samples = [](const train::Pass& pass) { return pass.requests.find<SampleExperts>() != nullptr; };
  CHECK((!samples(both[0]) && samples(both[1]) && samples(usual->passes({0, 1, 0})[0])));
  Layer l("heads = 2\ncombiner = 'mae'\n", 8);
  int64_t gates = 0;
  for (const auto& p : l.parameters.all()) {
    CHECK(both[0].acts(p) != both[1].acts(p));
    gates += both[0].acts(p) ? 1 : 0;
  }
  CHECK(gates == 8);
}
