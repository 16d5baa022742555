// Multi-head attention and its gradients against a naive reference in double precision; head sizes independent of the
// width.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/gradients.h"
#include "fixtures/pick.h"

using namespace mh;
using namespace mh::attention;
using layers::Layer;
using layers::layer_size_lines;
using layers::RecordingObserver;
using numbers::doubles;
using numbers::normal;
using reference::Sizes;
using reference::Vector;

TEST_CASE("multi-head attention matches a naive reference over random shapes and masks", "[plain]") {
  CHECK(rc::check([] {
    Sizes sizes{pick(1, 3), pick(1, 6), 0, pick(1, 9), pick(1, 4), pick(1, 5), pick(1, 5)};
    const bool is_cross = *rc::gen::arbitrary<bool>(), has_bias = *rc::gen::arbitrary<bool>(),
               is_padded = *rc::gen::arbitrary<bool>(), causal = *rc::gen::arbitrary<bool>(),
               has_additive_mask = *rc::gen::arbitrary<bool>();
    sizes.keys = is_cross ? pick(1, 7) : sizes.queries;
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    const std::string sink = *rc::gen::elementOf(std::vector<std::string>{"none", "learned", "zero"});
    reference::LogitTerms terms;
    terms.soft_cap = *rc::gen::arbitrary<bool>() ? 0.5 * static_cast<double>(pick(1, 6)) : 0;
    Layer l(layer_size_lines(sizes, has_bias) + str("soft_cap = ", terms.soft_cap, "\nsink = '", sink, "'\n"),
            sizes.width, seed, is_cross ? AttentionKind::decoder_cross : AttentionKind::decoder_self);
    if (sink == "learned") l.set("sinks", normal({sizes.heads}, seed + 3));
    if (sink != "none")
      terms.sinks = sink == "learned" ? doubles(l["sinks"]) : Vector(static_cast<size_t>(sizes.heads));
    at::Tensor x = normal({sizes.batch, sizes.queries, sizes.width}, seed),
               m = is_cross ? normal({sizes.batch, sizes.keys, sizes.width}, seed + 1) : x;
    Mask mask;
    mask.causal = causal;
    mask.offset = causal ? pick(0, 2) : 0;
    mask.window = *rc::gen::arbitrary<bool>() ? pick(1, 4) : 0;
    std::vector<int64_t> lengths;
    if (is_padded) {
      for (int64_t b = 0; b < sizes.batch; ++b) lengths.push_back(pick(0, sizes.keys));  // 0: all keys are padding
      mask.key_lengths = at::tensor(lengths, at::kLong);
    }
    if (has_additive_mask) mask.additive = normal({sizes.batch, sizes.heads, sizes.queries, sizes.keys}, seed + 2);
    if (has_additive_mask && *rc::gen::arbitrary<bool>())  // may mask all keys of a row
      mask.additive.masked_fill_(mask.additive < pick(-1, 1), -INFINITY);
    auto may_attend = [&](int64_t b, int64_t t, int64_t s) {
      return (!causal || s <= t + mask.offset) && (mask.window == 0 || s > t + mask.offset - mask.window) &&
             (mask.window == 0 || causal || s < t + mask.offset + mask.window) &&
             (!is_padded || s < lengths[static_cast<size_t>(b)]);
    };
    auto additive_mask = [&](int64_t b, int64_t i, int64_t t, int64_t s) {
      return static_cast<double>(mask.additive[b][i][t][s].item<float>());
    };
    const Vector expected = reference::attention(
        sizes, doubles(x), doubles(m), l.weights(), may_attend,
        has_additive_mask ? reference::AdditiveMask(additive_mask) : reference::AdditiveMask(), terms);
    const layers::LayerRounding rounding = layers::rounding_of(l, x, m, mask);
    for (Path path : {Path::composed, Path::automatic}) {
      l.layer->set_path(path);
      RC_ASSERT(rounding.agree(l(x, m, mask), expected));
    }
  }));
}

