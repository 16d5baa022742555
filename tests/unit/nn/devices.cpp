// Every tensor of a forward and backward pass is on the device of the parameters. This is checked without a GPU: the
// parameters are on LibTorch's device "meta", which stores sizes without data and throws for operands on the CPU
// other than scalars, and for reads of data. Code that reads data on the host cannot be checked this way: bands of the
// vocabulary, and the loss.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <catch2/catch.hpp>
#include <functional>

#include "analysis/observers.h"
#include "attention/layer.h"
#include "attention/mask.h"
#include "attention/methods/mae/sample_experts.h"
#include "fixtures/aten.h"
#include "fixtures/every_model.h"
#include "fixtures/status.h"
#include "fixtures/translators.h"
#include "model/memories.h"
#include "nn/device.h"
#include "train/regulariser.h"

using namespace mh;
using namespace mh::model;
using namespace mh::nn;

namespace {

// Implements an operation that has no meta kernel in C++: runs the operation on zeros on the CPU and returns its
// results on "meta".
void run_with_zeros(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  INFO(op.schema().name());
  const auto convert = [](const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& conversion) {
    return value.isTensor() && value.toTensor().defined() ? c10::IValue(conversion(value.toTensor())) : value;
  };
  std::vector<c10::IValue> written_arguments;
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  const std::vector<c10::IValue> inputs = torch::jit::pop(*stack, arguments.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (const auto* alias = arguments[i].alias_info(); alias != nullptr && alias->isWrite())
      written_arguments.push_back(inputs[i]);
    stack->push_back(convert(inputs[i], [](const at::Tensor& x) {
      REQUIRE((x.is_meta() || x.dim() == 0));
      return at::zeros(x.sizes(), x.options().device(at::kCPU));
    }));
  }
  op.callBoxed(stack);
  const std::vector<c10::IValue> outputs = torch::jit::pop(*stack, op.schema().returns().size());
  for (size_t i = 0; i < outputs.size(); ++i)
    stack->push_back(i < written_arguments.size() ? written_arguments[i] : convert(outputs[i], [](const at::Tensor& x) {
      return x.to(at::kMeta);
    }));
}

// Registers run_with_zeros() for all ATen operations that have a CPU kernel but neither a meta kernel nor a
// CompositeExplicitAutograd kernel.
void register_meta_kernels() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  static const bool is_registered = [&] {
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op || name.name.rfind("aten::", 0) != 0) continue;
      const auto has_kernel = [&](c10::DispatchKey key) { return op->hasKernelForDispatchKey(key); };
      if (has_kernel(c10::DispatchKey::CPU) && !has_kernel(c10::DispatchKey::Meta) &&
          !has_kernel(c10::DispatchKey::CompositeExplicitAutograd))
        library.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_with_zeros>());
    }
    return true;
  }();
  static_cast<void>(is_registered);
}

// Returns `toml`, with mae.dropout = 0 if its combiner is 'mae', since the dropout kernels of this project do not
// support "meta".
std::string without_dropout(std::string toml) {
  const std::string mae = "combiner = 'mae'\n";
  if (const size_t at = toml.find(mae); at != toml.npos) toml.insert(at + mae.size(), "mae.dropout = 0\n");
  return toml;
}

struct Case {
  ModelConfig config;
  std::unique_ptr<LanguageModel> model;
  bool is_encoder_only;

  explicit Case(const std::string& toml)
      : config(models::parse_model_config(without_dropout(toml))), is_encoder_only(toml.find("'bert'") != toml.npos) {
    register_meta_kernels();
    model = build_language_model(config, every_model::kVocabularySizes, at::kMeta);
  }
  at::Tensor hidden(const nn::ForwardContext& forward_context, attention::Observer* observer = nullptr,
                    DecodingState* state = nullptr, int64_t length = 5) const {
    const Input input = every_model::input(*model, is_encoder_only, length);
    if (observer != nullptr) observer->begin_batch(input.lengths);
    const at::Tensor h = model->hidden(input.to(at::kMeta), forward_context, state, observer);
    REQUIRE(h.is_meta());
    REQUIRE(h.sizes() == at::IntArrayRef({2, length, config.model.width}));
    return h;
  }
};

nn::ForwardContext training_context() {
  nn::ForwardContext forward_context;
  forward_context.training = true;
  return forward_context;
}

// An observer that requests the logits of all keys, in addition to the probabilities that every observer receives.
struct ScoreObserver : attention::Observer {
  bool wants_scores() const override { return true; }
};

}  // namespace

