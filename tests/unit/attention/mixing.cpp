// Mixers and Sigsoftmax against plain loops in double precision, forward and gradients, and the identities between
// methods that mix heads.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "attention/head_mix.h"
#include "attention/masked_softmax.h"
#include "fixtures/gradients.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using layers::Layer;
using layers::Watch;
using numbers::close;
using numbers::doubles;
using numbers::normal;
using numbers::worst;
using reference::Vector;

namespace {

// The attention layer with everything that this part's stages add, as plain loops in double precision:
//   L = Q Kᵀ / √dk;  L'_k = Σ_j pre[j, k] L_j;  P_k ∝ exp(L'_k) (σ(L'_k)) over allowed keys;
//   P̄_i = Σ_k M[t, k, i] P_k, M = post + Σ_c q_k[t, c] W[i, c];  Z_i = P̄_i V_i;  Z'_i = Σ_j α[i, j] Z_j;  y = Z' W^O +
//   b.
struct Oracle {
  int64_t batch, queries, keys, width, heads, inside, dk, dv;
  bool sigmoid = false;
  Vector pre, post, query_weight, alpha;  // empty: identity, or zero
  Vector operator()(const Vector& x, const Vector& m, const reference::Weights& w,
                    const reference::Allowed& allowed) const {
    auto at = [](const Vector& v, int64_t i) { return v[static_cast<size_t>(i)]; };
    auto project = [&](const Vector& in, int64_t b, int64_t t, int64_t length, const char* name, int64_t out) {
      double sum = at(w.at(std::string(name) + ".bias"), out);
      for (int64_t c = 0; c < width; ++c)
        sum += at(in, (b * length + t) * width + c) * at(w.at(std::string(name) + ".weight"), out * width + c);
      return sum;
    };
    Vector y(static_cast<size_t>(batch * queries * width));
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 0; t < queries; ++t) {
        Vector logits(static_cast<size_t>(heads * keys)), p(static_cast<size_t>(inside * keys)),
            z(static_cast<size_t>(heads * dv)), mixed(z.size());
        for (int64_t j = 0; j < heads; ++j)
          for (int64_t s = 0; s < keys; ++s) {
            double sum = 0;
            for (int64_t c = 0; c < dk; ++c)
              sum += project(x, b, t, queries, "query", j * dk + c) * project(m, b, s, keys, "key", j * dk + c);
            logits[static_cast<size_t>(j * keys + s)] = sum / std::sqrt(static_cast<double>(dk));
          }
        for (int64_t k = 0; k < inside; ++k) {
          double total = 0;
          for (int64_t s = 0; s < keys; ++s) {
            if (!allowed(b, t, s)) continue;
            double a = 0;
            for (int64_t j = 0; j < heads; ++j)
              a += (pre.empty() ? (j == k ? 1.0 : 0.0) : at(pre, j * inside + k)) * at(logits, j * keys + s);
            p[static_cast<size_t>(k * keys + s)] = std::exp(a) / (sigmoid ? 1 + std::exp(-a) : 1);
            total += at(p, k * keys + s);
          }
          for (int64_t s = 0; s < keys && total > 0; ++s) p[static_cast<size_t>(k * keys + s)] /= total;
        }
        for (int64_t i = 0; i < heads; ++i)
          for (int64_t k = 0; k < inside; ++k) {
            double factor = post.empty() ? (i == k ? 1.0 : 0.0) : at(post, k * heads + i);
            if (!query_weight.empty())
              for (int64_t c = 0; c < dk; ++c)
                factor += project(x, b, t, queries, "query", k * dk + c) * at(query_weight, i * dk + c);
            for (int64_t s = 0; s < keys; ++s)
              for (int64_t c = 0; c < dv; ++c)
                z[static_cast<size_t>(i * dv + c)] +=
                    factor * at(p, k * keys + s) * project(m, b, s, keys, "value", i * dv + c);
          }
        for (int64_t i = 0; i < heads; ++i)
          for (int64_t j = 0; j < heads; ++j)
            for (int64_t c = 0; c < dv; ++c)
              mixed[static_cast<size_t>(i * dv + c)] +=
                  (alpha.empty() ? (i == j ? 1.0 : 0.0) : at(alpha, i * heads + j)) * at(z, j * dv + c);
        for (int64_t o = 0; o < width; ++o) {
          double sum = at(w.at("output.bias"), o);
          for (int64_t c = 0; c < heads * dv; ++c) sum += at(mixed, c) * at(w.at("output.weight"), o * heads * dv + c);
          y[static_cast<size_t>((b * queries + t) * width + o)] = sum;
        }
      }
    return y;
  }
};

