// Embedding, and settings of the process.
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
  // The tensors of each training step have the same sizes. By default glibc maps and unmaps every large one, so that
  // each step pays for its page faults again; these thresholds keep the memory in the heap.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
  // By default a failed allocation ends the program; this makes it throw an exception.
  FLAGS_caffe2_use_fatal_for_enforce = false;
  if (threads > 0) at::set_num_threads(threads);
}

}  // namespace mh::nn
