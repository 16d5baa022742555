// Sums the gradients of a training pass over the processes of a job while the backward pass still runs.
//
// The fp32 gradients of the masters (fp32 values) of all parameters that the pass trains are stored in a few flat
// buckets, in the reverse order of the parameters, since the backward pass completes the gradients roughly in reverse.
// A bucket is summed over all processes (distributed::Group::start_sum) once its own gradients and the gradients of all
// earlier buckets are complete, so every process sums the same buckets in the same order.
//
// c10d::Reducer, the class of DistributedDataParallel, is not used: the Reducer sums the gradients of leaf tensors
// after each backward pass, but here a bf16 copy and its master are two leaves of one gradient, micro-batches
// accumulate into the master, and procedures change which parameters a pass trains.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "distributed/group.h"
#include "nn/parameter.h"

namespace mh::train {

class GradientBuckets {
 public:
  static constexpr int64_t kBucketBytes = 25 << 20;  // 25 MiB, the default of DistributedDataParallel

  // `parameters` must outlive this object. A bucket receives parameters until it has at least `bucket_bytes` bytes, and
  // the first bucket until it has at least 1 MiB or, if less, `bucket_bytes`. For a group of one process, no function
  // of this object has an effect.
  GradientBuckets(distributed::Group group, nn::ParameterList& parameters, int64_t bucket_bytes = kBucketBytes);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Starts a pass that trains the parameters whose masters require a gradient. The gradients of these masters become
  // views of the buckets, which are filled with zeros.
  void begin_pass();
  // Declares that the next backward pass is the last of the training pass. From then on, complete buckets are summed.
  void begin_last_backward() { is_last_backward_ = true; }
  // Sums the remaining buckets and waits for all sums. Afterwards the gradient of each trained master is the sum over
  // all processes, or undefined if no process has a gradient of this parameter. Throws the errors of the group.
  void finish();

  // Returns the number of buckets of the last pass.
  size_t num_buckets() const { return buckets_.size(); }
  // Returns the number of buckets of the last pass whose sums started before finish().
  size_t num_started_early() const { return num_started_early_; }

 private:
  class Hook;
  // A parameter that the pass trains.
  struct Slot {
    nn::Parameter* parameter = nullptr;
    size_t bucket = 0;
    at::Tensor gradient;                      // view of the bucket with the shape of the parameter
    bool has_gradient = false;                // whether any backward pass of the training pass computed a gradient
    int num_missing_leaves = 0;               // number of leaf tensors whose gradients are not yet complete
    std::vector<at::Tensor> hooked_leaves{};  // leaf tensors with a hook
  };
  struct Bucket {
    std::vector<size_t> slots;  // indices in slots_, in the order of the gradients in `values`
    at::Tensor values;          // fp32: the gradients, then for each slot 1 if it has a gradient, else 0
    int64_t num_gradient_elements = 0;
    size_t num_missing_slots = 0;  // number of slots whose gradients are not yet complete
    distributed::PendingOperation sum;
  };
  // Divides the parameters that require a gradient into buckets.
  void make_buckets();
  // Installs a hook on each leaf tensor of a slot's parameter, unless exactly these tensors already have hooks.
  void install_hooks(size_t slot_index);
  void remove_hooks(Slot& slot);
  // Called when a backward pass has added a gradient to a leaf tensor of a slot.
  void on_gradient_added(size_t slot_index, bool is_master);
  // Starts the sums of the next buckets, in order, up to the first bucket that is not complete.
  void start_sums_of_complete_buckets();
  void start_sum(Bucket& bucket);

  const distributed::Group group_;
  nn::ParameterList& parameters_;
  const int64_t bucket_bytes_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  bool is_last_backward_ = false;
  size_t num_started_ = 0, num_started_early_ = 0;
};

}  // namespace mh::train
