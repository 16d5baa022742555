// Embedding lookup, and process-wide CPU settings.
#include "nn/ops.h"

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>

namespace mh::nn {

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight, double scale) {
  at::Tensor rows = at::embedding(weight, tokens);
  if (rows.scalar_type() == at::kBFloat16 || rows.scalar_type() == at::kHalf) rows = rows.to(at::kFloat);
  return scale == 1 ? rows : rows * scale;
}

void prepare_cpu(int num_threads) {
  // A failed check in LibTorch, such as of an allocation, throws an exception instead of terminating the process.
  FLAGS_caffe2_use_fatal_for_enforce = false;
  if (num_threads > 0) at::set_num_threads(num_threads);
}

}  // namespace mh::nn
