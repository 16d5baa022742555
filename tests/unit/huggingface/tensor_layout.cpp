// Tests of the layout of parameters in tensors of transformers.
#include "huggingface/tensor_layout.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

using namespace mh::huggingface;

namespace {

// The parameters of a pair with random numbers, and the functions under test on whole tensors in memory.
struct Sample {
  TensorPair pair;
  std::vector<Shape> shapes;
  std::vector<std::vector<float>> parameters;

  Sample(TensorPair tensor_pair, std::vector<Shape> parameter_shapes, std::mt19937& random)
      : pair(std::move(tensor_pair)), shapes(std::move(parameter_shapes)) {
    std::uniform_real_distribution<float> distribution(-2, 2);
    for (const Shape& shape : shapes) {
      parameters.emplace_back(static_cast<size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1)));
      for (float& x : parameters.back()) x = distribution(random);
    }
  }
  size_t num_elements() const {
    auto count = static_cast<size_t>(pair.num_unused_rows * (shapes[0].size() > 1 ? shapes[0][1] : 1));
    for (const auto& parameter : parameters) count += parameter.size();
    return count;
  }
  std::vector<float> write() const {
    std::vector<float> tensor(num_elements());
    std::vector<const float*> pointers;
    for (const auto& parameter : parameters) pointers.push_back(parameter.data());
    write_tensor(pair, shapes, pointers, tensor.data());
    return tensor;
  }
  // Reads a parameter, and counts the elements that the function under test reads of the tensor.
  std::vector<float> read(const std::vector<float>& tensor, size_t parameter, int64_t& num_read) const {
    std::vector<float> out(parameters[parameter].size());
    read_parameter(
        pair, shapes, parameter,
        [&](int64_t first, int64_t count, float* elements) {
          num_read += count;
          REQUIRE(first >= 0);
          REQUIRE(static_cast<size_t>(first + count) <= tensor.size());
          std::copy_n(tensor.begin() + first, count, elements);
        },
        out.data());
    return out;
  }
};

// Returns the tensor of a sample element by element: row r of the tensor, before its transposition, is the next row of
// the parameter whose turn it is in the group.
std::vector<float> naive_tensor(const Sample& sample) {
  const int64_t columns = sample.shapes[0].size() > 1 ? sample.shapes[0][1] : 1;
  std::vector<std::vector<float>> rows;
  for (int64_t group = 0; group < sample.pair.num_groups; ++group)
    for (size_t parameter = 0; parameter < sample.shapes.size(); ++parameter) {
      const int64_t group_rows = sample.shapes[parameter][0] / sample.pair.num_groups;
      for (int64_t row = group * group_rows; row < (group + 1) * group_rows; ++row) {
        const auto begin = sample.parameters[parameter].begin() + row * columns;
        rows.emplace_back(begin, begin + columns);
      }
    }
  std::vector<float> tensor;
  if (sample.pair.is_transposed)
    for (size_t column = 0; column < static_cast<size_t>(columns); ++column)
      for (const auto& row : rows) tensor.push_back(row[column]);
  else
    for (const auto& row : rows) tensor.insert(tensor.end(), row.begin(), row.end());
  for (float& x : tensor) x -= sample.pair.addend;
  return tensor;
}

TensorPair pair_of(size_t num_parameters, bool is_transposed, int64_t num_groups) {
  TensorPair pair{"tensor", std::vector<std::string>(num_parameters, "parameter"), is_transposed};
  pair.num_groups = num_groups;
  return pair;
}

}  // namespace

TEST_CASE("a tensor of transformers has the rows of its parameters in groups, and parameters read back bit for bit",
          "[huggingface]") {
  std::mt19937 random(3);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 300; ++round) {
    const auto num_parameters = static_cast<size_t>(draw(1, 3));
    const int64_t num_groups = draw(0, 2) == 0 ? draw(2, 5) : 1;
    const bool is_vector = draw(0, 3) == 0, is_transposed = !is_vector && draw(0, 1) == 0;
    const int64_t columns = draw(1, 150);
    std::vector<Shape> shapes;
    for (size_t i = 0; i < num_parameters; ++i) {
      shapes.push_back({num_groups * draw(1, 7)});
      if (!is_vector) shapes.back().push_back(columns);
    }
    const Sample sample(pair_of(num_parameters, is_transposed, num_groups), shapes, random);
    INFO(num_parameters << " parameters, " << num_groups << " groups, transposed: " << is_transposed);
    const std::vector<float> tensor = sample.write();
    CHECK(tensor == naive_tensor(sample));
    Shape shape = tensor_shape(sample.pair, shapes);
    int64_t num_elements = 1;
    for (const int64_t size : shape) num_elements *= size;
    CHECK(num_elements == static_cast<int64_t>(tensor.size()));
    if (!is_vector) CHECK(shape[is_transposed ? 0 : 1] == columns);
    int64_t num_read = 0;
    for (size_t i = 0; i < num_parameters; ++i) CHECK(sample.read(tensor, i, num_read) == sample.parameters[i]);
    CHECK(num_read == static_cast<int64_t>(tensor.size()));  // each element once
  }
}

TEST_CASE("the bias of the output layer of Marian has a leading axis of size 1", "[huggingface]") {
  TensorPair pair = pair_of(1, false, 1);
  pair.has_leading_axis = true;
  std::mt19937 random(5);
  const Sample sample(pair, {{7}}, random);
  CHECK(tensor_shape(pair, sample.shapes) == Shape{1, 7});
  CHECK(sample.write() == sample.parameters[0]);
  int64_t num_read = 0;
  CHECK(sample.read(sample.parameters[0], 0, num_read) == sample.parameters[0]);
}

