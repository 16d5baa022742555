// Differentiable sum of a tensor over the processes of a job, for statistics of the rows of all processes.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::nn {

// The sum over the processes of a job, which a job of several processes passes to the model
// (ForwardContext::processes).
class ProcessSum {
 public:
  virtual ~ProcessSum() = default;
  // Replaces each element of a contiguous tensor by its sum over all processes. All processes call this function
  // together, with tensors of equal shape and type; the result has the same bits in all of them.
  virtual void sum(const at::Tensor& tensor) const = 0;
};

// Returns the sum of x over all processes. If the losses of all processes are added, the gradient with respect to each
// process's x is the sum of the gradients that all processes have for the result. All processes call this function
// together, and run its backward pass together.
at::Tensor sum_over_processes(const at::Tensor& x, const ProcessSum& processes);

}  // namespace mh::nn
