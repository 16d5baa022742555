// Interfaces of the stages of an attention layer. Head counts, head sizes, lists of transforms and of combiners, and
// five other stages define a layer: pairing, score, position bias, normaliser, mixer. A published method is usually one
// stage, sometimes two; the default stages compute multi-head attention (Vaswani et al. 2017).
//
// Symbols: B batch size; Tq, Tk numbers of queries and keys; d width of the model; dk, dv sizes of a key and of a value
// of one head; h number of heads. If a layer has different numbers of score, value and output heads (HeadSide), h is
// the number of score heads (queries, keys, logits), hv of value heads (values, mixed probabilities, head outputs), and
// ho of output heads (result of the combiners). In grouped-query attention keys and values have hkv key/value heads
// (LayerSpec::kv_heads); without groups, keys have hkv = h heads, and values hv heads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

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

// The kinds and modes of attention that a stage supports.
struct Capabilities {
  bool supports_self_attention = true;        // self-attention of an encoder or decoder
  bool supports_causal_attention = true;      // decoder self-attention, whose result must not depend on later positions
  bool supports_cross_attention = true;       // attention from decoder positions to the encoder output
  bool supports_memory = true;                // keys of earlier segments precede the keys of the current segment
  bool supports_incremental_decoding = true;  // prefill and decode with a key/value cache
};

// Data that the stages of one method keep between steps of incremental decoding. The method derives its own type from
// StageState.
class StageState {
 public:
  virtual ~StageState() = default;
  // Returns a copy, which may share tensors, since steps replace the tensors and never write to them.
  virtual std::unique_ptr<StageState> clone() const = 0;
  // Reorders the batch rows: new row i is the former row old_rows[i], for old_rows (B') int64.
  virtual void reorder(const at::Tensor& old_rows) = 0;
};

// The states of the stages of a layer, at most one of each type.
class StageStates {
 public:
  StageStates() = default;
  StageStates(const StageStates& other) {
    for (const auto& state : other.states_) states_.push_back(state->clone());
  }
  StageStates(StageStates&&) = default;
  StageStates& operator=(StageStates other) {
    states_.swap(other.states_);
    return *this;
  }
  ~StageStates() = default;
  // Returns the state of type T, which the first call creates.
  template <class T>
  T& get() {
    for (const auto& state : states_)
      if (auto* typed_state = dynamic_cast<T*>(state.get())) return *typed_state;
    states_.push_back(std::make_unique<T>());
    return static_cast<T&>(*states_.back());
  }
  void reorder(const at::Tensor& old_rows) {
    for (const auto& state : states_) state->reorder(old_rows);
  }

 private:
  std::vector<std::unique_ptr<StageState>> states_;
};

// The inputs and intermediate results of one forward pass of a layer. Each stage reads fields that earlier stages have
// set.
struct Context {
  const LayerSpec& layer_spec;
  const nn::ForwardContext& forward_context;
  Mask mask;
  at::Tensor query_input;  // (B, Tq, d)
  at::Tensor key_input;    // (B, Tk, d) without cached positions; in self-attention without memory, query_input
  // (B, h, Tq, dk), (B, hkv, Tk, dk), (B, hkv or hv, Tk, dv); q with its bias, before the factor LayerSpec::scale(); k
  // has no elements unless Score::uses_keys(). Transforms change q and k.
  at::Tensor q, k, v;
  // (B, h, Tq, dk): q before a transform added positions to it, undefined if no transform did. A stage that computes
  // more than logits from queries reads query_without_positions(), so that its results do not depend on absolute
  // positions.
  at::Tensor mixing_query = {};
  // Number of keys, including cached keys, which k and v lack before Cache::append().
  int64_t num_keys = 0;
  // (h): index of the key/value head that each query head reads; empty: the head of the same index. The composed path
  // and SDPA gather k and v by these indices; the fused kernels read the heads by index.
  std::vector<int64_t> kv_head_of = {};
  // (B, h, Tq, Tk), or (1, h, Tq, Tk) if equal for all batch rows: scaled logits before the mask, then with soft cap
  // and position bias; entries that a causal mask hides are finite but unspecified. Undefined after the normaliser.
  at::Tensor logits = {};
  // (B, hv, Tq, Tk), or (1, hv, Tq, Tk) if equal for all batch rows: mixed probabilities, exactly 0 in masked entries.
  // Undefined on the fused path and after mix_values().
  at::Tensor probabilities = {};
  at::Tensor head_outputs = {};  // (B, hv, Tq, dv)
  // One entry for each combiner: the factor of each head, (hv), (B, hv) or (B, Tq, hv), by which the layer multiplies
  // the input of the combiner; undefined: no factor. The first entry of consecutive combiners that only scale heads is
  // the product of the factors of these combiners and of the combiner after them. The fused path makes entry 0
  // undefined if its kernel applies the factor.
  std::vector<at::Tensor> head_weights = {};
  bool are_rows_repeated = false;       // whether batch rows are already repeated for the interceptor's variants
  StageStates* stage_states = nullptr;  // null outside incremental decoding
  Observer* observer = nullptr;         // may be null

