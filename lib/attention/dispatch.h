// Dispatch of attention layers: the choice between the composed path (tensor operations) and the fused path (one
// of several fused kernels).
//
// As in PyTorch's sdp_utils, a list of constraints decides: a forward pass takes the fused path if it meets all
// constraints on layer and pass, and all constraints of at least one kernel. The description of a layer in the log
// (Dispatcher::describe), the check of --attention fused (require_fused) and the choice in a forward pass
// (choose_kernel) evaluate the same list. A decoding step that does not meet the constraints of the in-place kernels
// takes another fused kernel, which reads gathered keys and values; this choice is not a fallback, so it is neither
// logged nor an error.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <initializer_list>
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

// The path that the user requests. `automatic`: the fused path if all constraints are met, otherwise a fallback to the
// composed path. `fused`: a fallback is an error, also if an observer, an interceptor or a mask causes it.
enum class Path { automatic, composed, fused };
Path parse_attention_path(const std::string& name);  // "composed" or "fused"; any other text gives automatic

// Set of fallback reasons that the layers of a model have logged, so that each reason is logged once for each kind of
// layer. Thread-safe, since layers may run in several threads.
class FallbackLog {
 public:
  // `line_prefix`: beginning of each line in the log, such as the name of the model and a colon.
  explicit FallbackLog(std::string line_prefix = "") : line_prefix_(std::move(line_prefix)) {}
  const std::string& line_prefix() const { return line_prefix_; }
  // Records the reason, and returns whether the reason is new for this kind of layer.
  bool insert(AttentionKind kind, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    return logged_reasons_.emplace(kind, reason).second;
  }

 private:
  std::string line_prefix_;
  std::mutex mutex_;
  std::set<std::pair<AttentionKind, std::string>> logged_reasons_;
};

// The properties of a mask that decide which kernels can apply it. The fused kernels (except SDPA) apply a causal mask
// (also with memory or cached keys before the queries), a window and key lengths without a mask tensor, but not in
// every combination. A window without a causal mask is two-sided. The causal mask of a single query in incremental
// decoding hides no key.
struct MaskForm {
  bool is_square = false;            // causal, equal numbers of queries and keys, no other mask
  bool queries_are_last = false;     // causal, queries at the last key positions, no key lengths
  bool causal_hides_no_key = false;  // no causal mask, or a causal mask that hides no key; other masks may hide keys
  bool has_window = false;           // a window, two-sided without a causal mask
  bool has_additive_mask = false;
  bool is_supported_by_kernels = false;  // the fused kernels can apply the mask

  MaskForm() = default;
  MaskForm(const Mask& mask, int64_t num_queries, int64_t num_keys);
};

// Features of a layer that the fused kernels implement and LibTorch's scaled_dot_product_attention (SDPA) lacks.
struct KernelFeatures {
  bool has_mixing = false;              // the mixer mixes logits or probabilities
  bool has_relative_positions = false;  // the score stage adds relative positions
  bool has_soft_cap = false;
  bool has_position_bias = false;
  bool has_sinks = false;
  const char* normaliser_name = nullptr;  // Normaliser::kernel_feature(); null if SDPA has this normaliser
  // Dropout of probabilities, applied in training only. SDPA cannot drop the elements that nn::dropout() would drop.
  bool has_dropout = false;

  KernelFeatures() = default;
  KernelFeatures(const AttentionOptions& options, const Stages& stages);
  bool has_logit_terms() const { return has_soft_cap || has_position_bias || has_sinks; }
  bool has_any(bool training) const {
    return has_mixing || has_relative_positions || has_logit_terms() || normaliser_name != nullptr ||
           (has_dropout && training);
  }
  // Returns the names of the features in use, for fallback reasons.
  std::vector<std::string> names(bool training) const;
};

// The implementations of a forward pass. composed: tensor operations; head_mixing_*: fused kernels with head mixing;
// fused_*: fused kernels without head mixing; *_in_place: kernels for a step of incremental decoding on a CPU, which
// read the keys and values in the storage of the cache instead of gathering them; sdpa: LibTorch's scaled dot-product
// attention.
enum class Kernel {
  composed,
  head_mixing_in_place,
  head_mixing_cpu,
  head_mixing_gpu,
  fused_in_place,
  fused_cpu,
  fused_gpu,
  sdpa
};

// A set of kernels, for the constants of the constraint list.
class KernelSet {
 public:
  constexpr KernelSet(std::initializer_list<Kernel> kernels) {
    for (const Kernel kernel : kernels) bits_ |= 1U << static_cast<unsigned>(kernel);
  }
  constexpr bool contains(Kernel kernel) const { return (bits_ >> static_cast<unsigned>(kernel) & 1U) != 0; }

 private:
  unsigned bits_ = 0;
};

inline constexpr KernelSet kInPlaceKernels{Kernel::head_mixing_in_place, Kernel::fused_in_place};

struct Constraint;

