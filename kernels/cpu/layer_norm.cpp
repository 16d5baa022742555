#include "cpu/layer_norm.h"

#include <cmath>

#include "cpu/vector.h"

namespace mh::kernels {

namespace {

// The first `n` numbers, at most 16; of what is behind them zeros are read and nothing is written.
template <class T>
MH_INLINE void load_some(const T* from, int64_t n, Floats& to) {
  if (n >= lanes) return load(from, to);
  T some[lanes] = {};
  std::memcpy(some, from, static_cast<size_t>(n) * sizeof(T));
  load(some, to);
}
MH_INLINE void store_some(const Floats& from, int64_t n, float* to) {
  if (n >= lanes) return store(from, to);
  std::memcpy(to, &from, static_cast<size_t>(n) * sizeof(float));
}

template <class Y>
MH_INLINE void normalise(const float* x, const Y* y, const float* weight, const float* bias, float epsilon,
                         int64_t rows, int64_t size, float* out) {
  for (int64_t r = 0; r < rows; ++r, x += size, y += size, out += size) {
    Floats sum{};
    for (int64_t i = 0; i < size; i += lanes) {
      Floats a, b;
      load_some(x + i, size - i, a);
      load_some(y + i, size - i, b);
      a = a + b;
      sum += a;
      store_some(a, size - i, out + i);
    }
    const float mean = sum_of(sum) / static_cast<float>(size);
    Floats squares{};
    for (int64_t i = 0; i < size; i += lanes) {
      Floats a;
      load_some(out + i, size - i, a);
      a = a - mean;
      if (size - i < lanes)
        for (int64_t j = size - i; j < lanes; ++j) a[j] = 0;
      squares += a * a;
    }
    const float factor = 1 / std::sqrt(sum_of(squares) / static_cast<float>(size) + epsilon);
    for (int64_t i = 0; i < size; i += lanes) {
      Floats a, w, b;
      load_some(out + i, size - i, a);
      load_some(weight + i, size - i, w);
      load_some(bias + i, size - i, b);
      a = (a - mean) * factor * w + b;
      store_some(a, size - i, out + i);
    }
  }
}

MH_VECTOR_LOOP void rows_of(const float* x, const float* y, const float* weight, const float* bias, float epsilon,
                            int64_t rows, int64_t size, float* out) {
  normalise(x, y, weight, bias, epsilon, rows, size, out);
}
MH_VECTOR_LOOP void rows_of_bf16(const float* x, const uint16_t* y, const float* weight, const float* bias,
                                 float epsilon, int64_t rows, int64_t size, float* out) {
  normalise(x, y, weight, bias, epsilon, rows, size, out);
}

}  // namespace

void norm_of_sum(const float* x, const float* y, const float* weight, const float* bias, float epsilon, int64_t rows,
                 int64_t size, float* out) {
  rows_of(x, y, weight, bias, epsilon, rows, size, out);
}
void norm_of_sum(const float* x, const uint16_t* y, const float* weight, const float* bias, float epsilon, int64_t rows,
                 int64_t size, float* out) {
  rows_of_bf16(x, y, weight, bias, epsilon, rows, size, out);
}

}  // namespace mh::kernels
