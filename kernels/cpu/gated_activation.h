// Gated activations (Shazeer 2020, "GLU Variants Improve Transformer"), y = activation(gate) * up elementwise, and
// their gradients, on a CPU, for a range of elements of a row.
//
// Tiling: a call computes vectors of 16 elements one after another, without scratch memory. Registers hold three
// vectors in the forward pass (gate, up and the activation), five in the backward pass (also dy and the derivative of
// the activation), and the temporaries of the activation. Each pass reads its inputs and writes its results once, so
// the sizes of the caches do not matter: for a row of 4096 elements in bf16, 24 KiB in the forward pass and 40 KiB in
// the backward pass, which computes the activation again instead of reading it from memory.
#pragma once

#include <cstdint>

#include "activation.h"
#include "cpu/simd.h"

namespace mh::kernels {

// gated_activation() and gated_activation_backward(), compiled for one instruction set (cpu/simd.h). T: type of all
// elements: float, or uint16_t for bf16.
template <SimdLevel, class T>
struct GatedActivationLoops {
  static void forward(Activation kind, const T* gate, const T* up, T* y, int64_t n);
  static void backward(Activation kind, const T* gate, const T* up, const T* dy, T* dgate, T* dup, int64_t n);
};

// Computes y (n) from `gate` (n) and `up` (n).
template <class T>
void gated_activation(Activation kind, const T* gate, const T* up, T* y, int64_t n) {
  dispatch_simd_level([&](auto simd_level) { GatedActivationLoops<simd_level, T>::forward(kind, gate, up, y, n); });
}

// Computes `dgate` (n) and `dup` (n) from `gate` (n), `up` (n) and `dy` (n).
template <class T>
void gated_activation_backward(Activation kind, const T* gate, const T* up, const T* dy, T* dgate, T* dup, int64_t n) {
  dispatch_simd_level(
      [&](auto simd_level) { GatedActivationLoops<simd_level, T>::backward(kind, gate, up, dy, dgate, dup, n); });
}

}  // namespace mh::kernels
