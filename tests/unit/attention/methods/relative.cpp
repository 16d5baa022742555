// The relative score of Transformer-XL against a naive reference with explicit distances, for memories of any length
// and with gaps between positions.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "fixtures/gradients.h"
#include "fixtures/pick.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using namespace numbers;
using namespace reference;
using layers::check_gradients;
using Layer = layers::PerturbedLayer;

namespace {

// A function (t, s) that returns the distance of query t and key s, the argument of the sinusoids.
using Distance = std::function<int64_t(int64_t, int64_t)>;

// Returns the attention of Transformer-XL, (B, Tq, d), row-major, in naive loops: adds the relative terms to the
// dot-product logits.
Vector relative_attention(const LayerSpec& shape, const Weights& w, const Vector& x, const Vector& m, int64_t batch,
                          const reference::MayAttend& may_attend, const Distance& distance) {
  const int64_t d = shape.width, h = shape.heads, dk = shape.key_size;
  const reference::Sizes sizes{batch,
                               static_cast<int64_t>(x.size()) / (batch * d),
                               static_cast<int64_t>(m.size()) / (batch * d),
                               d,
                               h,
                               dk,
                               shape.value_size};
  const Vector q = apply_projection(w, "query", x, d), k = apply_projection(w, "key", m, d);
  const Vector &u = w.at("relative.content_bias"), &v = w.at("relative.position_bias"), &wr = w.at("relative.weight");
  std::map<int64_t, Vector> distance_embeddings;  // distance -> W^R S(distance), (h * dk)
  for (int64_t t = 0; t < sizes.queries; ++t)
    for (int64_t s = 0; s < sizes.keys; ++s) {
      const int64_t delta = distance(t, s);
      if (distance_embeddings.count(delta) != 0) continue;
      Vector r(static_cast<size_t>(h * dk));
      for (int64_t o = 0; o < h * dk; ++o)
        for (int64_t c = 0; c < d; ++c) {
          const int64_t i = c < d / 2 ? c : c - d / 2;
          const double angle =
              static_cast<double>(delta) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(d));
          r[static_cast<size_t>(o)] +=
              wr[static_cast<size_t>(o * d + c)] * (c < d / 2 ? std::sin(angle) : std::cos(angle));
        }
      distance_embeddings[delta] = r;
    }
  auto relative_terms = [&](int64_t b, int64_t i, int64_t t, int64_t s) {
    const Vector& r = distance_embeddings.at(distance(t, s));
    double sum = 0;
    for (int64_t c = 0; c < dk; ++c) {
      const auto index = static_cast<size_t>(i * dk + c);
      sum += u[index] * k[static_cast<size_t>((b * sizes.keys + s) * h * dk) + index] +
             (q[static_cast<size_t>((b * sizes.queries + t) * h * dk) + index] + v[index]) * r[index];
    }
    return sum / std::sqrt(static_cast<double>(dk));
  };
  return reference::attention(sizes, x, m, w, may_attend, relative_terms);
}

// Returns ascending positions of `num_slots` memory slots before position 0, with random gaps.
std::vector<int64_t> random_memory(int64_t num_slots) {
  std::vector<int64_t> positions(static_cast<size_t>(num_slots));
  int64_t position = 0;
  for (auto it = positions.rbegin(); it != positions.rend(); ++it) {
    position -= *rc::gen::weightedElement<int64_t>({{6, 1}, {1, 4}, {1, 9}});
    *it = position;
  }
  return positions;
}

}  // namespace

