#include "model/encoder_output.h"

#include <ATen/ATen.h>

#include "model/block.h"
#include "model/inits.h"
#include "nn/device.h"

namespace mh::model {

namespace {

// y = W x + b.
class Dense {
 public:
  Dense(nn::ParameterList& parameters, const std::string& name, const ModelOptions& o, int64_t out)
      : weight_(parameters.add(name + ".weight", {out, o.width}, {projection_init(o), true, true})),
        bias_(parameters.add(name + ".bias", {out}, {nn::Init::constant(0), false, false})) {}
  at::Tensor operator()(const at::Tensor& x) const { return nn::linear(x, {&weight_}, {&bias_}); }

 private:
  nn::Parameter &weight_, &bias_;
};

class Pooler {
 public:
  Pooler(nn::ParameterList& parameters, const ModelOptions& o) : dense_(parameters, "pooler", o, o.width) {}
  // (B, T, d) -> (B, d)
  at::Tensor operator()(const at::Tensor& hidden) const { return at::tanh(dense_(hidden.select(1, 0))); }

 private:
  Dense dense_;
};

// logits (B, C), classes (B).
nn::SlicedLoss class_loss(const at::Tensor& logits, const at::Tensor& classes, double smoothing) {
  const at::Tensor scores = logits.to(at::kFloat), wanted = nn::to_device(classes, scores.device());
  const auto loss = [&](double e) {
    return at::cross_entropy_loss(scores, wanted, {}, at::Reduction::Sum, /*ignore_index=*/-1, e);
  };
  const at::Tensor smoothed = loss(smoothing), nll = smoothing == 0 ? smoothed : loss(0);
  return {smoothed, nll.detach().to(at::kDouble), classes.ge(0).sum().item<int64_t>()};
}

// The same of single rows: log p (B), 0 where the class is negative.
at::Tensor class_log_probabilities(const at::Tensor& logits, const at::Tensor& classes) {
  const at::Tensor wanted = nn::to_device(classes, logits.device());
  return at::log_softmax(logits.to(at::kFloat), 1).gather(1, wanted.clamp_min(0).unsqueeze(1)).squeeze(1) *
         wanted.ge(0);
}

class WordsHead : public OutputLayer {
 public:
  WordsHead(nn::ParameterList& parameters, const ModelOptions& o, const TokenEmbedding& embedding, int64_t vocabulary)
      : activation_(o.activation),
        vocabulary_(vocabulary),
        scored_(scored_rows(o, vocabulary)),
        transform_(parameters, "head.words.transform", o, o.width),
        norm_(parameters, "head.words.norm", o),
        weight_(o.tied ? embedding.bands()[0].table
                       : &parameters.add("head.words.weight", {table_rows(o, vocabulary), o.width},
                                         {embedding_init(o, o.width), true, true})),
        bias_(parameters.add("head.words.bias", {table_rows(o, vocabulary)}, {nn::Init::constant(0), false, false})) {
    if (!o.bert.next_sentence) return;
    pooler_ = std::make_unique<Pooler>(parameters, o);
    next_ = std::make_unique<Dense>(parameters, "head.next", o, 2);
  }

  at::Tensor logits(const at::Tensor& hidden) const override {
    return nn::linear(transformed(hidden), {weight_}, {&bias_}).narrow(-1, 0, vocabulary_).to(at::kFloat);
  }

  at::Tensor sentence_logits(const at::Tensor& hidden) const override {
    return next_ != nullptr ? (*next_)((*pooler_)(hidden)).to(at::kFloat) : at::Tensor();
  }

  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double smoothing,
                      const nn::ForwardContext&) const override {
    const at::Tensor places = places_of(targets.values);
    nn::SlicedLoss loss =
        nn::sliced_cross_entropy(transformed(at_places(hidden, places)), weight_->value(), bias_.value(),
                                 targets.values.flatten().index_select(0, places), scored_, smoothing);
    if (next_ == nullptr) return loss;
    const nn::SlicedLoss next = class_loss(sentence_logits(hidden), targets.values.select(1, 0), 0);
    loss.smoothed = loss.smoothed + next.smoothed * targets.next_weight;
    loss.nll = loss.nll + next.nll * targets.next_weight;
    return loss;
  }

  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const override {
    const at::Tensor places = places_of(targets);
    at::Tensor all = at::zeros(targets.sizes(), hidden.options().dtype(at::kFloat));
    all.view(-1).index_copy_(
        0, nn::to_device(places, hidden.device()),
        nn::sliced_log_probabilities(transformed(at_places(hidden, places)), weight_->value(), bias_.value(),
                                     targets.flatten().index_select(0, places), scored_));
    if (next_ != nullptr)
      all.select(1, 0).copy_(class_log_probabilities(sentence_logits(hidden), targets.select(1, 0)));
    return all;
  }

 private:
  // Few of the places are masked: only those go on. Those of the flattened targets (CPU), but for the first of a row.
  static at::Tensor places_of(const at::Tensor& targets) {
    at::Tensor wanted = targets.to(at::kCPU).ge(0);
    wanted.select(1, 0).fill_(false);
    return wanted.flatten().nonzero().squeeze(1);
  }
  static at::Tensor at_places(const at::Tensor& hidden, const at::Tensor& places) {
    return hidden.flatten(0, 1).index_select(0, nn::to_device(places, hidden.device()));
  }
  at::Tensor transformed(const at::Tensor& x) const { return norm_(nn::activation(transform_(x), activation_)); }

