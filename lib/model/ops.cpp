#include "model/ops.h"

#include <ATen/Parallel.h>
#include <malloc.h>

namespace mh::model {

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight, double scale) {
  at::Tensor x = at::embedding(weight, tokens);
  return scale == 1 ? x : x * scale;
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  return at::layer_norm(x, {weight.size(0)}, weight, bias, epsilon);
}

at::Tensor activation(const at::Tensor& x, Activation kind) {
  return kind == Activation::relu ? at::relu(x) : at::gelu(x);
}

void prepare_cpu(int threads) {
  // Tensors of some MB come and go each step: keep their pages instead of giving them back to the system, which would
  // have to clear them again.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
  if (threads > 0) at::set_num_threads(threads);
}

}  // namespace mh::model