  const at::Tensor& query_without_positions() const { return mixing_query.defined() ? mixing_query : q; }
};

class StageOptions;

// Base class of all stages.
class Stage {
 public:
  virtual ~Stage() = default;
  // Adds the stage's parameters. Their names begin with LayerSpec::name, except for parameters that several layers
  // share. ParameterTraits::head_axes declares the block of each head.
  virtual void add_parameters(nn::ParameterList&, const LayerSpec&) {}
  virtual Capabilities capabilities() const { return {}; }
  // Returns the maximum number of positions, including cached ones, that the stage supports (its option `length`); 0 if
  // unlimited.
  virtual int64_t max_length() const { return 0; }
  // Returns whether the result for a query depends only on that query and on the keys of its batch row, neither on
  // other queries nor on the position of the query. If so, queries of batch rows with equal keys may be passed together
  // as queries of one batch row, and in evaluation several threads may use the stage at once.
  virtual bool is_per_query() const { return false; }
  // Returns whether the stage samples on the host in every training update; such a layer cannot be captured in a CUDA
  // graph (nn/device_graph.h). Dropout does not prevent capture: its kernels read the update number from device memory.
  virtual bool samples_on_host() const { return false; }
  // Returns why a layer with this stage cannot take the fused path; "" if it can. A stage that does not override this
  // function is never fused.
  virtual std::string why_not_fused() const { return "the stage has no fused form"; }
  // Returns the options of the stage after all heads but `remaining_heads` are pruned from the layer; null if the
  // options do not change. The caller prunes the stage's parameters along their head axes. Throws Error(usage) if the
  // stage does not allow this selection, for example one head of a pair.
  virtual std::shared_ptr<StageOptions> options_after_pruning(const RemainingHeads& /*remaining_heads*/,
                                                              const LayerSpec& /*layer_spec*/) const {
    return nullptr;
  }
  // Returns the options of the stage after zeros are appended to every query, key and value vector of the layer
  // (analysis/pad_heads.h); null if the options do not change. `layer_spec`: the layer before padding. The caller
  // appends zeros to each head's block of the stage's parameters. Throws Error(usage) if zeros would change the
  // results, as in a norm of the vectors.
  virtual std::shared_ptr<StageOptions> options_after_padding(const LayerSpec& /*layer_spec*/) const { return nullptr; }
};

// Stage that changes the queries (B, h, Tq, dk) and the keys (B, hkv, Tk, dk) of new positions: context.q and
// context.k, before the pairing and before the keys are appended to the cache, so that the cache contains transformed
// keys. The transforms of a layer act in the order of attention.transform. Positions: query t has the position
// mask.first_position + t. If mask.key_positions is defined, its last Tk entries plus mask.first_position are the
// positions of the keys; otherwise key s has the position mask.first_position + s - (Tk - Tq).
class Transform : public Stage {
 public:
  virtual void transform(Context& context) = 0;
  // Returns whether the transform adds positions to queries and keys. A layer refuses it beside a score with relative
  // positions. Such a transform first sets context.mixing_query to context.q.
  virtual bool adds_positions() const { return false; }
};

