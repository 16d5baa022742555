// Multi-head attention and its gradients against a naive reference in double precision; head sizes independent of the
// width.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/gradients.h"

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
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
    Sizes sizes{pick(1, 3), pick(1, 6), 0, pick(1, 9), pick(1, 4), pick(1, 5), pick(1, 5)};
    const bool is_cross = *rc::gen::arbitrary<bool>(), has_bias = *rc::gen::arbitrary<bool>(),
               is_padded = *rc::gen::arbitrary<bool>(), causal = *rc::gen::arbitrary<bool>(),
               has_additive_mask = *rc::gen::arbitrary<bool>();
    sizes.keys = is_cross ? pick(1, 7) : sizes.queries;
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    Layer l(layer_size_lines(sizes, has_bias), sizes.width, seed,
            is_cross ? AttentionKind::decoder_cross : AttentionKind::decoder_self);
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
             (!is_padded || s < lengths[static_cast<size_t>(b)]);
    };
    auto additive_mask = [&](int64_t b, int64_t i, int64_t t, int64_t s) {
      return static_cast<double>(mask.additive[b][i][t][s].item<float>());
    };
    const Vector expected =
        reference::attention(sizes, doubles(x), doubles(m), l.weights(), may_attend,
                             has_additive_mask ? reference::AdditiveMask(additive_mask) : reference::AdditiveMask());
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
    const auto pick = [](int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); };
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
