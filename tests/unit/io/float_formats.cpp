// Tests of the conversion between fp32 and the floating-point formats of tensors.
#include "io/float_formats.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

using namespace mh::io;

namespace {

float decode(DType type, uint16_t bits) {
  float number = 0;
  to_fp32(type, &bits, 1, &number);
  return number;
}

uint16_t encode(DType type, float number) {
  uint16_t bits = 0;
  from_fp32(type, &number, 1, &bits);
  return bits;
}

}  // namespace

TEST_CASE("every number of a 16-bit format converts to fp32 and back to the same bits", "[float-formats]") {
  for (const DType type : {DType::f16, DType::bf16})
    for (uint32_t bits = 0; bits < 1U << 16; ++bits) {
      const float number = decode(type, static_cast<uint16_t>(bits));
      if (std::isnan(number)) CHECK(std::isnan(decode(type, encode(type, number))));
      else if (encode(type, number) != bits) FAIL(bits << " became " << encode(type, number));
    }
}

TEST_CASE("a number of fp32 rounds to the nearest number of a 16-bit format, with ties to the even one",
          "[float-formats]") {
  std::mt19937 random(1);
  for (const DType type : {DType::f16, DType::bf16}) {
    // The finite numbers from 0 in ascending order have consecutive bits, and so has infinity, which a number reaches
    // that is nearer to the next power of two than to the largest finite number.
    const uint16_t infinity = type == DType::f16 ? 0x7C00 : 0x7F80;
    std::vector<double> numbers;
    for (uint16_t bits = 0; bits < infinity; ++bits) numbers.push_back(decode(type, bits));
    numbers.push_back(2 * numbers.back() - numbers[numbers.size() - 2]);
    std::vector<float> samples{0,        1,        65504,           65519.996F, 65520,
                               0x1p-24F, 0x1p-25F, 0x1.000002p-25F, 0x1p-14F,   0x1.FFFFFEp-15F};
    for (size_t i = 0; i < 20000; ++i) {
      samples.push_back(std::bit_cast<float>(static_cast<uint32_t>(random()) & 0x7FFFFFFFU));
      const size_t tie = random() % (numbers.size() - 1);
      samples.push_back(static_cast<float>((numbers[tie] + numbers[tie + 1]) / 2));
      samples.push_back(std::nextafter(samples.back(), 0.0F));
    }
    for (const float sample : samples) {
      if (!std::isfinite(sample)) continue;
      const size_t above = static_cast<size_t>(std::min<ptrdiff_t>(
          std::lower_bound(numbers.begin(), numbers.end(), static_cast<double>(sample)) - numbers.begin(),
          static_cast<ptrdiff_t>(numbers.size()) - 1));
      size_t nearest = above;
      if (above > 0) {
        const double distance_above = std::abs(numbers[above] - static_cast<double>(sample)),
                     distance_below = std::abs(numbers[above - 1] - static_cast<double>(sample));
        if (distance_below < distance_above || (distance_below == distance_above && above % 2 == 1))
          nearest = above - 1;
      }
      if (encode(type, sample) != nearest) FAIL(sample << " became " << encode(type, sample) << ", not " << nearest);
      if (encode(type, -sample) != (nearest | 0x8000U)) FAIL(-sample << " became " << encode(type, -sample));
    }
    const float not_a_number = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::isnan(decode(type, encode(type, not_a_number))));
    CHECK(std::isnan(decode(type, encode(type, std::bit_cast<float>(0x7F800001U)))));
    CHECK(std::isinf(decode(type, encode(type, std::numeric_limits<float>::infinity()))));
  }
}

TEST_CASE("a conversion in place to 16 bits and from unaligned bytes gives the same numbers", "[float-formats]") {
  std::vector<float> numbers(1000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i) / 7 - 60;
  std::vector<uint16_t> expected(numbers.size());
  from_fp32(DType::bf16, numbers.data(), numbers.size(), expected.data());
  std::vector<char> unaligned_bytes(2 * numbers.size() + 1);
  std::memcpy(unaligned_bytes.data() + 1, expected.data(), 2 * expected.size());
  std::vector<float> read_numbers(numbers.size());
  to_fp32(DType::bf16, unaligned_bytes.data() + 1, read_numbers.size(), read_numbers.data());
  from_fp32(DType::bf16, numbers.data(), numbers.size(), numbers.data());
  CHECK(std::memcmp(numbers.data(), expected.data(), 2 * expected.size()) == 0);
  for (size_t i = 0; i < expected.size(); ++i) CHECK(read_numbers[i] == decode(DType::bf16, expected[i]));
}