// Stage that chooses the key/value head that each query head reads. pair() may change context.kv_head_of, which
// initially is LayerSpec::kv_head_of; if it is empty, each query head reads the head of the same index.
class Pairing : public Stage {
 public:
  virtual void pair(Context& context) = 0;
};

// Stage that computes logits from queries and keys. score() sets context.logits, scaled and before the mask.
class Score : public Stage {
 public:
  virtual void score(Context& context) = 0;
  // Returns whether the score reads context.k; if not, the layer has no key projection.
  virtual bool uses_keys() const { return true; }
  // Returns whether the logits depend on relative positions. If they do, set_relative_positions() sets the relative
  // positions for the fused kernels.
  virtual bool has_relative_positions() const { return false; }
  virtual void set_relative_positions(const Context&, RelativePositions&) {}
  // Returns whether a forward pass is faster on the composed path than on the fused path; Path::automatic then takes
  // the composed path. If the result is true and `why` is not null, sets `why` to the reason, which must be the same
  // for all forward passes of a layer.
  virtual bool prefers_composed(const Context&, std::string* /*why*/) const { return false; }
};

// Stage that adds a bias to the logits, which depends on the distance between query and key only. The default, "none",
// adds nothing. The bias acts after the score and the soft cap, before the mixer.
class PositionBiasStage : public Stage {
 public:
  // Returns whether the stage adds a bias; if not, bias() is not called.
  virtual bool has_bias() const { return true; }
  // Returns the bias (h, D), fp32, of each query head at D distances between queries and keys, differentiable in the
  // stage's parameters. distances (D) int64: position of the query minus position of the key, on the device of the
  // layer. In a causal layer, the bias at a negative distance, whose key is hidden, must be finite.
  virtual at::Tensor bias(const Context& context, const at::Tensor& distances) = 0;
};

// Stage that computes probabilities from logits. `attention_mask` is a broadcastable boolean mask (true: may attend);
// undefined: no entry is masked. Masked entries of the result are exactly 0, and a fully masked row is zero.
class Normaliser : public Stage {
 public:
  // sinks (h), fp32: logit of a sink of each head, a key without a value that every query sees; with sinks, the entries
  // of a row sum to less than 1. Undefined: no sinks. Differentiable in `logits` and `sinks`.
  virtual at::Tensor normalise(const at::Tensor& logits, const at::Tensor& attention_mask, const at::Tensor& sinks) = 0;
  // Returns the normaliser that the fused kernels apply; used only if why_not_fused() is empty.
  virtual kernels::Normaliser kernel_normaliser() const { return kernels::Normaliser::softmax; }
  // Returns the name of the normaliser, which messages state as the reason why SDPA cannot compute a forward pass; null
  // if SDPA has this normaliser.
  virtual const char* kernel_feature() const { return nullptr; }
};

// The first tensor that a mixer mixes across heads: the logits, the probabilities, or nothing.
enum class MixerInput { nothing, logits, probabilities };

// Stage that can mix logits (before the mask) and probabilities (before the product with the values) across heads.
class Mixer : public Stage {
 public:
  virtual MixerInput mixer_input() const { return MixerInput::probabilities; }
  // Returns whether the numbers of score heads (its input) and value heads (its output) may differ.
  virtual bool can_change_head_count() const { return false; }
  virtual at::Tensor mix_logits(const Context&, const at::Tensor& logits) { return logits; }
  virtual at::Tensor mix(const Context& context, const at::Tensor& probabilities) = 0;
  // Returns the matrix m (h, hv) or (B, Tq, h, hv) of mix(), P̄_i = Σ_j m[j, i] P_j, for the fused path. If a mixer
  // with a fused form returns an undefined matrix, it mixes no heads in this forward pass.
  virtual at::Tensor matrix(const Context&) { return {}; }
  // Returns the product (B, hv, Tq, dv) of the mixed probabilities and context.v, without saving the mixed
  // probabilities; called only if nothing else reads them. If the result is undefined, the caller computes the product
  // from mix().
  virtual at::Tensor mix_values(const Context&, const at::Tensor&) { return {}; }
  // Returns whether dropout acts on the probabilities before mixing instead of after it.
  virtual bool dropout_before_mixing() const { return false; }
};

