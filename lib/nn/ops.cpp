#include "nn/ops.h"

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>
#include <malloc.h>

namespace mh::nn {

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight, double scale) {
  at::Tensor rows = at::embedding(weight, tokens);
  if (rows.scalar_type() == at::kBFloat16) rows = rows.to(at::kFloat);
  return scale == 1 ? rows : rows * scale;
}

void prepare_cpu(int threads) {
  // Tensors of a training step come and go in the same sizes. By default glibc maps each large one afresh and gives it
  // back, so that every step pays for its page faults again; keep them in the heap instead.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
  // By default a failed allocation ends the program; let it be an exception.
  FLAGS_caffe2_use_fatal_for_enforce = false;
  if (threads > 0) at::set_num_threads(threads);
}

}  // namespace mh::nn
