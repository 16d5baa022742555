// Dropout by position (see ops.h): nothing is stored for the backward pass, the decisions are made again.
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "cpu/dropout.h"
#include "model/ops.h"

namespace mh::model {

namespace {

struct Place {
  kernels::DropoutPlan plan;
  uint64_t first;
};

at::Tensor apply_dropout(const at::Tensor& x, const Place& place) {
  TORCH_CHECK(x.is_cpu(), "dropout by position runs on the CPU");
  at::Tensor in = x.scalar_type() == at::kFloat ? x.contiguous() : x.to(at::kFloat).contiguous();
  at::Tensor out = at::empty_like(in);
  const auto* from = in.const_data_ptr<float>();
  auto* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, in.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    kernels::dropout(place.plan, place.first + static_cast<uint64_t>(begin), end - begin, from + begin, to + begin);
  });
  return out.to(x.scalar_type());
}

class Dropout : public torch::autograd::Function<Dropout> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const Place& place) {
    static_assert(std::is_trivially_copyable_v<Place>);
    context->saved_data["place"] = std::string(reinterpret_cast<const char*>(&place), sizeof place);
    return apply_dropout(x, place);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    Place place;
    std::memcpy(&place, context->saved_data["place"].toStringRef().data(), sizeof place);
    return {apply_dropout(gradients[0], place), at::Tensor()};
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, const attention::Step& step, std::string_view stream, uint32_t site) {
  if (!step.training || p == 0) return x;
  RandomStream random(step.seed, stream);
  Place place;
  place.plan = {{random.key()[0], random.key()[1]},
                step.update,
                site,
                static_cast<uint32_t>(std::min(std::ldexp(p, 32), 4294967295.0)),
                static_cast<float>(1 / (1 - p))};
  place.first = static_cast<uint64_t>(step.row_offset) * static_cast<uint64_t>(x.numel() / std::max<int64_t>(1, x.size(0)));
  return Dropout::apply(x, place);
}

}  // namespace mh::model
