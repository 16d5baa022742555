// Detects parameters with NaN or infinite elements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/parameter.h"

namespace mh::nn {

// Returns whether all elements of a floating-point tensor are finite. On a CPU, reads the tensor in slices, so that the
// temporary results take little memory.
bool is_finite(const at::Tensor& x);

// Checks the tensors of a file one at a time, for a caller that does not hold all of them in memory.
class FiniteCheck {
 public:
  // Checks the tensor `name`.
  void add(const std::string& name, const at::Tensor& x);
  // Logs a warning if tensors had NaN or infinite elements. The warning has the number of such tensors and the name of
  // the first. The outputs of a model with such parameters may be NaN, and so may every mean that includes these
  // outputs.
  void warn(const std::string& file_name) const;

 private:
  size_t num_tensors_ = 0;
  std::vector<std::string> non_finite_names_;
};

// Checks all parameters, which were loaded from the file `file_name`, and logs the warning of FiniteCheck::warn().
void warn_if_not_finite(const std::string& file_name, const ParameterList& parameters);

}  // namespace mh::nn