// The oracle of a layer, with its parameters from `w`.
Vector expected(Oracle o, const reference::Weights& w, const Vector& x, const Vector& m,
                const reference::Allowed& allowed) {
  auto part = [&](const char* name) { return w.count(name) != 0 ? w.at(name) : Vector(); };
  o.pre = part("mixer.logits"), o.post = part("mixer.matrix"), o.query_weight = part("mixer.query.weight");
  o.alpha = part("combiner.alpha");
  return o(x, m, w, allowed);
}

struct Case {
  const char* toml;
  int64_t inside = 0;
  bool logits = false;  // the matrix acts on logits
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"mixer = 'mixhead-a'"},
      {"mixer = 'mixhead-b'"},
      {"mixer = 'random-normal'"},
      {"mixer = 'random-uniform'"},
      {"mixer = 'mean'"},
      {"mixer = 'talking-heads'"},
      {"mixer = 'talking-heads'\n[attention.talking-heads]\ninside = 5", 5},
      {"mixer = 'talking-heads'\n[attention.talking-heads]\ninit = 'xavier'\npre = false"},
      {"mixer = 'talking-heads'\n[attention.talking-heads]\npost = false"},
      {"normaliser = 'sigsoftmax'"},
      {"normaliser = 'sigsoftmax'\nmixer = 'mixhead-b'\ncombiner = 'alphas'"},
      {"combiner = 'alphas'"},
      {"mixer = 'mixhead-a'\n[attention.mixhead-a]\non = 'logits'", 0, true}};
  return all;
}

std::string sized(int64_t heads, int64_t dk, int64_t dv, const char* rest) {
  return str("heads = ", heads, "\nhead_size = ", dk, "\nvalue_size = ", dv, "\n", rest);
}

Oracle oracle_of(const Case& c, int64_t batch, int64_t queries, int64_t keys, int64_t width, const Layer& l) {
  const auto& s = l.layer->shape();
  return {batch,      queries,      keys,
          width,      s.heads,      c.inside > 0 ? c.inside : s.heads,
          s.key_size, s.value_size, l.options.normaliser == "sigsoftmax",
          {},         {},           {},
          {}};
}

// A case that mixes logits by A reads as talking heads' first matrix.
reference::Weights adjusted(const Case& c, reference::Weights w) {
  if (c.logits) {
    w["mixer.logits"] = w.at("mixer.matrix");
    w.erase("mixer.matrix");
  }
  return w;
}

}  // namespace

TEST_CASE("layers that mix heads equal plain loops over random shapes and masks", "[mixing]") {
  c10::NoGradGuard no_gradient;
  CHECK(rc::check([] {
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    const Case& c = cases()[static_cast<size_t>(pick(0, static_cast<int64_t>(cases().size()) - 1))];
    const int64_t batch = pick(1, 2), queries = pick(1, 5), width = pick(1, 7);
    const bool cross = pick(0, 1) == 1, causal = !cross && pick(0, 1) == 1, padded = pick(0, 1) == 1;
    const int64_t keys = cross ? pick(1, 20) : queries;
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    Layer l(sized(pick(1, 6), pick(1, 4), pick(1, 4), c.toml), width, seed,
            cross ? Kind::decoder_cross : Kind::decoder_self);
    l.shake(seed + 9);
    const at::Tensor x = normal({batch, queries, width}, seed), m = cross ? normal({batch, keys, width}, seed + 1) : x;
    Mask mask;
    mask.causal = causal;
    mask.offset = causal ? pick(0, 2) : 0;
    std::vector<int64_t> lengths;
    if (padded) {
      for (int64_t b = 0; b < batch; ++b) lengths.push_back(pick(0, keys));  // 0: no key at all
      mask.key_lengths = at::tensor(lengths, at::kLong);
    }
    const auto allowed = [&](int64_t b, int64_t t, int64_t s) {
      return (!causal || s <= t + mask.offset) && (!padded || s < lengths[static_cast<size_t>(b)]);
    };
    const Vector wanted = expected(oracle_of(c, batch, queries, keys, width, l), adjusted(c, l.weights()), doubles(x),
                                   doubles(m), allowed);
    RC_ASSERT(worst(doubles(l(x, m, mask)), wanted) < 5e-5);
  }));
}

TEST_CASE("gradients of layers that mix heads equal differences of the plain loops", "[mixing]") {
  for (const Case& c : cases()) {
    INFO(c.toml);
    Layer l(sized(3, 2, 3, c.toml), 4, 5);
    l.shake(3);
    Mask mask;
    mask.causal = true;
    const Oracle oracle = oracle_of(c, 2, 3, 3, 4, l);
    for (Path path : {Path::automatic, Path::composed}) {
      l.layer->set_path(path);
      layers::check_gradients(
          l, normal({2, 3, 4}, 7), [&](const at::Tensor& x) { return l(x, x, mask); },
          [&](const reference::Weights& w, const Vector& x) {
            return expected(oracle, adjusted(c, w), x, x, [](int64_t, int64_t t, int64_t s) { return s <= t; });
          });
    }
  }
}

