// What a model makes on its way lives where its parameters live. Told without a GPU: parameters are on the tensor
// library's device "meta", which knows sizes alone and refuses a tensor of the CPU beside its own, and any look at
// numbers. What has to be read on the way is not told of so: bands of the vocabulary, and the loss.
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
#include "fixtures/translators.h"
#include "model/memories.h"
#include "train/regulariser.h"

using namespace mh;
using namespace mh::model;
using namespace mh::nn;

namespace {

// An operation whose sizes the tensor library knows only in Python: done with zeros on the CPU.
void by_zeros(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  INFO(op.schema().name());
  const auto changed = [](const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& change) {
    return value.isTensor() && value.toTensor().defined() ? c10::IValue(change(value.toTensor())) : value;
  };
  std::vector<c10::IValue> written;
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  const std::vector<c10::IValue> given = torch::jit::pop(*stack, arguments.size());
  for (size_t i = 0; i < given.size(); ++i) {
    if (const auto* alias = arguments[i].alias_info(); alias != nullptr && alias->isWrite())
      written.push_back(given[i]);
    stack->push_back(changed(given[i], [](const at::Tensor& x) {
      REQUIRE((x.is_meta() || x.dim() == 0));
      return at::zeros(x.sizes(), x.options().device(at::kCPU));
    }));
  }
  op.callBoxed(stack);
  const std::vector<c10::IValue> found = torch::jit::pop(*stack, op.schema().returns().size());
  for (size_t i = 0; i < found.size(); ++i)
    stack->push_back(i < written.size() ? written[i]
                                        : changed(found[i], [](const at::Tensor& x) { return x.to(at::kMeta); }));
}

// All of those.
void know_sizes() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  static const bool once = [&] {
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op || name.name.rfind("aten::", 0) != 0) continue;
      const auto has = [&](c10::DispatchKey key) { return op->hasKernelForDispatchKey(key); };
      if (has(c10::DispatchKey::CPU) && !has(c10::DispatchKey::Meta) &&
          !has(c10::DispatchKey::CompositeExplicitAutograd))
        library.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&by_zeros>());
    }
    return true;
  }();
  static_cast<void>(once);
}

// Dropout is by kernels of the library's own, which the device has not.
std::string without_dropout(std::string toml) {
  const std::string mae = "combiner = 'mae'\n";
  if (const size_t at = toml.find(mae); at != toml.npos) toml.insert(at + mae.size(), "mae.dropout = 0\n");
  return toml;
}

struct Case {
  ModelConfig config;
  std::unique_ptr<LanguageModel> model;
  bool encodes;  // only

  explicit Case(const std::string& toml)
      : config(models::configured(without_dropout(toml))), encodes(toml.find("'bert'") != toml.npos) {
    know_sizes();
    model = build_language_model(config, every_model::kVocabularies, at::kMeta);
  }
  at::Tensor hidden(const nn::ForwardContext& step, attention::Observer* observer = nullptr,
                    DecodingState* state = nullptr, int64_t length = 5) const {
    const Input made = every_model::input(*model, encodes, length);
    if (observer != nullptr) observer->begin(made.lengths);
    const at::Tensor h = model->hidden(made.to(at::kMeta), step, state, observer);
    REQUIRE(h.is_meta());
    REQUIRE(h.sizes() == at::IntArrayRef({2, length, config.model.width}));
    return h;
  }
};

nn::ForwardContext training() {
  nn::ForwardContext step;
  step.training = true;
  return step;
}

// Looks at everything, and asks for all there is.
struct Looks : attention::Observer {
  bool wants_scores() const override { return true; }
};

}  // namespace

TEST_CASE("passes and their gradients stay on the device of the parameters", "[devices]") {
  for (const std::string& toml : every_model::configurations()) {
    INFO(toml);
    const Case c(toml);
    Looks looks;
    for (const bool experts : {false, true}) {
      nn::ForwardContext step = training();
      nn::Requests requests;
      if (experts) requests.add(std::make_shared<attention::SampleExperts>());
      step.requests = &requests;
      c.hidden(step).sum().backward();
      for (const Parameter& p : c.model->parameters().all())
        if (p.master().grad().defined()) CHECK(p.master().grad().is_meta());
    }
    c.hidden(training(), &looks).sum().backward();
    const c10::NoGradGuard no_gradient;
    for (const auto path : {attention::Path::automatic, attention::Path::composed}) {
      c.model->set_path(path);
      const at::Tensor h = c.hidden({});
      CHECK(c.model->logits(h).is_meta());
      CHECK(c.hidden({}, &looks).is_meta());
      if (c.config.model.bert.next_sentence) CHECK(c.model->sentence_logits(h).is_meta());
    }
  }
}

TEST_CASE("memories and steps of decoding stay there, in rows that move", "[devices]") {
  const c10::NoGradGuard no_gradient;
  for (const std::string& toml : every_model::configurations()) {
    INFO(toml);
    const Case c(toml);
    if (c.model->memory() > 0) {
      const auto memory = c.model->new_memory(c.model->memory());
      for (int64_t length : {5, 5, 3}) c.hidden({}, nullptr, memory.get(), length);
      const auto in_training = c.model->new_memory(c.model->memory());
      const c10::AutoGradMode gradients(true);
      for (int times = 0; times < 2; ++times) c.hidden(training(), nullptr, in_training.get()).sum().backward();
    }
    bool decodes = !c.encodes;
    for (const attention::AttentionLayer* layer : c.model->attention_layers())
      decodes = decodes && (layer->layer_spec().kind == attention::AttentionKind::encoder_self ||
                            layer->capabilities().incremental);
    if (!decodes) continue;
    const auto state = c.model->new_state();
    c.hidden({}, nullptr, state.get(), 1);
    const auto step = [&](int64_t rows) {
      const at::Tensor tokens = at::zeros({rows, 1}, at::TensorOptions().dtype(at::kLong).device(at::kMeta));
      const at::Tensor h = c.model->hidden(tokens, {}, state.get());
      CHECK(h.sizes() == at::IntArrayRef({rows, 1, c.config.model.width}));
      CHECK(c.model->logits(h).is_meta());
    };
    step(2);
    state->reorder(at::tensor(std::vector<int64_t>{0, 0, 0, 1, 1, 1}, at::kLong));
    step(6);
    // The host does not see which rows these are.
    state->reorder_within(at::empty({6}, at::TensorOptions().dtype(at::kLong).device(at::kMeta)));
    step(6);
    state->reorder(at::tensor(std::vector<int64_t>{3, 4, 5}, at::kLong));
    step(3);
  }
}

TEST_CASE("terms of the loss are made there", "[devices]") {
  for (const auto& name : train::regularisers().names()) {
    if (name.rfind("test-", 0) == 0) continue;  // another test's
    INFO(name);
    const std::string stages = name == "hard-concrete-penalty" ? "combiner = 'hard-concrete'\n"
                               : name == "head-balance"        ? "combiner = 'mixture-of-heads'\n"
                                                               : "mixer = 'mixhead-b'\ncombiner = 'alphas'\n";
    const Case c(translators::kTiny + stages);
    const auto term = train::regularisers().make(name, "");
    term->start(c.model->parameters(), c.config.attention);
    c.hidden(training(), term->observer());
    const at::Tensor value = term->loss({9, 0, 10});
    REQUIRE(value.defined());
    CHECK(value.is_meta());
    value.backward();
  }
}
