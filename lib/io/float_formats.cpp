#include "io/float_formats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/error.h"

namespace mh::io {

namespace {

float from_half(uint16_t half) {
  const uint32_t sign = (half & 0x8000U) << 16, exponent = half >> 10 & 31U, fraction = half & 0x3FFU;
  if (exponent == 0) {  // zero and subnormal numbers
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const uint32_t float_exponent = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | float_exponent << 23 | fraction << 13);
}

uint16_t to_half(float number) {
  const uint32_t bits = std::bit_cast<uint32_t>(number);
  const uint32_t sign = bits >> 16 & 0x8000U, magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<uint16_t>(sign | 0x7E00U);   // NaN
  if (magnitude >= 0x47800000U) return static_cast<uint16_t>(sign | 0x7C00U);  // 65536 and larger numbers
  if (magnitude <
      0x38800000U) {  // below 2^-14, the smallest normal number: a multiple of 2^-24, rounded by the addition
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5F)));
  }
  // Rounds to 10 bits of fraction; a carry moves into the exponent, and from the largest exponent to infinity.
  const uint32_t rounded = magnitude + 0xFFFU + (magnitude >> 13 & 1U);
  return static_cast<uint16_t>(sign | ((rounded - (112U << 23)) >> 13));
}

uint16_t to_bfloat16(float number) {
  const uint32_t bits = std::bit_cast<uint32_t>(number);
  if (std::isnan(number)) return static_cast<uint16_t>(bits >> 16 | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

template <class Number, class Convert>
void convert_to_fp32(const void* source, size_t count, float* out, const Convert& convert) {
  const auto* bytes = static_cast<const char*>(source);
  for (size_t i = 0; i < count; ++i) {
    Number number;
    std::memcpy(&number, bytes + i * sizeof number, sizeof number);
    out[i] = convert(number);
  }
}

template <class Convert>
void convert_to_16_bits(const float* source, size_t count, void* out, const Convert& convert) {
  auto* bytes = static_cast<char*>(out);
  for (size_t i = 0; i < count; ++i) {
    const uint16_t number = convert(source[i]);  // precedes the write, which may change source[i / 2]
    std::memcpy(bytes + i * sizeof number, &number, sizeof number);
  }
}

}  // namespace

bool is_floating_point(DType type) {
  return type == DType::f64 || type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

void to_fp32(DType type, const void* source, size_t count, float* out) {
  switch (type) {
    case DType::f64:
      return convert_to_fp32<double>(source, count, out, [](double x) { return static_cast<float>(x); });
    case DType::f32:
      if (count > 0) std::memcpy(out, source, count * sizeof *out);
      return;
    case DType::f16:
      return convert_to_fp32<uint16_t>(source, count, out, from_half);
    case DType::bf16:
      return convert_to_fp32<uint16_t>(source, count, out,
                                       [](uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); });
    default:
      throw std::logic_error("to_fp32: not a floating-point format");
  }
}

void from_fp32(DType type, const float* source, size_t count, void* out) {
  switch (type) {
    case DType::f32:
      if (count > 0) std::memmove(out, source, count * sizeof *source);
      return;
    case DType::f16:
      return convert_to_16_bits(source, count, out, to_half);
    case DType::bf16:
      return convert_to_16_bits(source, count, out, to_bfloat16);
    default:
      throw std::logic_error("from_fp32: not a format of written tensors");
  }
}

void require_half_range(const std::string& where, const float* numbers, size_t count) {
  constexpr float kHalfLimit = 65520;  // the smallest number that rounds to infinity
  const float* large =
      std::find_if(numbers, numbers + count, [](float x) { return std::isfinite(x) && std::abs(x) >= kHalfLimit; });
  if (large != numbers + count)
    refuse_input(where, "numbers below 65520, the range of float16", str(*large),
                 "use --dtype bfloat16 or --dtype float32, which have the range of the checkpoint");
}

}  // namespace mh::io
