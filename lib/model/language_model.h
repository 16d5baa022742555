// What a language model is to training, evaluation and generation, whatever its backbone. One with an encoder models
// the language of what it reads there in other words: a translation model.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/kind.h"
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

// What incremental decoding keeps between steps: keys and values of each layer, and how many positions they hold.
// Made by the model that fills it.
class DecodingState {
 public:
  virtual ~DecodingState() = default;
  virtual int64_t length() const = 0;  // positions already seen
  // Row i of the batch continues what was row `rows[i]` (int64, (B')): beam search, dropping finished rows.
  virtual void reorder(const at::Tensor& rows) = 0;
  // The same where every row goes on from a row with the same source, and there are as many as before: `rows` lives on
  // the model's device, and the host does not wait for it.
  virtual void reorder_within(const at::Tensor& rows) { reorder(rows); }
};

// What a model reads. Behind the real positions of a row, those that `lengths` say, stands anything.
struct Input {
  at::Tensor tokens;           // (B, T) int64
  at::Tensor source;           // (B, S) int64, for a model with an encoder
  attention::Lengths lengths;  // on the CPU, as it is asked for their values; of an encoder alone `encoder`
  at::Tensor segments;         // (B, T) int64, for a model with segments; undefined: all of the first
  Input(at::Tensor all_tokens = {}, at::Tensor all_source = {}, attention::Lengths real = {})  // NOLINT: tokens alone
      : tokens(std::move(all_tokens)), source(std::move(all_source)), lengths(std::move(real)) {}
  Input to(at::Device device) const;
};

// What a model is to predict: (B, n) int64, negative: not scored. An entry for each place of the input, n = T; of a
// model with a head (model.bert.head) besides:
//   words    n = T, negative but where a word is asked for; the first place of a row asks for its next-sentence class
//   classes  n = 1
//   number   n = 1, in thousandths
//   span     n = 3: first and last place, and minus the number of real places of the row
struct Targets {
  at::Tensor values;
  double next_weight = 1;  // words: what a next-sentence class counts beside a word
  at::Tensor there = {};   // values on the model's device; undefined: they are copied there where they are asked for
  Targets(at::Tensor all, double of_next = 1) : values(std::move(all)), next_weight(of_next) {}  // NOLINT: values alone
};

// Entries of the vocabularies of what a model writes and of what it reads in front of that.
struct Vocabularies {
  int64_t target;
  int64_t source;  // 0: the target's serves both, or there is nothing in front
  Vocabularies(int64_t of_target, int64_t of_source = 0) : target(of_target), source(of_source) {}  // NOLINT: as int
};

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual nn::ParameterList& parameters() = 0;
  virtual Vocabularies vocabularies() const = 0;
  int64_t vocabulary() const { return vocabularies().target; }  // entries of the vocabulary (targets are below it)
  virtual bool has_encoder() const { return false; }
  virtual int64_t max_positions() const { return 0; }  // rows of a table of positions; 0: it has none

  // tokens (B, T) -> last hidden state (B, T, d), before the output layer. With `state`, tokens continue what it has
  // seen, and it is brought up to date; a source is read once, with the first of them. `observer` may be null; with it
  // the composed path is taken.
  virtual at::Tensor hidden(const Input& input, const nn::ForwardContext& step, DecodingState* state = nullptr,
                            attention::Observer* observer = nullptr) = 0;

  // hidden (B, T, d) -> logits (B, T, vocabulary) in fp32: their softmax is the model's distribution. For generation
  // and analysis; training never calls it.
  // With a head: words the same, for any places; classes (B, 1, C), number (B, 1, 1), span (B, T, 2).
  at::Tensor logits(const at::Tensor& hidden) const;
  // (B, 2) with model.bert.next_sentence, else undefined.
  at::Tensor sentence_logits(const at::Tensor& hidden) const;

  // Cross-entropy of targets, taken in slices so that only a slice of the logits is ever held; of numbers the squared
  // error. `scored` counts words, classes, numbers or spans. The returned `smoothed` is differentiable with respect to
  // `hidden` and the output parameters. `step` is the one that made `hidden`, for dropout within the output layer.
  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double label_smoothing,
                      const nn::ForwardContext& step = {}) const;

  // log p(target) (B, n) fp32, nats; 0 where the target is negative. No gradient.
  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const;

  // For any number of rows. Error(usage) where some layer cannot decode token by token.
  virtual std::unique_ptr<DecodingState> new_state() = 0;

  // Positions that are kept from one segment to the next; 0: segments stand alone.
  virtual int64_t memory() const { return 0; }
  // A state that keeps `positions` of them, whatever memory() is; asked only of models that have a memory.
  virtual std::unique_ptr<Memories> new_memory(int64_t positions);
  // Layers that a step may skip (nn::ForwardContext::skipped); 0: it cannot be done.
  virtual int64_t skippable_layers() const { return 0; }

  // All attention layers, from the input to the output; the model's own.
  virtual std::vector<attention::AttentionLayer*> attention_layers() = 0;

  // The longest input that its positions and every layer can take; 0 where there is no bound.
  int64_t max_length();
  // Error(usage) about `what` (a key or an option) where `length` tokens are more than that.
  void require_length(const std::string& what, int64_t length);

  // `--attention auto|composed|fused`, for all layers.
  void set_path(attention::Path path);
  // Error(usage) where some layer cannot take the fused path.
  void require_fused(bool training);
  // One line per layer kind and answer: which attention path is taken and why (for the log).
  std::vector<std::string> describe_paths(bool training);

 protected:
  virtual const OutputLayer& output() const = 0;
  // What new_state() refuses; an encoder reads whole sentences whatever its stages.
  void require_incremental();
};

}  // namespace mh::model
