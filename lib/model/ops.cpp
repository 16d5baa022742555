#include "model/ops.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/Logging.h>
#include <malloc.h>

#include <algorithm>

#include "cpu/layer_norm.h"

namespace mh::model {

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight, double scale) {
  at::Tensor rows = at::embedding(weight, tokens);
  if (rows.scalar_type() == at::kBFloat16) rows = rows.to(at::kFloat);
  return scale == 1 ? rows : rows * scale;
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  if (x.device().is_cpu() || x.scalar_type() == weight.scalar_type())
    return at::layer_norm(x, weight.sizes(), weight, bias, epsilon);
  return at::layer_norm(x.to(weight.scalar_type()), weight.sizes(), weight, bias, epsilon).to(x.scalar_type());
}

at::Tensor norm_of_sum(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight, const at::Tensor& bias,
                       double epsilon) {
  const auto is_plain = [](const at::Tensor& t, at::ScalarType type = at::kFloat) {
    return t.is_cpu() && t.scalar_type() == type && t.is_contiguous();
  };
  const bool is_bf16 = y.scalar_type() == at::kBFloat16;
  if (DecodingProducts::current() == nullptr || c10::GradMode::is_enabled() || !x.sizes().equals(y.sizes()) ||
      !is_plain(x) || !is_plain(y, is_bf16 ? at::kBFloat16 : at::kFloat) || !is_plain(weight) || !is_plain(bias))
    return layer_norm(x + y, weight, bias, epsilon);
  at::Tensor out = at::empty_like(x);
  const int64_t size = x.size(-1);
  at::parallel_for(0, x.numel() / size, std::max<int64_t>(1, (1 << 15) / size), [&](int64_t begin, int64_t end) {
    const auto rows = [&](const auto* beside) {
      kernels::norm_of_sum(x.const_data_ptr<float>() + begin * size, beside + begin * size,
                           weight.const_data_ptr<float>(), bias.const_data_ptr<float>(), static_cast<float>(epsilon),
                           end - begin, size, out.mutable_data_ptr<float>() + begin * size);
    };
    if (is_bf16) rows(static_cast<const uint16_t*>(y.const_data_ptr()));
    else rows(y.const_data_ptr<float>());
  });
  return out;
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

}  // namespace mh::model
