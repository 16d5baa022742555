// The forward and backward pass of an update, recorded once and launched as one graph in the updates that repeat it
// (train.cuda_graph): small models then run as fast as the GPU, not as fast as the host can launch their kernels.
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
  // Makes the losses of rows whose input is on the device, and the gradients of the parameters, of which there are none
  // before. Of the step only what nn::ForwardContext::update_at says may differ between updates, and the host may look
  // at no tensor of the device, nor at the values of targets but to count them.
  using Work = std::function<nn::SlicedLoss(const model::Input&, const model::Targets&, const nn::ForwardContext&)>;
  using MakeGraph = std::function<std::unique_ptr<nn::DeviceGraph>()>;
  // Updates that repeat one another before one is recorded: what is made once, such as the handles of libraries, must
  // be there by then.
  static constexpr int kBefore = 3;

  // The model must outlive this.
  GraphedPass(model::LanguageModel& model, Work work, MakeGraph make)
      : model_(model), work_(std::move(work)), make_(std::move(make)) {}

  // The losses of a batch of tokens and targets alone, valid until the next call; the gradients are in the parameters.
  // Batches of other shapes than those recorded are done kernel by kernel. Error(device) where the work cannot be
  // recorded, Error(failed) for a target beyond the vocabulary.
  nn::SlicedLoss operator()(const data::Batch& batch, const nn::ForwardContext& step);
  bool recorded() const { return recording_.has_value(); }

 private:
  // What must be the same for one recording: sizes, and where parameters lie and which of them train.
  using Signature = std::vector<int64_t>;
  struct Gradient {
    at::Tensor leaf, value;
  };
  struct Recording {
    Signature of;
    model::Input input;  // on the device, as targets.there and update: filled anew before each launch
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
  int repeats_ = 0;  // updates in a row like the last
  std::optional<Recording> recording_;
};

}  // namespace mh::train
