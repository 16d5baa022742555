// Interfaces of the stages of attention. The geometry of a layer (its head counts and sizes) and five stages define it:
// pairing, score, normaliser, mixer, combiner. A method of a paper implements one stage, rarely two; the defaults are
// plain multi-head attention.
//
// Symbols: B batch size; Tq, Tk numbers of queries and keys; d width of the model; dk, dv sizes of a head; h number of
// heads. If a layer has different numbers of score, value and output heads (HeadSide), h is the number of the side:
// score heads for queries, keys and logits before a mixer; value heads (hv) for values, mixed probabilities and head
// outputs; output heads for the result of a combiner.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>

#include "attention/layer_spec.h"
#include "attention/mask.h"
#include "attention/observer.h"
#include "base/fields.h"
#include "base/registry.h"
#include "nn/aten.h"
#include "nn/forward_context.h"
#include "nn/parameter.h"
#include "normaliser.h"

namespace mh::attention {

struct RelativePositions;  // attention/fused/attention_spec.h

// The settings that a stage supports.
struct Capabilities {
  bool self = true;         // self-attention
  bool causal = true;       // decoder self-attention, whose result must not depend on later positions
  bool cross = true;        // cross-attention
  bool memory = true;       // more keys than queries: the older keys come from earlier segments
  bool incremental = true;  // decoding with a key/value cache, one or a few queries at a time
};

// Tensors (B, …) that stages keep between steps of incremental decoding, by name.
using StageState = std::map<std::string, at::Tensor>;

// The inputs and intermediate results of one forward pass of a layer. Each stage reads fields that earlier stages
// filled in.
struct Context {
  const LayerSpec& layer_spec;
  const nn::ForwardContext& step;
  Mask mask;
  at::Tensor query_input;  // (B, Tq, d)
  at::Tensor key_input;    // (B, Tk, d): the same tensor as query_input in self-attention without memory
  at::Tensor q, k, v;  // (B, h, Tq, dk), (B, h, Tk, dk), (B, hv, Tk, dv); q with its bias, before scaling by 1/√dk
  int64_t keys = 0;    // Tk plus the positions of a cache, which k and v lack if the cache is read in place
  // (h): key/value head that each query head reads; empty: the head of the same index. The composed path and SDPA
  // gather k and v in this order; our kernels read the heads through the indices.
  std::vector<int64_t> key_heads = {};
  at::Tensor logits = {};         // (B, h, Tq, Tk), or (1, h, Tq, Tk) if equal for all rows; scaled, unmasked; finite
                                  // but unspecified where a causal mask hides them; undefined from the normaliser on
  at::Tensor probabilities = {};  // (B, h, Tq, Tk), masked entries exactly 0; undefined if fused, or after mix_values()
  at::Tensor head_outputs = {};   // (B, h, Tq, dv)
  at::Tensor weights = {};        // result of Combiner::weights(), called once, before the score
  bool gates_applied = false;     // whether head_outputs are already multiplied by `weights`
  bool rows_repeated = false;     // whether rows are already repeated for the layer's variants
  StageState* state = nullptr;    // null outside incremental decoding
  Observer* observer = nullptr;   // may be null
};

class StageOptions;

// Base class of all stages.
class Stage {
 public:
  virtual ~Stage() = default;
  // Adds the stage's parameters, named with the prefix shape.name. Traits::head_axes declares which blocks belong to
  // which head.
  virtual void add_parameters(nn::ParameterList&, const LayerSpec&) {}
  virtual Capabilities capabilities() const { return {}; }
  // Returns the maximum number of positions, with those of a cache, that the stage supports (its option `length`); 0:
  // unlimited.
  virtual int64_t max_length() const { return 0; }
  // Returns whether the result for a query depends only on that query and on the keys of its row, neither on other
  // queries nor on the position of the query. Rows with equal keys may then be passed as queries of one row, and in
  // evaluation several threads may use the stage at once.
  virtual bool is_per_query() const { return false; }
  // Returns whether the stage samples on the host in every update of training; such a layer cannot be captured in a
  // CUDA graph (nn/device_graph.h). Layers with dropout can: its kernels read the number of the update from device
  // memory.
  virtual bool samples_on_host() const { return false; }
  // Returns why a layer with this stage cannot take the fused path; "" if it can. A stage that does not override this
  // function is never fused.
  virtual std::string why_not_fused() const { return "it has no fused form"; }
  // Returns the options of the stage after pruning all heads of `shape` but `kept`; null: unchanged. Parameters are
  // pruned along their head axes. Throws Error(usage) if these heads cannot be pruned separately from the others.
  virtual std::shared_ptr<StageOptions> options_after_pruning(const KeptHeads& /*kept*/,
                                                              const LayerSpec& /*layer_spec*/) const {
    return nullptr;
  }
};

// Chooses the key/value head that each query head reads: fills context.key_heads.
class Pairing : public Stage {
 public:
  virtual void pair(Context& context) = 0;
};

// Computes logits from queries and keys: fills context.logits, scaled and unmasked.
class Score : public Stage {
 public:
  virtual void score(Context& context) = 0;
  // Returns whether the score reads context.k; if not, the layer has no key projection.
  virtual bool uses_keys() const { return true; }
  // Returns whether the score has relative positions, which set_relative_positions() fills in for the fused path.
  virtual bool has_relative_positions() const { return false; }
  virtual void set_relative_positions(const Context&, RelativePositions&) {}
  // Returns whether a forward pass is faster on the composed path, which Path::automatic then takes although there is a
  // fused form. If so and `why` is not null, sets `why` to the reason, which must be the same for all passes of a
  // layer.
  virtual bool prefers_composed(const Context&, std::string* /*why*/) const { return false; }
};

// Turns logits into probabilities. `allowed` is a broadcastable boolean mask, or undefined. Hidden entries become
// exactly 0, a fully masked row becomes zero.
class Normaliser : public Stage {
 public:
  virtual at::Tensor normalise(const at::Tensor& logits, const at::Tensor& allowed) = 0;
  // Returns the kernels' name of this normaliser; used only if the stage has a fused form.
  virtual kernels::Normaliser fused() const { return kernels::Normaliser::softmax; }
  // Returns the name of the normaliser for fallback reasons if only our kernels have a fused form of it; null if SDPA
  // computes it, too.
  virtual const char* kernel_feature() const { return nullptr; }
};

// The first tensor that a mixer mixes across heads.
enum class Mixes { nothing, logits, probabilities };

// Mixes logits (before the mask) and probabilities (before the product with the values) across heads.
class Mixer : public Stage {
 public:
  virtual Mixes mixes() const { return Mixes::probabilities; }
  // Returns whether the numbers of score heads (its input) and value heads (its output) may differ.
  virtual bool can_change_head_count() const { return false; }
  virtual at::Tensor mix_logits(const Context&, const at::Tensor& logits) { return logits; }
  virtual at::Tensor mix(const Context& context, const at::Tensor& probabilities) = 0;
  // Returns the matrix m of the map mix(), P̄_i = Σ_j m[j, i] P_j, (h, hv) or (B, Tq, h, hv), for the fused path. If a
  // mixer with a fused form returns an undefined matrix, it does not mix in this pass.
  virtual at::Tensor matrix(const Context&) { return {}; }
  // Returns mix() times context.v, (B, hv, Tq, dv), without saving the mixed probabilities; called only if nothing else
  // reads them. Undefined: not implemented, the caller uses mix().
  virtual at::Tensor mix_values(const Context&, const at::Tensor&) { return {}; }
  // Returns whether dropout acts on the probabilities before mixing instead of after it.
  virtual bool dropout_before() const { return false; }
};

// Turns head outputs (B, h, Tq, dv) into the input (B, Tq, h dv) of the output projection.
class Combiner : public Stage {
 public:
  // Returns whether the combiner mixes head outputs. The numbers of value heads (its input) and output heads
  // (its output) may then differ.
  virtual bool mixes() const { return false; }
  // Returns whether the combiner weighs each head separately in evaluation, and shows the weights to an observer.
  virtual bool has_head_gates() const { return false; }
  // Returns the matrix m (value heads, output heads) if the combiner, in evaluation, is a linear map across heads that
  // does not depend on the input, Z'_i = Σ_j m[j, i] Z_j. Such a combiner folds into the output projection. Undefined
  // otherwise.
  virtual at::Tensor as_linear_map() const { return {}; }
  // Returns the factor of each head, (hv), (B, hv) or (B, Tq, hv), if the combiner only multiplies by these factors;
  // the fused path may apply them. Called once per forward pass, before the score. Undefined: the combiner does
  // something else, or scales no head.
  virtual at::Tensor weights(const Context&) { return {}; }
  virtual at::Tensor combine(const Context& context, const at::Tensor& head_outputs) = 0;
};

// Options of one implementation, with a list of fields like every options struct.
class StageOptions {
 public:
  virtual ~StageOptions() = default;
  virtual void describe(Fields&) {}
  virtual std::shared_ptr<StageOptions> copy() const = 0;
};

// Implements copy() for the options of an implementation:
//   struct MyOptions : OptionsOf<MyOptions> { … void describe(Fields&) override; };
template <class Options>
struct OptionsOf : StageOptions {
  std::shared_ptr<StageOptions> copy() const override {
    return std::make_shared<Options>(static_cast<const Options&>(*this));
  }
};

// Creates the options of an implementation and, from them, the stage of one layer.
template <class S>
class StageFactory {
 public:
  virtual ~StageFactory() = default;
  virtual std::shared_ptr<StageOptions> options() const = 0;  // null: no options
  virtual std::unique_ptr<S> make(const StageOptions* options, const LayerSpec& layer_spec) const = 0;