TEST_CASE("the projections of Phi-3 are blocks of unequal sizes", "[huggingface]") {
  // 4 heads and 2 key/value heads of size 3: 12 rows of queries, 6 of keys, 6 of values.
  const std::vector<Shape> shapes{{12, 5}, {6, 5}, {6, 5}};
  const TensorPair pair = pair_of(3, false, 1);
  CHECK(tensor_shape(pair, shapes) == Shape{24, 5});
  for (size_t i = 0; i < 3; ++i) {
    const auto ranges = row_ranges(pair, shapes, i);
    REQUIRE(ranges.size() == 1);
    CHECK(ranges[0].tensor_row == (i == 0 ? 0 : i == 1 ? 12 : 18));
    CHECK(ranges[0].count == shapes[i][0]);
  }
}

TEST_CASE("query_key_value of GPT-NeoX has queries, keys and values head by head, in weights and biases",
          "[huggingface]") {
  // 2 heads of size 3: rows q0 q0 q0 k0 k0 k0 v0 v0 v0 q1 …
  for (const std::vector<Shape>& shapes : {std::vector<Shape>(3, {6, 4}), std::vector<Shape>(3, {6})}) {
    const auto keys = row_ranges(pair_of(3, false, 2), shapes, 1);
    REQUIRE(keys.size() == 2);
    CHECK(keys[0].tensor_row == 3);
    CHECK(keys[0].parameter_row == 0);
    CHECK(keys[1].tensor_row == 12);
    CHECK(keys[1].parameter_row == 3);
    CHECK(keys[1].count == 3);
  }
  CHECK_THROWS_AS(row_ranges(pair_of(3, false, 4), std::vector<Shape>(3, {6, 4}), 0), std::logic_error);
}

TEST_CASE("rotary pairs that are side by side in a tensor read as two halves of each head, and are written back",
          "[huggingface]") {
  std::mt19937 random(5);
  // 2 heads of 6 rows, of which 4 rotate: rows 0 2 1 3 4 5 of each head.
  TensorPair pair = pair_of(1, false, 1);
  pair.num_interleaved_rows = 4;
  pair.head_rows = 6;
  for (const Shape& shape : {Shape{12, 3}, Shape{12}}) {
    const Sample sample(pair, {shape}, random);
    const size_t columns = shape.size() > 1 ? 3 : 1;
    const std::vector<float> tensor = sample.write();
    for (size_t row = 0; row < 12; ++row) {
      const size_t order[] = {0, 2, 1, 3, 4, 5}, parameter_row = row / 6 * 6 + order[row % 6];
      for (size_t column = 0; column < columns; ++column)
        CHECK(tensor[row * columns + column] == sample.parameters[0][parameter_row * columns + column]);
    }
    int64_t num_read = 0;
    CHECK(sample.read(tensor, 0, num_read) == sample.parameters[0]);
    CHECK(num_read == static_cast<int64_t>(tensor.size()));
  }
  pair.num_interleaved_rows = 6;  // all rows of a head rotate
  const Sample whole(pair, {{6, 1}}, random);
  const std::vector<float> p = whole.parameters[0];
  CHECK(whole.write() == std::vector<float>{p[0], p[3], p[1], p[4], p[2], p[5]});
  CHECK_THROWS_AS(row_ranges(pair, {{8, 1}}, 0), std::logic_error);
}

TEST_CASE("a weight that transformers stores minus 1 reads back with at most one rounding", "[huggingface]") {
  std::mt19937 random(4);
  TensorPair pair = pair_of(1, false, 1);
  pair.addend = 1;
  const Sample sample(pair, {{4096}}, random);
  int64_t num_read = 0;
  const std::vector<float> tensor = sample.write(), parameter = sample.read(tensor, 0, num_read);
  for (size_t i = 0; i < tensor.size(); ++i) {
    const float weight = sample.parameters[0][i];
    CHECK(tensor[i] == weight - 1);
    CHECK(std::abs(parameter[i] - weight) <= 0x1p-23F);
    if (weight >= 0.5F) CHECK(parameter[i] == weight);  // the difference is exact (Sterbenz 1974)
  }
}

TEST_CASE("unused rows in front of a parameter are not read, and are written as zeros", "[huggingface]") {
  std::mt19937 random(5);
  for (const std::vector<Shape>& shapes : {std::vector<Shape>{{7, 3}}, std::vector<Shape>{{4, 3}, {2, 3}}}) {
    TensorPair pair = pair_of(shapes.size(), false, 1);
    pair.num_unused_rows = 2;
    const Sample sample(pair, shapes, random);
    std::vector<float> tensor = sample.write();
    std::vector<float> expected(6, 0.0F);
    for (const auto& parameter : sample.parameters) expected.insert(expected.end(), parameter.begin(), parameter.end());
    CHECK(tensor == expected);
    CHECK(tensor_shape(pair, shapes) == Shape{static_cast<int64_t>(tensor.size()) / 3, 3});
    std::fill_n(tensor.begin(), 6, 9.0F);
    int64_t num_read = 0;
    for (size_t i = 0; i < shapes.size(); ++i) CHECK(sample.read(tensor, i, num_read) == sample.parameters[i]);
    CHECK(num_read == static_cast<int64_t>(tensor.size()) - 6);
  }
  TensorPair groups = pair_of(2, false, 2), transposed = pair_of(1, true, 1);
  groups.num_unused_rows = transposed.num_unused_rows = 2;
  CHECK_THROWS_AS(row_ranges(groups, {{4, 3}, {2, 3}}, 0), std::logic_error);
  CHECK_THROWS_AS(row_ranges(transposed, {{4, 3}}, 0), std::logic_error);
}
