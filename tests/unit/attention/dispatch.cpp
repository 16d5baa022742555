// The constraints of the fused path, one at a time, and the decisions of the dispatcher.
#include "attention/dispatch.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "cuda/attention.h"
#include "cuda/cuda_api.h"
#include "fixtures/aten.h"
#include "fixtures/layers.h"
#include "nn/device.h"

using namespace mh;
using namespace mh::attention;

namespace {

// A layer of width 32 and a forward pass of 20 queries that violate a constraint: through the options in `toml`,
// `is_training` or `kind`, or through the changes that set_layer and set_pass make. `kernel`: the kernel to which the
// violated constraint belongs, or `composed` for a constraint that makes the dispatcher choose the composed path.
struct Case {
  std::string toml = "heads = 2\n";
  std::function<void(LayerView&)> set_layer = {};
  std::function<void(Context&)> set_pass = {};
  std::string reason = {};  // substring of the reason that the constraint gives
  bool is_training = false;
  Kernel kernel = Kernel::composed;
  AttentionKind kind = AttentionKind::decoder_self;
};

// Makes a forward pass a step of incremental decoding: the last query, its key and value, and 19 cached positions.
void make_decoding_step(Context& c) {
  static StageStates states;
  c.stage_states = &states;
  for (at::Tensor* t : {&c.q, &c.k, &c.v}) *t = t->narrow(2, 19, 1);
  c.mask.offset = 19;
}

// Returns a case of a constraint on in-place kernels: a decoding step, changed by set_pass.
Case decoding_case(const std::string& toml, std::function<void(Context&)> set_pass, const std::string& reason) {
  Case c{toml, {}, {}, reason, false, Kernel::fused_in_place};
  c.set_pass = [set_pass = std::move(set_pass)](Context& pass) {
    make_decoding_step(pass);
    if (set_pass) set_pass(pass);
  };
  return c;
}

// Returns a table of GPU kernels that refuse relative positions, logit terms and head mixing, in a build for head sizes
// up to 16. The other members are null.
const kernels::CudaApi& refusing_gpu_kernels() {
  static const kernels::AttentionKernels attention_kernels = [] {
    kernels::AttentionKernels table{};
    table.relative_constraint = [] { return "the emulated GPU adds no positions"; };
    table.logit_term_constraint = [](bool) { return "the emulated GPU adds no logit terms"; };
    table.head_mixing_constraint = [](int, int, bool) { return "the emulated GPU mixes no heads"; };
    return table;
  }();
  static const kernels::CudaApi api = [] {
    kernels::CudaApi table{};
    table.device_problem = []() -> const char* { return nullptr; };
    table.missing_kernels = [](kernels::Dtype, int head_size) {
      return head_size > 16 ? "the emulated build has head sizes up to 16" : nullptr;
    };
    table.attention_kernels = [](kernels::Dtype, int) { return &attention_kernels; };
    return table;
  }();
  return api;
}

std::map<std::string, Case> cases() {
  static layers::RecordingObserver recorder;
  static struct : Interceptor {
    const char* why_composed() const override { return "the test replaces scores"; }
  } interceptor;
  // An observer for which a forward pass may take the fused path.
  static struct : Observer {
    const char* why_composed() const override { return nullptr; }
  } output_observer;
  static StageStates states;
  Case in_encoder = decoding_case("heads = 2\n", {}, "attention of the kind encoder.self"),
       in_training = decoding_case("heads = 2\n", {}, "training, or gradients are enabled");
  in_encoder.kind = AttentionKind::encoder_self;
  in_training.is_training = true;
  const std::string released_lines = "mixer = 'mixhead-a'\n[attention.mixhead-a]\nscope = 'released'\n";
  const auto decode = [](Context& c) { c.stage_states = &states; };
  const auto without_keys = [](Context& c) { c.k = c.v = at::zeros({2, 2, 0, 16}); };
  const auto in_double = [](Context& c) {
    for (at::Tensor* t : {&c.q, &c.k, &c.v}) *t = t->to(at::kDouble);
  };
  const auto on_gpu = [](LayerView& l) { l.is_on_gpu = true; };
  const auto one_query = [](Context& c) { c.q = c.q.narrow(0, 0, 1).narrow(2, 0, 1); };
  return {
      // Every registered pairing, position bias, normaliser and combiner has a fused form; for 'test-composed',
      // BuiltCase substitutes a stage without a fused form.
      {"pairing",
       {"heads = 2\npairing = 'test-composed'\n", {}, {}, "pairing 'test-composed': the stage has no fused form"}},
      {"score",
       {"heads = 2\nscore = 'synthesizer-random'\n",
        {},
        {},
        "score 'synthesizer-random': the logits are not products"}},
      {"position-bias",
       {"heads = 2\nposition_bias = 'test-composed'\n",
        {},
        {},
        "position bias 'test-composed': the stage has no fused form"}},
      {"normaliser",
       {"heads = 2\nnormaliser = 'test-composed'\n",
        {},
        {},
        "normaliser 'test-composed': the stage has no fused form"}},
      {"mixer", {"heads = 2\nmixer = 'talking-heads'\n", {}, {}, "mixer 'talking-heads': the mixer mixes logits"}},
      {"combiner",
       {"heads = 2\ncombiner = 'test-composed'\n", {}, {}, "combiner 'test-composed': the stage has no fused form"}},
      {"value-size", {"heads = 2\nvalue_size = 8\n", {}, {}, "value_size 8 differs from head_size 16"}},
      {"interceptor",
       {"heads = 2\nmixer = 'mixhead-a'\n",
        [](LayerView& l) { l.interceptor = &interceptor; },
        {},
        "the test replaces scores"}},
      {"gpu-type",
       {"heads = 2\nmixer = 'mixhead-a'\n",
        [](LayerView& l) { l.is_on_gpu = true, l.type = at::kDouble; },
        {},
        "head mixing: no kernel for elements of type Double"}},
      {"gpu-kernels",
       {"heads = 1\nmixer = 'mixhead-a'\n", on_gpu, {}, "head mixing: the emulated build has head sizes up to 16"}},
      {"gpu-relative-positions",
       {"heads = 2\nscore = 'relative'\n", on_gpu, {}, "relative positions: the emulated GPU adds no positions"}},
      {"gpu-logit-terms",
       {"heads = 2\nsoft_cap = 5.0\n", on_gpu, {}, "soft cap: the emulated GPU adds no logit terms"}},
      {"gpu-head-mixing",
       {"heads = 2\nmixer = 'mixhead-a'\nscore = 'relative'\n",
        on_gpu,
        {},
        "head mixing, relative positions: the emulated GPU mixes no heads"}},
      {"head-size",
       {"heads = 4\nnormaliser = 'sigsoftmax'\ndropout = 0.1\n",
        {},
        {},
        "Sigsoftmax with head_size 8, which is not a multiple of 16; dropout of the probabilities with head_size 8, "
        "which is not a multiple",
        true}},
      {"observer",
       {"heads = 2\n", {}, [](Context& c) { c.observer = &recorder; }, "an observer reads the probabilities"}},
      {"tensors", {"heads = 2\n", {}, without_keys, "queries of shape (2, 2, 20, 16) and keys of shape (2, 2, 0, 16)"}},
      {"faster",
       {"heads = 2\nscore = 'relative'\n", {}, one_query, "relative positions with fewer queries in a batch than"}},
      {"sdpa-features",
       {"heads = 2\nnormaliser = 'sigsoftmax'\n", {}, {}, "SDPA has no Sigsoftmax", false, Kernel::sdpa}},
      {"mask",
       {"heads = 2\nmixer = 'mixhead-a'\n",
        {},
        [](Context& c) {
          c.mask.additive = at::zeros({20, 20});
        },
        "head mixing with a mask that the fused kernels do not support, such as an additive mask"}},
      {"gpu-window",
       {"heads = 2\n", on_gpu, [](Context& c) { c.mask.causal = false, c.mask.window = 5; },
        "a two-sided window: the emulated GPU adds no logit terms", false, Kernel::fused_gpu}},
      {"value-size-without-mixing",
       {"heads = 2\nvalue_size = 8\n" + released_lines,
        {},
        decode,
        "value_size 8 differs from head_size 16 in a forward pass where mixer 'mixhead-a' mixes no heads"}},
      {"head-size-without-mixing",
       {"heads = 4\n" + released_lines,
        {},
        decode,
        "head mixing with head_size 8, which is not a multiple of 16, in a forward pass where mixer 'mixhead-a' mixes "
        "no heads"}},
      {"types",
       {"heads = 2\nnormaliser = 'sigsoftmax'\n",
        {},
        in_double,
        "no kernel for queries, keys and values of the types Double, Double, Double"}},
      {"sdpa-slower",
       {"heads = 2\n", {}, {}, "SDPA is faster, since it needs no mask tensor", false, Kernel::fused_gpu}},
      {"in-place-cache", decoding_case(
                             "heads = 2\n", [](Context& c) { c.stage_states = nullptr; }, "no key/value cache")},
      {"in-place-kind", in_encoder},
      {"in-place-queries",
       {"heads = 2\n", {}, decode, "20 queries and 20 new keys, not one of each", false, Kernel::fused_in_place}},
      {"in-place-mask", decoding_case(
                            "heads = 2\n", [](Context& c) { c.mask.causal = false; },
                            "a mask that is not causal, has key lengths, or is additive")},
      {"in-place-inference", in_training},
      {"in-place-observer", decoding_case(
                                "heads = 2\n", [](Context& c) { c.observer = &output_observer; }, "an observer")},
      {"in-place-positions",
       decoding_case(
           "heads = 2\nscore = 'relative'\n",
           [](Context& c) {  // as many queries in the batch as the head size, which meets "faster"
             for (at::Tensor* t : {&c.q, &c.k, &c.v}) *t = t->repeat({8, 1, 1, 1});
           },
           "relative positions")},
      {"in-place-normaliser", decoding_case("heads = 2\nnormaliser = 'sigsoftmax'\n", {}, "normaliser 'sigsoftmax'")},
  };
}

class ComposedPairing : public Pairing {
  void pair(Context&) override {}
};
class ComposedPositionBias : public PositionBiasStage {
  at::Tensor bias(const Context&, const at::Tensor&) override { return {}; }
};
class ComposedNormaliser : public Normaliser {
  at::Tensor normalise(const at::Tensor& logits, const at::Tensor&, const at::Tensor&) override { return logits; }
};
class ComposedCombiner : public Combiner {};

// The layer and the forward pass of a case. Stages named 'test-composed' are ComposedPairing, ComposedPositionBias,
// ComposedNormaliser and ComposedCombiner.
struct BuiltCase {
  nn::ParameterList parameters{at::kCPU};
  AttentionOptions options;
  LayerSpec shape;
  Stages stages;
  nn::ForwardContext forward_context;
  at::Tensor x = layers::normal({2, 20, 32}, 1);

