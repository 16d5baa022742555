// Optimisers over fp32 parameters, one pass over memory for each (kernels/optimizer_rules.h). On a GPU one kernel
// updates all parameters and their bf16 copies. (LibTorch's _fused_adam_ writes scaled gradients back, always corrects
// its moments and knows no copies; its _foreach_norm accumulates in fp32.)
//
//   adamw        p -= lr·wd·p, then Adam's step with bias-corrected moments (Kingma & Ba 2015; decoupled decay as
//                fairseq). With decay_norms_and_biases = false, wd is 0 for biases and norms.
//   sgd          buf = m·buf + g + wd·p;  p -= lr·buf
//   nag          p ← p(1 - lr·wd) + m²·c·buf - (1+m)·lr·g;  buf ← m·c·buf - lr·g;  c = lr / lr of the update before
//                (fairseq)
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nn/parameter.h"
#include "train/groups.h"
#include "train/options.h"

namespace mh::train {

class Optimizer {
 public:
  // All arguments must outlive the optimiser. The state starts at zero; parameters that are not trainable have none.
  Optimizer(nn::ParameterList& parameters, const TrainOptions& options, const Groups& groups);

  // Returns the norm of all gradients times `scale`, accumulated in fp64.
  double gradient_norm(double scale) const;
  // Updates the parameters with their gradients times `scale`, then refreshes bf16 copies; parameters without a
  // gradient do not change. `lr`: rate of the schedule, which groups may scale or replace. Adam's bias correction
  // counts the steps of each parameter, so a parameter that is unfrozen late starts like a new one.
  void step(double lr, double scale);

  // Resets the state to its start.
  void reset();
  // Returns the state tensors by name ("optimizer.<parameter>.first"), for checkpoints; step() changes these tensors in
  // place.
  std::vector<std::pair<std::string, at::Tensor>> state();
  // Returns the steps taken, by parameter; part of the state.
  std::map<std::string, int64_t> steps() const;
  void set_steps(const std::map<std::string, int64_t>& steps);
  // Learning rate of the schedule in the last step; set by step(), part of the state (nag). A caller that takes several
  // steps in one update restores it between them.
  double last_lr = 0;

 private:
  struct Slot {
    nn::Parameter* parameter;
    // options of [train.optimizer], or of the parameter's group
    std::string rule;
    double momentum = 0, weight_decay = 0;
    bool decay_norms_and_biases = true;
    double lr = 0, lr_factor = 1;  // lr: constant rate; 0: lr_factor times the rate of the schedule
    at::Tensor first, second{};
    int64_t steps = 0;
    bool is_adam() const { return rule == "adamw"; }
  };
  struct BatchedUpdates;
  void step(Slot& slot, double schedule_lr, double scale, BatchedUpdates* batched);
  // Updates the parameter at once if `batched` is null; otherwise adds it to the update of all parameters.
  template <class Plan>
  void apply(Slot& slot, const Plan& plan, BatchedUpdates* batched);
  const TrainOptions& options_;
  at::Device device_;
  std::vector<Slot> slots_;
};

}  // namespace mh::train
