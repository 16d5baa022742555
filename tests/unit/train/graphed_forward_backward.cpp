// Capture and replay of a forward and backward pass in a CUDA graph, compared with passes without a graph. On the CPU,
// ReplayingGraph takes the place of the CUDA graph: a launch runs the captured work again and copies the results into
// the tensors that the capture returned.
#include "train/graphed_forward_backward.h"

#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "fixtures/aten.h"
#include "fixtures/models.h"

using namespace models;

namespace {

struct GraphCounts {
  int captures = 0, launches = 0;
};

class ReplayingGraph : public DeviceGraph {
 public:
  explicit ReplayingGraph(GraphCounts& counts) : counts_(counts) {}
  std::vector<at::Tensor> capture(const Work& work) override {
    ++counts_.captures;
    work_ = work;
    for (const at::Tensor& t : work_())
      results_.push_back(at::full_like(t, NAN));  // the capture of a CUDA graph computes no results
    gradients_ = gradients();
    for (at::Tensor& g : gradients_) g.fill_(NAN);
    return results_;
  }
  void launch() override {
    ++counts_.launches;
    const c10::AutoGradMode enable_gradients(true);  // unlike a CUDA graph, this launch runs autograd
    const std::vector<at::Tensor> new_results = work_();
    for (size_t i = 0; i < new_results.size(); ++i) results_[i].copy_(new_results[i].detach());
    const std::vector<at::Tensor> new_gradients = gradients();
    REQUIRE(new_gradients.size() == gradients_.size());
    for (size_t i = 0; i < new_gradients.size(); ++i) gradients_[i].copy_(new_gradients[i]);
  }
  std::function<std::vector<at::Tensor>()> gradients;

 private:
  GraphCounts& counts_;
  Work work_;
  std::vector<at::Tensor> results_, gradients_;
};

}  // namespace

TEST_CASE(
    "replays of a captured forward and backward pass give the losses and gradients of uncaptured passes bit for bit",
    "[cuda-graph]") {
  const std::string toml =
      "[model]\nlayers = 2\nwidth = 16\nffn_dim = 32\ndropout_ffn = 0.2\n[attention]\nheads = 2\ndropout = 0.1\n"
      "mixer = 'mixhead-a'\n";
  auto graphed_model = build_language_model(parse_model_config(toml), {23}, at::kCPU),
       plain_model = build_language_model(parse_model_config(toml), {23}, at::kCPU);
  graphed_model->parameters().initialise(3), plain_model->parameters().initialise(3);
  const bool bf16 = GENERATE(false, true);
  if (bf16) graphed_model->parameters().use_bf16_copies(true), plain_model->parameters().use_bf16_copies(true);
  const auto forward_backward_of = [](LanguageModel& model) {
    return [&model](const Input& input, const Targets& targets, const mh::nn::ForwardContext& forward_context) {
      Targets cpu_targets = targets;  // CPU kernels read `values`, GPU kernels `device_values`
      if (targets.device_values.defined()) cpu_targets.values = targets.device_values;
      const SlicedLoss loss = model.loss(model.hidden(input, forward_context), cpu_targets, 0.1, forward_context);
      loss.smoothed.backward();
      model.parameters().collect_gradients();
      return loss;
    };
  };
  GraphCounts counts;
  mh::train::GraphedForwardBackward graphed_forward_backward(*graphed_model, forward_backward_of(*graphed_model), [&] {
    auto graph = std::make_unique<ReplayingGraph>(counts);
    graph->gradients = [&graphed_model] {
      std::vector<at::Tensor> gradients;
      for (Parameter& p : graphed_model->parameters().all())
        if (p.master().grad().defined()) gradients.push_back(p.master().grad());
      return gradients;
    };
    return graph;
  });
  const auto plain_forward_backward = forward_backward_of(*plain_model);

  uint32_t update = 0;
  const auto check_update = [&](int64_t rows, int64_t length) {
    INFO("update " << update);
    mh::data::Batch batch{Input{random_tokens(rows, length, 23, update)},
                          random_tokens(rows, length, 23, update + 100)};
    const mh::nn::ForwardContext forward_context{true, 1, update++, 0};
    graphed_model->parameters().zero_gradients(), plain_model->parameters().zero_gradients();
    batch.targets[0][static_cast<int64_t>(update) % length] = -1;  // the ignored targets differ between updates
    batch.targets[0][0] = update % 2 == 0 ? -1 : 3;
    const SlicedLoss actual = graphed_forward_backward(batch, forward_context),
                     expected = plain_forward_backward(batch.input, batch.model_targets(), forward_context);
    CHECK(at::equal(actual.smoothed, expected.smoothed));
    CHECK(at::equal(actual.nll, expected.nll));
    CHECK(actual.num_scored == expected.num_scored);
    for (Parameter& p : plain_model->parameters().all()) {
      INFO(p.name());
      const at::Tensor gradient = graphed_model->parameters().find(p.name())->master().grad();
      REQUIRE(gradient.defined() == p.master().grad().defined());
      if (gradient.defined()) CHECK(at::equal(gradient, p.master().grad()));
    }
  };
  for (int i = 0; i < 6; ++i) check_update(3, 7);
  CHECK(graphed_forward_backward.is_captured());
  CHECK((counts.captures == 1 && counts.launches == 3));
  // A batch that differs in shape from the captured batches, such as the last batch of an epoch, runs without a graph.
  check_update(2, 7);
  CHECK((counts.captures == 1 && counts.launches == 3));
  check_update(3, 7);
  CHECK((counts.captures == 1 && counts.launches == 4));
  // Freezing a parameter requires another capture.
  for (auto* model : {graphed_model.get(), plain_model.get()}) model->parameters().all().front().set_trained(false);
  for (int i = 0; i < 5; ++i) check_update(3, 7);
  CHECK((counts.captures == 2 && counts.launches == 6));
  CHECK_THROWS_WITH(graphed_forward_backward({Input{random_tokens(3, 7, 23, 1)}, at::full({3, 7}, 23, at::kLong)},
                                             {true, 1, update, 0}),
                    Catch::Contains("indices below 23") && Catch::Contains("found 23"));
}

TEST_CASE("a failed CUDA graph capture throws Error(device), which suggests train.cuda_graph=false", "[cuda-graph]") {
  struct FailingGraph : DeviceGraph {
    std::vector<at::Tensor> capture(const Work&) override {
      throw std::runtime_error("operation not permitted\nstack");
    }
    void launch() override {}
  };
  auto model = build_language_model(parse_model_config("[model]\nlayers = 1\nwidth = 8\n[attention]\nheads = 2\n"), {9},
                                    at::kCPU);
  mh::train::GraphedForwardBackward graphed(
      *model, [](const auto&, const auto&, const auto&) { return SlicedLoss{}; },
      [] { return std::make_unique<FailingGraph>(); });
  const mh::data::Batch batch{Input{random_tokens(1, 2, 9, 1)}, random_tokens(1, 2, 9, 2)};
  for (int i = 0; i < mh::train::GraphedForwardBackward::kWarmUpUpdates; ++i) CHECK_NOTHROW(graphed(batch, {}));
  try {
    graphed(batch, {});
    FAIL("a failed capture throws no error");
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::device);
    const std::string text = error.what();
    CHECK(text.find("operation not permitted") != std::string::npos);
    CHECK(text.find("stack") == std::string::npos);
    CHECK(text.find("train.cuda_graph=false") != std::string::npos);
  }
}
