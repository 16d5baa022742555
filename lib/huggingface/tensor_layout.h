// The positions of the elements of a multihead parameter in a tensor of transformers (TensorPair), and the conversion
// of the elements in both directions. A parameter has one or two axes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "huggingface/architecture.h"

namespace mh::huggingface {

using Shape = std::vector<int64_t>;

// Rows that a tensor, before its transposition, and a parameter share.
struct TensorRowRange {
  int64_t tensor_row = 0;     // first row in the tensor
  int64_t parameter_row = 0;  // first row in the parameter
  int64_t count = 0;
};

// Returns the shape of the tensor of `pair`. `shapes`: shapes of the parameters in the order of pair.multihead_names.
Shape tensor_shape(const TensorPair& pair, const std::vector<Shape>& shapes);

// Returns the rows of the parameter with the index `parameter` in pair.multihead_names, in ascending order of the rows
// of the tensor. Throws std::logic_error if the groups or heads do not divide the rows of a parameter, and for unused
// rows in a transposed tensor or a tensor of groups.
std::vector<TensorRowRange> row_ranges(const TensorPair& pair, const std::vector<Shape>& shapes, size_t parameter);

// Reads the elements first, …, first + count - 1 of a tensor, in row-major order, to `out`.
using ReadElements = std::function<void(int64_t first, int64_t count, float* out)>;
// Copies the elements of one parameter from the tensor to `out`, which has the shape shapes[parameter], and adds
// pair.addend. Calls `read` for ranges of the tensor that contain no element of another parameter.
void read_parameter(const TensorPair& pair, const std::vector<Shape>& shapes, size_t parameter,
                    const ReadElements& read, float* out);
// Copies the elements of all parameters to the tensor `out`, subtracts pair.addend, and fills the unused rows with
// zeros; the inverse of read_parameter().
void write_tensor(const TensorPair& pair, const std::vector<Shape>& shapes, const std::vector<const float*>& parameters,
                  float* out);

}  // namespace mh::huggingface