TEST_CASE("mixing equals a sum over heads, on any layout and type, forward and backward", "[mixing]") {
  CHECK(rc::check([] {
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    const int64_t b = pick(1, 3), in = pick(1, 9), out = pick(1, 9), t = pick(1, 40), s = pick(1, 150);
    const bool by_position = pick(0, 1) == 1, transposed = pick(0, 1) == 1;
    const auto type = pick(0, 2) == 0 ? at::kBFloat16 : at::kFloat;
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    at::Tensor x = (transposed ? normal({b, t, in, s}, seed).transpose(1, 2) : normal({b, in, t, s}, seed)).to(type);
    at::Tensor m = by_position ? normal({b, t, in, out}, seed + 1) : normal({in, out}, seed + 1);
    Mixing mixing;
    mixing.by_position = pick(0, 1) == 1;
    if (pick(0, 1) == 1) {
      mixing.causal_offset = pick(0, 3);
      x = x.tril(*mixing.causal_offset);
    }
    const at::Tensor dy = normal({b, out, t, s}, seed + 2).to(type);
    x = x.detach().requires_grad_(), m = m.detach().requires_grad_();
    const at::Tensor y = mix_heads(x, m, mixing);
    y.backward(dy);
    const at::Tensor xd = x.detach().to(at::kDouble), md = m.detach().to(at::kDouble), dd = dy.to(at::kDouble);
    const char* how = by_position ? "bjts,btji->bits" : "bjts,ji->bits";
    const at::Tensor wanted = at::einsum(how, {xd, md});
    at::Tensor dx = at::einsum(by_position ? "bits,btji->bjts" : "bits,ji->bjts", {dd, md});
    if (mixing.causal_offset) dx = dx.tril(*mixing.causal_offset);
    const at::Tensor seen = mixing.causal_offset ? dd.tril(*mixing.causal_offset) : dd;
    const at::Tensor dm = at::einsum(by_position ? "bjts,bits->btji" : "bjts,bits->ji", {xd, seen});
    auto errs = [](const at::Tensor& a, const at::Tensor& e) {
      return ((a.to(at::kDouble) - e).abs().max() / e.abs().max().clamp_min(1)).item<double>();
    };
    const double large = type == at::kFloat ? 1e-5 : 1e-2;
    RC_ASSERT(errs(y, wanted) < large);
    RC_ASSERT(errs(x.grad(), dx) < large);
    RC_ASSERT(errs(m.grad(), dm) < 1e-5 * std::sqrt(static_cast<double>(b * t * s)));
    // Another type takes the tensor library's way.
    at::Tensor other = xd.clone().requires_grad_(), matrix = md.clone().requires_grad_();
    mix_heads(other, matrix, mixing).backward(seen);
    RC_ASSERT(errs(matrix.grad(), dm) < 1e-10);
  }));
}

TEST_CASE("mixing and multiplying at once equals doing one after the other, gradients included", "[mixing]") {
  for (auto type : {at::kFloat, at::kDouble})
    for (bool by_position : {false, true})
      for (bool causal : {false, true}) {
        Mixing mixing;
        if (causal) mixing.causal_offset = 0;
        const at::Tensor r = normal({2, 4, 20, 6}, 4).to(type);
        std::vector<at::Tensor> results;
        for (bool at_once : {false, true}) {
          at::Tensor p = normal({2, 3, 20, 20}, 1).to(type), v = normal({2, 4, 20, 6}, 3).to(type),
                     m = (by_position ? normal({2, 20, 3, 4}, 2) : normal({3, 4}, 2)).to(type);
          if (causal) p = p.tril();
          p.requires_grad_(), v.requires_grad_(), m.requires_grad_();
          const at::Tensor z = at_once ? mix_values(p, m, v, mixing) : at::matmul(mix_heads(p, m, mixing), v);
          (z * r).sum().backward();
          for (const at::Tensor& t : {z.detach(), causal ? p.grad().tril() : p.grad(), v.grad(), m.grad()})
            results.push_back(t);
        }
        for (size_t i = 0; i < 4; ++i) CHECK(close(results[i], results[i + 4], 1e-4));
      }
}

