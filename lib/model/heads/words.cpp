// The task head "words" (Devlin et al. 2019) predicts masked words: logits E norm(activation(W h_t + b)) + c, where E
// is the token embedding if model.tied. With model.bert.next_sentence the head also predicts whether the second
// sentence of a text follows the first (next-sentence prediction): logits W' p + b', with p the output of the pooler.

#include "model/block.h"
#include "model/heads/pooled_head.h"
#include "model/inits.h"
#include "model/task_head.h"
#include "nn/aten.h"
#include "nn/device.h"

namespace mh::model {

namespace {

class WordsHead : public OutputLayer {
 public:
  WordsHead(nn::ParameterList& parameters, const ModelOptions& o, const TokenEmbedding& embedding,
            int64_t vocabulary_size)
      : activation_(o.activation),
        vocabulary_size_(vocabulary_size),
        num_scored_rows_(num_scored_rows(o, vocabulary_size)),
        transform_(parameters, "head.words.transform", o, o.width, o.bert.transform_bias),
        norm_(parameters, "head.words.norm", o),
        weight_(o.tied ? embedding.bands()[0].table
                       : &parameters.add("head.words.weight", {num_table_rows(o, vocabulary_size), o.width},
                                         {embedding_init(o, o.width), true, true})),
        bias_(parameters.add("head.words.bias", {num_table_rows(o, vocabulary_size)},
                             {nn::Init::constant(0), false, false})) {
    if (!o.bert.next_sentence) return;
    pooler_ = std::make_unique<Pooler>(parameters, o);
    next_sentence_ = std::make_unique<Dense>(parameters, "head.next", o, 2);
  }

  at::Tensor logits(const at::Tensor& hidden) const override {
    return nn::linear(apply_transform(hidden), {weight_}, {&bias_}).narrow(-1, 0, vocabulary_size_).to(at::kFloat);
  }

  at::Tensor next_sentence_logits(const at::Tensor& hidden) const override {
    return next_sentence_ != nullptr ? (*next_sentence_)((*pooler_)(hidden)).to(at::kFloat) : at::Tensor();
  }

  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double label_smoothing,
                      const nn::ForwardContext&) const override {
    const at::Tensor indices = masked_indices(targets.values);
    nn::SlicedLoss loss =
        nn::sliced_cross_entropy(apply_transform(select_positions(hidden, indices)), weight_->value(), bias_.value(),
                                 targets.values.flatten().index_select(0, indices), num_scored_rows_, label_smoothing);
    if (next_sentence_ == nullptr) return loss;
    const nn::SlicedLoss next_sentence_loss = class_loss(next_sentence_logits(hidden), targets.values.select(1, 0), 0);
    loss.smoothed = loss.smoothed + next_sentence_loss.smoothed * targets.next_sentence_weight;
    loss.nll = loss.nll + next_sentence_loss.nll * targets.next_sentence_weight;
    return loss;
  }

  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const override {
    const at::Tensor indices = masked_indices(targets);
    at::Tensor log_p = at::zeros(targets.sizes(), hidden.options().dtype(at::kFloat));
    log_p.view(-1).index_copy_(
        0, nn::to_device(indices, hidden.device()),
        nn::sliced_log_probabilities(apply_transform(select_positions(hidden, indices)), weight_->value(),
                                     bias_.value(), targets.flatten().index_select(0, indices), num_scored_rows_));
    if (next_sentence_ != nullptr)
      log_p.select(1, 0).copy_(class_log_probabilities(next_sentence_logits(hidden), targets.select(1, 0)));
    return log_p;
  }

 private:
  // Returns the indices of the masked positions in the flattened `targets` (B·T), on the CPU. Column 0 is excluded,
  // since it contains the class of next-sentence prediction. Scoring only the masked positions saves time, since few
  // positions are masked.
  static at::Tensor masked_indices(const at::Tensor& targets) {
    at::Tensor is_scored = targets.to(at::kCPU).ge(0);
    is_scored.select(1, 0).fill_(false);
    return is_scored.flatten().nonzero().squeeze(1);
  }
  static at::Tensor select_positions(const at::Tensor& hidden, const at::Tensor& indices) {
    return hidden.flatten(0, 1).index_select(0, nn::to_device(indices, hidden.device()));
  }
  at::Tensor apply_transform(const at::Tensor& x) const { return norm_(nn::activation(transform_(x), activation_)); }

  nn::Activation activation_;
  int64_t vocabulary_size_, num_scored_rows_;
  Dense transform_;
  NormLayer norm_;
  nn::Parameter* weight_;
  nn::Parameter& bias_;
  // Pooler and dense layer (2, d) of next-sentence prediction; null without model.bert.next_sentence.
  std::unique_ptr<Pooler> pooler_;
  std::unique_ptr<Dense> next_sentence_;
};

class WordsTaskHead : public TaskHead {
 public:
  bool scores_entries() const override { return true; }
  bool has_next_sentence() const override { return true; }
  bool has_pooler(const BertOptions& o) const override { return o.next_sentence; }
  std::unique_ptr<OutputLayer> make(nn::ParameterList& parameters, const ModelOptions& o,
                                    const TokenEmbedding& embedding, int64_t vocabulary_size) const override {
    return std::make_unique<WordsHead>(parameters, o, embedding, vocabulary_size);
  }
};

const Registration<WordsTaskHead> words_head_entry(task_heads(), "words", "masked words");

}  // namespace

}  // namespace mh::model
