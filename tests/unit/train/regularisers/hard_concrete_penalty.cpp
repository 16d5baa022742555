// The regulariser hard-concrete-penalty against its closed form.
#include <catch2/catch.hpp>
#include <cmath>

#include "attention/options.h"
#include "fixtures/loss_terms.h"
#include "fixtures/status.h"

using namespace mh;
using namespace mh::train;
using loss_terms::near_term;

TEST_CASE("hard-concrete-penalty uses the temperature and stretch of each layer and has the closed-form gradient",
          "[regularisers]") {
  attention::AttentionConfig attention;
  Config config;
  config.load_text(
      "[attention]\nheads = 3\ncombiner = 'hard-concrete'\n"
      "[attention.decoder.self.1.hard-concrete]\ntemperature = 0.7\nlow = -0.2\nhigh = 1.5\n[r]\nweight = 0.5\n",
      "test");
  attention.read(config, {{attention::AttentionKind::decoder_self, 2}});
  auto term = regularisers().make("hard-concrete-penalty", "");
  config.read("r", *term);
  config.check_all_known();
  nn::ParameterList list(at::kCPU);
  for (int layer : {0, 1})
    list.add(str("decoder.layers.", layer, ".self.combiner.log_a"), {3}, {nn::Init::normal(2), false, false});
  list.initialise(1);
  term->start(list, attention);
  const at::Tensor value = term->loss({});
  value.backward();
  double sum = 0;
  for (size_t layer = 0; layer < 2; ++layer) {
    const double shift = layer == 0 ? 0.33 * std::log(0.1 / 1.1) : 0.7 * std::log(0.2 / 1.5);
    const at::Tensor& log_a = list.all()[layer].master();
    for (int64_t i = 0; i < 3; ++i) {
      const double s = 1 / (1 + std::exp(-(log_a[i].item<double>() - shift)));
      sum += s;
      // Roundings in fp32: two products, a difference, an exponential, a sum, a quotient, and the factors s and 1 - s,
      // whose error is relative to 1.
      CHECK(log_a.grad()[i].item<double>() ==
            rounding::within(0.5 * s * (1 - s), tolerance::chain_error_bound(8, tolerance::kFp32, 0.5 * s)));
    }
  }
  CHECK(value.item<double>() == near_term(0.5 * sum));
  nn::ParameterList empty(at::kCPU);
  CHECK(status_of([&] { regularisers().make("hard-concrete-penalty", "")->start(empty, attention); }) == 2);
}