TEST_CASE("gradients of every parameter and input of multi-head attention equal finite differences", "[plain]") {
  for (bool is_cross : {false, true}) {
    const Sizes sizes{2, 4, is_cross ? 5 : 4, 6, 3, 2, is_cross ? 3 : 2};
    Layer l(layer_size_lines(sizes), sizes.width, 5,
            is_cross ? AttentionKind::decoder_cross : AttentionKind::decoder_self);
    const at::Tensor m = normal({sizes.batch, sizes.keys, sizes.width}, 8);
    Mask mask;
    mask.causal = !is_cross;
    auto may_attend = [&](int64_t, int64_t t, int64_t s) { return is_cross || s <= t; };
    for (Path path : {Path::composed, Path::automatic}) {
      l.layer->set_path(path);
      layers::check_gradients(
          l, normal({sizes.batch, sizes.queries, sizes.width}, 7),
          [&](const at::Tensor& x, Observer* observer) { return l(x, is_cross ? m : x, mask, {}, observer); },
          [&](const reference::Weights& w, const Vector& x) {
            return reference::attention(sizes, x, is_cross ? doubles(m) : x, w, may_attend);
          });
    }
  }
}

TEST_CASE("gradients with a soft cap and sinks equal finite differences", "[plain]") {
  for (const char* sink : {"none", "learned", "zero"})
    for (const bool is_cross : {false, true})
      for (const Path path : {Path::composed, Path::automatic}) {
        const int64_t queries = 4, keys = is_cross ? 5 : 4;
        // A head size for which the fused path has a kernel.
        const Sizes sizes{2, queries, keys, 6, 3, 16, 16};
        Layer l(layer_size_lines(sizes) + str("soft_cap = 2.0\nsink = '", sink, "'\n"), sizes.width, 5,
                is_cross ? AttentionKind::decoder_cross : AttentionKind::decoder_self);
        l.layer->set_path(path);
        const at::Tensor m = normal({sizes.batch, sizes.keys, sizes.width}, 8);
        Mask mask;
        mask.causal = !is_cross;
        layers::check_gradients(
            l, normal({sizes.batch, sizes.queries, sizes.width}, 7),
            [&](const at::Tensor& x, Observer* observer) { return l(x, is_cross ? m : x, mask, {}, observer); },
            [&](const reference::Weights& w, const Vector& x) {
              reference::LogitTerms terms;
              terms.soft_cap = 2;
              if (sink != std::string("none"))
                terms.sinks = w.count("sinks") != 0 ? w.at("sinks") : Vector(static_cast<size_t>(sizes.heads));
              return reference::attention(
                  sizes, x, is_cross ? doubles(m) : x, w,
                  [&](int64_t, int64_t t, int64_t s) { return is_cross || s <= t; }, {}, terms);
            });
      }
}

TEST_CASE("a soft cap bounds the logits, and a large soft cap changes nothing", "[plain]") {
  struct : Observer {
    at::Tensor logits;
    bool wants_scores() const override { return true; }
    void observe_scores(const LayerSpec&, const at::Tensor& x) override { logits = x; }
  } observer, plain_observer;
  const at::Tensor x = normal({2, 7, 12}, 1) * 3;
  Layer plain("heads = 3\n", 12, 4), capped("heads = 3\nsoft_cap = 1.5\n", 12, 4),
      loose("heads = 3\nsoft_cap = 1e6\n", 12, 4);
  plain(x, x, layers::causal_mask(), {}, &plain_observer);
  capped(x, x, layers::causal_mask(), {}, &observer);
  CHECK(numbers::max_abs(plain_observer.logits) > 3);
  CHECK(numbers::max_abs(observer.logits) <= 1.5);
  CHECK(rounding::agree(observer.logits, 1.5 * (plain_observer.logits / 1.5).tanh(), 8, 1.5));
  const layers::LayerRounding rounding = layers::rounding_of(plain, x, x, layers::causal_mask());
  CHECK(rounding.agree(loose(x, x, layers::causal_mask()), plain(x, x, layers::causal_mask())));
}

