// The choice of the path that computes a layer: composed tensor operations, or the fused path by one of its kernels.
//
// One list of constraints decides, as PyTorch's sdp_utils does: the fused path takes a layer, and a forward pass of it,
// where every constraint is met. The log line of a new model (describe), the refusal of a configuration (require_fused)
// and the choice of forward() (choose) all come from that list.
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

// Which implementation of the mathematics. `fused` is an error wherever a layer would take the composed path:
// observers, interceptors and masks included. `automatic` takes the fused path where it can.
enum class Path { automatic, composed, fused };
Path path_named(const std::string& name);  // "auto", "composed", "fused"

// Which reasons for the composed path the layers of a model have logged. Layers may run in several threads.
class PathLog {
 public:
  // Whether no layer of the kind has logged this reason before.
  bool first(Kind kind, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    return logged_.emplace(kind, reason).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<Kind, std::string>> logged_;
};

// A mask as kernels read it. Keys before the queries, windows and numbers of real keys are part of a
// kernel's policy; any other mask is a tensor. A query after the keys of a cache may see all of them.
struct MaskForm {
  bool square = false;            // query t sees keys 0 … t of as many keys as queries, and nothing else is hidden
  bool queries_are_last = false;  // causal, the queries are the last of the keys, and all keys are real
  bool hides_nothing = false;     // no query is hidden from a key by causality
  bool is_plain = false;          // neither a window nor an additive mask
  bool has_policy = false;        // a kernel's policy describes it

  MaskForm() = default;
  MaskForm(const Mask& mask, int64_t queries, int64_t keys);
};

// Features of a layer that the project's own kernels have and the tensor library's fused attention lacks.
struct KernelFeatures {
  bool mixing = false;               // of heads
  bool positions = false;            // relative ones, of the score
  const char* normaliser = nullptr;  // Normaliser::kernel_feature()
  bool dropout = false;              // of probabilities, in training

  KernelFeatures() = default;
  KernelFeatures(const AttentionOptions& options, const Stages& stages);
  bool any(bool training) const { return mixing || positions || normaliser != nullptr || (dropout && training); }
  std::vector<std::string> names(bool training) const;
};

// An implementation of a forward pass.
enum class Kernel { composed, mixed_cpu, mixed_gpu, fused_cpu, fused_gpu, library };

struct Constraint;

struct Choice {
  Kernel kernel = Kernel::composed;
  const Constraint* refusal = nullptr;  // the first constraint that is not met; null with Path::composed
  MaskForm mask = {};
  at::Tensor matrix = {};  // the mixer's, where it mixes
  GpuKernels gpu = {};
};

// A layer as the dispatcher sees it.
struct LayerView {
  const Shape& shape;
  const AttentionOptions& options;
  const Stages& stages;
  at::ScalarType type = at::kFloat;  // of the layer's matrix products
  bool on_gpu = false;
  const Interceptor* interceptor = nullptr;  // of the layer; may be null
};

// The subject of constraints: a layer, and a forward pass of it if there is one.
struct Candidate {
  const LayerView& layer;
  const KernelFeatures& features;
  Path path = Path::automatic;
  bool training = false;
  const Context* pass = nullptr;  // null: the layer alone
  Choice choice = {};             // as far as it is made; Scope::kernel reads it
};

// The inputs that a constraint reads, in the order in which scopes are checked.
enum class Scope {
  built,   // stages and options, which the constructor fixes: checked once
  layer,   // what callers set in a layer
  device,  // the type and device of parameters, and whether the layer trains
  pass,    // observer, tensors and mask of a forward pass
  kernel,  // the mixing matrix of a pass and the kernel found for its tensors
};

struct Constraint {
  const char* name;  // "head-size"
  Scope scope;
  // Whether the constraint is met. Where it is not and `why` is not null, sets `why` to the reason; to "" where the
  // composed path is no loss, which is neither logged nor refused.
  bool (*met)(const Candidate& candidate, std::string* why);
  bool needs_pass() const { return scope >= Scope::pass; }
};

// All constraints, in the order of their scopes.
std::span<const Constraint> constraints();

// Chooses for one layer. A forward pass makes no string, takes no lock and looks nothing up, except when a layer logs a
// reason for the first time.
class Dispatcher {
 public:
  Dispatcher() = default;  // of a layer without heads
  // Checks the constraints of Scope::built.
  explicit Dispatcher(const LayerView& layer);

  // Layers that share `log` log each reason once for their kind.
  void set_path(Path path, std::shared_ptr<PathLog> log);

  // Why the fused path cannot take the layer, one reason each; empty where it can. Reasons of Scope::device follow only
  // where there are no others.
  std::vector<std::string> unfused_reasons(const LayerView& layer, bool training) const;
  // Whether the fused path takes the layer, unless a forward pass needs the composed one.
  bool takes_fused(const LayerView& layer, bool training) const;
  // "fused", or "composed: " and the reasons.
  std::string describe(const LayerView& layer, bool training) const;
  // Error(usage) with the reasons where the fused path cannot take the layer.
  void require_fused(const LayerView& layer, bool training) const;
  Choice choose(const LayerView& layer, const Context& pass) const;
  // Reports a choice of the composed path: Error(usage) under Path::fused; otherwise logs a reason of the pass. The
  // layer's own reasons are in describe(), which whoever builds a model logs.
  void report_composed(const LayerView& layer, const Context& pass, const Choice& choice) const;

  const KernelFeatures& features() const { return features_; }

 private:
  KernelFeatures features_;
  std::vector<std::string> built_reasons_;
  const Constraint* built_refusal_ = nullptr;  // the first of Scope::built that is not met
  Path path_ = Path::automatic;
  std::shared_ptr<PathLog> path_log_ = std::make_shared<PathLog>();
  // A bit for each constraint, in and outside of training: whether this layer has logged it.
  std::unique_ptr<std::atomic<uint64_t>> logged_ = std::make_unique<std::atomic<uint64_t>>(0);
};

}  // namespace mh::attention