TEST_CASE("mixing and multiplying at once is right over several blocks of queries", "[mixing]") {
  const int64_t queries = 300, keys = 310, heads = 3;
  for (bool by_position : {false, true})
    for (const CausalOffset& offset : {CausalOffset(), CausalOffset(10), CausalOffset(-5)})
      for (int64_t in : {heads, int64_t{2}}) {
        Mixing mixing;
        mixing.causal_offset = offset;
        const at::Tensor r = normal({2, heads, queries, 6}, 4);
        const at::Tensor seen = offset ? at::ones({queries, keys}).tril(*offset) : at::ones({queries, keys});
        std::vector<at::Tensor> results;
        for (auto type : {at::kFloat, at::kDouble}) {
          at::Tensor p = (normal({2, in, queries, keys}, 1) * seen).to(type),
                     v = normal({2, heads, keys, 6}, 3).to(type),
                     m = (by_position ? normal({2, queries, in, heads}, 2) : normal({in, heads}, 2)).to(type);
          p.requires_grad_(), v.requires_grad_(), m.requires_grad_();
          const char* how = by_position ? "bjts,btji->bits" : "bjts,ji->bits";
          // In double precision the equation itself, in one piece.
          const at::Tensor z =
              type == at::kFloat ? mix_values(p, m, v, mixing) : at::matmul(at::einsum(how, {p, m}), v);
          (z * r.to(type)).sum().backward();
          for (const at::Tensor& t : {z.detach(), p.grad() * seen.to(type), v.grad(), m.grad()}) results.push_back(t);
        }
        for (size_t i = 0; i < 4; ++i) CHECK(worst(doubles(results[i]), doubles(results[i + 4])) < 1e-5);
      }
}

TEST_CASE("probabilities take the place of logits only where nobody else holds these", "[mixing]") {
  const at::Tensor held = normal({2, 3, 4, 5}, 1), copy = held.clone(), other = held;
  masked_softmax_in_place(held, {});
  CHECK(at::equal(held, copy));
  const at::Tensor whole = normal({2, 3, 4, 5}, 2), before = whole.clone();
  masked_softmax_in_place(whole.narrow(0, 0, 1), {});
  masked_softmax_in_place(whole.unsqueeze(0).squeeze(0), {});
  CHECK(at::equal(whole, before));
  const at::Tensor own = normal({2, 3, 4, 5}, 3), wanted = masked_softmax(own.clone(), {});
  const void* memory = own.const_data_ptr();
  const at::Tensor p = masked_softmax_in_place(own, {});
  CHECK(p.const_data_ptr() == memory);
  CHECK(at::equal(p, wanted));
}

TEST_CASE("a gradient that is kept is not written over", "[mixing]") {
  const at::Tensor x = normal({1, 3, 4, 5}, 1).requires_grad_(), m = normal({3, 3}, 2).requires_grad_(),
                   r = normal({1, 3, 4, 5}, 3);
  const at::Tensor p = masked_softmax(x, {}), y = mix_heads(p, m);
  y.retain_grad();
  p.retain_grad();
  (y * r).sum().backward();
  CHECK(at::equal(y.grad(), r));
  CHECK(close(p.grad(), at::einsum("bits,ji->bjts", {r, m.detach()})));
  const at::Tensor q = p.detach();
  CHECK(close(x.grad(), q * (p.grad() - (q * p.grad()).sum(-1, true))));
  const at::Tensor kept = normal({1, 3, 4, 5}, 4), copy = kept.clone();
  mix_heads(masked_softmax(x, {}), m).backward(kept);
  CHECK(at::equal(kept, copy));
}

TEST_CASE("rows of a normaliser sum to 1, hidden entries are exactly 0, empty rows are zeros", "[mixing]") {
  CHECK(rc::check([] {
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    const int64_t b = pick(1, 3), h = pick(1, 3), t = pick(1, 5), s = pick(1, 70);
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    const double size = std::pow(10.0, static_cast<double>(pick(-2, 3)));
    const at::Tensor a = normal({b, h, t, s}, seed) * size;
    const at::Tensor ok =
        normal({pick(0, 1) == 1 ? b : 1, pick(0, 3) == 0 ? h : 1, t, pick(0, 5) == 0 ? 1 : s}, seed + 1) > -0.5;
    const at::Tensor seen = ok.expand(a.sizes()), some = seen.any(-1);
    for (bool sigmoid : {false, true}) {
      auto of = sigmoid ? masked_sigmoid_softmax : masked_softmax;
      at::Tensor single = a.clone().requires_grad_(), twice = a.to(at::kDouble).requires_grad_();
      const at::Tensor p = of(single, ok), q = of(twice, ok);
      RC_ASSERT(at::allclose(p.sum(-1), some.to(at::kFloat), 1e-5, 1e-5));
      RC_ASSERT((p.masked_select(~seen) == 0).all().item<bool>());
      RC_ASSERT(at::allclose(p.to(at::kDouble), q, 1e-4 * std::max(1.0, size), 1e-6));
      // The equation itself, in double precision.
      const at::Tensor d = a.to(at::kDouble), e = sigmoid ? d + at::log_sigmoid(d) : d;
      const at::Tensor wanted = at::softmax(e.masked_fill(~seen, -1e300), -1) * seen;
      RC_ASSERT(at::allclose(q, wanted, 1e-9, 1e-12));
      const at::Tensor r = normal({b, h, t, s}, seed + 2);
      p.backward(r);
      q.backward(r.to(at::kDouble));
      RC_ASSERT(at::allclose(single.grad().to(at::kDouble), twice.grad(), 1e-3 * std::max(1.0, size), 1e-5));
    }
  }));
}

