// The norm of queries and keys against a naive reference in double precision, its invariances, decoding, and pruning.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "fixtures/gradients.h"
#include "fixtures/pick.h"
#include "fixtures/status.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using namespace numbers;
using namespace reference;
using Catch::Contains;
using layers::causal_mask;
using Layer = layers::PerturbedLayer;

namespace {

// Returns lines of [attention] with the norm; `transforms`: the names in `transform`, such as "'qk-norm', 'rotary'".
std::string norm_lines(const std::string& scope, const std::string& transforms = "'qk-norm'", double epsilon = 1e-6) {
  return str("transform = [", transforms, "]\nqk-norm.scope = '", scope, "'\nqk-norm.epsilon = ", epsilon, "\n");
}

// Returns x (rows, heads dk) with each group of `size` elements divided by its root mean square and multiplied by the
// weight (size).
Vector normed(const Vector& x, const Vector& weight, double epsilon) {
  Vector y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += weight.size()) {
    double sum = 0;
    for (size_t c = 0; c < weight.size(); ++c) sum += x[begin + c] * x[begin + c];
    const double scale = 1 / std::sqrt(sum / static_cast<double>(weight.size()) + epsilon);
    for (size_t c = 0; c < weight.size(); ++c) y[begin + c] = weight[c] * x[begin + c] * scale;
  }
  return y;
}

// Returns attention with normed queries and keys, (B, Tq, d), row-major, in naive loops: takes the dot products of the
// normed queries and keys in place of the queries and keys.
Vector norm_attention(const reference::Sizes& sizes, const Vector& x, const Vector& m, const Weights& w, double epsilon,
                      const reference::MayAttend& may_attend) {
  const Vector q = apply_projection(w, "query", x, sizes.width), k = apply_projection(w, "key", m, sizes.width),
               normed_q = normed(q, w.at("query_norm.weight"), epsilon),
               normed_k = normed(k, w.at("key_norm.weight"), epsilon);
  const auto change_of_logit = [&](int64_t b, int64_t i, int64_t t, int64_t s) {
    const auto query = static_cast<size_t>(((b * sizes.queries + t) * sizes.heads + i) * sizes.key_size),
               key = static_cast<size_t>(((b * sizes.keys + s) * sizes.heads + i) * sizes.key_size);
    double sum = 0;
    for (size_t c = 0; c < static_cast<size_t>(sizes.key_size); ++c)
      sum += normed_q[query + c] * normed_k[key + c] - q[query + c] * k[key + c];
    return sum / std::sqrt(static_cast<double>(sizes.key_size));
  };
  return reference::attention(sizes, x, m, w, may_attend, change_of_logit);
}

// Records the logits (B, h, Tq, Tk) of a pass.
struct LogitRecorder : Observer {
  at::Tensor logits;
  bool wants_scores() const override { return true; }
  void observe_scores(const LayerSpec&, const at::Tensor& x) override { logits = x.clone(); }
};

at::Tensor logits_of(Layer& l, const at::Tensor& x) {
  LogitRecorder recorder;
  l(x, x, causal_mask(), {}, &recorder);
  return recorder.logits;
}

// Multiplies the query weights and biases of head `head` by `factor`.
void scale_query_head(Layer& l, int64_t head, double factor) {
  c10::NoGradGuard no_gradient;
  const int64_t size = l.layer->layer_spec().key_size;
  for (const char* name : {"query.weight", "query.bias"}) l[name].narrow(0, head * size, size).mul_(factor);
}

}  // namespace

TEST_CASE("layers with a norm of queries and keys match a naive reference over random shapes", "[qk-norm]") {
  CHECK(rc::check([] {
    const bool is_cross = *rc::gen::arbitrary<bool>();
    const std::string scope = *rc::gen::element(std::string("head"), std::string("joint"));
    const double epsilon = *rc::gen::element(1e-6, 1e-5, 0.1);
    const reference::Sizes sizes{pick(1, 3), pick(1, 7), 0, pick(1, 8), pick(1, 4), pick(1, 20), pick(1, 4)};
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    const int64_t keys = is_cross ? pick(1, 9) : sizes.queries;
    Layer l(layers::layer_size_lines(sizes) + norm_lines(scope, "'qk-norm'", epsilon), sizes.width, seed,
            is_cross ? AttentionKind::decoder_cross : AttentionKind::decoder_self);
    const at::Tensor x = normal({sizes.batch, sizes.queries, sizes.width}, seed),
                     m = is_cross ? normal({sizes.batch, keys, sizes.width}, seed + 1) : x;
    const Mask mask = is_cross ? Mask() : causal_mask();
    reference::Sizes all_sizes = sizes;
    all_sizes.keys = keys;
    const Vector expected = norm_attention(all_sizes, doubles(x), doubles(m), l.weights(), epsilon,
                                           [&](int64_t, int64_t t, int64_t s) { return is_cross || s <= t; });
    // A query near 0 has a large error relative to its norm, so that scaling it amplifies the error of the projection.
    double gain = 1;
    for (const char* name : {"query", "key"}) {
      const Vector p = apply_projection(l.weights(), name, doubles(name == std::string("query") ? x : m), sizes.width);
      const size_t group = static_cast<size_t>(scope == "head" ? sizes.key_size : sizes.heads * sizes.key_size);
      double largest = 0, least = HUGE_VAL;
      for (size_t begin = 0; begin < p.size(); begin += group) {
        double sum = 0;
        for (size_t c = 0; c < group; ++c) sum += p[begin + c] * p[begin + c];
        const double norm = std::sqrt(sum / static_cast<double>(group) + epsilon);
        largest = std::max(largest, norm), least = std::min(least, norm);
      }
      gain = std::max(gain, largest / least);
    }
    RC_ASSERT(layers::rounding_of(l, x, m, mask)
                  .agree(l(x, m, mask), at::tensor(expected, at::kDouble).view(x.sizes()), gain));
  }));
}

