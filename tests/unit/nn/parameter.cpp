// Tests of parameters that are loaded for evaluation in bf16, without fp32 masters.
#include "nn/parameter.h"

#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <stdexcept>

#include "fixtures/aten.h"
#include "nn/finite.h"
#include "nn/ops.h"

using namespace mh::nn;

namespace {

struct Use {
  bool is_product_operand, is_lookup_table;
};
constexpr Use kUses[] = {{false, false}, {true, false}, {false, true}, {true, true}};
constexpr at::ScalarType kStoredTypes[] = {at::kFloat, at::kHalf, at::kBFloat16};

ParameterTraits traits_of(const Use& use) {
  ParameterTraits traits;
  traits.is_product_operand = use.is_product_operand;
  traits.is_lookup_table = use.is_lookup_table;
  return traits;
}

at::Tensor random_values(at::ScalarType type) {
  at::manual_seed(1);
  return at::randn({40, 6}).to(type);
}

// The parameter "w" of a list that was created without memory and has received evaluation values.
struct EvaluationParameter {
  ParameterList list{ParameterPlacement(at::kCPU, false)};
  Parameter& parameter;
  EvaluationParameter(const Use& use, const at::Tensor& stored_values)
      : parameter(list.add("w", stored_values.sizes().vec(), traits_of(use))) {
    CHECK(parameter.master().is_meta());
    list.set_evaluation_values([&](const Parameter& p) {
      CHECK(&p == &parameter);
      return stored_values;
    });
  }
};

}  // namespace

TEST_CASE("a parameter without a master has the bits of a bf16 copy, and its looked-up rows the bits of a master",
          "[parameter]") {
  for (const at::ScalarType type : kStoredTypes)
    for (const Use& use : kUses) {
      INFO(c10::toString(type) << ", product operand " << use.is_product_operand << ", lookup table "
                               << use.is_lookup_table);
      const at::Tensor stored_values = random_values(type);
      ParameterList list(at::kCPU);
      Parameter& with_master = list.add("w", {40, 6}, traits_of(use));
      with_master.set_values(stored_values);
      list.use_bf16_copies(true);
      const EvaluationParameter evaluation(use, stored_values);
      const Parameter& p = evaluation.parameter;
      CHECK(evaluation.list.device().is_cpu());
      CHECK(p.sizes() == with_master.sizes());
      CHECK_FALSE(p.gradient_leaf().requires_grad());
      CHECK(p.gradient_leaf().sizes() == with_master.sizes());
      CHECK(p.is_evaluation_only() == (use.is_product_operand || use.is_lookup_table));
      CHECK(p.has_whole_master() != p.is_evaluation_only());
      CHECK(evaluation.list.num_trainable_elements() == 240);
      if (use.is_product_operand || !use.is_lookup_table) CHECK(at::equal(p.value(), with_master.value()));
      if (!p.is_evaluation_only()) CHECK(at::equal(p.master(), with_master.master()));
      if (!use.is_lookup_table) continue;
      const at::Tensor tokens = at::tensor(std::vector<int64_t>{39, 0, 7, 7}, at::kLong).view({2, 2});
      for (const double scale : {1.0, 2.5}) {
        const at::Tensor rows = embedding(tokens, p.lookup_table(), scale);
        CHECK(rows.scalar_type() == at::kFloat);
        CHECK(at::equal(rows, embedding(tokens, with_master.lookup_table(), scale)));
      }
    }
}

TEST_CASE("a parameter without a master shares the memory of stored values that it need not convert", "[parameter]") {
  for (const at::ScalarType type : kStoredTypes)
    for (const Use& use : kUses) {
      const at::Tensor stored_values = random_values(type);
      const EvaluationParameter evaluation(use, stored_values);
      const Parameter& p = evaluation.parameter;
      const bool needs_no_conversion = use.is_product_operand ? type == at::kBFloat16 : use.is_lookup_table;
      CHECK(p.value().is_alias_of(stored_values) == needs_no_conversion);
      if (use.is_lookup_table) CHECK(p.lookup_table().is_alias_of(stored_values));
    }
}

TEST_CASE("functions that need a master refuse a parameter without a master", "[parameter]") {
  const at::Tensor stored_values = random_values(at::kBFloat16);
  for (const Use& use : kUses) {
    if (!use.is_product_operand && !use.is_lookup_table) continue;
    EvaluationParameter evaluation(use, stored_values);
    Parameter& p = evaluation.parameter;
    for (const std::function<void()>& function : {std::function<void()>([&] { p.master(); }),
                                                  {[&] { static_cast<const Parameter&>(p).master(); }},
                                                  {[&] { p.use_bf16_copy(true); }},
                                                  {[&] { p.use_bf16_copy(false); }},
                                                  {[&] { p.set_values(stored_values); }},
                                                  {[&] { p.set_trained(true); }},
                                                  {[&] { evaluation.list.initialise(1); }}})
      CHECK_THROWS_WITH(function(), Catch::Contains("w: expected the whole fp32 master") &&
                                        Catch::Contains("loaded for evaluation in bf16 without a master"));
    if (use.is_product_operand) CHECK_THROWS_AS(p.refresh_bf16_copy(), std::logic_error);
    CHECK_THROWS_AS(p.divide_master(0, 10), std::logic_error);
    CHECK_NOTHROW(p.set_trained(false));
    CHECK(at::equal(use.is_product_operand ? p.value() : p.lookup_table(), stored_values));
  }
  EvaluationParameter evaluation({true, false}, stored_values);
  CHECK_THROWS_AS(evaluation.parameter.set_evaluation_values(stored_values.t(), at::kCPU), std::logic_error);
}

TEST_CASE("the check for finite elements finds each NaN and infinity of each type, in a slice of any number",
          "[parameter]") {
  for (const at::ScalarType type : kStoredTypes)
    for (const int64_t size : {int64_t{1}, int64_t{1000}, (int64_t{1} << 18) + 1, (int64_t{1} << 19) + 7}) {
      at::Tensor x = at::ones({size, 1}, type);
      CHECK(is_finite(x));
      for (const int64_t index : {int64_t{0}, size / 2, size - 1})
        for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                                   -std::numeric_limits<double>::infinity()}) {
          x[index].fill_(value);
          CHECK_FALSE(is_finite(x));
          x[index].fill_(1);
        }
    }
  CHECK(is_finite(at::empty({0, 3})));
}