TEST_CASE("rows that an additive mask empties are zeros, and have no gradient", "[mixing]") {
  Mask mask;
  mask.additive = at::zeros({2, 1, 4, 6});
  mask.additive.select(0, 1).select(1, 2).fill_(-INFINITY);  // query 2 of row 1 sees nothing
  mask.additive.narrow(3, 4, 2).fill_(-INFINITY);            // the last two keys are hidden from all
  const at::Tensor seen = allowed(mask, 4, 6, at::kCPU), r = normal({2, 3, 4, 6}, 2);
  for (auto type : {at::kFloat, at::kDouble})  // by the kernel, and by the tensor library
    for (auto of : {masked_softmax, masked_sigmoid_softmax}) {
      at::Tensor a = normal({2, 3, 4, 6}, 1).to(type).requires_grad_();
      const at::Tensor p = of(a + mask.additive, seen);
      CHECK(at::allclose(p, of(a, mask.additive.expand(a.sizes()) > -1)));
      CHECK((p[1].select(1, 2) == 0).all().item<bool>());
      CHECK((p.narrow(3, 4, 2) == 0).all().item<bool>());
      CHECK(p.sum().item<double>() == Approx(2 * 3 * 4 - 3));
      p.backward(r.to(type));
      CHECK(at::isfinite(a.grad()).all().item<bool>());
      CHECK((a.grad()[1].select(1, 2) == 0).all().item<bool>());
      CHECK((a.grad()[0].narrow(2, 0, 4) != 0).all().item<bool>());
    }
  // A number that is none in a row that is seen is passed on, not hidden.
  at::Tensor broken = at::zeros({2, 1, 4, 6}, at::kDouble);
  broken[0][0][0][0] = NAN;
  CHECK(masked_softmax(broken, seen).isnan().any().item<bool>());
}

TEST_CASE("Sigsoftmax is softmax(2a - softplus(a)), and feels a constant that is added", "[mixing]") {
  const at::Tensor a = normal({2, 3, 4, 20}, 1) * 3;
  const at::Tensor p = masked_sigmoid_softmax(a, {});
  CHECK(close(p, at::softmax(2 * a - at::softplus(a), -1), 1e-6));
  CHECK(!close(masked_sigmoid_softmax(a + 2, {}), p, 1e-3));
  CHECK(close(masked_softmax(a + 2, {}), masked_softmax(a, {}), 1e-6));
  // Its derivative in double precision, by differences.
  const at::Tensor x = normal({1, 1, 1, 6}, 2).to(at::kDouble).requires_grad_(), r = normal({1, 1, 1, 6}, 3);
  auto loss = [&](const at::Tensor& at_x) { return (masked_sigmoid_softmax(at_x, {}) * r).sum(); };
  loss(x).backward();
  for (int64_t i = 0; i < 6; ++i) {
    at::Tensor step = at::zeros({6}, at::kDouble);
    step[i] = 1e-5;
    const double d = ((loss(x.detach() + step) - loss(x.detach() - step)) / 2e-5).item<double>();
    CHECK(x.grad().flatten()[i].item<double>() == Approx(d).margin(1e-8));
  }
}

