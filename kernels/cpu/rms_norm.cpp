// Computes RMS norms of rows and their gradients, and instantiates RmsNormLoops for one instruction set, for fp32 and
// bf16.
#include "cpu/rms_norm.h"

#include <cmath>

#include "cpu/vector.h"

namespace mh::kernels {

template <SimdLevel L, class T>
void RmsNormLoops<L, T>::forward(const RmsNormParams& params, const T* x, T* y, float* rstd, int64_t rows) {
  const int64_t size = params.size;
  for (int64_t r = 0; r < rows; ++r, x += size, y += size) {
    Floats squares{};
    for (int64_t i = 0; i < size; i += lanes) {
      Floats a;
      load_partial(x + i, size - i, a);
      squares += a * a;
    }
    const float inv_rms = 1 / std::sqrt(sum_of(squares) / static_cast<float>(size) + params.epsilon);
    for (int64_t i = 0; i < size; i += lanes) {
      Floats a, w;
      load_partial(x + i, size - i, a);
      load_partial(params.weight + i, size - i, w);
      a = a * inv_rms * w;
      store_partial(a, size - i, y + i);
    }
    if (rstd != nullptr) rstd[r] = inv_rms;
  }
}

// With x' = x * rstd and g = weight * dy, the gradient with respect to x is rstd * (g - x' * mean(g x')); the mean is
// over the elements of a row.
template <SimdLevel L, class T>
void RmsNormLoops<L, T>::backward(const RmsNormParams& params, const T* x, const float* rstd, const T* dy, T* dx,
                                  float* dweight, int64_t rows) {
  const int64_t size = params.size;
  for (int64_t r = 0; r < rows; ++r, x += size, dy += size, dx += size) {
    const float inv_rms = rstd[r];
    Floats gx_sum{};
    for (int64_t i = 0; i < size; i += lanes) {
      Floats a, g, w, sum;
      load_partial(x + i, size - i, a);
      load_partial(dy + i, size - i, g);
      load_partial(params.weight + i, size - i, w);
      load_partial(dweight + i, size - i, sum);
      a = a * inv_rms;
      sum += g * a;
      store_partial(sum, size - i, dweight + i);
      gx_sum += g * w * a;
    }
    const float mean_gx = sum_of(gx_sum) / static_cast<float>(size);
    for (int64_t i = 0; i < size; i += lanes) {
      Floats a, g, w;
      load_partial(x + i, size - i, a);
      load_partial(dy + i, size - i, g);
      load_partial(params.weight + i, size - i, w);
      a = a * inv_rms;
      g = (g * w - a * mean_gx) * inv_rms;
      store_partial(g, size - i, dx + i);
    }
  }
}

template struct RmsNormLoops<kSimdLevel, float>;
template struct RmsNormLoops<kSimdLevel, uint16_t>;

}  // namespace mh::kernels
