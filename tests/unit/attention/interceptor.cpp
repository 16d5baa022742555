// The point at which analyses see and replace what heads give, and what stages show to subscribers by type.
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
using layers::Shaken;
using numbers::close;

namespace {

// Doubles what the heads of one side give, and keeps the sizes that it was given.
struct Doubles : Interceptor {
  HeadSide of;
  std::vector<std::vector<int64_t>> seen;
  explicit Doubles(HeadSide side) : of(side) {}
  at::Tensor heads(HeadSide side, const LayerSpec&, const at::Tensor& x) override {
    if (side != of) return x;
    seen.push_back(x.sizes().vec());
    return 2 * x;
  }
  bool acts_on(HeadSide side) const override { return side == of; }
  const char* needs_composed() const override { return of == HeadSide::score ? "the test doubles scores" : nullptr; }
};

struct DoublesInPass : Observer {
  Doubles doubles;
  explicit DoublesInPass(HeadSide side) : doubles(side) {}
  at::Tensor heads(HeadSide side, const LayerSpec& shape, const at::Tensor& x) override {
    return doubles.heads(side, shape, x);
  }
};

}  // namespace

TEST_CASE("an interceptor, an observer and scales of heads replace the same tensors") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 5, 8}, 1), twos = at::full({4}, 2.0);
  Mask mask;
  mask.causal = true;
  for (const std::string mixer : {"mixhead-a", "talking-heads"}) {
    Shaken l("heads = 4\nmixer = '" + mixer + "'\ncombiner = 'alphas'\n", 8, 3);
    const at::Tensor plain = l(x, x, mask);
    for (const HeadSide side : {HeadSide::score, HeadSide::value, HeadSide::output}) {
      INFO(mixer << " " << static_cast<int>(side));
      HeadScales scales;
      scales.of(side) = twos;
      set_head_scales(*l.layer, scales);
      const at::Tensor scaled = l(x, x, mask);
      CHECK_FALSE(close(scaled, plain));

      const auto doubles = std::make_shared<Doubles>(side);
      l.layer->set_interceptor(doubles);
      CHECK(at::equal(l(x, x, mask), scaled));
      CHECK(doubles->seen == std::vector<std::vector<int64_t>>{{2, 4, 5, side == HeadSide::score ? 5 : 2}});
      CHECK_THROWS_AS(head_scales(*l.layer), std::logic_error);
      l.layer->set_interceptor(nullptr);
      CHECK_FALSE(head_scales(*l.layer).of(side).defined());

      DoublesInPass observer(side);
      CHECK(close(l(x, x, mask, {}, &observer), scaled));
      CHECK(observer.doubles.seen == doubles->seen);
    }
  }
}

TEST_CASE("an interceptor of scores is refused under the fused path, one of head outputs is not") {
  c10::NoGradGuard no_gradient;
  const at::Tensor x = normal({2, 20, 32}, 1);
  Mask mask;
  mask.causal = true;
  Shaken l("heads = 2\nmixer = 'mixhead-a'\n", 32, 3);
  l.layer->set_path(Path::fused);
  l.layer->set_interceptor(std::make_shared<Doubles>(HeadSide::value));
  CHECK(l.layer->describe_path(false) == "fused");
  const at::Tensor fused = l(x, x, mask);
  l.layer->set_interceptor(std::make_shared<Doubles>(HeadSide::score));
  CHECK(l.layer->describe_path(false) == "composed: the test doubles scores");
  CHECK_THROWS_AS(l(x, x, mask), Error);
  // Probabilities are mixed and summed linearly, so either doubles the head outputs.
  l.layer->set_path(Path::automatic);
  CHECK(close(l(x, x, mask), fused));
}

TEST_CASE("a stage's observation reaches its subscribers alone, each after the one before") {
  struct First : Observer, Subscriber<MixingObservation> {
    void receive(const LayerSpec&, MixingObservation& shown) override { shown.matrix = shown.matrix + 1; }
  } first;
  struct Second : Observer, Subscriber<MixingObservation>, Subscriber<RoutingObservation> {
    at::Tensor matrix;
    int routings = 0;
    void receive(const LayerSpec&, MixingObservation& shown) override { matrix = shown.matrix; }
    void receive(const LayerSpec&, RoutingObservation&) override { ++routings; }
  } second;
  layers::Watch neither;
  analysis::Observers inner({&second, &neither}), all({&first, &inner});
  MixingObservation shown{at::zeros({2, 2})};
  all.show({}, shown);
  CHECK(at::equal(second.matrix, at::ones({2, 2})));
  CHECK(at::equal(shown.matrix, second.matrix));
  all.show({}, RoutingObservation{});
  CHECK(second.routings == 1);
  CHECK_FALSE(neither.g.defined());
}

TEST_CASE("a pass's request is found by its type alone") {
  struct One : nn::Request {
    int number = 0;
  };
  struct Other : nn::Request {};
  nn::ForwardContext context;
  CHECK(context.request<One>() == nullptr);
  nn::Requests requests;
  CHECK(requests.empty());
  const auto one = std::make_shared<One>();
  requests.add(std::make_shared<Other>());
  context.requests = &requests;
  CHECK(context.request<One>() == nullptr);
  requests.add(one);
  CHECK(context.request<One>() == one.get());
  CHECK(context.request<Other>() != nullptr);
}
