// Chooses the path that computes a layer: composed tensor operations, or one of the fused kernels.
//
// As in PyTorch's sdp_utils, one list of constraints decides: a layer, and a forward pass of it, takes the fused path
// if all constraints are met. The log line of a new model (describe), the refusal of a configuration (require_fused)
// and the choice in forward() (choose) all use this list.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/fused/fused_gpu.h"
#include "attention/stages.h"

namespace mh::attention {

// The requested implementation. `automatic` takes the fused path where possible and otherwise falls back to the
// composed path. `fused` turns every fallback into an error, including those that an observer, an interceptor or a mask
// causes.
enum class Path { automatic, composed, fused };
Path path_named(const std::string& name);  // "auto", "composed", "fused"

// The fallback reasons that the layers of a model have logged. Thread-safe, since layers may run in several threads.
class PathLog {
 public:
  // Records the reason and returns whether no layer of this kind has logged it before.
  bool first(AttentionKind kind, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    return logged_.emplace(kind, reason).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<AttentionKind, std::string>> logged_;
};

// The properties of a mask that decide which kernel can apply it. Our kernels implement causality (also with memory or
// cached keys before the queries), windows and key lengths; any other mask needs a tensor. In incremental decoding a
// single query sees all cached keys, so causality hides nothing.
struct MaskForm {
  bool square = false;            // causal, as many keys as queries, and nothing else is hidden
  bool queries_are_last = false;  // causal, the queries are the last of the keys, and there are no key lengths
  bool masks_no_key = false;      // causality hides no key from any query
  bool is_plain = false;          // neither a window nor an additive mask
  bool has_policy = false;        // our kernels can apply it without a mask tensor

  MaskForm() = default;
  MaskForm(const Mask& mask, int64_t queries, int64_t keys);
};

// Features of a layer that our kernels implement and LibTorch's scaled_dot_product_attention (SDPA) lacks.
struct KernelFeatures {
  bool mixing = false;               // head mixing
  bool positions = false;            // relative positions of the score
  const char* normaliser = nullptr;  // Normaliser::kernel_feature(); null if SDPA computes the normaliser, too
  bool dropout = false;              // dropout of probabilities, in training

  KernelFeatures() = default;
  KernelFeatures(const AttentionOptions& options, const Stages& stages);
  bool any(bool training) const { return mixing || positions || normaliser != nullptr || (dropout && training); }
  std::vector<std::string> names(bool training) const;
};

// The implementations of a forward pass. mixed_*: our kernels with head mixing; fused_*: our kernels without; library:
// SDPA.
enum class Kernel { composed, head_mixing_cpu, head_mixing_gpu, fused_cpu, fused_gpu, library };

struct Constraint;

// The dispatcher's decision for one forward pass.
struct Choice {
  Kernel kernel = Kernel::composed;
  const Constraint* refusal = nullptr;  // first constraint that is not met; null if all are met, or with Path::composed
  MaskForm mask = {};
  at::Tensor matrix = {};  // Mixer::matrix() of this pass; undefined: no mixing
  GpuKernels gpu = {};
};

// The properties of a layer that the dispatcher reads.
struct LayerView {
  const LayerSpec& layer_spec;
  const AttentionOptions& options;
  const Stages& stages;
  at::ScalarType type = at::kFloat;  // type of the layer's matrix products
  bool on_gpu = false;
  const Interceptor* interceptor = nullptr;  // the layer's own; may be null
};

// The argument of a constraint: a layer and, if there is one, a forward pass of it.
struct Candidate {
  const LayerView& layer;
  const KernelFeatures& features;
  Path path = Path::automatic;
  bool training = false;
  const Context* pass = nullptr;  // null: only the layer is checked
  Choice choice = {};             // decision so far; Scope::pass reads mask, Scope::kernel also matrix and kernel
};

// The inputs that a constraint reads, in the order in which the scopes are checked.
enum class Scope {
  built,   // stages and options, which the constructor fixes: checked once
  layer,   // the layer's interceptor, which callers may set at any time
  device,  // type and device of the parameters, and whether the layer is in training
  pass,    // observer, tensors and mask of a forward pass
  kernel,  // mixing matrix of a pass and the kernel selected for its tensors
};

// A condition for the fused path.
struct Constraint {
  const char* name;  // "head-size"
  Scope scope;
  // Returns whether the constraint is met. If it is not and `why` is not null, sets `why` to the reason. An empty
  // reason means that the fallback costs nothing; it is neither logged nor an error.
  bool (*met)(const Candidate& candidate, std::string* why);
  bool needs_pass() const { return scope >= Scope::pass; }
};

// Returns all constraints, in the order of their scopes.
std::span<const Constraint> constraints();

// Dispatches the forward passes of one layer. A pass builds no string, takes no lock and does no look-up, except when
// the layer logs a reason for the first time.
class Dispatcher {
 public:
  Dispatcher() = default;  // for a layer without heads
  // Checks the constraints of Scope::built.
  explicit Dispatcher(const LayerView& layer);

  // Sets the requested path. Layers that share `log` log each reason once per kind.
  void set_path(Path path, std::shared_ptr<PathLog> log);

  // Returns the reasons why the layer cannot take the fused path; empty if it can. Constraints of Scope::device are
  // checked only if there is no other reason.
  std::vector<std::string> unfused_reasons(const LayerView& layer, bool training) const;
  // Returns whether the layer takes the fused path; a forward pass may still fall back.
  bool takes_fused(const LayerView& layer, bool training) const;
  // Returns "fused", or "composed: " and the reasons.
  std::string describe(const LayerView& layer, bool training) const;
  // Throws Error(usage) with the reasons if the layer cannot take the fused path.
  void require_fused(const LayerView& layer, bool training) const;
  // Selects the kernel of a forward pass.
  Choice choose(const LayerView& layer, const Context& pass) const;
  // Reports a fallback to the composed path: throws Error(usage) under Path::fused, otherwise logs the reason if it
  // comes from the pass. Reasons of the layer itself are part of describe(), which the builder of a model logs.
  void report_composed(const LayerView& layer, const Context& pass, const Choice& choice) const;

  const KernelFeatures& features() const { return features_; }

 private:
  KernelFeatures features_;
  std::vector<std::string> built_reasons_;
  const Constraint* built_refusal_ = nullptr;  // first unmet constraint of Scope::built
  Path path_ = Path::automatic;
  std::shared_ptr<PathLog> path_log_ = std::make_shared<PathLog>();
  // Two bits per constraint, for evaluation and for training: whether this layer has logged it.
  std::unique_ptr<std::atomic<uint64_t>> logged_ = std::make_unique<std::atomic<uint64_t>>(0);
};

}  // namespace mh::attention