TEST_CASE("forward and backward passes create tensors only on the device of the parameters", "[devices]") {
  for (const std::string& toml : every_model::configurations()) {
    INFO(toml);
    const Case c(toml);
    ScoreObserver observer;
    for (const bool samples_experts : {false, true}) {
      nn::ForwardContext forward_context = training_context();
      nn::Requests requests;
      if (samples_experts) requests.add(std::make_shared<attention::SampleExpertsRequest>());
      forward_context.requests = &requests;
      c.hidden(forward_context).sum().backward();
      for (const Parameter& p : c.model->parameters().all())
        if (p.master().grad().defined()) CHECK(p.master().grad().is_meta());
    }
    c.hidden(training_context(), &observer).sum().backward();
    const c10::NoGradGuard no_gradient;
    for (const auto path : {attention::Path::automatic, attention::Path::composed}) {
      c.model->set_path(path);
      const at::Tensor h = c.hidden({});
      CHECK(c.model->logits(h).is_meta());
      CHECK(c.hidden({}, &observer).is_meta());
      if (c.config.model.bert.next_sentence) CHECK(c.model->next_sentence_logits(h).is_meta());
    }
  }
}

TEST_CASE("random permutations of heads leave the number of cached constants unchanged", "[devices][cross-head]") {
  for (const char* options : {"[attention]\n",
                              "backbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = "
                              "6\n[attention]\nscore = 'relative'\n"}) {
    INFO(options);
    const Case c(str("[model]\nlayers = 2\nwidth = 16\nffn_dim = 24\n", options,
                     "heads = 8\npairing = 'cross-head'\ncross-head.rate = 1\n"));
    nn::ForwardContext forward_context = training_context();
    c.hidden(forward_context);  // caches the constants of the model
    const size_t num_constants = nn::num_cached_constants();
    for (forward_context.update = 1; forward_context.update < 10; ++forward_context.update) c.hidden(forward_context);
    CHECK(nn::num_cached_constants() == num_constants);
  }
}

TEST_CASE("memories and decoding states stay on the device of the parameters, also after a reorder", "[devices]") {
  const c10::NoGradGuard no_gradient;
  for (const std::string& toml : every_model::configurations()) {
    INFO(toml);
    const Case c(toml);
    if (c.model->memory_length() > 0) {
      const auto memory = c.model->new_memory(c.model->memory_length());
      for (int64_t length : {5, 5, 3}) c.hidden({}, nullptr, memory.get(), length);
      const auto training_memory = c.model->new_memory(c.model->memory_length());
      const c10::AutoGradMode gradients(true);
      for (int times = 0; times < 2; ++times)
        c.hidden(training_context(), nullptr, training_memory.get()).sum().backward();
    }
    bool can_decode = !c.is_encoder_only;
    for (const attention::AttentionLayer* layer : c.model->attention_layers())
      can_decode = can_decode && (layer->layer_spec().kind == attention::AttentionKind::encoder_self ||
                                  layer->capabilities().supports_incremental_decoding);
    if (!can_decode) continue;
    const auto state = c.model->new_state();
    c.hidden({}, nullptr, state.get(), 1);
    const auto step = [&](int64_t num_rows) {
      const at::Tensor tokens = at::zeros({num_rows, 1}, at::TensorOptions().dtype(at::kLong).device(at::kMeta));
      const at::Tensor h = c.model->hidden(model::Input{tokens}, {}, state.get());
      CHECK(h.sizes() == at::IntArrayRef({num_rows, 1, c.config.model.width}));
      CHECK(c.model->logits(h).is_meta());
    };
    step(2);
    state->reorder(at::tensor(std::vector<int64_t>{0, 0, 0, 1, 1, 1}, at::kLong));
    step(6);
    // reorder_within_sources() must not read the rows on the host.
    state->reorder_within_sources(at::empty({6}, at::TensorOptions().dtype(at::kLong).device(at::kMeta)));
    step(6);
    state->reorder(at::tensor(std::vector<int64_t>{3, 4, 5}, at::kLong));
    step(3);
  }
}

TEST_CASE("regularisers compute their terms on the device of the parameters", "[devices]") {
  for (const auto& name : train::regularisers().names()) {
    if (name.rfind("test-", 0) == 0) continue;  // registered by a test in another file
    INFO(name);
    const std::string stages = name == "hard-concrete-penalty" ? "combiner = 'hard-concrete'\n"
                               : name == "head-balance"        ? "combiner = 'mixture-of-heads'\n"
                                                               : "mixer = 'mixhead-b'\ncombiner = 'alphas'\n";
    const Case c(translators::kTiny + stages);
    const auto term = train::regularisers().make(name, "");
    term->start(c.model->parameters(), c.config.attention);
    c.hidden(training_context(), term->observer());
    const at::Tensor value = term->loss({9, 0, 10});
    REQUIRE(value.defined());
    CHECK(value.is_meta());
    value.backward();
  }
}

TEST_CASE("a missing library or symbol and a failed kernel are errors of the device", "[devices]") {
  CHECK(status_of([] { open_symbol("libmultihead-missing.so", "symbol"); }) == 4);
  CHECK(status_of([] { open_symbol("libc.so.6", "multihead_missing_symbol"); }) == 4);
  CHECK(status_of([] { check_cuda("out of memory"); }) == 4);
  CHECK(status_of([] { check_cuda(nullptr); }) == 0);
}