  nn::Activation activation_;
  int64_t vocabulary_, scored_;
  Dense transform_;
  LayerNorm norm_;
  nn::Parameter* weight_;
  nn::Parameter& bias_;
  std::unique_ptr<Pooler> pooler_;  // with model.bert.next_sentence
  std::unique_ptr<Dense> next_;
};

// A dense layer behind the pooler.
class PooledHead : public OutputLayer {
 public:
  PooledHead(nn::ParameterList& parameters, const ModelOptions& o, const std::string& name, int64_t out)
      : dropout_(o.dropout_output), pooler_(parameters, o), dense_(parameters, name, o, out) {}
  // (B, 1, out)
  at::Tensor logits(const at::Tensor& hidden) const override { return scores(hidden, {}).unsqueeze(1); }

 protected:
  // (B, out)
  at::Tensor scores(const at::Tensor& hidden, const nn::ForwardContext& step) const {
    return dense_(nn::dropout(pooler_(hidden), dropout_, step, "output", 0)).to(at::kFloat);
  }

 private:
  double dropout_;
  Pooler pooler_;
  Dense dense_;
};

class ClassesHead : public PooledHead {
 public:
  ClassesHead(nn::ParameterList& parameters, const ModelOptions& o)
      : PooledHead(parameters, o, "head.classes", o.bert.classes) {}
  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double smoothing,
                      const nn::ForwardContext& step) const override {
    return class_loss(scores(hidden, step), targets.values.select(1, 0), smoothing);
  }
  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const override {
    return class_log_probabilities(scores(hidden, {}), targets.select(1, 0)).unsqueeze(1);
  }
};

// Squared error in place of minus the logarithm of a probability.
class NumberHead : public PooledHead {
 public:
  NumberHead(nn::ParameterList& parameters, const ModelOptions& o) : PooledHead(parameters, o, "head.number", 1) {}
  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double,
                      const nn::ForwardContext& step) const override {
    const at::Tensor sum = squares(scores(hidden, step), targets.values).sum();
    return {sum, sum.detach().to(at::kDouble), targets.values.ge(0).sum().item<int64_t>()};
  }
  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const override {
    return -squares(scores(hidden, {}), targets);
  }

 private:
  // found (B, 1), targets (B, 1) in thousandths.
  static at::Tensor squares(const at::Tensor& found, const at::Tensor& targets) {
    const at::Tensor wanted = nn::to_device(targets, found.device());
    return (found - wanted.to(at::kFloat) * 0.001).square() * wanted.ge(0);
  }
};

// The loss of a row is the mean of those of its two ends.
class SpanHead : public OutputLayer {
 public:
  SpanHead(nn::ParameterList& parameters, const ModelOptions& o) : dense_(parameters, "head.span", o, 2) {}
  // (B, T, 2)
  at::Tensor logits(const at::Tensor& hidden) const override { return dense_(hidden).to(at::kFloat); }

  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& targets, double smoothing,
                      const nn::ForwardContext&) const override {
    const Places all = places(hidden, targets.values);
    const at::Tensor known = all.ends.select(1, 0).ge(0);
    const at::Tensor nll = -(all.of_targets().mean(1) * known).sum();
    nn::SlicedLoss result{nll, nll.detach().to(at::kDouble), targets.values.select(1, 0).ge(0).sum().item<int64_t>()};
    if (smoothing == 0) return result;
    const at::Tensor even = -(all.log_p.masked_fill(all.behind.unsqueeze(2), 0).sum(1) / all.lengths).mean(1);
    result.smoothed = nll * (1 - smoothing) + (even * known).sum() * smoothing;
    return result;
  }

  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const override {
    const Places all = places(hidden, targets);
    return at::cat({all.of_targets() * all.ends.ge(0), at::zeros_like(all.lengths, at::kFloat)}, 1);
  }

 private:
  // Only the real places of a row can be an end: what stands behind them depends on the rows beside it.
  struct Places {
    at::Tensor log_p;    // (B, T, 2)
    at::Tensor ends;     // (B, 2) int64
    at::Tensor lengths;  // (B, 1) int64
    at::Tensor behind;   // (B, T) bool
    at::Tensor of_targets() const { return log_p.gather(1, ends.clamp_min(0).unsqueeze(1)).squeeze(1); }  // (B, 2)
  };
  Places places(const at::Tensor& hidden, const at::Tensor& targets) const {
    const at::Tensor there = nn::to_device(targets, hidden.device()), lengths = there.narrow(1, 2, 1).neg();
    const at::Tensor behind = at::arange(hidden.size(1), lengths.options()).unsqueeze(0).ge(lengths);
    return {at::log_softmax(logits(hidden).masked_fill(behind.unsqueeze(2), -1e30), 1), there.narrow(1, 0, 2), lengths,
            behind};
  }

  Dense dense_;
};

}  // namespace

std::unique_ptr<OutputLayer> encoder_output(nn::ParameterList& parameters, const ModelOptions& o,
                                            const TokenEmbedding& embedding, int64_t vocabulary) {
  switch (o.bert.head) {
    case HeadTask::words:
      return std::make_unique<WordsHead>(parameters, o, embedding, vocabulary);
    case HeadTask::classes:
      return std::make_unique<ClassesHead>(parameters, o);
    case HeadTask::number:
      return std::make_unique<NumberHead>(parameters, o);
    case HeadTask::span:
      return std::make_unique<SpanHead>(parameters, o);
  }
  return nullptr;
}

}  // namespace mh::model