TEST_CASE("sinks of -infinity change nothing; a zero sink leaves n / (n + 1) of the mass for n equal logits",
          "[plain]") {
  const at::Tensor x = normal({2, 7, 12}, 1);
  Layer plain("heads = 3\n", 12, 4), sunk("heads = 3\nsink = 'learned'\n", 12, 4);
  c10::NoGradGuard no_gradient;
  sunk.copy_parameters_from(plain);
  sunk["sinks"].fill_(-INFINITY);
  const layers::LayerRounding rounding = layers::rounding_of(plain, x, x, layers::causal_mask());
  for (const Path path : {Path::composed, Path::automatic}) {
    plain.layer->set_path(path), sunk.layer->set_path(path);
    CHECK(rounding.agree(sunk(x, x, layers::causal_mask()), plain(x, x, layers::causal_mask())));
  }
  Layer zero("heads = 3\nsink = 'zero'\n", 12, 4);
  for (const char* projection : {"query.weight", "query.bias"}) zero[projection].zero_();
  RecordingObserver observer;
  zero(x, x, layers::causal_mask(), {}, &observer);
  for (int64_t t = 0; t < 7; ++t)
    CHECK(rounding::agree(observer.p.select(2, t).sum(-1), at::full({2, 3}, (t + 1.0) / (t + 2.0)), 16));
}

TEST_CASE("a two-sided window as wide as the text changes nothing; a window of 1 sees its own position", "[plain]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 7, 12}, 1);
  const AttentionKind kind = AttentionKind::encoder_self;
  Layer plain("heads = 3\n", 12, 4, kind), wide("heads = 3\nwindow = 7\n", 12, 4, kind),
      narrow("heads = 3\nwindow = 1\n", 12, 4, kind), middle("heads = 3\nwindow = 3\n", 12, 4, kind);
  const layers::LayerRounding rounding = layers::rounding_of(plain, x, x, {});
  CHECK(rounding.agree(wide(x, x, {}), plain(x, x, {})));
  RecordingObserver observer;
  narrow(x, x, {}, {}, &observer);
  CHECK(at::equal(observer.p, at::eye(7).expand({2, 3, 7, 7})));
  middle(x, x, {}, {}, &observer);
  for (int64_t t = 0; t < 7; ++t)
    for (int64_t s = 0; s < 7; ++s)
      CHECK((observer.p.select(2, t).select(2, s) != 0).all().item<bool>() == (std::abs(t - s) < 3));
  CHECK_THROWS_AS(Layer("heads = 3\nwindow = 3\n", 12, 4, AttentionKind::decoder_cross), Error);
}

TEST_CASE("sinks are refused with a mixer of logits", "[plain]") {
  CHECK_THROWS_AS(Layer("heads = 3\nsink = 'zero'\nmixer = 'talking-heads'\n", 12, 4), Error);
  CHECK_NOTHROW(Layer("heads = 3\nsink = 'zero'\nmixer = 'mixhead-a'\n", 12, 4));
}

TEST_CASE("zero-padding heads to a larger head_size leaves the output unchanged", "[plain]") {
  // Fixhead: a layer with larger heads whose added rows and columns are zero equals the smaller layer if the queries of
  // the larger layer are scaled by √9 / √4, which compensates for the larger divisor √dk.
  Layer small_layer("heads = 2\nbias = false", 8, 3), large_layer("heads = 2\nhead_size = 9\nbias = false", 8, 4);
  c10::NoGradGuard no_gradient;
  for (auto& p : large_layer.parameters.all()) {
    const at::Tensor& small_parameter = small_layer.parameters.find(p.name())->master();
    p.master().zero_();
    const bool is_output = p.name() == "x.output.weight";
    for (int64_t i = 0; i < 2; ++i) {
      auto large_block = p.master().narrow(is_output ? 1 : 0, 9 * i, 4);
      large_block.copy_(small_parameter.narrow(is_output ? 1 : 0, 4 * i, 4));
      if (p.name() == "x.query.weight") large_block.mul_(1.5);
    }
  }
  at::Tensor x = normal({2, 5, 8}, 1);
  CHECK(layers::rounding_of(large_layer, x, x).agree(large_layer(x, x, {}), small_layer(x, x, {})));
}

TEST_CASE("heads that do not divide the width are rejected unless head_size is set", "[plain]") {
  AttentionOptions options;
  options.heads = 3;
  CHECK_THROWS_AS(make_layer_spec(options, AttentionKind::decoder_self, 0, 8, "x"), Error);
  options.head_size = 5;
  CHECK(make_layer_spec(options, AttentionKind::decoder_self, 0, 8, "x").value_size == 5);
}

