// The measures confidence and received against plain loops over attention probabilities.
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "analysis/importance.h"
#include "base/random.h"
#include "fixtures/layers.h"
#include "fixtures/measured_models.h"
#include "fixtures/rounding.h"

using namespace mh;
using namespace mh::analysis;
using namespace measured_models;

TEST_CASE("the measure confidence equals plain loops over attention probabilities", "[importance]") {
  check_measure("confidence", [](const std::vector<ObservedTensors::ForwardPass>& passes, SideSelection side,
                                 const attention::AttentionLayer&) {
    return mean_over_positions(passes, [&](const ObservedTensors::ForwardPass& pass, int64_t i, int64_t t) {
      const at::Tensor p = probabilities_of(pass, side);
      double largest = -1e9;
      for (int64_t s = 0; s < p.size(2); ++s) largest = std::max(largest, element(p, i, t, s));
      return largest;
    });
  });
}

TEST_CASE("the measure received equals plain loops over attention probabilities", "[importance]") {
  check_measure("received", [](const std::vector<ObservedTensors::ForwardPass>& passes, SideSelection side,
                               const attention::AttentionLayer&) {
    return mean_over_positions(passes, [&](const ObservedTensors::ForwardPass& pass, int64_t i, int64_t s) {
      const at::Tensor p = probabilities_of(pass, side);
      const int64_t memory = p.size(2) - p.size(1);
      double largest = -1e9;
      for (int64_t t = 0; t < pass.length; ++t) largest = std::max(largest, element(p, i, t, memory + s));
      return largest;
    });
  });
}

TEST_CASE("in cross-attention, the measure received is the mean over unmasked keys of the largest weight of each key",
          "[importance]") {
  attention::LayerSpec spec;
  spec.kind = AttentionKind::decoder_cross;
  // Attention weights (2, 2, 2, 3): two batch rows, two heads, two queries, three keys. In batch row 1, query 1 is
  // padding and key 2 is masked.
  at::Tensor p = at::tensor({0.2, 0.5, 0.3, 0.6, 0.3, 0.1, 0.1, 0.1, 0.8, 0.4, 0.4, 0.2,  //
                             0.9, 0.1, 0.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.0, 0.0, 0.0, 1.0},
                            at::kFloat)
                     .view({2, 2, 2, 3});
  const auto measure = importance_measures().make("received", "")->make_observer(SideSelection::whole);
  measure->begin_batch(attention::Lengths(at::tensor({2, 1}, at::kLong)));
  measure->observe_probabilities(spec, p);
  const auto scores = measure->mean_scores().at(AttentionKind::decoder_cross)[0];
  // The bound is one rounding of the weights, to fp32.
  CHECK(is_near(scores, {(0.6 + 0.5 + 0.3 + 0.9 + 0.1) / 5, (0.4 + 0.4 + 0.8 + 0.5 + 0.5) / 5},
                tolerance::chain_error_bound(1, tolerance::kFp32, 1)));
}

TEST_CASE("the measure confidence of random tensors equals plain loops and ignores padding", "[importance]") {
  CHECK(rc::check([](uint64_t seed) {
    RandomSequence random(RandomStream(seed, "test"));
    const auto draw = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random.uniform_below(static_cast<uint64_t>(high - low + 1)));
    };
    const int64_t h = draw(1, 4), queries = draw(1, 5), keys = draw(1, 5), num_passes = draw(1, 3);
    const bool has_padding = draw(0, 1) == 1;
    attention::LayerSpec spec;
    spec.layer = draw(0, 2), spec.kind = AttentionKind::decoder_self;
    std::vector<double> expected(static_cast<size_t>(h));
    double num_queries = 0;  // number of queries, without padding
    const auto measure = importance_measures().make("confidence", "")->make_observer(SideSelection::whole);
    for (int64_t pass = 0; pass < num_passes; ++pass) {
      const int64_t batch = draw(1, 3);
      const at::Tensor p =
          at::softmax(layers::normal({batch, h, queries, keys}, seed + 1 + 2 * static_cast<uint64_t>(pass)), -1);
      std::vector<int64_t> lengths;
      for (int64_t b = 0; b < batch; ++b) lengths.push_back(has_padding ? draw(0, queries) : queries);
      if (has_padding) measure->begin_batch(attention::Lengths(at::tensor(lengths, at::kLong)));
      measure->observe_probabilities(spec, p);
      RC_ASSERT(measure->intercept_heads(attention::HeadSide::value, spec, p).is_same(p));
      for (int64_t b = 0; b < batch; ++b) {
        const int64_t length = lengths[static_cast<size_t>(b)];
        if (length == 0) continue;
        num_queries += static_cast<double>(length);
        for (int64_t i = 0; i < h; ++i) {
          const auto head = static_cast<size_t>(i);
          for (int64_t t = 0; t < length; ++t) {
            double largest = 0;
            for (int64_t s = 0; s < keys; ++s) largest = std::max(largest, p[b][i][t][s].item<double>());
            expected[head] += largest;
          }
        }
      }
    }
    const auto scores = measure->mean_scores();
    if (num_queries > 0) {
      const auto& layer = scores.at(spec.kind).at(static_cast<size_t>(spec.layer));
      RC_ASSERT(static_cast<int64_t>(layer.size()) == h);
      // Roundings in fp64: a sum over 3 · 3 rows of 5 queries.
      for (size_t i = 0; i < layer.size(); ++i) {
        const double mean = expected[i] / num_queries;
        RC_ASSERT(std::abs(layer[i] - mean) <= rounding::fp64_bound(45, mean));
      }
    }
    measure->reset();
    RC_ASSERT(measure->mean_scores().empty());
  }));
}
