// The interface through which training, evaluation and generation use a language model of any backbone. A model with an
// encoder and a decoder is a translation model: a language model of the target, conditioned on the source.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/lengths.h"
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

// The state of incremental decoding between forward passes: the key/value caches of all layers; for Transformer-XL, the
// memories (memories.h). A state is created by LanguageModel::new_state() or new_memory() and valid only for that
// model.
class DecodingState {
 public:
  virtual ~DecodingState() = default;
  virtual int64_t length() const = 0;  // number of positions that hidden() has processed
  // Reorders, repeats or drops rows of the batch: new row i is a copy of the old row `old_rows[i]`; `old_rows`: (B')
  // int64. Beam search selects hypotheses and removes finished sentences with this function.
  virtual void reorder(const at::Tensor& old_rows) = 0;
  // Does the same as reorder(), but requires that the number of rows does not change and that the old row `old_rows[i]`
  // is a hypothesis for the same source as the old row i. `old_rows`: (B) int64, on the device of the model; the host
  // does not wait for the values.
  virtual void reorder_within_sources(const at::Tensor& old_rows) { reorder(old_rows); }
};

// The input of a model. Tokens beyond the length of a row are padding with arbitrary vocabulary entries. The input of a
// decoder-only model without padding is its tokens: hidden(Input{tokens}, forward_context). Before a target, a decoder
// reads the end-of-line token, the first of `tokens`; a model with a start_token() reads that token in its place.
struct Input {
  at::Tensor tokens;           // (B, T) int64: tokens of the text; for a translation model, of the target
  at::Tensor source;           // (B, S) int64: tokens of the source, for a translation model
  attention::Lengths lengths;  // lengths of the rows, on the CPU; encoder-only models use lengths.encoder
  at::Tensor segments;         // (B, T) int64 segment (token type) of each token; undefined: segment 0 for all tokens
  Input() = default;
  explicit Input(at::Tensor token_ids) : tokens(std::move(token_ids)) {}
  Input(at::Tensor token_ids, at::Tensor source_ids, attention::Lengths row_lengths = {})
      : tokens(std::move(token_ids)), source(std::move(source_ids)), lengths(std::move(row_lengths)) {}
  // Returns a copy of the input whose tensors, except for the lengths, are on `device`.
  Input to(at::Device device) const;
};

// The targets of a model, (B, n) int64; negative targets are not scored. A decoder has one target per input position,
// so n = T. In an encoder, the task head (model.bert.head) determines n:
//   words    n = T: vocabulary entry at masked positions, otherwise negative; column 0: class of next-sentence
//            prediction
//   classes  n = 1: class of the text
//   number   n = 1: number to predict, in thousandths
//   span     n = 3: first position of the answer, last position of the answer, and minus the length of the row
// The targets of a model without next-sentence prediction are one tensor: loss(hidden, {targets}, 0).
struct Targets {
  at::Tensor values = {};
  double next_sentence_weight = 1;  // words: weight of the next-sentence loss relative to the loss of a masked word
  at::Tensor device_values = {};    // copy of `values` on the device of the model; undefined: loss() makes the copy
};