TEST_CASE("a head of size >= length can represent any positive attention matrix (low-rank bottleneck, Theorem 1)",
          "[plain]") {
  // Tokens are rows of X. Let X (n, d) have rank n, P be any positive matrix whose rows sum to 1, and D be any positive
  // diagonal matrix. Then A = √dk log(D P), W_q = X⁺ [A | 0] and W_k = X⁺ [I | 0] give
  // softmax(X W_q (X W_k)ᵀ / √dk) = P.
  CHECK(rc::check([] {
    c10::NoGradGuard no_gradient;
    const int64_t n = pick(1, 6), d = n + pick(0, 4), dk = n + pick(0, 3);
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    const at::Tensor x = normal({n, d}, seed).to(at::kDouble) + 3 * at::eye(n, d, at::kDouble);
    const double condition = at::linalg_cond(x).item<double>();
    RC_PRE(condition < 50);
    const at::Tensor p = at::softmax(normal({n, n}, seed + 1).to(at::kDouble), -1),
                     scale = normal({n, 1}, seed + 2).to(at::kDouble).exp();
    auto projection_weight = [&](const at::Tensor& m) {  // (n, n) -> X⁺ [m | 0], as a weight (dk, d)
      return at::matmul(at::linalg_pinv(x), at::constant_pad_nd(m, {0, dk - n})).t().contiguous().to(at::kFloat);
    };
    Layer l(str("heads = 1\nbias = false\nhead_size = ", dk), d, seed);
    const at::Tensor logits = (scale * p).log();
    l.set("query.weight", projection_weight(std::sqrt(static_cast<double>(dk)) * logits));
    l.set("key.weight", projection_weight(at::eye(n, at::kDouble)));
    layers::RecordingObserver recorder;
    const at::Tensor input = x.to(at::kFloat).unsqueeze(0);
    l(input, input, {}, {}, &recorder);
    // Rounding the weights to fp32 changes the logits by an error proportional to the condition number of X, and an
    // error ε of the logits changes a probability by at most ε / 2.
    RC_ASSERT(rounding::agree(recorder.p[0][0], p, layers::num_roundings(l.layer->layer_spec(), n),
                              std::max(1.0, condition * numbers::max_abs(logits) / 2)));
  }));
}

TEST_CASE("a head smaller than the length cannot represent every attention matrix", "[plain]") {
  c10::NoGradGuard no_gradient;
  for (uint64_t seed = 1; seed < 6; ++seed) {
    // All rows of x are ones, except the last, which is zero. Without biases the query of the last row is 0, so its
    // attention is uniform.
    Layer l("heads = 1\nbias = false\nhead_size = 3", 4, seed);
    at::Tensor x = at::ones({1, 7, 4});
    x[0][6].zero_();
    layers::RecordingObserver recorder;
    l(x, x, {}, {}, &recorder);
    CHECK(rounding::agree(recorder.p[0][0][6], at::full({7}, 1.0 / 7), 7 + 4));
    // The rank of a head's logits is at most its head size.
    Layer wide_layer("heads = 1\nbias = false\nhead_size = 3", 16, seed);
    const at::Tensor input = normal({12, 16}, seed).to(at::kDouble);
    const at::Tensor logits = at::matmul(at::matmul(input, wide_layer["query.weight"].to(at::kDouble).t()),
                                         at::matmul(input, wide_layer["key.weight"].to(at::kDouble).t()).t());
    // A singular value counts as 0 if it is at most the number of rows times the bound on the error of a logit. A
    // decomposition takes up to 10 sweeps of rotations.
    const double error =
        tolerance::chain_error_bound(16 + 3 + 10 * (12 + 12), tolerance::kFp64, numbers::max_abs(logits));
    CHECK(at::linalg_matrix_rank(logits, 12 * error).item<int64_t>() == 3);
  }
}

