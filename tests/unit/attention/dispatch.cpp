// The constraints of the fused path, each by itself, and what the dispatcher does with a refusal.
#include "attention/dispatch.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "fixtures/aten.h"
#include "fixtures/layers.h"

using namespace mh;
using namespace mh::attention;

namespace {

// A layer of width 32 with its stages, and a forward pass of 20 queries that the fused path takes unless a case changes
// something.
struct Case {
  std::string toml = "heads = 2\n";
  std::function<void(LayerView&)> set_layer = {};
  std::function<void(Context&)> set_pass = {};
  std::string why = {};  // a part of the reason; empty: a refusal without words
  bool training = false;
};

std::map<std::string, Case> cases() {
  static layers::Watch watch;
  static struct : Interceptor {
    const char* needs_composed() const override { return "the test replaces scores"; }
  } interceptor;
  static StageState state;
  const std::string released = "mixer = 'mixhead-a'\n[attention.mixhead-a]\nscope = 'released'\n";
  const auto decodes = [](Context& c) { c.state = &state; };
  const auto without_keys = [](Context& c) { c.k = c.v = at::zeros({2, 2, 0, 16}); };
  const auto in_double = [](Context& c) {
    for (at::Tensor* t : {&c.q, &c.k, &c.v}) *t = t->to(at::kDouble);
  };
  const auto one_query = [](Context& c) { c.q = c.q.narrow(0, 0, 1).narrow(2, 0, 1); };
  return {
      // No registered pairing, normaliser or combiner lacks a fused form: a stage of the test takes its place below.
      {"pairing", {"heads = 2\npairing = 'test-composed'\n", {}, {}, "pairing 'test-composed': it has no fused form"}},
      {"score",
       {"heads = 2\nscore = 'synthesizer-random'\n",
        {},
        {},
        "score 'synthesizer-random': its logits are not products"}},
      {"normaliser",
       {"heads = 2\nnormaliser = 'test-composed'\n", {}, {}, "normaliser 'test-composed': it has no fused form"}},
      {"mixer", {"heads = 2\nmixer = 'talking-heads'\n", {}, {}, "mixer 'talking-heads': it mixes logits"}},
      {"combiner",
       {"heads = 2\ncombiner = 'test-composed'\n", {}, {}, "combiner 'test-composed': it has no fused form"}},
      {"value-size", {"heads = 2\nvalue_size = 8\n", {}, {}, "value_size 8 differs from head_size 16"}},
      {"interceptor",
       {"heads = 2\nmixer = 'mixhead-a'\n",
        [](LayerView& l) { l.interceptor = &interceptor; },
        {},
        "the test replaces scores"}},
      {"gpu-kernels",
       {"heads = 2\nmixer = 'mixhead-a'\n",
        [](LayerView& l) { l.on_gpu = true, l.type = at::kDouble; },
        {},
        "mixed heads: elements of type Double"}},
      {"head-size",
       {"heads = 4\nnormaliser = 'sigsoftmax'\ndropout = 0.1\n",
        {},
        {},
        "Sigsoftmax, with head_size 8, no multiple of 16; dropout of the probabilities, with head_size 8, no multiple",
        true}},
      {"observer", {"heads = 2\n", {}, [](Context& c) { c.observer = &watch; }, "an observer reads the probabilities"}},
      {"tensors", {"heads = 2\n", {}, without_keys}},
      {"faster",
       {"heads = 2\nscore = 'relative'\n", {}, one_query, "relative positions with fewer queries in the batch than"}},
      {"mask",
       {"heads = 2\nmixer = 'mixhead-a'\n",
        {},
        [](Context& c) {
          c.mask.additive = at::zeros({20, 20});
        },
        "mixed heads with an additive mask or with a part of the keys"}},
      {"unmixed-value-size",
       {"heads = 2\nvalue_size = 8\n" + released,
        {},
        decodes,
        "value_size 8 differs from head_size 16 where mixer 'mixhead-a' mixes nothing"}},
      {"unmixed-head-size",
       {"heads = 4\n" + released,
        {},
        decodes,
        "mixed heads, with head_size 8, no multiple of 16, where mixer 'mixhead-a' mixes nothing"}},
      {"kernel",
       {"heads = 2\nnormaliser = 'sigsoftmax'\n",
        {},
        in_double,
        "no kernel for queries, keys and values of the types Double, Double, Double"}},
  };
}

class ComposedPairing : public Pairing {
  void pair(Context&) override {}
};
class ComposedNormaliser : public Normaliser {
  at::Tensor normalise(const at::Tensor& logits, const at::Tensor&) override { return logits; }
};
class ComposedCombiner : public Combiner {
  at::Tensor combine(const Context&, const at::Tensor& z) override { return z; }
};

// The options of a case with its layer, and a pass of it. Stages named 'test-composed' are those of the test.
struct Built {
  nn::ParameterList parameters{at::kCPU};
  AttentionOptions options;
  LayerSpec shape;
  Stages stages;
  nn::ForwardContext step;
  at::Tensor x = layers::normal({2, 20, 32}, 1);

