// Captures the forward and backward pass of an update in a CUDA graph and replays the graph in the following updates
// (train.cuda_graph), so that kernel launches on the CPU do not limit the speed of small models.
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

class GraphedForwardBackward {
 public:
  // A function that computes the losses of a batch and the gradients of the parameters. Before the call, the input is
  // on the GPU and all gradients are undefined. During the capture, the function must not read GPU tensors on the CPU,
  // and may read the shape, but not the values, of model::Targets::values. The forward context is equal in all replays,
  // except for the update number at nn::ForwardContext::update_ptr.
  using ForwardBackward =
      std::function<nn::SlicedLoss(const model::Input&, const model::Targets&, const nn::ForwardContext&)>;
  using MakeGraph = std::function<std::unique_ptr<nn::DeviceGraph>()>;
  // Number of consecutive updates with equal signatures that run without a graph before the capture. These updates
  // create objects that cannot be created during a capture, such as handles of cuBLAS.
  static constexpr int kWarmUpUpdates = 3;

  // The model must outlive this object. `forward_backward` runs the forward and the backward pass; `make_graph` creates
  // an empty graph.
  GraphedForwardBackward(model::LanguageModel& model, ForwardBackward forward_backward, MakeGraph make_graph)
      : model_(model), forward_backward_(std::move(forward_backward)), make_graph_(std::move(make_graph)) {}

  // Returns the losses of a batch of tokens and targets, valid until the next call, and sets the gradients of the
  // parameters. A batch whose signature differs from the signature of the capture runs without a graph, or replaces the
  // graph once kWarmUpUpdates consecutive updates had this signature. Throws Error(device) if the work cannot be
  // captured, and Error(failed) for a target outside the vocabulary or a batch with sources or segments.
  nn::SlicedLoss operator()(const data::Batch& batch, const nn::ForwardContext& context);
  bool is_captured() const { return capture_.has_value(); }

 private:
  // The values that must be equal for a replay: shapes of the batch, lengths of its rows, and for each parameter its
  // addresses and whether it is trained.
  using Signature = std::vector<int64_t>;
  // A leaf tensor of the autograd graph, and the tensor to which a replay writes its gradient.
  struct Gradient {
    at::Tensor leaf, value;
  };
  // A captured graph. Before each launch, launch() copies the batch to input.tokens and targets.device_values, and the
  // update number to `update`; all three are on the GPU.
  struct Capture {
    Signature signature;
    model::Input input;
    model::Targets targets;
    at::Tensor update;  // (1) int32, update number
    nn::ForwardContext context;
    std::unique_ptr<nn::DeviceGraph> graph;
    nn::SlicedLoss loss;  // loss.nll and loss.smoothed are on the GPU, and each launch overwrites them
    std::vector<Gradient> gradients;
  };
  Signature signature_of(const data::Batch& batch) const;
  void capture(const Signature& signature, const data::Batch& batch, const nn::ForwardContext& context);
  nn::SlicedLoss launch(const data::Batch& batch, const nn::ForwardContext& context);

  model::LanguageModel& model_;
  const ForwardBackward forward_backward_;
  const MakeGraph make_graph_;
  Signature last_signature_;
  int num_repeats_ = 0;  // number of consecutive updates with the signature last_signature_, the current one included
  std::optional<Capture> capture_;
};

}  // namespace mh::train
