// An attention layer is a row of stages: geometry, pairing, score, normaliser, mixer, combiner. A method of a paper is
// one implementation of one stage; each has a do-nothing default.
//
// Symbols: B batch, Tq and Tk lengths, d width, dk and dv sizes of a head; h heads. Where a layer has other numbers of
// score, value and output heads (HeadSide), h is that of the side: queries, keys and logits before a mixer are of score
// heads, values, mixed probabilities and head outputs of value heads, what a combiner gives of output heads.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>

#include "attention/mask.h"
#include "attention/observer.h"
#include "attention/shape.h"
#include "base/fields.h"
#include "base/registry.h"
#include "nn/forward_context.h"
#include "nn/parameter.h"
#include "normaliser.h"

namespace mh::attention {

struct RelativePositions;  // attention/fused/attention_spec.h

// Where a stage can act. Memory: keys longer than queries, the older ones from earlier segments. Incremental: decoding
// with a cache, one or a few queries at a time.
struct Places {
  bool self = true;
  bool causal = true;  // self-attention that must not see later positions, whatever the mask says of keys
  bool cross = true;
  bool memory = true;
  bool incremental = true;
};

// Tensors (B, …) that a stage keeps between steps of incremental decoding, by a name of its own.
using StageState = std::map<std::string, at::Tensor>;

// The input of a stage. Earlier stages fill it in.
struct Context {
  const Shape& shape;
  const nn::ForwardContext& step;
  Mask mask;
  at::Tensor query_input;  // (B, Tq, d)
  at::Tensor key_input;    // (B, Tk, d): the same as query_input in self-attention
  at::Tensor q, k, v;      // (B, h, Tq, dk), (B, h, Tk, dk), (B, h, Tk, dv); q projected with bias, not scaled
  int64_t keys = 0;        // Tk with the keys of a cache, which may be read in place and not be in k and v
  // (h): the key and value head that each query head reads; empty: its own. The heads of k and v are in this order only
  // after the composed path gathered them.
  std::vector<int64_t> key_heads = {};
  at::Tensor logits = {};         // (B, h, Tq, Tk), or (1, h, Tq, Tk) where all rows have the same; scaled, before the
                                  // mask, any finite number where a causal mask hides them; gone after the normaliser
  at::Tensor probabilities = {};  // (B, h, Tq, Tk), masked entries exactly 0; undefined where mix_values() served
  at::Tensor head_outputs = {};   // (B, h, Tq, dv)
  at::Tensor weights = {};        // the combiner's weights(), asked for once, before there are logits
  bool weighed = false;           // whether head outputs are multiplied by them already
  bool repeated = false;          // whether the rows are repeated for the layer's variants already
  StageState* state = nullptr;    // null outside incremental decoding
  Observer* observer = nullptr;   // may be null
};

class StageOptions;

// The properties that every stage has.
class Stage {
 public:
  virtual ~Stage() = default;
  // Adds the stage's parameters under shape.name; Traits::head_axes says which belong to a head.
  virtual void add_parameters(nn::ParameterList&, const Shape&) {}
  virtual Places places() const { return {}; }
  // The most positions it can act on, with the positions of a cache, by its option `length`; 0: any number.
  virtual int64_t longest() const { return 0; }
  // Whether its result for a query depends on that query and the row's keys alone, never on the row's other queries or
  // on the position of the query. Rows with the same keys may then be given as queries of one, and outside of training
  // several threads may use it at once.
  virtual bool by_query() const { return false; }
  // Whether the stage draws random numbers on the host in each update of training, so that a CUDA graph captured in one
  // update does not serve the next (nn/device_graph.h). Dropout does not: its kernels read the update themselves.
  virtual bool draws() const { return false; }
  // Why the fused path cannot take a layer with this stage; "" where it can. A stage that says nothing is never fused.
  virtual std::string unfused_because() const { return "it has no fused form"; }
  // Its options after all heads of `shape` but `kept` are cut; null: unchanged.
  // Parameters follow from their head axes. Error(usage) where these heads cannot part from the others.
  virtual std::shared_ptr<StageOptions> keep(const KeptHeads& /*kept*/, const Shape& /*shape*/) const {
    return nullptr;
  }
};

// Chooses the key/value head that each query head reads: fills context.key_heads.
class Pairing : public Stage {
 public:
  virtual void pair(Context& context) = 0;
};

// Logits from queries and keys: fills context.logits, scaled and unmasked.
class Score : public Stage {
 public:
  virtual void score(Context& context) = 0;
  // Whether it reads context.k; a layer whose score does not has no key projection.
  virtual bool uses_keys() const { return true; }
  // Whether its fused form adds something to products of queries and keys; positions() fills in what.
  virtual bool has_positions() const { return false; }
  virtual void positions(const Context&, RelativePositions&) {}
  // Whether a forward pass is faster on the composed path, which Path::automatic then takes although there is a fused
  // form. Where it is and `why` is not null, sets `why` to the reason, which is the same for all passes of a layer.
  virtual bool prefers_composed(const Context&, std::string* /*why*/) const { return false; }
};

// Logits to probabilities. `allowed` (broadcastable bool) may be undefined; entries that are not allowed become exactly
// 0, a row without any allowed entry becomes zeros.
class Normaliser : public Stage {
 public:
  virtual at::Tensor normalise(const at::Tensor& logits, const at::Tensor& allowed) = 0;
  // Which it is to the fused path, if it has a fused form.
  virtual kernels::Normaliser fused() const { return kernels::Normaliser::softmax; }
  // Its name in reasons for the composed path, where only the project's own kernels have a fused form of it; null where
  // the tensor library's fused attention computes the same.
  virtual const char* kernel_feature() const { return nullptr; }
};

// The first tensor that a mixer mixes.
enum class Mixes { nothing, logits, probabilities };

// Acts across heads on logits (before the mask) and on probabilities (before the values).
class Mixer : public Stage {
 public:
  virtual Mixes mixes() const { return Mixes::probabilities; }
  // Whether there may be other numbers of score heads, which it takes, and value heads, which it gives.
  virtual bool maps() const { return false; }
  virtual at::Tensor mix_logits(const Context&, const at::Tensor& logits) { return logits; }
  virtual at::Tensor mix(const Context& context, const at::Tensor& probabilities) = 0;
  // Where mix() is a map by a matrix m, P̄_i = Σ_j m[j, i] P_j: that matrix, (h, hv) or (B, Tq, h, hv), which the fused
  // path takes. Undefined: it mixes nothing here, if it has a fused form at all.
  virtual at::Tensor matrix(const Context&) { return {}; }
  // mix() times context.v, (B, h, Tq, dv), asked where nothing else looks at mixed probabilities, so that they need not
  // be kept; undefined: there is no such way.
  virtual at::Tensor mix_values(const Context&, const at::Tensor&) { return {}; }
  virtual bool dropout_before() const { return false; }
};

// Head outputs (B, h, Tq, dv) to (B, Tq, h * dv), what the output projection takes.
class Combiner : public Stage {
 public:
  // Whether what it gives to a block of the output projection is made of several heads; there may then be other numbers
  // of value heads, which it takes, and output heads, which it gives.
  virtual bool mixes() const { return false; }
  // Whether it weighs the heads one by one outside of training, and shows an observer by what.
  virtual bool weighs() const { return false; }
  // Where it is, outside of training, the same linear map across heads whatever the input, Z'_i = Σ_j m[j, i] Z_j: the
  // matrix m (value heads, output heads). Such a combiner folds into the output projection. Undefined: it is none.
  virtual at::Tensor folded() const { return {}; }
  // The factor of each head, where the combiner does nothing else: (hv), (B, hv) or (B, Tq, hv); the fused path may
  // apply it. A forward pass calls it once, before there are logits.
  // Undefined: it does something else, or weighs none.
  virtual at::Tensor weights(const Context&) { return {}; }
  virtual at::Tensor combine(const Context& context, const at::Tensor& head_outputs) = 0;
};

// Options of one implementation, listed as every options struct is.
class StageOptions {
 public:
  virtual ~StageOptions() = default;
  virtual void describe(Fields&) {}
  virtual std::shared_ptr<StageOptions> copy() const = 0;
};

// Options of one implementation: `struct MyOptions : OptionsOf<MyOptions> { … void describe(Fields&) override; };`
template <class Options>
struct OptionsOf : StageOptions {
  std::shared_ptr<StageOptions> copy() const override {
    return std::make_shared<Options>(static_cast<const Options&>(*this));
  }
};

// Makes an implementation's options and, from them, the stage for one layer.
template <class S>
class StageFactory {
 public:
  virtual ~StageFactory() = default;
  virtual std::shared_ptr<StageOptions> options() const = 0;  // null: it has none
  virtual std::unique_ptr<S> make(const StageOptions* options, const Shape& shape) const = 0;

  template <class Implementation>
  class Of;
};

// The factory of an implementation (Registry::add). One with options declares them, `using Options = MyOptions;`, and
// has the constructor (const Options&, const Shape&), which throws Error(usage) for options that make no sense in this
// layer. One without is made by (const Shape&) or ().
template <class S>
template <class Implementation>
class StageFactory<S>::Of : public StageFactory<S> {
 public:
  std::shared_ptr<StageOptions> options() const override {
    if constexpr (requires { typename Implementation::Options; })
      return std::make_shared<typename Implementation::Options>();
    else return nullptr;
  }
  std::unique_ptr<S> make(const StageOptions* options, const Shape& shape) const override {
    if constexpr (requires { typename Implementation::Options; }) {
      using Options = typename Implementation::Options;
      const Options defaults;
      return std::make_unique<Implementation>(options != nullptr ? static_cast<const Options&>(*options) : defaults,
                                              shape);
    } else if constexpr (std::is_constructible_v<Implementation, const Shape&>) {
      return std::make_unique<Implementation>(shape);
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