  template <class Implementation>
  class Of;
};

// The factory of an implementation, for Registry::add. An implementation with options declares
// `using Options = MyOptions;` and a constructor (const Options&, const LayerSpec&), which throws Error(usage) for
// options that are invalid in this layer. One without options has the constructor (const LayerSpec&) or ().
template <class S>
template <class Implementation>
class StageFactory<S>::Of : public StageFactory<S> {
 public:
  std::shared_ptr<StageOptions> options() const override {
    if constexpr (requires { typename Implementation::Options; })
      return std::make_shared<typename Implementation::Options>();
    else return nullptr;
  }
  std::unique_ptr<S> make(const StageOptions* options, const LayerSpec& layer_spec) const override {
    if constexpr (requires { typename Implementation::Options; }) {
      using Options = typename Implementation::Options;
      const Options defaults;
      return std::make_unique<Implementation>(options != nullptr ? static_cast<const Options&>(*options) : defaults,
                                              layer_spec);
    } else if constexpr (std::is_constructible_v<Implementation, const LayerSpec&>) {
      return std::make_unique<Implementation>(layer_spec);
    } else {
      return std::make_unique<Implementation>();
    }
  }
};

Registry<StageFactory<Pairing>>& pairings();
Registry<StageFactory<Score>>& scores();
Registry<StageFactory<Normaliser>>& normalisers();
Registry<StageFactory<Mixer>>& mixers();
Registry<StageFactory<Combiner>>& combiners();

}  // namespace mh::attention
