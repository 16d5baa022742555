// Sums the gradients of a training pass over the processes of a job while the backward pass still runs.
//
// The fp32 gradients of the masters of all parameters that the pass trains are stored in a few flat buckets, in the
// reverse order of the parameters, since the backward pass completes the gradients roughly in this order. A bucket is
// summed over all processes (distributed::Group::start_sum) once the gradients of its parameters and all earlier
// buckets are complete, so every process sums the same buckets in the same order.
//
// c10d::Reducer, the class of DistributedDataParallel, is not used: it sums the gradients of leaf tensors after each
// backward pass, but here a bf16 copy and its master are two leaves of one gradient, micro-batches accumulate into the
// master, and procedures change which parameters a pass trains.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "distributed/group.h"
#include "nn/parameter.h"

namespace mh::train {

class GradientBuckets {
 public:
  static constexpr int64_t kBucketBytes = 25 << 20;  // as in DistributedDataParallel

  // `parameters` must outlive this object. A bucket has at most `bucket_bytes` bytes, unless a parameter is larger. For
  // a group of one process, no function of this object has an effect.
  GradientBuckets(distributed::Group group, nn::ParameterList& parameters, int64_t bucket_bytes = kBucketBytes);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Starts a pass that trains the parameters whose masters require a gradient: sets the gradients of these masters to
  // zero, in the buckets.
  void begin_pass();
  // Declares that the next backward pass is the last of the training pass. From then on, complete buckets are summed.
  void begin_last_backward() { is_last_backward_ = true; }
  // Sums the remaining buckets and waits for all sums. Afterwards the gradient of each trained master is the sum over
  // all processes, or undefined if no process has a gradient of this parameter. Throws the errors of the group.
  void finish();

  // Returns how many buckets the last pass had, and how many of them it started to sum before finish().
  size_t num_buckets() const { return buckets_.size(); }
  size_t num_started_early() const { return num_started_early_; }

 private:
  class Hook;
  // A parameter that the pass trains.
  struct Slot {
    nn::Parameter* parameter = nullptr;
    size_t bucket = 0;
    at::Tensor gradient;                      // view of the bucket with the shape of the parameter
    bool has_gradient = false;                // any backward pass of the training pass has computed a gradient
    int num_missing_leaves = 0;               // leaf tensors whose gradient of the last backward pass is not complete
    std::vector<at::Tensor> hooked_leaves{};  // leaf tensors with a hook
  };
  struct Bucket {
    std::vector<size_t> slots;  // in the order of their gradients
    at::Tensor values;          // fp32: the gradients, then for each slot 1 if it has a gradient, else 0
    int64_t num_gradient_elements = 0;
    size_t num_missing_slots = 0;  // slots whose gradients are not complete
    distributed::PendingOperation sum;
  };
  // Divides the parameters that require a gradient into buckets.
  void make_buckets();
  // Installs a hook on each leaf tensor of a parameter that has none.
  void install_hooks(size_t slot_index);
  void remove_hooks(Slot& slot);
  // Called when a backward pass has added a gradient to a leaf tensor of a slot.
  void leaf_is_complete(size_t slot_index, bool is_master);
  // Starts the sums of the complete buckets that follow the buckets already started.
  void start_complete_buckets();
  void start(Bucket& bucket);

  const distributed::Group group_;
  nn::ParameterList& parameters_;
  const int64_t bucket_bytes_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  bool is_last_backward_ = false;
  size_t num_started_ = 0, num_started_early_ = 0;
};

}  // namespace mh::train