  explicit BuiltCase(const Case& c) : options(layers::options_of(without_test_stages(c.toml), c.kind)) {
    shape = make_layer_spec(options, c.kind, 0, 32, "x");
    stages = make_stages(options, shape);
    const auto replace = [&](const char* key, auto& stage, std::string& name, auto replacement) {
      if (c.toml.find(str(key, " = 'test-composed'")) == std::string::npos) return;
      stage = std::move(replacement);
      name = "test-composed";
    };
    replace("pairing", stages.pairing, options.pairing, std::make_unique<ComposedPairing>());
    replace("position_bias", stages.position_bias, options.position_bias, std::make_unique<ComposedPositionBias>());
    replace("normaliser", stages.normaliser, options.normaliser, std::make_unique<ComposedNormaliser>());
    replace("combiner", stages.combiners.front(), options.combiner.front(), std::make_unique<ComposedCombiner>());
    stages.for_each_stage(
        options, [&](Stage& stage, const char*, const std::string&) { stage.add_parameters(parameters, shape); });
    parameters.initialise(3);
    forward_context.training = c.is_training;
  }

  // Returns `toml` without the lines that name 'test-composed', which is not a registered stage.
  static std::string without_test_stages(const std::string& toml) {
    std::string registered;
    for (size_t begin = 0, end; begin < toml.size(); begin = end + 1) {
      end = toml.find('\n', begin);
      const std::string line = toml.substr(begin, end - begin);
      if (line.find("test-composed") == std::string::npos) registered += line + "\n";
    }
    return registered;
  }

