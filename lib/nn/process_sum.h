// Differentiable sum of a tensor over the processes of a job, for statistics of the rows of all processes.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::nn {

// Interface that sums tensors over the processes of a job. A job of several processes passes an object of this class to
// the model (ForwardContext::processes).
class ProcessSum {
 public:
  virtual ~ProcessSum() = default;
  // Replaces each element of a contiguous tensor by its sum over all processes. All processes call this function
  // together, with tensors of equal shape and type; the result has the same bits in all of them.
  virtual void sum(const at::Tensor& tensor) const = 0;
};

// Returns the sum of x over all processes. The backward pass returns the gradient, with respect to x, of the summed
// losses of all processes: the sum, over the processes, of the gradients with respect to the result. All processes call
// this function together, and run its backward pass together.
at::Tensor sum_over_processes(const at::Tensor& x, const ProcessSum& processes);

}  // namespace mh::nn
