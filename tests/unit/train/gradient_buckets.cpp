// GradientBuckets, which sum the gradients over the processes of a job, bucket by bucket during the last backward pass.
#include "train/gradient_buckets.h"

#include <catch2/catch.hpp>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "fixtures/aten.h"
#include "fixtures/processes.h"

using namespace mh;
using distributed::Group;
using train::GradientBuckets;

namespace {

// A model of a few parameters of different sizes: a lookup table that is also a product operand, a product operand, an
// fp32 vector, a vector that only micro-batch 1 uses, and a vector that no loss depends on.
struct SmallModel {
  nn::ParameterList parameters{at::kCPU};
  nn::Parameter *table, *weight, *bias, *rarely_used, *unused;

  explicit SmallModel(bool has_bf16_copies) {
    nn::ParameterTraits operand{nn::Init::normal(1), true, true}, table_traits = operand;
    table_traits.is_lookup_table = true;
    table = &parameters.add("table", {50, 40}, table_traits);
    weight = &parameters.add("weight", {40, 40}, operand);
    bias = &parameters.add("bias", {40}, {nn::Init::normal(1)});
    rarely_used = &parameters.add("rarely-used", {40}, {nn::Init::normal(1)});
    unused = &parameters.add("unused", {7}, {nn::Init::normal(1)});
    parameters.initialise(3);
    parameters.use_bf16_copies(has_bf16_copies);
  }

  // Runs the forward and backward pass of micro-batch `number`.
  void backward(int64_t number) {
    const at::Tensor tokens = (at::arange(12, at::kLong) * (number + 3)).remainder(50);
    at::Tensor x = table->master().index_select(0, tokens);
    x = at::tanh(at::matmul(x.to(weight->value().scalar_type()), weight->value()).to(at::kFloat) + bias->master());
    if (number == 1) x = x * rarely_used->master();
    at::matmul(x.to(table->value().scalar_type()), table->value().t()).to(at::kFloat).square().mean().backward();
    parameters.collect_gradients();
  }

  // Returns the gradients by name; a parameter without a gradient is missing.
  std::map<std::string, at::Tensor> gradients() {
    std::map<std::string, at::Tensor> result;
    for (nn::Parameter& p : parameters.all())
      if (p.master().grad().defined()) result[p.name()] = p.master().grad().clone();
    return result;
  }
};

using Gradients = std::map<std::string, at::Tensor>;

// Returns the gradients of one process that accumulates all micro-batches.
Gradients gradients_of_one_process(const std::vector<int64_t>& micro_batches, bool has_bf16_copies) {
  SmallModel model(has_bf16_copies);
  for (const int64_t number : micro_batches) model.backward(number);
  return model.gradients();
}

// Returns the gradients of a job whose process r accumulates the micro-batches shares[r], in the second of two passes.
// Throws an exception if the gradients differ between the processes. Sets `num_started_early` to the minimum over the
// processes of the number of buckets whose sum started before the end of the last backward pass.
Gradients gradients_of_processes(const std::vector<std::vector<int64_t>>& shares, bool has_bf16_copies,
                                 int64_t bucket_bytes, size_t& num_started_early) {
  Gradients result;
  std::mutex mutex;
  num_started_early = 1000;
  in_each_process(static_cast<int>(shares.size()), [&](const Group& group) {
    SmallModel model(has_bf16_copies);
    GradientBuckets buckets(group, model.parameters, bucket_bytes);
    for (int pass = 0; pass < 2; ++pass) {
      model.parameters.zero_gradients();
      buckets.begin_pass();
      const auto& share = shares[static_cast<size_t>(group.rank())];
      for (size_t i = 0; i < share.size(); ++i) {
        if (i + 1 == share.size()) buckets.begin_last_backward();
        model.backward(share[i]);
      }
      buckets.finish();
    }
    const std::lock_guard lock(mutex);
    num_started_early = std::min(num_started_early, buckets.num_started_early());
    const Gradients gradients = model.gradients();
    if (result.empty()) result = gradients;
    for (const auto& [name, gradient] : gradients)
      if (!at::equal(gradient, result.at(name))) throw std::runtime_error("the processes have different gradients");
  });
  return result;
}

void check_equal_gradients(const Gradients& actual, const Gradients& expected, double unit_roundoff) {
  REQUIRE(actual.size() == expected.size());
  for (const auto& [name, gradient] : expected) {
    CAPTURE(name);
    const double error = (actual.at(name) - gradient).abs().max().item<double>(),
                 magnitude = gradient.abs().max().item<double>();
    // Four micro-batches are added in another order: at most three roundings of sums that are at most four times as
    // large as the result in these cases.
    CHECK(error <= 12 * unit_roundoff * magnitude);
  }
}

}  // namespace

TEST_CASE("gradient buckets: the sum over processes equals the sum over micro-batches of one process") {
  for (const bool has_bf16_copies : {false, true}) {
    for (const int64_t bucket_bytes : {1, 5000, 1 << 20}) {
      size_t num_started_early = 0;
      CAPTURE(has_bf16_copies, bucket_bytes);
      const Gradients expected = gradients_of_one_process({0, 1, 2, 3}, has_bf16_copies);
      for (const auto& shares : std::vector<std::vector<std::vector<int64_t>>>{{{0, 1}, {2, 3}}, {{0}, {1, 2}, {3}}})
        check_equal_gradients(gradients_of_processes(shares, has_bf16_copies, bucket_bytes, num_started_early),
                              expected, 0x1p-24);
      CHECK(expected.count("unused") == 0);
      CHECK(expected.count("rarely-used") == 1);
    }
  }
}

TEST_CASE("gradient buckets: a process without rows contributes zeros") {
  size_t num_started_early = 0;
  check_equal_gradients(gradients_of_processes({{0, 2}, {}}, false, 5000, num_started_early),
                        gradients_of_one_process({0, 2}, false), 0x1p-24);
}

TEST_CASE("gradient buckets: complete buckets are summed during the last backward pass") {
  for (const bool has_bf16_copies : {false, true}) {
    size_t num_started_early = 0;
    SmallModel model(has_bf16_copies);
    in_each_process(2, [&](const Group& group) {
      SmallModel own_model(has_bf16_copies);
      own_model.unused->set_trained(false);
      GradientBuckets buckets(group, own_model.parameters, 1);  // a bucket for each parameter
      buckets.begin_pass();
      buckets.begin_last_backward();
      own_model.backward(1);
      if (group.is_main()) num_started_early = buckets.num_started_early();
      buckets.finish();
      if (buckets.num_buckets() != 4) throw std::runtime_error("expected 4 buckets");
    });
    CHECK(num_started_early == 4);
  }
}

TEST_CASE("gradient buckets: parameters may be frozen and unfrozen between passes") {
  in_each_process(2, [](const Group& group) {
    SmallModel model(false);
    GradientBuckets buckets(group, model.parameters);
    for (const bool trains_weight : {true, false, true}) {
      model.weight->set_trained(trains_weight);
      model.parameters.zero_gradients();
      buckets.begin_pass();
      buckets.begin_last_backward();
      model.backward(group.rank());
      buckets.finish();
      if (model.weight->master().grad().defined() != trains_weight) throw std::runtime_error("wrong set of gradients");
    }
  });
}

TEST_CASE("gradient buckets: a group of one process leaves gradients to autograd") {
  SmallModel model(true);
  GradientBuckets buckets(Group(), model.parameters);
  buckets.begin_pass();
  buckets.begin_last_backward();
  model.backward(0);
  buckets.finish();
  check_equal_gradients(model.gradients(), gradients_of_one_process({0}, true), 0);
}