  LayerView layer() const { return {shape, options, stages}; }
  Context pass() const {
    const auto heads = [&](int64_t size, uint64_t seed) { return layers::normal({2, shape.heads, 20, size}, seed); };
    Context c{shape,
              forward_context,
              {},
              x,
              x,
              heads(shape.key_size, 2),
              heads(shape.key_size, 3),
              heads(shape.value_size, 4)};
    c.mask.causal = true;
    c.num_keys = 20;
    return c;
  }
};

// A layer and a forward pass with the changes of a case; a layer on a GPU runs with refusing_gpu_kernels() while this
// object exists.
struct ChangedCase {
  BuiltCase built_case;
  LayerView layer;
  Context pass;
  std::optional<nn::ScopedGpuEmulation> emulation = {};

  explicit ChangedCase(const Case& c) : built_case(c), layer(built_case.layer()), pass(built_case.pass()) {
    if (c.set_layer) c.set_layer(layer);
    if (c.set_pass) c.set_pass(pass);
    if (layer.is_on_gpu) emulation.emplace(refusing_gpu_kernels());
  }
};

// Returns the first constraint of c.kernel that the case does not meet; if c.kernel is the composed path, the
// constraint that made the dispatcher choose the composed path. Returns null if all constraints are met. Sets `reason`,
// unless it is null, to the reason that the constraint gives.
const Constraint* unmet_constraint(const Case& c, std::string* reason = nullptr) {
  const ChangedCase changed_case(c);
  const LayerView& layer = changed_case.layer;
  const Context& pass = changed_case.pass;
  Dispatcher dispatcher(layer);
  const KernelChoice choice = dispatcher.choose_kernel(layer, pass);
  CHECK((choice.kernel == Kernel::composed) == (choice.unmet_constraint != nullptr));
  const ConstraintInput input{layer, dispatcher.features(), Path::automatic, c.is_training, &pass, choice};
  const Constraint* constraint =
      c.kernel == Kernel::composed ? choice.unmet_constraint : first_unmet_constraint(input, c.kernel);
  if (constraint == nullptr || reason == nullptr) return constraint;
  constraint->is_met(input, reason);
  if (choice.kernel != Kernel::composed) return constraint;
  // Whenever Path::automatic falls back, Path::fused chooses a fused kernel or throws.
  dispatcher.set_path(Path::fused, std::make_shared<FallbackLog>());
  if (const KernelChoice fused = dispatcher.choose_kernel(layer, pass); fused.kernel == Kernel::composed)
    CHECK_THROWS_AS(dispatcher.report_fallback(layer, pass, fused), Error);
  return constraint;
}

}  // namespace

