// The measures avg-l2 and avg-l2-outputs against plain loops over pairs of heads.
#include <rapidcheck.h>

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

namespace {

// Returns, for each of the 3 heads, the mean Frobenius distance to the other two heads, averaged over forward passes.
// `tensor_of` returns the tensor (h, Tq, …) of a pass that holds the heads to compare.
HeadValues head_distances(const std::vector<ObservedTensors::ForwardPass>& passes,
                          const std::function<at::Tensor(const ObservedTensors::ForwardPass&)>& tensor_of) {
  HeadValues scores(3, 0.0);
  double count = 0;
  for (const auto& pass : passes) {
    if (pass.length == 0) continue;
    const at::Tensor x = tensor_of(pass);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 3; ++j) {
        double squares = 0;
        for (int64_t t = 0; t < pass.length; ++t)
          for (int64_t s = 0; s < x.size(2); ++s) squares += std::pow(element(x, i, t, s) - element(x, j, t, s), 2);
        scores[static_cast<size_t>(i)] += std::sqrt(squares) / 2;
      }
    ++count;
  }
  for (double& s : scores) s /= count;
  return scores;
}

}  // namespace

TEST_CASE("the measure avg-l2 equals plain loops over pairs of heads", "[importance]") {
  check_measure("avg-l2", [](const std::vector<ObservedTensors::ForwardPass>& passes, SideSelection side,
                             const attention::AttentionLayer&) {
    return head_distances(passes,
                          [&](const ObservedTensors::ForwardPass& pass) { return probabilities_of(pass, side); });
  });
}

TEST_CASE("the measure avg-l2-outputs equals plain loops over pairs of heads", "[importance]") {
  check_measure("avg-l2-outputs", [](const std::vector<ObservedTensors::ForwardPass>& passes, SideSelection side,
                                     const attention::AttentionLayer&) {
    return head_distances(passes, [&](const ObservedTensors::ForwardPass& pass) {
      return side == SideSelection::output ? pass.c : pass.z;
    });
  });
}

TEST_CASE("the measures avg-l2 and avg-l2-outputs of random tensors equal plain loops and ignore padding",
          "[importance]") {
  CHECK(rc::check([](uint64_t seed) {
    RandomSequence random(RandomStream(seed, "test"));
    const auto draw = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random.uniform_below(static_cast<uint64_t>(high - low + 1)));
    };
    const int64_t h = draw(1, 4), queries = draw(1, 5), keys = draw(1, 5), num_passes = draw(1, 3);
    const bool has_padding = draw(0, 1) == 1;
    attention::LayerSpec spec;
    spec.layer = draw(0, 2), spec.kind = AttentionKind::decoder_self;
    std::map<std::string, std::vector<double>> expected;
    for (const char* name : {"avg-l2", "avg-l2-outputs"}) expected[name].resize(static_cast<size_t>(h));
    double num_rows = 0;  // number of non-empty rows
    std::map<std::string, std::unique_ptr<MeasureObserver>> measures;
    for (const auto& [name, means] : expected)
      measures[name] = importance_measures().make(name, "")->make_observer(SideSelection::whole);
    for (int64_t pass = 0; pass < num_passes; ++pass) {
      const int64_t batch = draw(1, 3);
      const at::Tensor p =
          at::softmax(layers::normal({batch, h, queries, keys}, seed + 1 + 2 * static_cast<uint64_t>(pass)), -1);
      const at::Tensor z = layers::normal({batch, h, queries, 3}, seed + 2 + 2 * static_cast<uint64_t>(pass));
      std::vector<int64_t> lengths;
      for (int64_t b = 0; b < batch; ++b) lengths.push_back(has_padding ? draw(0, queries) : queries);
      for (auto& [name, measure] : measures) {
        if (has_padding) measure->begin_batch(attention::Lengths(at::tensor(lengths, at::kLong)));
        measure->observe_probabilities(spec, p);
        RC_ASSERT(measure->intercept_heads(attention::HeadSide::value, spec, z).is_same(z));
      }
      for (int64_t b = 0; b < batch; ++b) {
        const int64_t length = lengths[static_cast<size_t>(b)];
        if (length == 0) continue;
        ++num_rows;
        for (int64_t i = 0; i < h; ++i) {
          const auto head = static_cast<size_t>(i);
          for (auto [name, x] : {std::pair<std::string, at::Tensor>{"avg-l2", p}, {"avg-l2-outputs", z}})
            for (int64_t j = 0; j < h; ++j) {
              double squares = 0;
              for (int64_t t = 0; t < length; ++t)
                for (int64_t s = 0; s < x.size(3); ++s) {
                  const double d = x[b][i][t][s].item<double>() - x[b][j][t][s].item<double>();
                  squares += d * d;
                }
              if (j != i) expected[name][head] += std::sqrt(squares) / static_cast<double>(h - 1);
            }
        }
      }
    }
    for (const auto& [name, measure] : measures) {
      const auto scores = measure->mean_scores();
      if (num_rows == 0) continue;
      const auto& layer = scores.at(spec.kind).at(static_cast<size_t>(spec.layer));
      RC_ASSERT(static_cast<int64_t>(layer.size()) == h);
      // Roundings in fp64: a sum of at most 5 · 5 squares, a sum over 4 heads, and a sum over 3 · 3 rows.
      for (size_t i = 0; i < layer.size(); ++i) {
        const double mean = expected[name][i] / num_rows;
        RC_ASSERT(std::abs(layer[i] - mean) <= rounding::fp64_bound(25 + 4 + 9, mean));
      }
      measure->reset();
      RC_ASSERT(measure->mean_scores().empty());
    }
  }));
}
