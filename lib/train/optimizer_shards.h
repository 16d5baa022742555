// Divides the elements of the parameters of an optimiser among the processes of a job, as ZeRO stage 1 does (P_os;
// Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models").
//
// The elements of all parameters, in the order of the optimiser, form one sequence, which is divided into one range of
// equal size for each process. A range may begin and end within a parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nn/parameter.h"

namespace mh::train {

// The elements begin, …, end - 1 of a sequence.
struct ElementRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

// Returns range `index` of `num_ranges` consecutive ranges that together are [0, num_elements) and whose sizes differ
// by at most one; the larger ranges are first.
ElementRange equal_range(int64_t num_elements, int64_t num_ranges, int64_t index);

// Returns whether the fp32 master of a parameter can be divided among the processes of a job in bf16 training: the
// optimiser updates the parameter, and the forward pass reads only its bf16 copy.
bool has_divisible_master(const nn::ParameterTraits& traits);

class OptimizerShards {
 public:
  // `sizes`: number of elements of each parameter.
  OptimizerShards(const std::vector<int64_t>& sizes, int num_ranks);
  // Returns the elements of a parameter that a rank updates, counted from the first element of the parameter; {0, 0} if
  // the rank updates no element of the parameter.
  ElementRange of(size_t parameter_index, int rank) const;
  // Returns the number of elements of a parameter.
  int64_t size(size_t parameter_index) const { return begins_[parameter_index + 1] - begins_[parameter_index]; }
  // Returns the number of elements of all parameters.
  int64_t num_elements() const { return begins_.back(); }

 private:
  std::vector<int64_t> begins_{0};  // (parameters + 1): position of each parameter in the sequence, then num_elements()
  int num_ranks_;
};

}  // namespace mh::train