TEST_CASE("each constraint of the fused path rejects the case that violates this constraint, and gives the reason") {
  c10::NoGradGuard no_gradient;
  const auto all_cases = cases();
  std::set<std::string> names;
  for (const Constraint& constraint : constraints()) {
    INFO(constraint.name);
    CHECK(names.insert(constraint.name).second);
    const auto own_case = all_cases.find(constraint.name);
    REQUIRE(own_case != all_cases.end());  // a new constraint needs a case here
    std::string reason = "unset";
    CHECK(unmet_constraint(own_case->second, &reason) == &constraint);
    CHECK_FALSE(own_case->second.reason.empty());
    CHECK(reason.find(own_case->second.reason) != std::string::npos);
    // Without the changes of set_layer and set_pass, all constraints of some kernel are met.
    if (constraint.scope == Scope::construction || constraint.scope == Scope::device) continue;
    Case unmodified_case = own_case->second;
    unmodified_case.set_layer = {}, unmodified_case.set_pass = {}, unmodified_case.kernel = Kernel::composed;
    CHECK(unmet_constraint(unmodified_case) == nullptr);
  }
  CHECK(names.size() == all_cases.size());
}

TEST_CASE("constraints on the layer are reported without a forward pass, constraints on the forward pass are not") {
  c10::NoGradGuard no_gradient;
  for (const auto& [name, c] : cases()) {
    INFO(name);
    const ChangedCase changed_case(c);
    const LayerView& layer = changed_case.layer;
    const Dispatcher dispatcher(layer);
    const auto all_constraints = constraints();
    const auto constraint = std::find_if(all_constraints.begin(), all_constraints.end(),
                                         [&](const Constraint& candidate) { return candidate.name == name; });
    REQUIRE(constraint != all_constraints.end());
    const auto reasons = dispatcher.reasons_not_fused(layer, c.is_training);
    CHECK(reasons.empty() == constraint->needs_pass());
    CHECK(dispatcher.takes_fused_path(layer, c.is_training) == reasons.empty());
    const std::string text = dispatcher.describe(layer, c.is_training);
    if (reasons.empty()) CHECK(text == "fused");
    else CHECK(text.find("composed: " + reasons[0]) == 0);
    if (reasons.empty()) CHECK_NOTHROW(dispatcher.require_fused(layer, c.is_training));
    else CHECK_THROWS_AS(dispatcher.require_fused(layer, c.is_training), Error);
  }
}

