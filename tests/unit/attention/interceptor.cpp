// Interceptors, which read and replace the tensors of heads; observations, which stages pass to subscribed observers;
// and requests of a ForwardContext.
#include "attention/interceptor.h"

#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <memory>
#include <stdexcept>
#include <vector>

#include "analysis/observers.h"
#include "attention/head_mix.h"
#include "attention/methods/mixture_of_heads/routing.h"
#include "fixtures/layers.h"

using namespace mh;
using namespace mh::attention;
using layers::normal;
using layers::PerturbedLayer;

namespace {

// Multiplies the tensor of the score, value or output heads by 2 and records its sizes.
struct DoublingInterceptor : Interceptor {
  HeadSide target;
  std::vector<std::vector<int64_t>> recorded_sizes;
  explicit DoublingInterceptor(HeadSide side) : target(side) {}
  at::Tensor intercept_heads(HeadSide side, const LayerSpec&, const at::Tensor& x) override {
    if (side != target) return x;
    recorded_sizes.push_back(x.sizes().vec());
    return 2 * x;
  }
  bool acts_on(HeadSide side) const override { return side == target; }
  const char* why_composed() const override { return target == HeadSide::score ? "the test doubles scores" : nullptr; }
};

struct DoublingObserver : Observer {
  DoublingInterceptor interceptor;
  explicit DoublingObserver(HeadSide side) : interceptor(side) {}
  at::Tensor intercept_heads(HeadSide side, const LayerSpec& shape, const at::Tensor& x) override {
    return interceptor.intercept_heads(side, shape, x);
  }
};

}  // namespace

TEST_CASE("an interceptor, an observer and head scales act on the same tensors of score, value and output heads") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, 8}, 1), twos = at::full({4}, 2.0);
  const Mask mask = layers::causal_mask();
  for (const std::string mixer : {"mixhead-a", "talking-heads"}) {
    PerturbedLayer l("heads = 4\nmixer = '" + mixer + "'\ncombiner = 'alphas'\n", 8, 3);
    const at::Tensor unscaled_output = l(x, x, mask);
    const layers::LayerRounding rounding = layers::rounding_of(l, x, x, mask);
    for (const HeadSide side : {HeadSide::score, HeadSide::value, HeadSide::output}) {
      INFO(mixer << " " << static_cast<int>(side));
      HeadScales scales;
      scales.scales_of(side) = twos;
      set_head_scales(*l.layer, scales);
      const at::Tensor scaled_output = l(x, x, mask);
      CHECK_FALSE(rounding.agree(scaled_output, unscaled_output, 2));

      const auto interceptor = std::make_shared<DoublingInterceptor>(side);
      l.layer->set_interceptor(interceptor);
      CHECK(at::equal(l(x, x, mask), scaled_output));
      CHECK(interceptor->recorded_sizes ==
            std::vector<std::vector<int64_t>>{{2, 4, 5, side == HeadSide::score ? 5 : 2}});
      CHECK_THROWS_AS(head_scales(*l.layer), std::logic_error);
      l.layer->set_interceptor(nullptr);
      CHECK_FALSE(head_scales(*l.layer).scales_of(side).defined());

      DoublingObserver observer(side);
      CHECK(rounding.agree(l(x, x, mask, {}, &observer), scaled_output, 2));
      CHECK(observer.interceptor.recorded_sizes == interceptor->recorded_sizes);
    }
  }
}

TEST_CASE("Path::fused rejects an interceptor that changes probabilities and accepts one that changes head outputs") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 20, 32}, 1);
  const Mask mask = layers::causal_mask();
  PerturbedLayer l("heads = 2\nmixer = 'mixhead-a'\n", 32, 3);
  const layers::LayerRounding rounding = layers::rounding_of(l, x, x, mask);
  l.layer->set_path(Path::fused);
  l.layer->set_interceptor(std::make_shared<DoublingInterceptor>(HeadSide::value));
  CHECK(l.layer->describe_path(false) == "fused");
  const at::Tensor fused_output = l(x, x, mask);
  l.layer->set_interceptor(std::make_shared<DoublingInterceptor>(HeadSide::score));
  CHECK(l.layer->describe_path(false) == "composed: the test doubles scores");
  CHECK_THROWS_AS(l(x, x, mask), Error);
  // Head outputs are linear in the probabilities, so doubling either gives the same result.
  l.layer->set_path(Path::automatic);
  CHECK(rounding.agree(l(x, x, mask), fused_output, 2));
}

TEST_CASE(
    "notify_subscribers() passes an observation to the subscribers of its type in order, with the changes of earlier "
    "subscribers") {
  struct FirstObserver : Observer, Subscriber<MixingObservation> {
    void receive(const LayerSpec&, MixingObservation& observation) override {
      observation.matrix = observation.matrix + 1;
    }
  } first_observer;
  struct SecondObserver : Observer, Subscriber<MixingObservation>, Subscriber<RoutingObservation> {
    at::Tensor matrix;
    int num_routings = 0;
    void receive(const LayerSpec&, MixingObservation& observation) override { matrix = observation.matrix; }
    void receive(const LayerSpec&, RoutingObservation&) override { ++num_routings; }
  } second_observer;
  layers::RecordingObserver unsubscribed_observer;
  analysis::Observers inner_observers({&second_observer, &unsubscribed_observer}),
      all_observers({&first_observer, &inner_observers});
  MixingObservation observation{at::zeros({2, 2})};
  all_observers.notify_subscribers({}, observation);
  CHECK(at::equal(second_observer.matrix, at::ones({2, 2})));
  CHECK(at::equal(observation.matrix, second_observer.matrix));
  all_observers.notify_subscribers({}, RoutingObservation{});
  CHECK(second_observer.num_routings == 1);
  CHECK_FALSE(unsubscribed_observer.g.defined());
}

TEST_CASE("ForwardContext::request finds a request by its type") {
  struct FirstRequest : nn::Request {
    int number = 0;
  };
  struct SecondRequest : nn::Request {};
  nn::ForwardContext context;
  CHECK(context.request<FirstRequest>() == nullptr);
  nn::Requests requests;
  CHECK(requests.empty());
  const auto first = std::make_shared<FirstRequest>();
  requests.add(std::make_shared<SecondRequest>());
  context.requests = &requests;
  CHECK(context.request<FirstRequest>() == nullptr);
  requests.add(first);
  CHECK(context.request<FirstRequest>() == first.get());
  CHECK(context.request<SecondRequest>() != nullptr);
}