TEST_CASE("heads of a fixed size that share one pattern exceed the ranks of heads of size d / h (Theorem 2)",
          "[plain]") {
  c10::NoGradGuard no_gradient;
  // With h > d / dp heads of size dp (fixed_size) that share queries and keys, the layer is y = P X Wᵀ with logits of
  // rank dp and W = Σ_i W^O_i W^V_i of rank d. Each head of multi-head attention has logits and a W^O_i W^V_i of rank
  // at most d / h < dp.
  const int64_t n = 12, d = 16, heads = 8, fixed_size = 4, standard_size = d / heads;
  Layer fixed_layer(str("bias = false\nheads = ", heads, "\nhead_size = ", fixed_size), d, 2),
      standard_layer(str("bias = false\nheads = ", heads), d, 2);
  for (const char* name : {"query.weight", "key.weight"})
    fixed_layer.set(name, fixed_layer[name].narrow(0, 0, fixed_size).clone().repeat({heads, 1}));
  const at::Tensor x = normal({n, d}, 1).to(at::kDouble);
  // Returns the rank of a, whose entries are chains of up to 3 d additions. A singular value counts as 0 if it is at
  // most d, the largest number of rows, times the bound on the error of an entry. A decomposition takes up to 10 sweeps
  // of rotations.
  const auto rank_of = [&](const at::Tensor& a) {
    const double error = tolerance::chain_error_bound(3 * d + 10 * 2 * d, tolerance::kFp64, numbers::max_abs(a));
    return at::linalg_matrix_rank(a, static_cast<double>(d) * error).item<int64_t>();
  };
  const auto block = [](Layer& layer, const char* name, int64_t axis, int64_t head, int64_t size) {
    return layer[name].narrow(axis, head * size, size).to(at::kDouble);
  };
  const auto logits_of = [&](Layer& layer, int64_t head, int64_t size) {
    return at::matmul(at::matmul(x, block(layer, "query.weight", 0, head, size).t()),
                      at::matmul(x, block(layer, "key.weight", 0, head, size).t()).t());
  };
  CHECK(rank_of(logits_of(fixed_layer, 0, fixed_size)) == fixed_size);
  const at::Tensor w =
      at::matmul(fixed_layer["output.weight"].to(at::kDouble), fixed_layer["value.weight"].to(at::kDouble));
  CHECK(rank_of(w) == d);
  for (int64_t head = 0; head < heads; ++head) {
    CHECK(rank_of(logits_of(standard_layer, head, standard_size)) <= standard_size);
    CHECK(rank_of(at::matmul(block(standard_layer, "output.weight", 1, head, standard_size),
                             block(standard_layer, "value.weight", 0, head, standard_size))) <= standard_size);
  }
  RecordingObserver recorder;
  const at::Tensor input = x.to(at::kFloat).unsqueeze(0);
  const at::Tensor y = fixed_layer(input, input, layers::causal_mask(), {}, &recorder);
  const layers::LayerRounding rounding = layers::rounding_of(fixed_layer, input, input, layers::causal_mask());
  for (int64_t head = 1; head < heads; ++head)
    CHECK(rounding.probabilities_agree(recorder.p[0][head], recorder.p[0][0]));
  const at::Tensor expected = at::matmul(at::matmul(recorder.p[0][0].to(at::kDouble), x), w.t());
  CHECK(rounding.agree(y[0], expected));
}

TEST_CASE("head_size = width / heads equals the default layer in outputs and parameter count", "[plain]") {
  c10::NoGradGuard no_gradient;
  Layer default_size_layer("heads = 4", 12, 3), explicit_size_layer("heads = 4\nhead_size = 3", 12, 3),
      five_heads_layer("heads = 5\nhead_size = 3", 12, 3);
  CHECK(explicit_size_layer.parameters.num_trainable_elements() ==
        default_size_layer.parameters.num_trainable_elements());
  CHECK(five_heads_layer.parameters.num_trainable_elements() -
            explicit_size_layer.parameters.num_trainable_elements() ==
        4 * 12 * 3 + 3 * 3);  // one more head: 4 d head_size weights and 3 head_size biases
  const at::Tensor x = normal({2, 5, 12}, 1);
  CHECK(at::equal(explicit_size_layer(x, x, {}), default_size_layer(x, x, {})));
}
