// The measure entropy against plain loops over attention probabilities.
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/measured_models.h"

using namespace mh;
using namespace mh::analysis;
using namespace measured_models;

TEST_CASE("the measure entropy equals plain loops over attention probabilities", "[importance]") {
  check_measure("entropy", [](const std::vector<ObservedTensors::ForwardPass>& passes, SideSelection side,
                              const attention::AttentionLayer&) {
    return mean_over_positions(passes, [&](const ObservedTensors::ForwardPass& pass, int64_t i, int64_t t) {
      const at::Tensor p = probabilities_of(pass, side);
      double row_sum = 0, sum = 0;
      for (int64_t s = 0; s < p.size(2); ++s) row_sum += std::abs(element(p, i, t, s));
      for (int64_t s = 0; s < p.size(2); ++s)
        if (const double q = std::abs(element(p, i, t, s)) / row_sum; q > 0) sum += q * std::log(q);
      return sum;
    });
  });
}
