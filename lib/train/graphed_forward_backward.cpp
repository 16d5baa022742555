#include "train/graphed_forward_backward.h"

#include <c10/core/GradMode.h>

#include "base/error.h"
#include "base/text.h"

namespace mh::train {

namespace {

// Returns the first line of an error message of LibTorch; the other lines are a stack trace.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

GraphedForwardBackward::Signature GraphedForwardBackward::signature_of(const data::Batch& batch) const {
  Signature signature;
  for (const at::Tensor* t : {&batch.input.tokens, &batch.targets})
    signature.insert(signature.end(), t->sizes().begin(), t->sizes().end());
  // The signature contains the values of the lengths, since the CPU may read the lengths during a forward pass.
  for (const at::Tensor* t : {&batch.input.lengths.encoder, &batch.input.lengths.decoder})
    if (t->defined())
      signature.insert(signature.end(), t->const_data_ptr<int64_t>(), t->const_data_ptr<int64_t>() + t->numel());
  for (const nn::Parameter& p : model_.parameters().all()) {
    signature.push_back(reinterpret_cast<intptr_t>(p.master().const_data_ptr()));
    signature.push_back(reinterpret_cast<intptr_t>(p.value().const_data_ptr()));
    signature.push_back(p.master().requires_grad());
  }
  return signature;
}

nn::SlicedLoss GraphedForwardBackward::operator()(const data::Batch& batch, const nn::ForwardContext& context) {
  if (batch.input.source.defined() || batch.input.segments.defined())
    throw Error(Exit::failed,
                Problem{"train.cuda_graph", "a batch of tokens and targets only",
                        batch.input.source.defined() ? "source tokens" : "segments", "set train.cuda_graph=false"});
  const Signature signature = signature_of(batch);
  num_repeats_ = signature == last_signature_ ? num_repeats_ + 1 : 1;
  last_signature_ = signature;
  const bool matches_capture = capture_ && capture_->signature == signature;
  if (!matches_capture && num_repeats_ <= kWarmUpUpdates)
    return forward_backward_(batch.input.to(model_.parameters().device()), batch.model_targets(), context);
  if (!matches_capture) capture(signature, batch, context);
  return launch(batch, context);
}

void GraphedForwardBackward::capture(const Signature& signature, const data::Batch& batch,
                                     const nn::ForwardContext& context) {
  capture_.reset();  // frees the old capture first, since GPU memory may be too small for both
  const at::Device device = model_.parameters().device();
  const auto copy = [&](const at::Tensor& t) { return t.to(device, t.scalar_type(), false, true); };
  Capture& graph_capture = capture_.emplace(Capture{signature, batch.input, batch.model_targets(), {}, {}, {}, {}, {}});
  graph_capture.input.tokens = copy(batch.input.tokens);
  graph_capture.targets.device_values = copy(batch.targets);
  graph_capture.update = at::empty({1}, at::TensorOptions(device).dtype(at::kInt));
  graph_capture.context = context;
  graph_capture.context.update_ptr = static_cast<const uint32_t*>(graph_capture.update.const_data_ptr());
  graph_capture.graph = make_graph_();
  try {
    const std::vector<at::Tensor> losses = graph_capture.graph->capture([this, &graph_capture] {
      model_.parameters().zero_gradients();
      const nn::SlicedLoss loss = forward_backward_(graph_capture.input, graph_capture.targets, graph_capture.context);
      return std::vector<at::Tensor>{loss.smoothed.detach(), loss.nll};
    });
    graph_capture.loss.smoothed = losses[0], graph_capture.loss.nll = losses[1];
  } catch (const Error&) {
    capture_.reset();
    throw;
  } catch (const std::exception& error) {
    capture_.reset();
    throw Error(Exit::device, Problem{"train.cuda_graph",
                                      "kernels that a CUDA graph can capture, without synchronisation with the CPU",
                                      first_line(error.what()), "set train.cuda_graph=false"});
  }
  for (nn::Parameter& p : model_.parameters().all())
    for (const at::Tensor& leaf : {p.master(), p.value()})
      if (leaf.grad().defined() &&
          (graph_capture.gradients.empty() || !graph_capture.gradients.back().leaf.is_same(leaf)))
        graph_capture.gradients.push_back({leaf, leaf.grad()});
}

nn::SlicedLoss GraphedForwardBackward::launch(const data::Batch& batch, const nn::ForwardContext& context) {
  const c10::NoGradGuard no_gradient;
  Capture& graph_capture = *capture_;
  graph_capture.loss.num_scored = nn::count_scored(batch.targets, model_.vocabulary_size());
  graph_capture.input.tokens.copy_(batch.input.tokens, true);
  graph_capture.targets.device_values.copy_(batch.targets, true);
  graph_capture.update.fill_(static_cast<int64_t>(context.update));
  graph_capture.context.update = context.update;
  graph_capture.graph->launch();
  for (Gradient& g : graph_capture.gradients) g.leaf.mutable_grad() = g.value;
  return graph_capture.loss;
}

}  // namespace mh::train
