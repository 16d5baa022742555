// A recorded pass against the same done anew each time. The graph is one that works on a CPU: it does the work again
// and puts what that gives where the recording's results lie.
#include "train/graphed_pass.h"

#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "fixtures/aten.h"
#include "fixtures/models.h"

using namespace models;

namespace {

struct Counts {
  int recorded = 0, launched = 0;
};

class Again : public DeviceGraph {
 public:
  explicit Again(Counts& counts) : counts_(counts) {}
  std::vector<at::Tensor> record(const Work& work) override {
    ++counts_.recorded;
    work_ = work;
    for (const at::Tensor& t : work_()) results_.push_back(at::full_like(t, NAN));  // recorded is not done
    places_ = gradients();
    for (at::Tensor& g : places_) g.fill_(NAN);
    return results_;
  }
  void launch() override {
    ++counts_.launched;
    const c10::AutoGradMode gradients_wanted(true);  // it does the work, which a graph's launch does not
    const std::vector<at::Tensor> now = work_();
    for (size_t i = 0; i < now.size(); ++i) results_[i].copy_(now[i].detach());
    const std::vector<at::Tensor> made = gradients();
    REQUIRE(made.size() == places_.size());
    for (size_t i = 0; i < made.size(); ++i) places_[i].copy_(made[i]);
  }
  std::function<std::vector<at::Tensor>()> gradients;

 private:
  Counts& counts_;
  Work work_;
  std::vector<at::Tensor> results_, places_;
};

}  // namespace

TEST_CASE("a recorded pass gives what the same work gives done anew, update by update", "[record]") {
  const std::string toml =
      "[model]\nlayers = 2\nwidth = 16\nffn = 32\ndropout_ffn = 0.2\n[attention]\nheads = 2\ndropout = 0.1\n"
      "mixer = 'mixhead-a'\n";
  auto here = build_language_model(configured(toml), 23, at::kCPU),
       other = build_language_model(configured(toml), 23, at::kCPU);
  here->parameters().initialise(3), other->parameters().initialise(3);
  const bool bf16 = GENERATE(false, true);
  if (bf16) here->parameters().set_bf16(true), other->parameters().set_bf16(true);
  const auto work_of = [](LanguageModel& model) {
    return [&model](const Input& input, const Targets& targets, const mh::nn::ForwardContext& step) {
      Targets read = targets;  // kernels of a CPU read the values, those of a GPU what is there
      if (targets.on_device.defined()) read.values = targets.on_device;
      const SlicedLoss loss = model.loss(model.hidden(input, step), read, 0.1, step);
      loss.smoothed.backward();
      model.parameters().collect_gradients();
      return loss;
    };
  };
  Counts counts;
  mh::train::GraphedPass recorded(*here, work_of(*here), [&] {
    auto graph = std::make_unique<Again>(counts);
    graph->gradients = [&here] {
      std::vector<at::Tensor> all;
      for (Parameter& p : here->parameters().all())
        if (p.master().grad().defined()) all.push_back(p.master().grad());
      return all;
    };
    return graph;
  });
  const auto plain = work_of(*other);

  uint32_t update = 0;
  const auto compare = [&](int64_t rows, int64_t length) {
    INFO("update " << update);
    mh::data::Batch batch{{some_tokens(rows, length, 23, update)}, some_tokens(rows, length, 23, update + 100)};
    const mh::nn::ForwardContext step{true, 1, update++, 0};
    here->parameters().zero_gradients(), other->parameters().zero_gradients();
    batch.targets[0][static_cast<int64_t>(update) % length] = -1;  // never the same
    batch.targets[0][0] = update % 2 == 0 ? -1 : 3;
    const SlicedLoss found = recorded(batch, step), wanted = plain(batch.input, batch.model_targets(), step);
    CHECK(at::equal(found.smoothed, wanted.smoothed));
    CHECK(at::equal(found.nll, wanted.nll));
    CHECK(found.scored == wanted.scored);
    for (Parameter& p : other->parameters().all()) {
      INFO(p.name());
      const at::Tensor mine = here->parameters().find(p.name())->master().grad();
      REQUIRE(mine.defined() == p.master().grad().defined());
      if (mine.defined()) CHECK(at::equal(mine, p.master().grad()));
    }
  };
  for (int i = 0; i < 6; ++i) compare(3, 7);
  CHECK(recorded.recorded());
  CHECK((counts.recorded == 1 && counts.launched == 3));
  compare(2, 7);  // the last of an epoch
  CHECK((counts.recorded == 1 && counts.launched == 3));
  compare(3, 7);
  CHECK((counts.recorded == 1 && counts.launched == 4));
  // Other parameters train: another recording.
  for (auto* model : {here.get(), other.get()}) model->parameters().all().front().set_trained(false);
  for (int i = 0; i < 5; ++i) compare(3, 7);
  CHECK((counts.recorded == 2 && counts.launched == 6));
  CHECK_THROWS_WITH(recorded({{some_tokens(3, 7, 23, 1)}, at::full({3, 7}, 23, at::kLong)}, {true, 1, update, 0}),
                    Catch::Contains("a target 23"));
}

TEST_CASE("work that cannot be recorded is refused, with what to do", "[record]") {
  struct Broken : DeviceGraph {
    std::vector<at::Tensor> record(const Work&) override { throw std::runtime_error("operation not permitted\nstack"); }
    void launch() override {}
  };
  auto model =
      build_language_model(configured("[model]\nlayers = 1\nwidth = 8\n[attention]\nheads = 2\n"), 9, at::kCPU);
  mh::train::GraphedPass pass(
      *model, [](const auto&, const auto&, const auto&) { return SlicedLoss{}; },
      [] { return std::make_unique<Broken>(); });
  const mh::data::Batch batch{{some_tokens(1, 2, 9, 1)}, some_tokens(1, 2, 9, 2)};
  for (int i = 0; i < mh::train::GraphedPass::kBefore; ++i) CHECK_NOTHROW(pass(batch, {}));
  try {
    pass(batch, {});
    FAIL("it is recorded");
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::device);
    const std::string text = error.what();
    CHECK(text.find("operation not permitted") != std::string::npos);
    CHECK(text.find("stack") == std::string::npos);
    CHECK(text.find("train.cuda_graph=false") != std::string::npos);
  }
}