TEST_CASE("gradients of layers with a norm of queries and keys equal finite differences of a naive reference",
          "[qk-norm]") {
  for (const char* scope : {"head", "joint"}) {
    const reference::Sizes sizes{2, 4, 4, 5, 2, 6, 3};
    const double epsilon = 0.01;
    Layer l(layers::layer_size_lines(sizes) + norm_lines(scope, "'qk-norm'", epsilon), sizes.width, 5);
    const at::Tensor inputs = normal({2, 4, 5}, 7);
    layers::check_gradients(
        l, inputs, [&](const at::Tensor& x, Observer* observer) { return l(x, x, causal_mask(), {}, observer); },
        [&](const Weights& w, const Vector& x) {
          return norm_attention(sizes, x, x, w, epsilon, [](int64_t, int64_t t, int64_t s) { return s <= t; });
        });
  }
}

TEST_CASE("scaling the queries of one head changes nothing with scope = head, and the other heads with scope = joint",
          "[qk-norm]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 6, 8}, 1);
  // Mixhead B reads normed queries, too.
  for (const char* mixer : {"none", "mixhead-b"})
    for (const char* transforms : {"'qk-norm'", "'qk-norm', 'rotary'"}) {
      INFO(mixer << ", " << transforms);
      Layer l(str("heads = 3\nhead_size = 16\nmixer = '", mixer, "'\n", norm_lines("head", transforms, 1e-12)), 8, 3);
      const at::Tensor expected = l(x, x, causal_mask());
      const layers::LayerRounding rounding = layers::rounding_of(l, x, x, causal_mask());
      for (const double factor : {0.25, 3.0, 1000.0}) {
        scale_query_head(l, 1, factor);
        CHECK(rounding.agree(l(x, x, causal_mask()), expected));
      }
    }
  for (const char* scope : {"head", "joint"}) {
    Layer l("heads = 3\nhead_size = 6\n" + norm_lines(scope), 8, 3);
    const at::Tensor logits = logits_of(l, x);
    scale_query_head(l, 1, 3);
    CHECK(at::equal(logits_of(l, x).select(1, 0), logits.select(1, 0)) == (std::string(scope) == "head"));
  }
}

TEST_CASE("logits are at most sqrt(dk) times the largest weights of queries and keys", "[qk-norm]") {
  c10::NoGradGuard no_gradient;
  const int64_t size = 6;
  Layer l("heads = 3\nhead_size = 6\n" + norm_lines("head"), 8, 3);
  for (const char* name : {"query.weight", "key.weight"}) l[name].mul_(50);
  const double bound =
      std::sqrt(static_cast<double>(size)) * max_abs(l["query_norm.weight"]) * max_abs(l["key_norm.weight"]);
  const at::Tensor logits = logits_of(l, normal({3, 20, 8}, 1));
  CHECK(max_abs(logits) <= bound * (1 + tolerance::chain_error_bound(4 * size, tolerance::kFp32, 1)));
  CHECK(max_abs(logits) > 0.1 * bound);
}

TEST_CASE("the norm commutes with a rotation if the weights of each rotated pair are equal", "[qk-norm]") {
  c10::NoGradGuard no_gradient;
  const std::string sizes = "heads = 3\nhead_size = 6\n";
  const at::Tensor x = normal({2, 7, 8}, 1);
  for (const char* scope : {"head", "joint"}) {
    layers::Layer norm_first(sizes + norm_lines(scope, "'qk-norm', 'rotary'"), 8, 3),
        rotary_first(sizes + norm_lines(scope, "'rotary', 'qk-norm'"), 8, 3);
    const layers::LayerRounding rounding = layers::rounding_of(norm_first, x, x, causal_mask());
    CHECK(rounding.agree(norm_first(x, x, causal_mask()), rotary_first(x, x, causal_mask())));
    const int64_t num_pairs = norm_first["query_norm.weight"].numel() / 2;
    const at::Tensor pair_weights = normal({num_pairs}, 5).view({-1, 1, 3}).expand({-1, 2, 3}).flatten();
    for (layers::Layer* l : {&norm_first, &rotary_first}) l->set("query_norm.weight", pair_weights);
    CHECK(layers::rounding_of(norm_first, x, x, causal_mask())
              .agree(norm_first(x, x, causal_mask()), rotary_first(x, x, causal_mask())));
    for (layers::Layer* l : {&norm_first, &rotary_first}) l->set("query_norm.weight", normal({2 * num_pairs}, 6));
    CHECK(!layers::rounding_of(norm_first, x, x, causal_mask())
               .agree(norm_first(x, x, causal_mask()), rotary_first(x, x, causal_mask())));
  }
}

