// Rotates the heads of a range of positions, and instantiates RotationLoops for one instruction set, for fp32 and bf16.
#include "cpu/rotation.h"

#include <cstring>

#include "cpu/vector.h"

namespace mh::kernels {

template <SimdLevel L, class T>
void RotationLoops<L, T>::apply(const RotationParams& params, const float* cosines, const float* sines, const T* x,
                                T* y) {
  const int64_t half = params.size / 2, num_unrotated = params.head_size - params.size;
  const float sign = params.is_inverse ? -1.0F : 1.0F;
  for (int64_t t = 0; t < params.positions; ++t, cosines += half, sines += half) {
    for (int64_t i = 0; i < params.heads; ++i) {
      const T* from = x + t * params.x_position_stride + i * params.x_head_stride;
      T* to = y + t * params.y_position_stride + i * params.y_head_stride;
      for (int64_t j = 0; j < half; j += lanes) {
        Floats a, b, c, s;
        load_partial(from + j, half - j, a);
        load_partial(from + half + j, half - j, b);
        load_partial(cosines + j, half - j, c);
        load_partial(sines + j, half - j, s);
        s *= sign;
        const Floats first = a * c - b * s, second = b * c + a * s;
        store_partial(first, half - j, to + j);
        store_partial(second, half - j, to + half + j);
      }
      if (num_unrotated > 0 && to != from)
        std::memcpy(to + params.size, from + params.size, static_cast<size_t>(num_unrotated) * sizeof(T));
    }
  }
}

template struct RotationLoops<kSimdLevel, float>;
template struct RotationLoops<kSimdLevel, uint16_t>;

}  // namespace mh::kernels
