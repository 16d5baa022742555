// Synthesizers against a naive reference; lengths, memories and kinds of attention that synthesizers reject.
#include <c10/core/GradMode.h>
#include <rapidcheck.h>

#include "base/error.h"
#include "base/text.h"
#include "fixtures/gradients.h"
#include "fixtures/pick.h"

using namespace mh;
using namespace mh::attention;
using namespace numbers;
using namespace reference;
using layers::check_gradients;
using Layer = layers::PerturbedLayer;

namespace {

// Returns the output of attention with synthesized logits, (B, Tq, d), row-major, in naive loops. Zero keys remove the
// dot product from reference::attention(). `length`: maximum number of positions; query 0 has position 0.
Vector synthesizer_attention(const Layer& l, Weights w, const Vector& x, const Vector& m, int64_t batch_size,
                             int64_t length, const reference::MayAttend& may_attend) {
  const LayerSpec& s = l.layer->layer_spec();
  const int64_t d = s.width, h = s.heads, dk = s.key_size;
  const reference::Sizes sizes{batch_size,
                               static_cast<int64_t>(x.size()) / (batch_size * d),
                               static_cast<int64_t>(m.size()) / (batch_size * d),
                               d,
                               h,
                               dk,
                               s.value_size};
  const Vector q = apply_projection(w, "query", x, d);
  w["key.weight"] = Vector(static_cast<size_t>(h * dk * d));
  auto logit = [&](int64_t b, int64_t i, int64_t t, int64_t key) {
    auto table = w.find("synthesizer.logits");
    if (table != w.end()) return table->second[static_cast<size_t>((i * length + t) * length + key)];
    const Vector &weight = w.at("synthesizer.weight"), &bias = w.at("synthesizer.bias");
    const bool is_per_head = static_cast<int64_t>(bias.size()) > length;
    double sum = bias[static_cast<size_t>((is_per_head ? i * length : 0) + key)];
    for (int64_t c = 0; c < dk; ++c)
      sum += std::max(0.0, q[static_cast<size_t>(((b * sizes.queries + t) * h + i) * dk + c)]) *
             weight[static_cast<size_t>((is_per_head ? i * dk * length : 0) + c * length + key)];
    return sum;
  };
  return reference::attention(sizes, x, m, w, may_attend, logit);
}

std::string attention_lines(const std::string& score, int64_t heads, int64_t size, int64_t length,
                            const std::string& extra = "") {
  return str("heads = ", heads, "\nhead_size = ", size, "\nscore = '", score, "'\n[attention.", score,
             "]\nlength = ", length, "\n", extra);
}

}  // namespace

TEST_CASE("synthesizers match a naive reference over random shapes and masks", "[synthesizer]") {
  CHECK(rc::check([] {
    const bool is_random = *rc::gen::arbitrary<bool>(), is_per_head = *rc::gen::arbitrary<bool>(),
               is_cross = !is_random && *rc::gen::arbitrary<bool>(), causal = !is_cross && *rc::gen::arbitrary<bool>(),
               is_padded = *rc::gen::arbitrary<bool>();
    const int64_t batch_size = pick(1, 3), num_queries = pick(1, 6), num_keys = is_cross ? pick(1, 7) : num_queries,
                  d = pick(1, 7), length = 7 + pick(0, 3);
    const auto seed = static_cast<uint64_t>(pick(1, 1000000));
    Layer l(attention_lines(is_random ? "synthesizer-random" : "synthesizer-dense", pick(1, 3), pick(1, 5), length,
                            is_random || !is_per_head ? "" : "per_head = true\n"),
            d, seed, is_cross ? AttentionKind::decoder_cross : AttentionKind::encoder_self);
    at::Tensor x = normal({batch_size, num_queries, d}, seed),
               m = is_cross ? normal({batch_size, num_keys, d}, seed + 1) : x;
    Mask mask;
    mask.causal = causal;
    std::vector<int64_t> lengths;
    if (is_padded) {
      for (int64_t b = 0; b < batch_size; ++b) lengths.push_back(pick(0, num_keys));
      mask.key_lengths = at::tensor(lengths, at::kLong);
    }
    auto may_attend = [&](int64_t b, int64_t t, int64_t s) {
      return (!causal || s <= t) && (!is_padded || s < lengths[static_cast<size_t>(b)]);
    };
    const Vector expected =
        synthesizer_attention(l, l.weights(), doubles(x), doubles(m), batch_size, length, may_attend);
    RC_ASSERT(layers::rounding_of(l, x, m, mask).agree(l.layer->forward(x, m, mask, {}), expected));
  }));
}

TEST_CASE("gradients of synthesizers equal finite differences of a naive reference", "[synthesizer]") {
  for (auto [score, extra] :
       {std::pair{"synthesizer-dense", ""}, {"synthesizer-dense", "per_head = true\n"}, {"synthesizer-random", ""}}) {
    Layer l(attention_lines(score, 2, 3, 5, extra), 4, 5);
    const Mask mask = layers::causal_mask();
    check_gradients(
        l, normal({2, 4, 4}, 7), [&](const at::Tensor& x, Observer* observer) { return l(x, x, mask, {}, observer); },
        [&](const Weights& w, const Vector& x) {
          return synthesizer_attention(l, w, x, x, 2, 5, [](int64_t, int64_t t, int64_t s) { return s <= t; });
        });
  }
}

TEST_CASE("synthesizers have the parameters of a table or network instead of a key projection", "[synthesizer]") {
  auto count = [](const std::string& toml) { return Layer(toml, 1024, 1).parameters.num_trainable_elements(); };
  // The layer has 8 heads of size 128 and the width 1024. `projections`: number of parameters of its three projections
  // with their biases; the layer has no key projection. W and b of the first case have 128 · 512 + 512 entries.
  const int64_t projections = 4 * 1024L * 1024 + 4 * 1024 - (1024L * 1024 + 1024);
  CHECK(count(attention_lines("synthesizer-dense", 8, 128, 512)) == projections + 66048);
  CHECK(count(attention_lines("synthesizer-dense", 8, 128, 16, "per_head = true\n")) ==
        projections + 8 * (128 * 16 + 16));
  CHECK(count(attention_lines("synthesizer-random", 8, 128, 16)) == projections + 8 * 16 * 16);
  CHECK(count(attention_lines("synthesizer-random", 8, 128, 16, "train = false\n")) == projections);
}

TEST_CASE("synthesizers reject inputs above their length, and memories; synthesizer-random rejects cross-attention",
          "[synthesizer]") {
  for (const char* score : {"synthesizer-dense", "synthesizer-random"}) {
    Layer l(attention_lines(score, 2, 3, 5), 4, 5);
    at::Tensor x = normal({1, 6, 4}, 1);
    CHECK_THROWS_AS(l.layer->forward(x, x, {}, {}), Error);
    CHECK(!l.layer->capabilities().supports_memory);
  }
  CHECK_THROWS_AS(Layer(attention_lines("synthesizer-random", 2, 3, 5), 4, 5, AttentionKind::decoder_cross), Error);
}
