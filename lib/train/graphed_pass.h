// The forward and backward pass of an update, captured in a CUDA graph and replayed in the following updates
// (train.cuda_graph): small models then run at the speed of the GPU instead of the speed of kernel launches on the
// host.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "data/batch.h"
#include "model/language_model.h"
#include "nn/device_graph.h"
#include "nn/forward_context.h"

namespace mh::train {

class GraphedPass {
 public:
  // Computes the losses of rows whose input is on the device, and the gradients of the parameters, which have none
  // before. Between updates only nn::ForwardContext::update_at may differ in the context. The host must read no tensor
  // of the device, and of the targets only their number.
  using Work = std::function<nn::SlicedLoss(const model::Input&, const model::Targets&, const nn::ForwardContext&)>;
  using MakeGraph = std::function<std::unique_ptr<nn::DeviceGraph>()>;
  // Updates of the same signature before the capture: objects that are created once, such as library handles, must
  // exist by then.
  static constexpr int kBefore = 3;

  // The model must outlive this.
  GraphedPass(model::LanguageModel& model, Work work, MakeGraph make)
      : model_(model), work_(std::move(work)), make_(std::move(make)) {}

  // Returns the losses of a batch of tokens and targets, valid until the next call; the gradients are in the
  // parameters. Batches of other shapes than the captured one run kernel by kernel. Throws Error(device) if the work
  // cannot be captured, Error(failed) for a target beyond the vocabulary.
  nn::SlicedLoss operator()(const data::Batch& batch, const nn::ForwardContext& step);
  bool recorded() const { return recording_.has_value(); }

 private:
  // The properties that must equal those of the capture: sizes, addresses of the parameters, and which of them train.
  using Signature = std::vector<int64_t>;
  struct Gradient {
    at::Tensor leaf, value;
  };
  struct Recording {
    Signature of;
    model::Input input;  // on the device, as targets.on_device and update; written before each launch
    model::Targets targets;
    at::Tensor update;  // (1) int32
    nn::ForwardContext step;
    std::unique_ptr<nn::DeviceGraph> graph;
    nn::SlicedLoss loss;
    std::vector<Gradient> gradients;
  };
  Signature signature_of(const data::Batch& batch) const;
  void record(const Signature& signature, const data::Batch& batch, const nn::ForwardContext& step);
  nn::SlicedLoss launch(const data::Batch& batch, const nn::ForwardContext& step);

  model::LanguageModel& model_;
  const Work work_;
  const MakeGraph make_;
  Signature last_;
  int repeats_ = 0;  // consecutive updates with the signature last_
  std::optional<Recording> recording_;
};

}  // namespace mh::train
