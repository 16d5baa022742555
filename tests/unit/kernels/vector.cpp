// Conversions of fp32 to bf16, of single elements and of vectors of 16 lanes, and the hyperbolic tangent of vectors.
#pragma GCC diagnostic ignored "-Wpsabi"  // no vector is passed by value to another object file
#include "cpu/vector.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <limits>

using namespace mh::kernels;

TEST_CASE("rounding to bf16 keeps every NaN a NaN and infinity infinite", "[kernels]") {
  const uint32_t bits[] = {0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000,
                           0xFFC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF};
  uint32_t all_bits[lanes] = {};
  std::memcpy(all_bits, bits, sizeof bits);
  Floats vector;
  uint16_t expected[lanes] = {0x7FC0, 0x7FC0, 0x7FC0, 0x7FC0, 0x7FC0, 0x7F80, 0xFF80, 0x7F80}, vector_bits[lanes];
  load_vector(all_bits, vector);
  store(vector, vector_bits);
  for (size_t i = 0; i < std::size(bits); ++i) {
    INFO(std::hex << bits[i]);
    CHECK(vector_bits[i] == expected[i]);
    uint16_t scalar_bits = 0;
    float number;
    std::memcpy(&number, &bits[i], sizeof number);
    from_float(number, scalar_bits);
    CHECK(scalar_bits == expected[i]);
  }
}

TEST_CASE("tanh_with_slope is accurate to 2 ulp and its slope to 3 ulp over all magnitudes", "[kernels]") {
  const auto evaluate = [](float input, float& tanh, float& slope) {
    Floats x, slopes;
    fill(x, input);
    tanh_with_slope(x, slopes);
    float elements[lanes];
    store(x, elements), tanh = elements[3];
    store(slopes, elements), slope = elements[3];
  };
  float tanh = 0, slope = 0;
  for (float magnitude = 1e-30F; magnitude < 40; magnitude *= 1.0007F)
    for (const float input : {magnitude, -magnitude}) {
      evaluate(input, tanh, slope);
      const double exact = std::tanh(static_cast<double>(input)), exp = std::exp(-2 * static_cast<double>(magnitude)),
                   exact_slope = 4 * exp / ((1 + exp) * (1 + exp));
      INFO(input);
      REQUIRE(std::abs(tanh - exact) <= 2 * 0x1p-23 * std::abs(exact));
      REQUIRE(std::abs(slope - exact_slope) <= 3 * 0x1p-23 * exact_slope);
    }
  evaluate(0, tanh, slope);
  CHECK((tanh == 0 && slope == 1));
  for (const float sign : {1.0F, -1.0F}) {
    evaluate(sign * std::numeric_limits<float>::infinity(), tanh, slope);
    CHECK((tanh == sign && slope >= 0 && slope < 1e-30F));
    evaluate(sign * std::numeric_limits<float>::quiet_NaN(), tanh, slope);
    CHECK((std::isnan(tanh) && std::isnan(slope)));
  }
}