TEST_CASE("mixing by the identity is multi-head attention, gradients included", "[mixing]") {
  Layer plain("heads = 3\nhead_size = 4\n", 6, 5);
  const at::Tensor r = normal({2, 5, 6}, 2);
  Mask mask;
  mask.causal = true;
  auto run = [&](Layer& l) {
    const at::Tensor x = normal({2, 5, 6}, 1).requires_grad_();
    const at::Tensor y = l(x, x, mask);
    (y * r).sum().backward();
    return std::pair{y, x.grad()};
  };
  plain.layer->set_path(Path::composed);
  const auto [y, dx] = run(plain);
  for (const char* toml : {"mixer = 'mixhead-a'", "mixer = 'mixhead-b'", "mixer = 'talking-heads'",
                           "mixer = 'mixhead-a'\n[attention.mixhead-a]\non = 'logits'",
                           "mixer = 'mixhead-b'\n[attention.mixhead-b]\non = 'logits'", "combiner = 'alphas'",
                           "combiner = 'head-weights'"}) {
    INFO(toml);
    Layer l(str("heads = 3\nhead_size = 4\n", toml), 6, 5);
    const auto [mixed, gradient] = run(l);
    CHECK(close(mixed, y));
    CHECK(close(gradient, dx));
    for (auto& p : plain.parameters.all()) CHECK(close(l[p.name().substr(2)].grad(), p.master().grad(), 1e-4));
    // What mixes starts to learn at once.
    for (auto& p : l.parameters.all())
      if (p.name().find("mixer") != std::string::npos || p.name().find("combiner") != std::string::npos)
        CHECK(p.master().grad().abs().max().item<float>() > 1e-4);
  }
}

TEST_CASE("Mixhead B without its query weight is Mixhead A", "[mixing]") {
  Layer a("heads = 3\nmixer = 'mixhead-a'", 6, 5), b("heads = 3\nmixer = 'mixhead-b'", 6, 5);
  const at::Tensor m = normal({3, 3}, 4), x = normal({2, 5, 6}, 1);
  a.set("mixer.matrix", m);
  b.set("mixer.matrix", m);
  Mask mask;
  mask.causal = true;
  CHECK(close(a(x, x, mask), b(x, x, mask)));
}

TEST_CASE("rows of mixed probabilities sum to the columns of the matrix; hidden entries stay exactly 0", "[mixing]") {
  c10::NoGradGuard no_gradient;
  for (const char* mixer : {"mixhead-a", "mixhead-b", "talking-heads", "random-normal", "random-uniform", "mean"}) {
    Layer l(str("heads = 3\nhead_size = 4\nmixer = '", mixer, "'"), 6, 5);
    l.shake(2);
    Watch watch;
    Mask mask;
    mask.causal = true;
    const at::Tensor x = normal({2, 5, 6}, 1);
    l(x, x, mask, {}, &watch);
    CHECK(watch.p.triu(1).abs().max().item<float>() == 0);
    at::Tensor sums = l["mixer.matrix"].sum(0).view({1, 3, 1}).expand({2, 3, 5});
    if (std::string(mixer) == "mixhead-b") {
      const at::Tensor q = at::linear(x, l["query.weight"], l["query.bias"]).view({2, 5, 3, 4});
      sums = sums + at::linear(q, l["mixer.query.weight"]).sum(2).transpose(1, 2);
    }
    CHECK(close(watch.p.sum(-1), sums, 1e-4));
  }
}

TEST_CASE("a permutation as the matrix permutes heads; their mean makes them alike", "[mixing]") {
  c10::NoGradGuard no_gradient;
  Layer plain("heads = 3", 6, 5), mixed("heads = 3\nmixer = 'mixhead-a'", 6, 5);
  const std::vector<int64_t> order{2, 0, 1};
  at::Tensor m = at::zeros({3, 3});
  for (int64_t i = 0; i < 3; ++i) m[order[static_cast<size_t>(i)]][i] = 1;
  mixed.set("mixer.matrix", m);
  const at::Tensor x = normal({2, 5, 6}, 1), index = at::tensor(order, at::kLong);
  Watch a, b;
  plain(x, x, {}, {}, &a);
  mixed(x, x, {}, {}, &b);
  CHECK(close(b.p, a.p.index_select(1, index)));
  // With values and output weights permuted alike the layer is as before.
  for (const auto& [part, axis] : {std::pair{"value.weight", 0}, {"value.bias", 0}, {"output.weight", 1}}) {
    const auto blocks = plain[part].chunk(3, axis);
    mixed.set(part, at::cat({blocks[2], blocks[0], blocks[1]}, axis));
  }
  CHECK(close(mixed(x, x, {}), plain(x, x, {})));
  Layer mean("heads = 3\nmixer = 'mean'", 6, 5);
  mean(x, x, {}, {}, &b);
  CHECK(close(b.p, a.p.mean(1, true).expand_as(a.p)));
}

