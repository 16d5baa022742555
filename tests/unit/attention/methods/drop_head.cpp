// DropHead: the dropped heads and the scale of the remaining ones.
#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/layers.h"
#include "fixtures/within.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using layers::causal_mask;
using layers::Layer;
using layers::RecordingObserver;
using numbers::normal;

namespace {

ForwardContext training_context(uint32_t update, int64_t row_offset = 0) { return {true, 7, update, row_offset}; }

}  // namespace

TEST_CASE("DropHead drops heads per batch row, scales the others so that gates sum to h, and is inactive in evaluation",
          "[drop-head]") {
  c10::NoGradGuard no_gradient;
  Layer l("heads = 4\ncombiner = 'drop-head'\n[attention.drop-head]\nrate = 0.3", 8, 5), plain_layer("heads = 4", 8, 5);
  const at::Tensor x = normal({6, 3, 8}, 1);
  CHECK(at::equal(l(x, x, causal_mask()), plain_layer(x, x, causal_mask())));
  const layers::LayerRounding rounding = layers::rounding_of(l, x, x, causal_mask());
  int64_t num_dropped = 0, num_complete_rows = 0;
  const uint32_t num_updates = 200;
  for (uint32_t update = 0; update < num_updates; ++update) {
    RecordingObserver recorder;
    const at::Tensor y = l(x, x, causal_mask(), training_context(update), &recorder);
    const at::Tensor g = recorder.g;  // (B, h)
    for (int64_t b = 0; b < 6; ++b) {
      const int64_t num_kept = (g[b] != 0).sum().item<int64_t>();
      CHECK(rounding::agree(g[b], (g[b] != 0).to(at::kFloat) * (4.0 / static_cast<double>(num_kept)), 1));
      num_dropped += 4 - num_kept, num_complete_rows += num_kept == 4;
    }
    // The dropped heads of a row depend on the index of the row in the update, so the rows of a micro-batch drop the
    // same heads as in the whole batch. The largest gate is 4, in a row with one remaining head.
    if (update < 5)
      CHECK(rounding.agree(l(x.narrow(0, 2, 4), x.narrow(0, 2, 4), causal_mask(), training_context(update, 2)),
                           y.narrow(0, 2, 4), 4));
  }
  // The number of dropped heads of a row is binomial, except that no head is dropped if all four are drawn. The margins
  // are four standard deviations of the mean of all rows.
  const double num_rows = 6.0 * num_updates, p_all_drawn = std::pow(0.3, 4), mean = 4 * 0.3 - 4 * p_all_drawn,
               variance = 4 * 0.3 * 0.7 + std::pow(4 * 0.3, 2) - 16 * p_all_drawn - mean * mean;
  CHECK(static_cast<double>(num_dropped) / num_rows == rounding::within(mean, 4 * std::sqrt(variance / num_rows)));
  const double p_complete_row = std::pow(0.7, 4) + p_all_drawn;
  CHECK(static_cast<double>(num_complete_rows) / num_rows ==
        rounding::within(p_complete_row, 4 * std::sqrt(p_complete_row * (1 - p_complete_row) / num_rows)));
}
