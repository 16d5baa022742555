// Optimisers over fp32 parameters, one pass over memory each (kernels/optimizer_rules.h).
//
//   adam, adamw  p -= lr·wd·p, then Adam's step with bias-corrected moments (Kingma & Ba 2015; decoupled decay as
//                fairseq). adam decays every parameter as fairseq does, adamw leaves out biases and norms.
//   sgd          buf = m·buf + g + wd·p;  p -= lr·buf
//   nag          p ← p(1 - lr·wd) + m²·c·buf - (1+m)·lr·g;  buf ← m·c·buf - lr·g;  c = lr / lr of the update before
//   (fairseq)
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "model/parameter.h"
#include "train/options.h"

namespace mh::train {

class Optimizer {
 public:
  // The parameters must outlive the optimiser; state starts at zeros.
  Optimizer(model::ParameterList& parameters, const TrainOptions& options);

  // Norm of all gradients times `scale` (fp64 sums).
  double gradient_norm(double scale) const;
  // Changes the parameters by their gradients times `scale`; parameters without a gradient stay. Then refreshes bf16
  // copies. `update` counts from 1.
  void step(int64_t update, double lr, double scale);

  // State tensors by name ("optimizer.<parameter>.first"), for checkpoints; the same objects that step() changes.
  std::vector<std::pair<std::string, at::Tensor>> state();
  // lr of the update before; part of the state (nag).
  double last_lr = 0;

 private:
  struct Slot {
    model::Parameter* parameter;
    at::Tensor first, second;
  };
  const TrainOptions& options_;
  std::vector<Slot> slots_;
};

}  // namespace mh::train
