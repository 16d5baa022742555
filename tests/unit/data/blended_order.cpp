// The order of draws from several shards, compared with a plain loop over the deficits, and the weights of the shards.
#include "data/blended_order.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "fixtures/status.h"
#include "oracle/tolerance.h"

using namespace mh;
using data::BlendedOrder;
using data::Shares;

namespace {

const std::vector<std::vector<double>> kWeights{{1},          {0.5, 0.5},         {3, 1},
                                                {1, 999},     {0.5, 0.3, 0.2},    {1, 1, 1},
                                                {0.7, 5, 11}, {1, 2, 3, 4, 5, 6}, {1e-300, 2e-300, 5e-300}};

}  // namespace

TEST_CASE("draw k comes from the shard with the largest deficit w (k + 1) - n, the first of equal deficits",
          "[mixtures]") {
  // All products of these weights are exact in double precision.
  const std::vector<double> weights{0.5, 0.125, 0.25, 0.125};
  BlendedOrder order{Shares(weights)};
  std::vector<int64_t> counts(weights.size(), 0);
  for (int64_t k = 0; k < 100; ++k) {
    size_t expected = 0;
    const auto deficit = [&](size_t i) {
      return weights[i] * static_cast<double>(k + 1) - static_cast<double>(counts[i]);
    };
    for (size_t i = 1; i < weights.size(); ++i)
      if (deficit(i) > deficit(expected)) expected = i;
    CHECK(order.counts_before(k) == counts);
    CHECK(order.at(k) == BlendedOrder::Draw{expected, counts[expected]++});
  }
}

TEST_CASE("the fraction of draws from each shard follows its weight at every moment", "[mixtures]") {
  for (const auto& weights : kWeights) {
    const std::vector<double> shares = data::normalise_weights(weights);
    // Roundings in fp64: two quotients, and the sums of the weights and of the shares.
    const auto num_roundings = static_cast<int64_t>(2 + 2 * shares.size());
    CHECK(std::abs(std::accumulate(shares.begin(), shares.end(), 0.0) - 1) <=
          tolerance::chain_error_bound(num_roundings, tolerance::kFp64, 1));
    // The rule bounds the deficit of one of m shards by 1/2 + … + 1/m draws, and the surplus by 1 draw; for up to three
    // shards both are below 1.
    double bound = 1;
    for (size_t m = 4; m <= weights.size(); ++m) bound += 1.0 / static_cast<double>(m);
    BlendedOrder order{Shares(weights)};
    for (int64_t k = 0; k < 3000; ++k) {
      const std::vector<int64_t>& counts = order.counts_before(k);
      CHECK(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == k);
      for (size_t i = 0; i < shares.size(); ++i)
        REQUIRE(std::abs(shares[i] * static_cast<double>(k) - static_cast<double>(counts[i])) < bound);
    }
  }
}

TEST_CASE("a draw depends only on its position and the ratios of the weights", "[mixtures]") {
  for (const auto& weights : kWeights) {
    BlendedOrder forward{Shares(weights)}, any_order{Shares(weights)};
    std::vector<BlendedOrder::Draw> draws;
    for (int64_t k = 0; k < 200; ++k) draws.push_back(forward.at(k));
    for (int64_t i = 0; i < 200; ++i) {
      const int64_t k = i * 77 % 200;
      CHECK(any_order.at(k) == draws[static_cast<size_t>(k)]);
      CHECK(any_order.at(k) == draws[static_cast<size_t>(k)]);
    }
  }
  BlendedOrder small{Shares({0.5, 0.25, 0.25})}, large{Shares({1e308, 5e307, 5e307})};
  for (int64_t k = 0; k < 1000; ++k) CHECK(small.at(k) == large.at(k));
}

TEST_CASE("streams are divided among shards by the largest remainder", "[mixtures]") {
  CHECK(Shares({0.5, 0.3, 0.2}).divide(10) == std::vector<int64_t>{5, 3, 2});
  CHECK(Shares({1, 1, 1}).divide(8) == std::vector<int64_t>{3, 3, 2});
  CHECK(Shares({5, 3, 1}).divide(4) == std::vector<int64_t>{2, 1, 1});  // 2.22, 1.33, 0.44
  CHECK(Shares({1, 99}).divide(4) == std::vector<int64_t>{0, 4});
  for (const auto& weights : kWeights)
    for (int64_t total : {1, 7, 1 << 30}) {
      const std::vector<int64_t> counts = Shares(weights).divide(total);
      CHECK(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == total);
    }
}

TEST_CASE("a weight too small to be drawn is refused", "[mixtures]") {
  CHECK_NOTHROW(Shares({1, 1e-9}));
  CHECK(refusal([] { Shares({1, 1e-11}); }).find("the weight 1e-11 of shard 2") != std::string::npos);
  CHECK(status_of([] { Shares({std::numeric_limits<double>::denorm_min(), 1}); }) == 2);
}