// Stage that maps head outputs (B, hv, Tq, dv) to (B, ho, Tq, dv). The combiners of a layer act in the order of
// attention.combiner; the layer concatenates the last result to the input (B, Tq, ho dv) of the output projection. The
// layer multiplies the input of a combiner by its head_weights(), then calls combine().
class Combiner : public Stage {
 public:
  // Returns whether the combiner mixes head outputs. If it does, the numbers of value heads (its input) and output
  // heads (its output) may differ, and it must be the last combiner of its layer.
  virtual bool mixes_heads() const { return false; }
  // Returns whether the combiner only multiplies heads by head_weights(). If it does, combine() returns its argument.
  virtual bool only_scales_heads() const { return false; }
  // Returns whether the combiner multiplies each head by a gate in evaluation and shows the gates to an observer.
  virtual bool has_head_gates() const { return false; }
  // Returns the matrix m (hv, ho) if the combiner, in evaluation, is a linear map across heads that does not depend on
  // the input, Z'_i = Σ_j m[j, i] Z_j. Such a combiner folds into the output projection. Otherwise returns an undefined
  // tensor.
  virtual at::Tensor as_linear_map() const { return {}; }
  // Returns the factor of each head, (hv), (B, hv) or (B, Tq, hv), by which the layer multiplies the input of
  // combine(); undefined: no factor. Called once per forward pass, before the score. The fused path may apply the
  // factors of the first combiners.
  virtual at::Tensor head_weights(const Context&) { return {}; }
  virtual at::Tensor combine(const Context&, const at::Tensor& scaled_head_outputs) { return scaled_head_outputs; }
};

// Base class of the options of a stage implementation.
class StageOptions {
 public:
  virtual ~StageOptions() = default;
  virtual void describe(Fields&) {}
  virtual std::shared_ptr<StageOptions> copy() const = 0;
};

// Base class that implements copy() for the options of a stage implementation:
//   struct MyOptions : OptionsOf<MyOptions> { … void describe(Fields&) override; };
template <class Options>
struct OptionsOf : StageOptions {
  std::shared_ptr<StageOptions> copy() const override {
    return std::make_shared<Options>(static_cast<const Options&>(*this));
  }
};

// Factory of a stage implementation: creates the options of the implementation, with default values, and the stage of
// one layer.
template <class S>
class StageFactory {
 public:
  virtual ~StageFactory() = default;
  virtual std::shared_ptr<StageOptions> options() const = 0;  // null: no options
  virtual std::unique_ptr<S> make(const StageOptions* options, const LayerSpec& layer_spec) const = 0;

  template <class Implementation>
  class Adapter;
};

// The factory of an implementation, for Registry::add. An implementation with options declares `using Options =
// MyOptions;` and a constructor (const Options&, const LayerSpec&), which throws Error(usage) for options that are
// invalid in this layer. An implementation without options has the constructor (const LayerSpec&) or ().
template <class S>
template <class Implementation>
class StageFactory<S>::Adapter : public StageFactory<S> {
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

Registry<StageFactory<Transform>>& transforms();
Registry<StageFactory<Pairing>>& pairings();
Registry<StageFactory<Score>>& scores();
Registry<StageFactory<PositionBiasStage>>& position_biases();
Registry<StageFactory<Normaliser>>& normalisers();
Registry<StageFactory<Mixer>>& mixers();
Registry<StageFactory<Combiner>>& combiners();

}  // namespace mh::attention