TEST_CASE("constraints are ordered by scope, since each may rely on constraints of earlier scopes") {
  const auto all_constraints = constraints();
  CHECK(std::is_sorted(all_constraints.begin(), all_constraints.end(),
                       [](const Constraint& a, const Constraint& b) { return a.scope < b.scope; }));
}

TEST_CASE("a decoding step on a CPU chooses the kernel that reads the cache in place") {
  const auto kernel_of = [](const std::string& toml) {
    const Case c = decoding_case(toml, {}, "");
    const BuiltCase built_case(c);
    const LayerView layer = built_case.layer();
    Context pass = built_case.pass();
    c.set_pass(pass);
    return Dispatcher(layer).choose_kernel(layer, pass).kernel;
  };
  CHECK(kernel_of("heads = 2\n") == Kernel::fused_cpu);  // gradients are enabled
  c10::NoGradGuard no_gradient;
  CHECK(kernel_of("heads = 2\n") == Kernel::fused_in_place);
  CHECK(kernel_of("heads = 4\n") == Kernel::sdpa);  // head size 8, not a multiple of 16
  CHECK(kernel_of("heads = 2\nnormaliser = 'sigsoftmax'\n") == Kernel::fused_cpu);
  CHECK(kernel_of("heads = 2\nmixer = 'mixhead-a'\n") == Kernel::head_mixing_in_place);
  CHECK(kernel_of("heads = 4\nnormaliser = 'sigsoftmax'\nmixer = 'mixhead-b'\n") == Kernel::head_mixing_in_place);
  CHECK(kernel_of("heads = 2\nposition_bias = 't5'\nsoft_cap = 5.0\nsink = 'learned'\n") == Kernel::fused_in_place);
  CHECK(kernel_of("heads = 2\nmixer = 'mixhead-a'\nposition_bias = 'alibi'\n") == Kernel::head_mixing_in_place);
}

TEST_CASE(
    "masks with a window take the fused kernels: causal with queries at the last keys, two-sided with queries at "
    "the positions of the keys") {
  c10::NoGradGuard no_gradient;
  const auto kernel_of = [](const std::function<void(Mask&)>& set_mask, bool is_step = false) {
    const BuiltCase built_case(Case{"heads = 2\nsoft_cap = 5.0\n"});
    const LayerView layer = built_case.layer();
    Context pass = built_case.pass();
    if (is_step) make_decoding_step(pass);
    pass.mask.window = 5;
    set_mask(pass.mask);
    return Dispatcher(layer).choose_kernel(layer, pass).kernel;
  };
  CHECK(kernel_of([](Mask&) {}) == Kernel::fused_cpu);
  CHECK(kernel_of([](Mask&) {}, true) == Kernel::fused_in_place);
  CHECK(kernel_of([](Mask& m) { m.causal = false; }) == Kernel::fused_cpu);
  CHECK(kernel_of([](Mask& m) {
          m.causal = false, m.key_lengths = at::tensor({20, 12}, at::kLong);
        }) == Kernel::fused_cpu);
  CHECK(kernel_of([](Mask& m) { m.causal = false, m.offset = 1; }) == Kernel::composed);
  CHECK(kernel_of([](Mask& m) { m.key_lengths = at::tensor({20, 12}, at::kLong); }) == Kernel::composed);
}

TEST_CASE("Path::composed chooses the composed path without an unmet constraint") {
  c10::NoGradGuard no_gradient;
  const BuiltCase built_case(Case{});
  const LayerView layer = built_case.layer();
  const Context pass = built_case.pass();
  Dispatcher dispatcher(layer);
  CHECK(dispatcher.choose_kernel(layer, pass).kernel == Kernel::fused_cpu);
  dispatcher.set_path(Path::composed, std::make_shared<FallbackLog>());
  const KernelChoice choice = dispatcher.choose_kernel(layer, pass);
  CHECK(choice.kernel == Kernel::composed);
  CHECK(choice.unmet_constraint == nullptr);
  CHECK_NOTHROW(dispatcher.report_fallback(layer, pass, choice));
}