// The dispatcher's decision for one forward pass.
struct KernelChoice {
  Kernel kernel = Kernel::composed;
  // With Kernel::composed: the first unmet constraint of the layer or the forward pass. If only constraints of
  // Scope::kernel are unmet, each candidate kernel has a first unmet constraint; of these constraints, unmet_constraint
  // is the last in the order of constraints(). Null with any other kernel, and with Path::composed.
  const Constraint* unmet_constraint = nullptr;
  MaskForm mask = {};
  at::Tensor matrix = {};  // mixing matrix from Mixer::matrix(); undefined: no mixing
  GpuKernels gpu = {};

  bool is_in_place() const { return kInPlaceKernels.contains(kernel); }
};

// The properties of a layer that the dispatcher reads.
struct LayerView {
  const LayerSpec& layer_spec;
  const AttentionOptions& options;
  const Stages& stages;
  at::ScalarType type = at::kFloat;  // element type of the layer's matrix products
  bool is_on_gpu = false;
  const Interceptor* interceptor = nullptr;  // set with AttentionLayer::set_interceptor(); may be null
};

// The argument of a constraint: a layer, with or without a forward pass.
struct ConstraintInput {
  const LayerView& layer;
  const KernelFeatures& features;
  Path path = Path::automatic;
  bool training = false;
  const Context* pass = nullptr;  // null: only the layer is checked
  KernelChoice choice = {};       // not yet final; constraints of Scope::kernel read `mask` and `gpu`
};

// The inputs that a constraint reads. Constraints are checked in the order of the scopes.
enum class Scope {
  construction,  // stages and options of the layer, which never change; checked once, in the constructor
  layer,         // interceptor of the layer, which callers may set at any time
  device,        // element type and device of the parameters; training or evaluation; checked up to the first unmet
                 // constraint
  pass,          // observer and tensors of a forward pass
  kernel,        // layer and pass, for one kernel: the kernel supports the pass and is the fastest to do so
};

// A condition for the fused path; with Scope::kernel, a condition for some of its kernels.
struct Constraint {
  const char* name;  // such as "head-size"
  Scope scope;
  // Returns whether the constraint is met. If it is not met and `why` is not null, sets `why` to the reason.
  bool (*is_met)(const ConstraintInput& input, std::string* why);
  KernelSet kernels = {};  // with Scope::kernel: the kernels that must meet the constraint
  bool needs_pass() const { return scope >= Scope::pass; }
};

// Returns all constraints, in the order of their scopes.
std::span<const Constraint> constraints();
// Returns the first constraint of Scope::kernel that a kernel does not meet in a forward pass; null if it meets all.
const Constraint* first_unmet_constraint(const ConstraintInput& input, Kernel kernel);

// Chooses the kernel of each forward pass of one layer. A forward pass locks a mutex only if the layer logs a fallback
// reason for the first time, or has an interceptor that needs the composed path.
class Dispatcher {
 public:
  Dispatcher() = default;  // for a layer without heads
  // Checks the constraints of Scope::construction.
  explicit Dispatcher(const LayerView& layer);

  // Sets the requested path. Layers with the same FallbackLog report each fallback reason once for each kind of layer.
  void set_path(Path path, std::shared_ptr<FallbackLog> fallback_log);

  // Returns the reasons why the layer cannot take the fused path; empty if it can. Constraints of Scope::device are
  // checked only if there is no other reason.
  std::vector<std::string> reasons_not_fused(const LayerView& layer, bool training) const;
  // Returns whether the layer meets all constraints that can be checked without a forward pass; false with
  // Path::composed. A forward pass may still fall back to the composed path.
  bool takes_fused_path(const LayerView& layer, bool training) const;
  // Returns text for logs: "fused"; "composed" with the reasons or with "as requested"; or, for a layer without heads,
  // "no attention" with the reason.
  std::string describe(const LayerView& layer, bool training) const;
  // Throws Error(usage) with the reasons if the layer cannot take the fused path.
  void require_fused(const LayerView& layer, bool training) const;
  // Chooses the kernel of a forward pass, before the pass appends its keys and values to the cache.
  KernelChoice choose_kernel(const LayerView& layer, const Context& pass) const;
  // Reports that a forward pass falls back to the composed path: throws Error(usage) under Path::fused, otherwise logs
  // the reason if it depends on the forward pass or on an interceptor. All other reasons are part of describe(), which
  // is logged when a model is built.
  void report_fallback(const LayerView& layer, const Context& pass, const KernelChoice& choice) const;

  const KernelFeatures& features() const { return features_; }

 private:
  KernelFeatures features_;
  // Reasons of the unmet constraints of Scope::construction; empty if the layer meets all of them.
  std::vector<std::string> fallback_reasons_at_construction_;
  const Constraint* first_unmet_at_construction_ = nullptr;  // null if all constraints of the scope are met
  Path path_ = Path::automatic;
  std::shared_ptr<FallbackLog> fallback_log_ = std::make_shared<FallbackLog>();
  // Set of the constraints whose fallback this layer has logged. Constraint i has two bits: 2 i for evaluation, 2 i + 1
  // for training.
  std::unique_ptr<std::atomic<uint64_t>> logged_fallbacks_ = std::make_unique<std::atomic<uint64_t>>(0);
};

}  // namespace mh::attention
