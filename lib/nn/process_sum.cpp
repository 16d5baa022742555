// Sums over processes as an autograd function.
#include "nn/process_sum.h"

#include <torch/csrc/autograd/custom_function.h>

namespace mh::nn {

namespace {

struct SumOverProcesses : torch::autograd::Function<SumOverProcesses> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const ProcessSum* processes) {
    context->saved_data["processes"] = reinterpret_cast<int64_t>(processes);
    const at::Tensor sum = x.detach().clone(at::MemoryFormat::Contiguous);
    processes->sum(sum);
    return sum;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor sum = gradients[0].clone(at::MemoryFormat::Contiguous);
    reinterpret_cast<const ProcessSum*>(context->saved_data["processes"].toInt())->sum(sum);
    return {sum, {}};
  }
};

}  // namespace

at::Tensor sum_over_processes(const at::Tensor& x, const ProcessSum& processes) {
  return SumOverProcesses::apply(x, &processes);
}

}  // namespace mh::nn
