// Conversions of fp32 to bf16, of single elements and of vectors of 16 lanes.
#pragma GCC diagnostic ignored "-Wpsabi"  // no vector is passed by value to another object file
#include "cpu/vector.h"

#include <catch2/catch.hpp>
#include <iterator>

using namespace mh::kernels;

TEST_CASE("rounding to bf16 keeps every NaN a NaN and infinity infinite", "[kernels]") {
  const uint32_t bits[] = {0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000,
                           0xFFC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF};
  Floats vector{};
  uint16_t expected[lanes] = {0x7FC0, 0x7FC0, 0x7FC0, 0x7FC0, 0x7FC0, 0x7F80, 0xFF80, 0x7F80}, vector_bits[lanes];
  std::memcpy(&vector, bits, sizeof bits);
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