  explicit Built(const Case& c) : options(layers::options_of(without_tests(c.toml))) {
    shape = make_layer_spec(options, AttentionKind::decoder_self, 0, 32, "x");
    stages = make_stages(options, shape);
    const auto take = [&](const char* key, auto& stage, std::string& name, auto made) {
      if (c.toml.find(str(key, " = 'test-composed'")) == std::string::npos) return;
      stage = std::move(made);
      name = "test-composed";
    };
    take("pairing", stages.pairing, options.pairing, std::make_unique<ComposedPairing>());
    take("normaliser", stages.normaliser, options.normaliser, std::make_unique<ComposedNormaliser>());
    take("combiner", stages.combiner, options.combiner, std::make_unique<ComposedCombiner>());
    stages.each(options,
                [&](Stage& stage, const char*, const std::string&) { stage.add_parameters(parameters, shape); });
    parameters.initialise(3);
    step.training = c.training;
  }

  static std::string without_tests(const std::string& toml) {
    std::string kept;
    for (size_t at = 0, end; at < toml.size(); at = end + 1) {
      end = toml.find('\n', at);
      const std::string line = toml.substr(at, end - at);
      if (line.find("test-composed") == std::string::npos) kept += line + "\n";
    }
    return kept;
  }

  LayerView layer() const { return {shape, options, stages}; }
  Context pass() const {
    const auto heads = [&](int64_t size, uint64_t seed) { return layers::normal({2, shape.heads, 20, size}, seed); };
    Context c{shape, step, {}, x, x, heads(shape.key_size, 2), heads(shape.key_size, 3), heads(shape.value_size, 4)};
    c.mask.causal = true;
    c.keys = 20;
    return c;
  }
};

const Constraint* refusal_of(const Case& c, std::string* why = nullptr) {
  const Built built(c);
  LayerView layer = built.layer();
  if (c.set_layer) c.set_layer(layer);
  Context pass = built.pass();
  if (c.set_pass) c.set_pass(pass);
  const Dispatcher dispatcher(layer);
  const Choice choice = dispatcher.choose(layer, pass);
  CHECK((choice.kernel == Kernel::composed) == (choice.refusal != nullptr));
  if (choice.refusal != nullptr && why != nullptr)
    choice.refusal->met({layer, dispatcher.features(), Path::automatic, c.training, &pass, choice}, why);
  return choice.refusal;
}

}  // namespace

TEST_CASE("each constraint of the fused path refuses a case of its own, with its reason") {
  c10::NoGradGuard no_gradient;
  const auto all = cases();
  std::set<std::string> names;
  for (const Constraint& constraint : constraints()) {
    INFO(constraint.name);
    CHECK(names.insert(constraint.name).second);
    const auto at = all.find(constraint.name);
    REQUIRE(at != all.end());  // a new constraint needs a case here
    std::string why = "unset";
    CHECK(refusal_of(at->second, &why) == &constraint);
    if (at->second.why.empty()) CHECK(why.empty());
    else CHECK(why.find(at->second.why) != std::string::npos);
    // Without what the case changes in the layer or the pass, no constraint refuses.
    if (constraint.scope == Scope::built || constraint.scope == Scope::device) continue;
    Case plain = at->second;
    plain.set_layer = {}, plain.set_pass = {};
    CHECK(refusal_of(plain) == nullptr);
  }
  CHECK(names.size() == all.size());
}

TEST_CASE("constraints of a layer refuse it before any forward pass, the others do not") {
  c10::NoGradGuard no_gradient;
  for (const auto& [name, c] : cases()) {
    INFO(name);
    const Built built(c);
    LayerView layer = built.layer();
    if (c.set_layer) c.set_layer(layer);
    const Dispatcher dispatcher(layer);
    const auto all = constraints();
    const auto constraint =
        std::find_if(all.begin(), all.end(), [&](const Constraint& each) { return each.name == name; });
    REQUIRE(constraint != all.end());
    const auto reasons = dispatcher.unfused_reasons(layer, c.training);
    CHECK(reasons.empty() == constraint->needs_pass());
    CHECK(dispatcher.takes_fused(layer, c.training) == reasons.empty());
    const std::string text = dispatcher.describe(layer, c.training);
    if (reasons.empty()) CHECK(text == "fused");
    else CHECK(text.find("composed: " + reasons[0]) == 0);
    if (reasons.empty()) CHECK_NOTHROW(dispatcher.require_fused(layer, c.training));
    else CHECK_THROWS_AS(dispatcher.require_fused(layer, c.training), Error);
  }
}

TEST_CASE("constraints are listed by scope, so that each is checked after those that it relies on") {
  const auto all = constraints();
  CHECK(std::is_sorted(all.begin(), all.end(),
                       [](const Constraint& a, const Constraint& b) { return a.scope < b.scope; }));
}

TEST_CASE("the dispatcher chooses the composed path without a refusal only where it is configured") {
  c10::NoGradGuard no_gradient;
  const Case plain;
  const Built built(plain);
  const LayerView layer = built.layer();
  const Context pass = built.pass();
  Dispatcher dispatcher(layer);
  CHECK(dispatcher.choose(layer, pass).kernel == Kernel::fused_cpu);
  dispatcher.set_path(Path::composed, std::make_shared<PathLog>());
  const Choice choice = dispatcher.choose(layer, pass);
  CHECK(choice.kernel == Kernel::composed);
  CHECK(choice.refusal == nullptr);
  CHECK_NOTHROW(dispatcher.report_composed(layer, pass, choice));
}