TEST_CASE("Mixhead A is multi-head attention whose value-output products are mixed", "[mixing]") {
  c10::NoGradGuard no_gradient;
  const int64_t h = 3, d = 8, dv = 2;
  Layer l("heads = 3\nhead_size = 2\nbias = false\nmixer = 'mixhead-a'", d, 5),
      plain("heads = 3\nhead_size = 2\nbias = false", d, 5);
  l.set("mixer.matrix", normal({h, h}, 4));
  const at::Tensor x = normal({2, 5, d}, 1);
  Watch watch;
  plain(x, x, {}, {}, &watch);  // P of each head
  at::Tensor y = at::zeros({2, 5, d});
  std::vector<at::Tensor> ov;
  for (int64_t i = 0; i < h; ++i)
    ov.push_back(at::matmul(l["output.weight"].narrow(1, i * dv, dv), l["value.weight"].narrow(0, i * dv, dv)).t());
  int64_t largest_rank = 0;
  for (int64_t j = 0; j < h; ++j) {
    at::Tensor product = at::zeros({d, d});
    for (int64_t i = 0; i < h; ++i) product += l["mixer.matrix"][j][i] * ov[static_cast<size_t>(i)];
    largest_rank = std::max(largest_rank, at::linalg_matrix_rank(product.to(at::kDouble), 1e-4).item<int64_t>());
    y += at::matmul(watch.p.select(1, j), at::matmul(x, product));
  }
  CHECK(close(l(x, x, {}), y, 1e-4));
  CHECK(at::linalg_matrix_rank(ov[0].to(at::kDouble), 1e-4).item<int64_t>() == dv);
  CHECK(largest_rank == h * dv);
}

TEST_CASE("mixing is linear in the matrix, composes, and an orthogonal one keeps the norm", "[mixing]") {
  const at::Tensor x = normal({2, 4, 5, 33}, 1).to(at::kDouble), m = normal({4, 4}, 2).to(at::kDouble),
                   n = normal({4, 3}, 3).to(at::kDouble), m2 = normal({4, 4}, 4).to(at::kDouble);
  CHECK(close(mix_heads(x, m + m2), mix_heads(x, m) + mix_heads(x, m2), 1e-12));
  CHECK(close(mix_heads(mix_heads(x, m), n), mix_heads(x, at::matmul(m, n)), 1e-12));
  const at::Tensor q = std::get<0>(at::linalg_qr(m));
  CHECK(close(mix_heads(x, q).square().sum(), x.square().sum(), 1e-10));
  CHECK(close(mix_heads(x.to(at::kFloat), m.to(at::kFloat)), mix_heads(x, m).to(at::kFloat), 1e-5));
}

TEST_CASE("ranks: of logits, of sums, of mixed products", "[mixing]") {
  auto rank = [](const at::Tensor& a) { return at::linalg_matrix_rank(a, 1e-9).item<int64_t>(); };
  CHECK(rc::check([&] {
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    const int64_t n = pick(2, 12), k = pick(1, 6), l = pick(1, 6);
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    const at::Tensor q = normal({n, k}, seed).to(at::kDouble), keys = normal({n, k}, seed + 1).to(at::kDouble);
    RC_ASSERT(rank(at::matmul(q, keys.t())) <= std::min(n, k));
    const at::Tensor a = at::matmul(normal({n, k}, seed + 2).to(at::kDouble), normal({k, n}, seed + 3).to(at::kDouble)),
                     b = at::matmul(normal({n, l}, seed + 4).to(at::kDouble), normal({l, n}, seed + 5).to(at::kDouble));
    RC_ASSERT(rank(a + b) <= rank(a) + rank(b));
    // c and d: the dimensions that the column and the row spaces share.
    const int64_t c = rank(a) + rank(b) - rank(at::cat({a, b}, 1)), d = rank(a) + rank(b) - rank(at::cat({a, b}, 0));
    RC_ASSERT(rank(a + b) >= rank(a) + rank(b) - c - d);
  }));
}

TEST_CASE("permuting all that belongs to a head leaves layers that mix or weigh heads as they are", "[mixing]") {
  c10::NoGradGuard no_gradient;
  for (const char* toml :
       {"mixer = 'mixhead-a'", "mixer = 'mixhead-b'", "mixer = 'random-normal'", "mixer = 'random-uniform'",
        "mixer = 'mean'", "mixer = 'talking-heads'", "mixer = 'talking-heads'\n[attention.talking-heads]\ninside = 4",
        "mixer = 'talking-heads'\n[attention.talking-heads]\npre = false",
        "mixer = 'talking-heads'\n[attention.talking-heads]\npost = false", "combiner = 'alphas'", "combiner = 'gates'",
        "combiner = 'gates'\n[attention.gates]\ninput = true", "combiner = 'hard-concrete'"}) {
    INFO(toml);
    Layer l(str("heads = 3\nhead_size = 5\nvalue_size = 2\n", toml), 6, 5);
    l.shake(2);
    const at::Tensor x = normal({2, 5, 6}, 1), before = l(x, x, {});
    l.permute_heads({2, 0, 1});
    CHECK(close(l(x, x, {}), before));
  }
}