// The sizes of the target vocabulary and the source vocabulary, in entries. A model without source has one vocabulary:
// build_language_model(config, {30}, device).
struct VocabularySizes {
  int64_t target = 0;
  int64_t source = 0;  // 0: source and target have a joint vocabulary, or the model has no source
  // Whether two vocabularies have the same entries with the same ids, so that they can share an embedding, although
  // they divide text in different ways. Both vocabularies of a Marian model may have the entries of one file.
  bool same_entries = false;
};

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual nn::ParameterList& parameters() = 0;
  virtual VocabularySizes vocabulary_sizes() const = 0;
  int64_t vocabulary_size() const { return vocabulary_sizes().target; }  // size of the target vocabulary
  virtual bool has_encoder() const { return false; }
  // Returns the token of the target vocabulary that the decoder reads before the first token of a target, and that no
  // target contains (model.encoder-decoder.start_token); -1: the decoder reads the end-of-line token.
  virtual int32_t start_token() const { return -1; }
  virtual int64_t max_positions() const { return 0; }  // number of learned position embeddings; 0: no such embeddings

  // Returns the last hidden states (B, T, d), before the output layer, for input.tokens (B, T). With `state`, the
  // tokens continue the sequence that the state has cached, and the call appends them to the caches or memories of the
  // state; the first call encodes the source. `observer` may be null; an observer forces the composed attention path.
  virtual at::Tensor hidden(const Input& input, const nn::ForwardContext& forward_context,
                            DecodingState* state = nullptr, attention::Observer* observer = nullptr) = 0;

  // Returns the logits (B, T, vocabulary), fp32, for `hidden` (B, T, d). The softmax of the logits is the distribution
  // of the model. Used by generation and analysis; training calls loss() instead. Shapes for the task heads of an
  // encoder: words (B, T, vocabulary), where `hidden` may contain any selection of T positions; classes (B, 1, C);
  // number (B, 1, 1); span (B, T, 2).
  at::Tensor logits(const at::Tensor& hidden) const;
  // Returns the logits (B, 2) of next-sentence prediction; an undefined tensor if model.bert.next_sentence is false.
  at::Tensor next_sentence_logits(const at::Tensor& hidden) const;

  // Returns the cross-entropy of the targets, nats, summed over the scored targets. Task head `span`: summed over the
  // answers, where the loss of an answer is the mean over its first and last position. Task head `number`: the sum of
  // squared errors. Large softmaxes are computed in slices of rows, so that only one slice of the logits is in memory.
  // The member `num_scored` of the result is the number of scored targets (of answers if the task head is `span`);
  // targets of next-sentence prediction do not count. The member `smoothed` is differentiable with respect to `hidden`
  // and the parameters of the output layer. `forward_context`: the context with which `hidden` was computed, for
  // dropout in the output layer.
  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double label_smoothing,
                      const nn::ForwardContext& forward_context = {}) const;

  // Returns log p(target), (B, n) fp32, nats; 0 where the target is negative. If the task head is `number`, returns
  // minus the squared error. The result has no gradient.
  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const;

  // Creates an empty decoding state; the first call of hidden() determines the number of rows. Throws Error(usage) if
  // the model is an encoder, or, for the backbones decoder and encoder-decoder, if a decoder layer does not support
  // incremental decoding.
  virtual std::unique_ptr<DecodingState> new_state() = 0;

  // Returns the configured maximum number of positions of earlier segments in each layer's memory (Transformer-XL); 0:
  // no memory.
  virtual int64_t memory_length() const { return 0; }
  // Creates an empty memory of at most `capacity` positions; `capacity` may differ from memory_length(). With capacity
  // 0, the memory stores no positions in training and all positions outside of training. Throws Error(failed) if the
  // backbone does not support memories.
  virtual std::unique_ptr<Memories> new_memory(int64_t capacity);
  // Returns the number of layers that a forward pass can skip (SkipLayersRequest in model/skip_layers.h); 0: skipping
  // is not supported.
  virtual int64_t num_skippable_layers() const { return 0; }

  // Returns all attention layers, in the order of the forward pass. The model owns the layers.
  virtual std::vector<attention::AttentionLayer*> attention_layers() = 0;

  // Returns the maximum input length, in tokens, that the position encoding and all attention layers support; 0:
  // unlimited.
  int64_t max_length();
  // Throws Error(usage) if `length` tokens exceed max_length(). `length_option`: the configuration key or command-line
  // option that sets the length, or the text that has the length, for the message. `default_length`: default of this
  // key or option; 0: none.
  void require_length(const std::string& length_option, int64_t length, int64_t default_length = 0);

  // Sets the requested attention path of all layers (`--attention auto|composed|fused`). `line_prefix`: beginning of
  // the lines that log a fallback to the composed path.
  void set_path(attention::Path path, const std::string& line_prefix = "");
  // Throws Error(usage) with the reasons if a layer cannot take the fused path. `training`: whether the forward passes
  // are training passes, which apply dropout to the attention probabilities.
  void require_fused(bool training);
  // Returns log lines that state which attention path the layers take, and why. Layers of the same kind with the same
  // description share one line. `training`: whether the lines describe the paths of training passes.
  std::vector<std::string> describe_paths(bool training);

 protected:
  virtual const OutputLayer& output_layer() const = 0;
  // Throws Error(usage) if a layer of the decoder does not support incremental decoding. Encoder layers are not
  // checked, since an encoder always processes the whole source.
  void require_incremental();
};

}  // namespace mh::model
