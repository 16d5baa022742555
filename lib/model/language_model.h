// The interface of a language model to training, evaluation and generation, independent of its backbone. A model with
// an encoder and a decoder is a translation model: a language model of the target, conditioned on the source.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention_kind.h"
#include "nn/forward_context.h"
#include "nn/ops.h"
#include "nn/parameter.h"

namespace mh::attention {
class AttentionLayer;
class Observer;
enum class Path;
}  // namespace mh::attention

namespace mh::model {

class Memories;
class OutputLayer;

// The state of incremental decoding between steps: the key/value caches of all layers. Created by the new_state() of
// the model that uses it.
class DecodingState {
 public:
  virtual ~DecodingState() = default;
  virtual int64_t length() const = 0;  // number of positions read so far
  // Reorders the rows: new row i is old row rows[i], rows (B') int64. Used by beam search and to drop finished rows.
  virtual void reorder(const at::Tensor& rows) = 0;
  // Reorders the rows like reorder(), provided that their number is unchanged and that each new row continues a row
  // with the same source. `rows` is on the device of the model, and the host does not wait for its values.
  virtual void reorder_within(const at::Tensor& rows) { reorder(rows); }
};

// The input of a model. Entries beyond the lengths of a row are padding with arbitrary values.
struct Input {
  at::Tensor tokens;           // (B, T) int64
  at::Tensor source;           // (B, S) int64, for a model with an encoder
  attention::Lengths lengths;  // on the CPU, since the host reads the values; encoder-only models read `encoder`
  at::Tensor segments;         // (B, T) int64, for a model with segments; undefined: segment 0 everywhere
  Input(at::Tensor all_tokens = {}, at::Tensor all_source = {}, attention::Lengths real = {})  // NOLINT: implicit
      : tokens(std::move(all_tokens)), source(std::move(all_source)), lengths(std::move(real)) {}
  Input to(at::Device device) const;
};

// The targets of a model, (B, n) int64; negative entries are not scored. A decoder has one target per input position,
// n = T. For an encoder, the head (model.bert.head) determines n:
//   words    n = T: entries at masked positions, else negative; column 0 holds the next-sentence class of the row
//   classes  n = 1
//   number   n = 1, in thousandths
//   span     n = 3: first and last position of the answer, and minus the length of the row
struct Targets {
  at::Tensor values;
  double next_weight = 1;     // words: weight of a next-sentence class in the loss, relative to a word
  at::Tensor on_device = {};  // `values` on the model's device; undefined: copied there on demand
  Targets(at::Tensor all, double next_sentence_weight = 1)
      : values(std::move(all)), next_weight(next_sentence_weight) {}  // NOLINT: implicit
};

// The sizes of the target and the source vocabulary.
struct Vocabularies {
  int64_t target;
  int64_t source;  // 0: joint with the target's, or the model has no source
  Vocabularies(int64_t of_target, int64_t of_source = 0) : target(of_target), source(of_source) {}  // NOLINT: implicit
};

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual nn::ParameterList& parameters() = 0;
  virtual Vocabularies vocabularies() const = 0;
  int64_t vocabulary() const { return vocabularies().target; }  // targets are below it
  virtual bool has_encoder() const { return false; }
  virtual int64_t max_positions() const { return 0; }  // rows of the table of learned positions; 0: no table

  // Returns the last hidden states (B, T, d), before the output layer, for input.tokens (B, T). With `state`, the
  // tokens continue the positions that it has read, and hidden() updates it; the source is encoded once, with the first
  // tokens. `observer` may be null; an observer forces the composed path.
  virtual at::Tensor hidden(const Input& input, const nn::ForwardContext& step, DecodingState* state = nullptr,
                            attention::Observer* observer = nullptr) = 0;

  // Returns the logits (B, T, vocabulary), fp32, for hidden (B, T, d); their softmax is the model's distribution. For
  // generation and analysis; training never calls it. With an encoder's head: words (B, T, vocabulary), where T may be
  // any selection of positions; classes (B, 1, C); number (B, 1, 1); span (B, T, 2).
  at::Tensor logits(const at::Tensor& hidden) const;
  // Returns the logits of the next-sentence classes (B, 2) with model.bert.next_sentence, else undefined.
  at::Tensor sentence_logits(const at::Tensor& hidden) const;

  // Returns the cross-entropy of the targets, or the squared error of numbers. Computed slice by slice, so that memory
  // holds only one slice of the logits. `scored` counts words, classes, numbers or spans. `smoothed` is differentiable
  // with respect to `hidden` and the output parameters. `step`: the context that computed `hidden`, for dropout in the
  // output layer.
  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double label_smoothing,
                      const nn::ForwardContext& step = {}) const;

  // Returns log p(target), (B, n) fp32, nats; 0 where the target is negative. For numbers, minus the squared error. No
  // gradient.
  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const;

  // Creates an empty state for any number of rows. Throws Error(usage) if a layer does not support incremental
  // decoding.
  virtual std::unique_ptr<DecodingState> new_state() = 0;

  // Returns the number of positions that the memory keeps from one segment to the next; 0: no memory.
  virtual int64_t memory() const { return 0; }
  // Creates a memory of `positions` positions, which may differ from memory(). Only models with a memory support it.
  virtual std::unique_ptr<Memories> new_memory(int64_t positions);
  // Returns the number of layers that a step may skip (nn::ForwardContext::skipped); 0: skipping is not supported.
  virtual int64_t skippable_layers() const { return 0; }

  // Returns all attention layers, from the input to the output. The model owns them.
  virtual std::vector<attention::AttentionLayer*> attention_layers() = 0;

  // Returns the maximum input length that the positions and all layers support; 0: unlimited.
  int64_t max_length();
  // Throws Error(usage) about `what` (a key or an option) if `length` tokens exceed max_length().
  void require_length(const std::string& what, int64_t length);

  // Sets the attention path of all layers (`--attention auto|composed|fused`).
  void set_path(attention::Path path);
  // Throws Error(usage) if a layer cannot take the fused path.
  void require_fused(bool training);
  // Returns log lines with the attention path that each kind of layer takes, and why: one line per kind and
  // description.
  std::vector<std::string> describe_paths(bool training);

 protected:
  virtual const OutputLayer& output() const = 0;
  // Throws Error(usage) if a decoder layer does not support incremental decoding. Encoder layers need not: an encoder
  // reads whole sentences.
  void require_incremental();
};

}  // namespace mh::model
