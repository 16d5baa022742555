// Optimisers of fp32 parameters (kernels/optimizer_rules.h). An update reads and writes the memory of each parameter
// once. On a GPU, a few kernel launches per update rule update all parameters and their bf16 copies. LibTorch's
// _fused_adam_ is not used, since it writes scaled gradients back, always corrects the bias of the moments and does not
// support bf16 copies; nor is _foreach_norm, which accumulates in fp32.
//
// Update rules (p: parameter, g: gradient, buf: momentum buffer, m: momentum, lr: learning rate, wd: weight decay):
//
//   adamw        p -= lr·wd·p, then an Adam step, with bias-corrected moments if bias_correction is set (Kingma & Ba
//                2015; decoupled weight decay as in fairseq). With decay_norms_and_biases = false, wd is 0 for biases
//                and layer norms.
//   sgd          buf = m·buf + g + wd·p;  p -= lr·buf
//   nag          p ← p(1 - lr·wd) + m²·c·buf - (1+m)·lr·g;  buf ← m·c·buf - lr·g;  c = lr / lr of the previous update
//                (as in fairseq)
//
// With train.shard = "optimizer", each process of a job holds the moments of an equal part of all elements, updates
// only these elements, and receives the others from the processes that updated them (ZeRO stage 1; optimizer_shards.h).
// Since gradients are the same in all processes and the rules update each element separately, the results have the same
// bits as without train.shard.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "distributed/group.h"
#include "nn/parameter.h"
#include "train/optimizer_shards.h"
#include "train/options.h"
#include "train/parameter_groups.h"
#include "train/shard_exchange.h"

namespace mh::train {

class Optimizer {
 public:
  // `parameters` and `options` must outlive the optimiser. Moments start at zero. Parameters whose
  // ParameterTraits::trainable is false have no optimiser state. The processes, which train on CPUs, take
  // each step together.
  Optimizer(nn::ParameterList& parameters, const TrainOptions& options, const ParameterGroups& groups,
            const distributed::Group& processes = {});

  // Returns whether several processes divide the optimiser state (train.shard).
  bool is_sharded() const { return is_sharded_; }
  // If is_sharded(), divides the fp32 masters of the parameters for which has_divisible_master() is true: of each such
  // master, this process releases all elements except the elements that it updates. Must follow the creation of the
  // bf16 copies.
  void divide_masters();

  // Returns `scale` times the L2 norm of the gradients of all parameters together, accumulated in fp64.
  double gradient_norm(double scale) const;
  // Updates every parameter that has a gradient with `scale` times the gradient, and refreshes its bf16 copy. `lr`:
  // learning rate of the schedule, which parameter groups may scale or replace. Adam's bias correction counts the steps
  // of each parameter separately, so a parameter that is unfrozen late starts like a new one.
  void step(double lr, double scale);

  // Sets all moments, step counts and last_lr to zero.
  void reset();
  // Returns the moments by name ("optimizer.<parameter>.first", ".second"), for checkpoints. The tensors share memory
  // with the optimiser; step() changes them in place. Throws std::logic_error if is_sharded().
  std::vector<std::pair<std::string, at::Tensor>> moments();
  // Returns the elements of the moments that this process holds, with the names and in the order of moments(). All
  // elements belong to this process unless is_sharded().
  std::vector<TensorShard> moment_shards();
  // Returns the elements of the masters that this process holds, for the parameters without a whole master, in their
  // order.
  std::vector<TensorShard> master_shards() const;
  const OptimizerShards& shards() const { return shards_; }
  // Returns the number of steps of each parameter, by parameter name, which a training state contains.
  std::map<std::string, int64_t> steps() const;
  void set_steps(const std::map<std::string, int64_t>& steps);
  // Learning rate of the schedule in the last step, which the rule nag reads; 0 before the first step. A training
  // state contains this learning rate. A caller that takes several steps in one update must set last_lr to the
  // learning rate of the previous update before each of these steps.
  double last_lr = 0;

 private:
  // A parameter with its options and its optimiser state.
  struct Slot {
    nn::Parameter* parameter;
    // Options of the parameter's group, or of [train.optimizer].
    std::string rule;
    double momentum = 0, weight_decay = 0;
    bool decay_norms_and_biases = true;
    double lr = 0, lr_factor = 1;  // lr: constant learning rate; 0: lr_factor times the learning rate of the schedule
    // Elements that this process updates: all elements of the parameter unless is_sharded().
    ElementRange range{};
    // First moment (adamw) or momentum buffer, and second moment (only adamw). Both have the shape of the parameter or,
    // if is_sharded(), the shape (range.size()).
    at::Tensor first_moment{}, second_moment{};
    int64_t steps = 0;  // number of steps with a gradient since the start of training or reset()
    bool is_adam() const { return rule == "adamw"; }
  };
  struct BatchedUpdates;
  void step(Slot& slot, double schedule_lr, double scale, BatchedUpdates* batched_updates);
  // Updates the parameter of a slot if `batched_updates` is null (CPU); otherwise appends the update to
  // `batched_updates` (GPU).
  template <class Params>
  void apply(Slot& slot, const Params& params, BatchedUpdates* batched_updates);
  // Returns a moment of zeros for the elements of slot.range.
  at::Tensor new_moment(const Slot& slot) const;
  // Completes the parameters that have a gradient with the elements that other processes have updated.
  void exchange_updated_elements();
  TensorShard shard_of(size_t slot_index, std::string name, const at::Tensor& elements) const;
  const TrainOptions& options_;
  at::Device device_;
  const bool is_sharded_;
  std::vector<Slot> slots_;
  OptimizerShards shards_;  // by slot
  ShardExchange exchange_;
};

}  // namespace mh::train
