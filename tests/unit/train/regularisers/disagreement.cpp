// The regulariser disagreement against plain loops over pairs of heads.
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/loss_terms.h"

using namespace mh;
using namespace mh::train;
using loss_terms::inner_product;
using loss_terms::make_regulariser;
using loss_terms::near_term;
using loss_terms::term_after_backward;

TEST_CASE("disagreement equals plain loops over pairs of heads", "[regularisers]") {
  const int64_t batch = 2, heads = 3, n = 4;
  std::vector<at::Tensor> layers;
  for (int i = 0; i < 2; ++i) layers.push_back(at::softmax(at::randn({batch, heads, n, n}), -1).requires_grad_());
  double cosines = 0, position_overlap = 0;
  for (const at::Tensor& p : layers)
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < heads; ++i)
        for (int64_t j = 0; j < heads; ++j) {
          const at::Tensor x = p[b][i].detach().to(at::kDouble), y = p[b][j].detach().to(at::kDouble);
          cosines += (1 + inner_product(x, y) / std::sqrt(inner_product(x, x) * inner_product(y, y))) /
                     static_cast<double>(batch * heads * heads);
          position_overlap += inner_product(x, y) / static_cast<double>(batch * n * heads * heads);
        }
  CHECK(term_after_backward(*make_regulariser("disagreement", "property = 'outputs'"), layers, true) ==
        near_term(0.5 * cosines));
  CHECK(term_after_backward(*make_regulariser("disagreement", "property = 'positions'"), layers, false) ==
        near_term(0.5 * position_overlap));
}