TEST_CASE("relative attention matches a naive reference for memories of any length, gaps, clamping and windows",
          "[relative]") {
  CHECK(rc::check([] {
    const bool causal = *rc::gen::arbitrary<bool>(), is_padded = *rc::gen::arbitrary<bool>(),
               has_gaps = *rc::gen::arbitrary<bool>(), is_block_end = *rc::gen::arbitrary<bool>();
    const int64_t batch = pick(1, 3), queries = pick(1, 7), num_slots = pick(0, 9), clamp = pick(0, 1) * pick(1, 8);
    const int64_t keys = num_slots + queries, h = pick(1, 3), dk = pick(1, 9), d = 2 * pick(1, 4);
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    Layer l(str("heads = ", h, "\nhead_size = ", dk, "\nscore = 'relative'\n[attention.relative]\nclamp = ", clamp,
                "\nshared_biases = ", *rc::gen::arbitrary<bool>() ? "true" : "false", "\ndistances = '",
                is_block_end ? "block_end" : "exact", "'\n"),
            d, seed, causal ? AttentionKind::decoder_self : AttentionKind::encoder_self);
    at::Tensor m = normal({batch, keys, d}, seed), x = num_slots == 0 ? m : m.narrow(1, num_slots, queries);
    std::vector<int64_t> positions(static_cast<size_t>(num_slots));
    for (int64_t s = 0; s < num_slots; ++s) positions[static_cast<size_t>(s)] = s - num_slots;
    if (has_gaps) positions = random_memory(num_slots);
    for (int64_t t = 0; t < queries; ++t) positions.push_back(t);
    Mask mask;
    mask.causal = causal;
    mask.offset = num_slots;
    mask.window = pick(0, 1) * pick(1, 5);
    if (has_gaps) mask.key_positions = at::tensor(positions, at::kLong);
    std::vector<int64_t> lengths;
    if (is_padded) {
      for (int64_t b = 0; b < batch; ++b) lengths.push_back(pick(0, keys));
      mask.key_lengths = at::tensor(lengths, at::kLong);
    }
    auto may_attend = [&](int64_t b, int64_t t, int64_t s) {
      return (!causal || s <= t + num_slots) && (mask.window == 0 || s > t + num_slots - mask.window) &&
             (causal || mask.window == 0 || s < t + num_slots + mask.window) &&
             (!is_padded || s < lengths[static_cast<size_t>(b)]);
    };
    auto distance = [&](int64_t t, int64_t s) {
      const int64_t delta = (is_block_end ? queries - 1 : t) - positions[static_cast<size_t>(s)];
      return clamp > 0 ? std::clamp(delta, -clamp, clamp) : delta;
    };
    const Vector expected =
        relative_attention(l.layer->layer_spec(), l.weights(), doubles(x), doubles(m), batch, may_attend, distance);
    const layers::LayerRounding rounding = layers::rounding_of(l, x, m, mask);
    RC_ASSERT(rounding.agree(l.layer->forward(x, m, mask, {}), expected));
    // Keys in reverse order, each of which is a key range of its own, give the same result.
    if (!causal && !is_padded && mask.window == 0) {
      Mask reversed = mask;
      reversed.key_positions = at::tensor(positions, at::kLong).flip(0);
      RC_ASSERT(rounding.agree(l.layer->forward(x, m.flip(1), reversed, {}), expected));
    }
  }));
}

TEST_CASE("gradients of relative attention equal finite differences of a naive reference", "[relative]") {
  // In the second case, the queries of the batch are numerous enough that the distance embeddings are projected before
  // the product with the queries.
  for (auto [batch, queries, dk] : {std::tuple{1L, 2L, 5L}, {2L, 3L, 3L}}) {
    for (const char* distances : {"exact", "block_end"}) {
      const int64_t num_slots = 3, d = 4;
      Layer l(str("heads = 2\nhead_size = ", dk, "\nscore = 'relative'\n[attention.relative]\ndistances = '", distances,
                  "'\n"),
              d, 5);
      const bool is_block_end = std::string(distances) == "block_end";
      std::vector<int64_t> positions{-7, -6, -2};
      for (int64_t t = 0; t < queries; ++t) positions.push_back(t);
      const at::Tensor inputs = normal({batch, num_slots + queries, d}, 7);
      Mask mask;
      mask.causal = true;
      mask.offset = num_slots;
      mask.key_positions = at::tensor(positions, at::kLong);
      const int64_t batch_size = batch, length = queries;
      check_gradients(
          l, inputs,
          [&](const at::Tensor& m, Observer* observer) {
            return l(m.narrow(1, num_slots, length), m, mask, {}, observer);
          },
          [&](const Weights& w, const Vector& m) {
            Vector x;
            for (int64_t b = 0; b < batch_size; ++b)
              x.insert(x.end(), m.begin() + (b * (num_slots + length) + num_slots) * d,
                       m.begin() + (b + 1) * (num_slots + length) * d);
            return relative_attention(
                l.layer->layer_spec(), w, x, m, batch_size,
                [&](int64_t, int64_t t, int64_t s) { return s <= t + num_slots; },
                [&](int64_t t, int64_t s) {
                  return (is_block_end ? length - 1 : t) - positions[static_cast<size_t>(s)];
                });
          });
    }
  }
}

