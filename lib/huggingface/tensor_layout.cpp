#include "huggingface/tensor_layout.h"

#include <algorithm>
#include <stdexcept>

#include "base/error.h"

namespace mh::huggingface {

namespace {

// Number of rows of a (in, out) tensor that are transposed together, so that a cache line of the parameter is written
// as a whole.
constexpr int64_t kBlockRows = 64;

int64_t num_columns(const Shape& shape) { return shape.size() > 1 ? shape[1] : 1; }

int64_t total_rows(const std::vector<Shape>& shapes) {
  int64_t rows = 0;
  for (const Shape& shape : shapes) rows += shape[0];
  return rows;
}

// Returns the rows of a parameter with interleaved rows (TensorPair::num_interleaved_rows). `rows`: number of rows.
std::vector<TensorRowRange> interleaved_ranges(const TensorPair& pair, int64_t rows) {
  const int64_t half = pair.num_interleaved_rows / 2, num_other_rows = pair.head_rows - pair.num_interleaved_rows;
  if (pair.head_rows <= 0 || num_other_rows < 0 || pair.num_interleaved_rows % 2 != 0 || rows % pair.head_rows != 0)
    throw std::logic_error(str(pair.huggingface_name, ": ", pair.num_interleaved_rows, " interleaved rows of heads of ",
                               pair.head_rows, " rows, in ", rows, " rows"));
  std::vector<TensorRowRange> ranges;
  for (int64_t first = 0; first < rows; first += pair.head_rows) {
    for (int64_t i = 0; i < pair.num_interleaved_rows; ++i)
      ranges.push_back({first + i, first + i / 2 + i % 2 * half, 1});
    if (num_other_rows > 0) ranges.push_back({first + 2 * half, first + 2 * half, num_other_rows});
  }
  return ranges;
}

}  // namespace

Shape tensor_shape(const TensorPair& pair, const std::vector<Shape>& shapes) {
  Shape shape = shapes.front();
  shape[0] = pair.num_unused_rows + total_rows(shapes);
  if (pair.is_transposed) std::swap(shape[0], shape[1]);
  if (pair.has_leading_axis) shape.insert(shape.begin(), 1);
  return shape;
}

std::vector<TensorRowRange> row_ranges(const TensorPair& pair, const std::vector<Shape>& shapes, size_t parameter) {
  if (pair.num_interleaved_rows > 0) return interleaved_ranges(pair, shapes[parameter][0]);
  std::vector<TensorRowRange> ranges;
  if (pair.num_unused_rows > 0 && (pair.is_transposed || pair.num_groups > 1))
    throw std::logic_error(str(pair.huggingface_name, ": unused rows in a transposed tensor or a tensor of groups"));
  for (const Shape& shape : shapes)
    if (shape[0] % pair.num_groups != 0)
      throw std::logic_error(
          str(pair.huggingface_name, ": ", pair.num_groups, " groups do not divide ", shape[0], " rows"));
  const int64_t group_rows = total_rows(shapes) / pair.num_groups, count = shapes[parameter][0] / pair.num_groups;
  int64_t first_row = pair.num_unused_rows;  // first row of the parameter in a group
  for (size_t i = 0; i < parameter; ++i) first_row += shapes[i][0] / pair.num_groups;
  if (group_rows == count) return {{first_row, 0, shapes[parameter][0]}};
  for (int64_t group = 0; group < pair.num_groups; ++group)
    ranges.push_back({group * group_rows + first_row, group * count, count});
  return ranges;
}

void read_parameter(const TensorPair& pair, const std::vector<Shape>& shapes, size_t parameter,
                    const ReadElements& read, float* out) {
  const int64_t columns = num_columns(shapes[parameter]), num_tensor_rows = total_rows(shapes);
  std::vector<float> block;  // (block_rows, range.count): rows of a (in, out) tensor
  for (const TensorRowRange& range : row_ranges(pair, shapes, parameter)) {
    float* rows = out + range.parameter_row * columns;
    if (!pair.is_transposed) {
      read(range.tensor_row * columns, range.count * columns, rows);
      continue;
    }
    for (int64_t first = 0; first < columns; first += kBlockRows) {
      const int64_t block_rows = std::min(kBlockRows, columns - first);
      block.resize(static_cast<size_t>(block_rows * range.count));
      for (int64_t i = 0; i < block_rows; ++i)
        read((first + i) * num_tensor_rows + range.tensor_row, range.count, block.data() + i * range.count);
      for (int64_t row = 0; row < range.count; ++row)
        for (int64_t i = 0; i < block_rows; ++i)
          rows[row * columns + first + i] = block[static_cast<size_t>(i * range.count + row)];
    }
  }
  if (pair.addend != 0)
    for (int64_t i = 0; i < shapes[parameter][0] * columns; ++i) out[i] += pair.addend;
}

void write_tensor(const TensorPair& pair, const std::vector<Shape>& shapes, const std::vector<const float*>& parameters,
                  float* out) {
  const int64_t columns = num_columns(shapes.front()), num_tensor_rows = total_rows(shapes);
  std::fill_n(out, pair.num_unused_rows * columns, 0.0f);
  for (size_t parameter = 0; parameter < parameters.size(); ++parameter)
    for (const TensorRowRange& range : row_ranges(pair, shapes, parameter)) {
      const float* rows = parameters[parameter] + range.parameter_row * columns;
      if (!pair.is_transposed) {
        std::copy(rows, rows + range.count * columns, out + range.tensor_row * columns);
        continue;
      }
      for (int64_t first = 0; first < columns; first += kBlockRows)
        for (int64_t row = 0; row < range.count; ++row)
          for (int64_t column = first; column < std::min(columns, first + kBlockRows); ++column)
            out[column * num_tensor_rows + range.tensor_row + row] = rows[row * columns + column];
    }
  if (pair.addend != 0)
    for (int64_t i = 0; i < num_tensor_rows * columns; ++i) out[pair.num_unused_rows * columns + i] -= pair.addend;
}

}  // namespace mh::huggingface
