#include "train/graphed_pass.h"

#include <c10/core/GradMode.h>

#include "base/error.h"
#include "base/text.h"

namespace mh::train {

namespace {

// Returns the first line of an error message of LibTorch; the other lines are a stack trace.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

GraphedPass::Signature GraphedPass::signature_of(const data::Batch& batch) const {
  Signature all;
  for (const at::Tensor* t : {&batch.input.tokens, &batch.targets})
    all.insert(all.end(), t->sizes().begin(), t->sizes().end());
  // The values of the lengths, not only their number: the CPU may read them during a forward pass.
  for (const at::Tensor* t : {&batch.input.lengths.encoder, &batch.input.lengths.decoder})
    if (t->defined()) all.insert(all.end(), t->const_data_ptr<int64_t>(), t->const_data_ptr<int64_t>() + t->numel());
  for (const nn::Parameter& p : model_.parameters().all()) {
    all.push_back(reinterpret_cast<intptr_t>(p.master().const_data_ptr()));
    all.push_back(reinterpret_cast<intptr_t>(p.value().const_data_ptr()));
    all.push_back(p.master().requires_grad());
  }
  return all;
}

nn::SlicedLoss GraphedPass::operator()(const data::Batch& batch, const nn::ForwardContext& step) {
  if (batch.input.source.defined() || batch.input.segments.defined())
    throw Error(Exit::failed,
                "train.cuda_graph: expected a batch of tokens and targets only; found sources or segments");
  const Signature signature = signature_of(batch);
  repeats_ = signature == last_ ? repeats_ + 1 : 1;
  last_ = signature;
  const bool known = capture_ && capture_->of == signature;
  if (!known && repeats_ <= kWarmUpUpdates)
    return work_(batch.input.to(model_.parameters().device()), batch.model_targets(), step);
  if (!known) capture(signature, batch, step);
  return launch(batch, step);
}

void GraphedPass::capture(const Signature& signature, const data::Batch& batch, const nn::ForwardContext& step) {
  capture_.reset();  // frees the old capture first, since both captures may not fit in GPU memory
  const at::Device device = model_.parameters().device();
  const auto copy = [&](const at::Tensor& t) { return t.to(device, t.scalar_type(), false, true); };
  Capture& r = capture_.emplace(Capture{signature, batch.input, batch.model_targets(), {}, {}, {}, {}, {}});
  r.input.tokens = copy(batch.input.tokens);
  r.targets.on_device = copy(batch.targets);
  r.update = at::empty({1}, at::TensorOptions(device).dtype(at::kInt));
  r.step = step;
  r.step.update_ptr = static_cast<const uint32_t*>(r.update.const_data_ptr());
  r.graph = make_();
  try {
    const std::vector<at::Tensor> losses = r.graph->capture([this, &r] {
      model_.parameters().zero_gradients();
      const nn::SlicedLoss loss = work_(r.input, r.targets, r.step);
      return std::vector<at::Tensor>{loss.smoothed.detach(), loss.nll};
    });
    r.loss.smoothed = losses[0], r.loss.nll = losses[1];
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
      if (leaf.grad().defined() && (r.gradients.empty() || !r.gradients.back().leaf.is_same(leaf)))
        r.gradients.push_back({leaf, leaf.grad()});
}

nn::SlicedLoss GraphedPass::launch(const data::Batch& batch, const nn::ForwardContext& step) {
  const c10::NoGradGuard no_gradient;
  Capture& r = *capture_;
  r.loss.scored = nn::count_scored(batch.targets, model_.vocabulary());
  r.input.tokens.copy_(batch.input.tokens, true);
  r.targets.on_device.copy_(batch.targets, true);
  r.update.fill_(static_cast<int64_t>(step.update));
  r.step.update = step.update;
  r.graph->launch();
  for (Gradient& g : r.gradients) g.leaf.mutable_grad() = g.value;
  return r.loss;
}

}  // namespace mh::train
