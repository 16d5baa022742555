// Optimisers over fp32 parameters, one pass over memory each (kernels/optimizer_rules.h); on a GPU one for all, which
// makes the bf16 copies too. (The tensor library's own, _fused_adam_, writes scaled gradients back, always corrects its
// moments and knows of no copies; its _foreach_norm adds in fp32.)
//
//   adamw        p -= lr·wd·p, then Adam's step with bias-corrected moments (Kingma & Ba 2015; decoupled decay as
//                fairseq). With decay_norms_and_biases = false, wd is 0 for biases and norms.
//   sgd          buf = m·buf + g + wd·p;  p -= lr·buf
//   nag          p ← p(1 - lr·wd) + m²·c·buf - (1+m)·lr·g;  buf ← m·c·buf - lr·g;  c = lr / lr of the update before
//   (fairseq)
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
  // Parameters, options and groups must outlive the optimiser; state starts at zeros. Parameters that are not trainable
  // have none.
  Optimizer(nn::ParameterList& parameters, const TrainOptions& options, const Groups& groups);

  // Norm of all gradients times `scale` (fp64 sums).
  double gradient_norm(double scale) const;
  // Changes the parameters by their gradients times `scale`; parameters without a gradient stay. Then refreshes bf16
  // copies. `lr` is the schedule's; groups make theirs of it. Adam's bias correction counts the steps that a parameter
  // has taken, so that one thawed late starts as it would at the start.
  void step(double lr, double scale);

  // Back to the state of the start.
  void reset();
  // State tensors by name ("optimizer.<parameter>.first"), for checkpoints; the same objects that step() changes.
  std::vector<std::pair<std::string, at::Tensor>> state();
  // Steps taken, by parameter; part of the state.
  std::map<std::string, int64_t> steps() const;
  void set_steps(const std::map<std::string, int64_t>& steps);
  // The schedule's lr of the step before, which step() leaves here; part of the state (nag). Who takes several steps in
  // one update puts it back between them.
  double last_lr = 0;

 private:
  struct Slot {
    nn::Parameter* parameter;
    // The options of [train.optimizer], with those of the parameter's group in their place.
    std::string rule;
    double momentum = 0, weight_decay = 0;
    bool decay_norms_and_biases = true;
    double lr = 0, lr_factor = 1;  // lr: constant; 0: lr_factor times the schedule's
    at::Tensor first, second{};
    int64_t steps = 0;
    bool is_adam() const { return rule == "adamw"; }
  };
  struct Together;
  void step(Slot& slot, double schedule_lr, double scale, Together* together);
  // Changes the parameter, or leaves it to the others `together`, which may be null.
  template <class Plan>
  void apply(Slot& slot, const Plan& plan, Together* together);
  const TrainOptions& options_;
  at::Device device_;
  std::vector<Slot> slots_;
};

}  // namespace mh::train
