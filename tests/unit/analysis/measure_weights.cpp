// The measures weight-norm and alpha against sums over the parameters of a head.
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/measured_models.h"

using namespace mh;
using namespace mh::analysis;
using namespace measured_models;

TEST_CASE("the measures weight-norm and alpha are norms of the parameters of a head", "[importance]") {
  MeasuredModel measured_model("mixer = 'mixhead-a'\ncombiner = 'alphas'\n");
  auto parameter = [&](const std::string& name) {
    const at::Tensor x = measured_model.model->parameters().find("decoder.layers.1.self." + name)->master();
    return x.detach().to(at::kDouble).reshape({x.size(0), -1}).contiguous();
  };
  // row_squares() and column_squares() return Σ w² over the rows or columns of a parameter that belong to a head.
  auto row_squares = [&](const std::string& name, int64_t head) {
    const at::Tensor x = parameter(name);
    const int64_t size = x.size(0) / 3;
    double sum = 0;
    for (int64_t i = head * size; i < (head + 1) * size; ++i)
      for (int64_t j = 0; j < x.size(1); ++j) sum += std::pow(x[i][j].item<double>(), 2);
    return sum;
  };
  auto column_squares = [&](const std::string& name, int64_t head) {
    const at::Tensor x = parameter(name);
    const int64_t size = x.size(1) / 3;
    double sum = 0;
    for (int64_t i = 0; i < x.size(0); ++i)
      for (int64_t j = head * size; j < (head + 1) * size; ++j) sum += std::pow(x[i][j].item<double>(), 2);
    return sum;
  };
  auto diagonal_square = [&](const std::string& name, int64_t i) {
    return std::pow(parameter(name)[i][i].item<double>(), 2);
  };
  const std::string m = "mixer.matrix", a = "combiner.alpha";
  std::map<std::string, std::map<SideSelection, HeadValues>> expected;
  for (int64_t i = 0; i < 3; ++i) {
    const double queries_keys = row_squares("query.weight", i) + row_squares("query.bias", i) +
                                row_squares("key.weight", i) + row_squares("key.bias", i),
                 values = row_squares("value.weight", i) + row_squares("value.bias", i),
                 outputs = column_squares("output.weight", i);
    const double matrices = row_squares(m, i) + column_squares(m, i) - diagonal_square(m, i) + row_squares(a, i) +
                            column_squares(a, i) - diagonal_square(a, i);
    expected["weight-norm"][SideSelection::score].push_back(std::sqrt(queries_keys + row_squares(m, i)));
    expected["weight-norm"][SideSelection::value].push_back(
        std::sqrt(values + column_squares(m, i) + column_squares(a, i)));
    expected["weight-norm"][SideSelection::output].push_back(std::sqrt(outputs + row_squares(a, i)));
    expected["weight-norm"][SideSelection::whole].push_back(std::sqrt(queries_keys + values + outputs + matrices));
    expected["alpha"][SideSelection::score].push_back(std::sqrt(row_squares(m, i)));
    expected["alpha"][SideSelection::value].push_back(std::sqrt(column_squares(m, i) + column_squares(a, i)));
    expected["alpha"][SideSelection::output].push_back(std::sqrt(row_squares(a, i)));
    expected["alpha"][SideSelection::whole].push_back(std::sqrt(matrices));
  }
  for (const auto& [measure, by_side] : expected)
    for (const auto& [side, scores] : by_side) {
      INFO(measure << " " << analysis::name_of(side));
      // Roundings: the sums in fp64 over the entries of the rows and columns of a head have fewer than 400 terms.
      CHECK(is_near(decoder_self_scores(importance_of(measure, measured_model.analysis_input(side)))[1], scores,
                    rounding::fp64_bound(400, 1)));
    }
}

TEST_CASE("the weights of a joint norm of grouped keys count as weights of the keys of every head", "[importance]") {
  // With a mixer of heads, the score side and the value side are separate.
  MeasuredModel measured_model(
      "key_value_heads = 1\nmixer = 'mixhead-a'\ntransform = ['qk-norm']\nqk-norm.scope = 'joint'\n");
  // Returns Σ w² over one of the equal blocks of a parameter along an axis.
  const auto squares = [&](const std::string& name, int64_t num_blocks, int64_t block, int64_t axis = 0) {
    const at::Tensor x = measured_model.model->parameters().find("decoder.layers.1.self." + name)->master();
    const auto blocks = x.detach().to(at::kDouble).chunk(num_blocks, axis);
    return blocks[static_cast<size_t>(block)].square().sum().item<double>();
  };
  HeadValues scores, values;
  for (int64_t i = 0; i < 3; ++i) {
    double score = squares("mixer.matrix", 3, i), value = squares("mixer.matrix", 3, i, 1);
    for (const char* name : {"query.weight", "query.bias", "query_norm.weight"}) score += squares(name, 3, i);
    for (const char* name : {"key.weight", "key.bias", "key_norm.weight"}) score += squares(name, 1, 0);
    for (const char* name : {"value.weight", "value.bias"}) value += squares(name, 1, 0);
    scores.push_back(std::sqrt(score)), values.push_back(std::sqrt(value));
  }
  for (const auto& [side, expected] : {std::pair{SideSelection::score, scores}, {SideSelection::value, values}})
    CHECK(is_near(decoder_self_scores(importance_of("weight-norm", measured_model.analysis_input(side)))[1], expected,
                  rounding::fp64_bound(400, 1)));
}