TEST_CASE("relative attention is invariant to a shift of all positions", "[relative]") {
  // Five more tokens before `x` shift queries and keys by 5; the window masks these tokens for the last query.
  Layer l("heads = 2\nhead_size = 4\nscore = 'relative'\n", 8, 3);
  at::Tensor x = normal({2, 4, 8}, 1), longer_x = nn::cat({normal({2, 5, 8}, 2), x}, 1);
  Mask mask, window_mask;
  mask.causal = window_mask.causal = true;
  window_mask.window = 4;  // number of keys that the last query of x sees
  at::Tensor unshifted_output = l.layer->forward(x, x, mask, {}),
             shifted_output = l.layer->forward(longer_x, longer_x, window_mask, {});
  CHECK(layers::rounding_of(l, longer_x, longer_x, window_mask)
            .agree(unshifted_output.select(1, 3), shifted_output.select(1, 8)));
}

TEST_CASE("dropout of distance embeddings is equal in all micro-batches and inactive in evaluation", "[relative]") {
  Layer plain_layer("heads = 2\nhead_size = 4\nscore = 'relative'\n", 8, 3),
      dropout_layer("heads = 2\nhead_size = 4\nscore = 'relative'\n[attention.relative]\ndropout = 0.5\n", 8, 3);
  at::Tensor x = normal({6, 5, 8}, 1);
  const Mask mask = layers::causal_mask();
  CHECK(at::equal(plain_layer.layer->forward(x, x, mask, {}), dropout_layer.layer->forward(x, x, mask, {})));
  ForwardContext forward_context{true, 1, 4, 0}, micro_batch_context{true, 1, 4, 2};
  at::Tensor batch_output = dropout_layer.layer->forward(x, x, mask, forward_context), micro_batch = x.narrow(0, 2, 4);
  const layers::LayerRounding rounding = layers::rounding_of(plain_layer, x, x, mask);
  const double scale = 2;  // 1 / (1 - 0.5), the factor of the distance embeddings that dropout keeps
  CHECK(!rounding.agree(batch_output, plain_layer.layer->forward(x, x, mask, forward_context), scale));
  CHECK(rounding.agree(dropout_layer.layer->forward(micro_batch, micro_batch, mask, micro_batch_context),
                       batch_output.narrow(0, 2, 4), scale));
  // The dropout mask depends on the distance only: keys in reverse order give the output of keys in ascending order.
  Layer encoder_layer("heads = 2\nhead_size = 4\nscore = 'relative'\n[attention.relative]\ndropout = 0.5\n", 8, 3,
                      AttentionKind::encoder_self);
  Mask reversed_mask;
  reversed_mask.key_positions = at::tensor({4, 3, 2, 1, 0}, at::kLong);
  CHECK(layers::rounding_of(encoder_layer, x, x)
            .agree(encoder_layer.layer->forward(x, x.flip(1), reversed_mask, forward_context),
                   encoder_layer.layer->forward(x, x, {}, forward_context), scale));
}

TEST_CASE("the biases of relative scores are shared by the layers of a stack unless shared_biases = false",
          "[relative]") {
  const auto bias_names = [](const std::string& extra) {
    return layers::stack_parameter_names("heads = 2\nscore = 'relative'\n" + extra, "_bias");
  };
  CHECK(bias_names("") == std::vector<std::string>{"decoder.relative.content_bias", "decoder.relative.position_bias"});
  CHECK(bias_names("relative.shared_biases = false\n").size() == 4);
  CHECK_THROWS_AS(bias_names("[attention.decoder.self.1]\nheads = 4\n"), Error);
  CHECK(bias_names("relative.shared_biases = false\n[attention.decoder.self.1]\nheads = 4\n").size() == 4);
}

TEST_CASE("relative scores reject cross-attention and odd widths; distances = block_end has no incremental decoding",
          "[relative]") {
  CHECK_THROWS_AS(Layer("heads = 2\nscore = 'relative'\n", 8, 1, AttentionKind::decoder_cross), Error);
  CHECK_THROWS_AS(Layer("heads = 3\nscore = 'relative'\n", 9, 1), Error);
  CHECK(!Layer("heads = 2\nscore = 'relative'\n[attention.relative]\ndistances = 'block_end'\n", 8, 1)
             .layer->capabilities()
             .supports_incremental_decoding);
}