TEST_CASE("parameters added by Mixhead are those of its table", "[mixing]") {
  for (auto [layers, h, dk, a, b] : {std::tuple{6, 8, 64, 384, 3456},
                                     {16, 8, 128, 1024, 17408},
                                     {16, 10, 41, 1600, 8160},
                                     {16, 8, 64, 1024, 9216},
                                     {18, 8, 128, 1152, 19584}}) {
    auto count = [&, heads = h, size = dk](const char* mixer) {
      return Layer(str("heads = ", heads, "\nhead_size = ", size, "\nmixer = '", mixer, "'"), 4).parameters.count();
    };
    CHECK(layers * (count("mixhead-a") - count("none")) == a);
    CHECK(layers * (count("mixhead-b") - count("none")) == b);
    CHECK(count("random-normal") == count("none"));  // drawn, not trained
  }
}

TEST_CASE("fixed matrices: columns sum to 1, another seed draws others, and no weight decay pulls at any matrix",
          "[mixing]") {
  for (const char* mixer : {"random-normal", "random-uniform", "mean"}) {
    Layer l(str("heads = 4\nmixer = '", mixer, "'"), 8, 1), other(str("heads = 4\nmixer = '", mixer, "'"), 8, 2);
    CHECK(close(l["mixer.matrix"].sum(0), at::ones({4}), 1e-4));
    CHECK(at::equal(l["mixer.matrix"], other["mixer.matrix"]) == (std::string(mixer) == "mean"));
    CHECK(!l.parameters.find("x.mixer.matrix")->traits().trainable);
  }
  for (const char* mixer : {"mixhead-a", "mixhead-b", "talking-heads"}) {
    Layer l(str("heads = 4\nmixer = '", mixer, "'"), 8, 1);
    for (auto& p : l.parameters.all())
      if (p.name().rfind("x.mixer.", 0) == 0) CHECK(!p.traits().decay);
  }
}

TEST_CASE("dropout acts before the mixing or after it, as asked", "[mixing]") {
  c10::NoGradGuard no_gradient;
  ForwardContext step;
  step.training = true;
  const at::Tensor x = normal({2, 6, 8}, 1);
  auto seen = [&](const char* where) {
    Layer l(str("heads = 4\ndropout = 0.5\nmixer = 'mixhead-a'\n[attention.mixhead-a]\ndropout = '", where, "'"), 8, 1);
    l.set("mixer.matrix", at::full({4, 4}, 0.25));
    Watch watch;
    l(x, x, {}, step, &watch);
    return watch.p;
  };
  // Before: what is mixed has lost entries, so rows no longer sum to 1. After: what the observer sees has not.
  CHECK(close(seen("after").sum(-1), at::ones({2, 4, 6})));
  CHECK(!close(seen("before").sum(-1), at::ones({2, 4, 6}), 1e-2));
  CHECK(close(seen("before").select(1, 0), seen("before").select(1, 3)));
}

TEST_CASE("the scope of the released code leaves cross-attention and decoding by steps alone", "[mixing]") {
  c10::NoGradGuard no_gradient;
  const char* released = "heads = 2\nmixer = 'mixhead-a'\n[attention.mixhead-a]\nscope = 'released'";
  CHECK(Layer(released, 4, 1, Kind::decoder_cross).parameters.find("x.mixer.matrix") == nullptr);
  Layer l(released, 4, 1), plain("heads = 2", 4, 1);
  l.set("mixer.matrix", normal({2, 2}, 3));
  const at::Tensor x = normal({1, 3, 4}, 1);
  Mask mask;
  mask.causal = true;
  CHECK(!close(l(x, x, mask), plain(x, x, mask), 1e-3));
  Cache cache;
  CHECK(close(l.layer->forward(x, x, mask, {}, &cache), plain(x, x, mask)));
}

TEST_CASE("options of talking heads that make no sense are refused", "[mixing]") {
  const std::string head = "heads = 2\nmixer = 'talking-heads'\n[attention.talking-heads]\n";
  CHECK_THROWS_AS(Layer(head + "pre = false\npost = false", 4), Error);
  CHECK_THROWS_AS(Layer(head + "pre = false\ninside = 3", 4), Error);
  Layer l(head + "inside = 3", 4);
  const at::Tensor x = normal({1, 3, 4}, 1);
  Mask mask;
  mask.additive = at::zeros({1, 1, 3, 3});
  CHECK_NOTHROW(l(x, x, mask));
  mask.additive = at::zeros({1, 2, 3, 3});
  CHECK_THROWS_AS(l(x, x, mask), Error);
}