TEST_CASE("decoding token by token with normed and rotated keys equals one forward pass", "[qk-norm]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({3, 9, 8}, 1);
  for (const char* scope : {"head", "joint"})
    for (const char* lines : {"head_size = 16\n", "head_size = 6\n", "head_size = 16\nkey_value_heads = 2\n",
                              "head_size = 16\nmixer = 'mixhead-b'\n"}) {
      INFO(scope << ", " << lines);
      Layer l(str("heads = 4\n", lines, norm_lines(scope, "'qk-norm', 'rotary'")), 8, 3);
      const at::Tensor expected = l(x, x, causal_mask());
      const layers::LayerRounding rounding = layers::rounding_of(l, x, x, causal_mask());
      Cache cache;
      for (int64_t t = 0; t < x.size(1); ++t) {
        Mask mask = causal_mask();
        mask.offset = mask.first_position = t;
        const at::Tensor token = x.narrow(1, t, 1);
        CHECK(rounding.agree(l.layer->forward(token, token, mask, {}, &cache), expected.narrow(1, t, 1), 9));
      }
    }
}

TEST_CASE("cross-attention norms cached keys once", "[qk-norm]") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, 8}, 1), m = normal({2, 7, 8}, 2);
  for (const char* scope : {"head", "joint"}) {
    Layer l("heads = 2\nhead_size = 6\n" + norm_lines(scope), 8, 3, AttentionKind::decoder_cross);
    const at::Tensor expected = l(x, m, {});
    const layers::LayerRounding rounding = layers::rounding_of(l, x, m);
    Cache cache;
    for (int64_t t = 0; t < x.size(1); ++t)
      CHECK(rounding.agree(l.layer->forward(x.narrow(1, t, 1), m, {}, {}, &cache), expected.narrow(1, t, 1)));
  }
}

TEST_CASE("errors of layers with normed queries on the fused path are at most twice those on the composed path",
          "[qk-norm]") {
  for (const char* scope : {"head", "joint"}) {
    Layer l("heads = 4\nhead_size = 16\n" + norm_lines(scope, "'qk-norm', 'rotary'"), 8, 5);
    CHECK(l.layer->reasons_not_fused(true).empty());
    const at::Tensor x = normal({2, 6, 8}, 1);
    const auto [fused, composed, exact, magnitudes] = layers::results_of_paths(
        l, x, [&](const at::Tensor& input) { return l(input, input, causal_mask()); }, true);
    CHECK(find_excess_error(fused, composed, exact, at::kFloat, magnitudes) == "");
  }
}

TEST_CASE("the weights of the norm begin with 1, have no weight decay, and have heads with scope = joint only",
          "[qk-norm]") {
  layers::Layer head("heads = 4\nkey_value_heads = 2\nhead_size = 6\n" + norm_lines("head"), 8),
      joint("heads = 4\nkey_value_heads = 2\nhead_size = 6\n" + norm_lines("joint"), 8);
  for (const char* name : {"query_norm.weight", "key_norm.weight"}) {
    const bool is_query = name == std::string("query_norm.weight");
    CHECK(at::equal(head[name], at::ones({6})));
    CHECK(at::equal(joint[name], at::ones({is_query ? 24 : 12})));
    for (layers::Layer* l : {&head, &joint}) {
      const ParameterTraits& traits = l->parameters.find(str("x.", name))->traits();
      CHECK(!traits.has_weight_decay);
      CHECK(traits.head_axes.size() == (l == &joint ? 1 : 0));
    }
    const HeadAxis& axis = joint.parameters.find(str("x.", name))->traits().head_axes.at(0);
    CHECK(axis.side == (is_query ? HeadSide::score : HeadSide::key_value));
    CHECK(axis.heads == (is_query ? 4 : 2));
  }
}

TEST_CASE("single heads cannot be pruned from a layer with one norm of all heads", "[qk-norm]") {
  Layer head("heads = 3\nhead_size = 6\n" + norm_lines("head"), 8, 3),
      joint("heads = 3\nhead_size = 6\n" + norm_lines("joint"), 8, 3);
  const std::vector<int64_t> remaining_heads{0, 2}, all_heads{0, 1, 2};
  CHECK(head.layer->options_after_pruning({remaining_heads, remaining_heads, remaining_heads}).heads == 2);
  CHECK_THAT(refusal([&] {
               joint.layer->options_after_pruning({remaining_heads, remaining_heads, remaining_heads});
             }),
             Contains("one norm ties all heads together; found 2 of 3 heads remain"));
  CHECK(joint.layer->options_after_pruning({all_heads, all_heads, all_heads}).heads == 3);
  CHECK(joint.layer->options_after_pruning({{}, {}, {}}).heads == 0);
}
