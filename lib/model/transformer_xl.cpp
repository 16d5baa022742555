#include "model/transformer_xl.h"

#include <c10/core/GradMode.h>

#include <cmath>
#include <deque>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "model/block.h"

namespace mh::model {

void Memories::reorder(const at::Tensor& rows) {
  for (Layer& layer : layers) {
    if (layer.inputs.defined()) layer.inputs = layer.inputs.index_select(0, rows);
    layer.cache.reorder(rows);
  }
}

// Equations 1 to 5 of the paper, with i = layer + 1 of N:
//   linear    (1)  .5 (i - 1) / N, and 0 for i = N
//   all       (2)  p
//   not-first (3)  p but for i = 1;   not-last (4)  p but for i = N;   not-ends (5)  p but for both
double skip_probability(const ModelOptions& o, int64_t layer) {
  const bool first = layer == 0, last = layer == o.layers - 1;
  switch (o.skip) {
    case Skip::none:
      return 0;
    case Skip::linear:
      return last ? 0 : 0.5 * static_cast<double>(layer) / static_cast<double>(o.layers);
    case Skip::all:
      return o.skip_rate;
    case Skip::not_first:
      return first ? 0 : o.skip_rate;
    case Skip::not_last:
      return last ? 0 : o.skip_rate;
    case Skip::not_ends:
      return first || last ? 0 : o.skip_rate;
  }
  return 0;
}

namespace {

// What makes scores of the vocabulary's entries from the last hidden state. The model knows no more of it than these
// three.
class SoftmaxOutput {
 public:
  SoftmaxOutput(ParameterList& parameters, const ModelOptions& o, Parameter& embedding, int64_t vocabulary)
      : vocabulary_(vocabulary) {
    const int64_t rows = embedding.master().size(0);
    scored_ = o.score_padded_rows ? rows : vocabulary;
    weight_ = o.tied ? &embedding
                     : &parameters.add("decoder.output.weight", {rows, o.width},
                                       {embedding_init(o), true, true, std::nullopt, 0});
    if (o.output_bias)
      bias_ = &parameters.add("decoder.output.bias", {rows}, {Init::constant(0), false, false, std::nullopt, 0});
  }

  at::Tensor logits(const at::Tensor& hidden) const {
    return linear(hidden, weight_->value(), bias()).narrow(-1, 0, vocabulary_).to(at::kFloat);
  }
  SlicedLoss loss(const at::Tensor& hidden, const at::Tensor& targets, double smoothing) const {
    return sliced_cross_entropy(hidden.flatten(0, 1), weight_->value(), bias(), targets.flatten(), scored_, smoothing);
  }
  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const {
    return sliced_log_probabilities(hidden.flatten(0, 1), weight_->value(), bias(), targets.flatten(), scored_)
        .view(targets.sizes());
  }

 private:
  at::Tensor bias() const { return bias_ != nullptr ? bias_->value() : at::Tensor(); }

  int64_t vocabulary_, scored_ = 0;
  Parameter *weight_ = nullptr, *bias_ = nullptr;
};

class TransformerXl : public LanguageModel {
 public:
  TransformerXl(const ModelConfig& config, int64_t vocabulary, at::Device device)
      : options_(config.model), vocabulary_(vocabulary), parameters_(device) {
    if (options_.positions != Positions::none)
      throw Error(Exit::usage, Problem{"model.positions", "none: a token's place changes as it becomes memory",
                                       "absolute positions", "set attention.score=relative for positions"});
    if (options_.same_length && options_.memory == 0)
      throw Error(Exit::usage, Problem{"model.same_length", "a memory that says how many keys", "model.memory=0", ""});
    const int64_t rows = options_.vocabulary_rows > 0 ? options_.vocabulary_rows : vocabulary;
    embedding_ = &parameters_.add("decoder.embedding.weight", {rows, options_.width},
                                  {embedding_init(options_), true, options_.tied, std::nullopt, 0});
    for (int64_t i = 0; i < options_.layers; ++i) {
      blocks_.emplace_back(parameters_, config, attention::Kind::decoder_self, i, str("decoder.layers.", i));
      const attention::AttentionLayer& self = blocks_.back().self();
      if (options_.memory > 0 && !self.places().memory)
        throw Error(Exit::usage, Problem{self.shape().name, "stages that can act on a memory", "one that cannot",
                                         "choose another, or set model.memory=0"});
    }
    if (options_.final_norm && options_.norm == Norm::pre)
      norm_ = std::make_unique<LayerNorm>(parameters_, "decoder.norm", options_);
    output_ = std::make_unique<SoftmaxOutput>(parameters_, options_, *embedding_, vocabulary);
  }

  ParameterList& parameters() override { return parameters_; }
  int64_t vocabulary() const override { return vocabulary_; }
  int64_t max_length() const override { return 0; }

  at::Tensor hidden(const at::Tensor& tokens, const attention::Step& step, DecodingState* state,
                    attention::Observer* observer) override {
    auto* memories = static_cast<Memories*>(state);
    at::Tensor x = embedding(tokens, embedding_->master(),
                             options_.scale_embedding ? std::sqrt(static_cast<double>(options_.width)) : 1);
    x = dropout(x, options_.dropout_embedding, step, "embedding", 0);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (skips(static_cast<int64_t>(i), step)) continue;
      if (memories == nullptr) x = blocks_[i].forward(x, mask_of({}, 0), step, nullptr, observer);
      else x = with_memory(blocks_[i], x, step, memories->seen, memories->layers[i], observer);
    }
    if (memories != nullptr) memories->seen += tokens.size(1);
    if (norm_ != nullptr) x = (*norm_)(x);
    return dropout(x, options_.dropout_output, step, "output", 0);
  }

  at::Tensor logits(const at::Tensor& hidden) override { return output_->logits(hidden); }
  SlicedLoss loss(const at::Tensor& hidden, const at::Tensor& targets, double smoothing) override {
    return output_->loss(hidden, targets, smoothing);
  }
  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) override {
    return output_->target_log_probabilities(hidden, targets);
  }

  std::unique_ptr<DecodingState> new_state(int64_t) override { return std::make_unique<Memories>(blocks_.size()); }

  void set_path(attention::Path path) override {
    for (Block& block : blocks_) block.self().set_path(path);
  }

  void require_fused(bool training) const override {
    for (const Block& block : blocks_) block.self().require_fused(training);
  }

  std::vector<std::string> describe_paths(bool training) const override {
    return model::describe_paths(blocks_, training);
  }

 private:
  // One draw for a layer and an update serves the whole batch.
  bool skips(int64_t layer, const attention::Step& step) const {
    const double p = step.training ? skip_probability(options_, layer) : 0;
    return p > 0 && RandomStream(step.seed, "skip").uniform(step.update, static_cast<uint32_t>(layer), 0) < p;
  }

  // For a segment of `length` positions that begins at `seen`, behind a memory of these positions.
  attention::Mask mask_of(const std::vector<int64_t>& positions, int64_t seen, int64_t length = 0) const {
    const auto slots = static_cast<int64_t>(positions.size());
    attention::Mask mask;
    mask.causal = true;
    mask.offset = slots;
    mask.window = options_.same_length ? options_.memory : 0;
    if (slots > 0 && positions.front() != seen - slots) {
      mask.key_positions = at::empty({slots + length}, at::kLong);
      auto* p = mask.key_positions.mutable_data_ptr<int64_t>();
      for (int64_t s = 0; s < slots; ++s) p[s] = positions[static_cast<size_t>(s)] - seen;
      std::iota(p + slots, p + slots + length, 0);
    }
    return mask;
  }

  // Runs a layer behind its memory, which then holds the newest positions, this segment's included.
  at::Tensor with_memory(Block& block, const at::Tensor& x, const attention::Step& step, int64_t seen,
                         Memories::Layer& layer, attention::Observer* observer) const {
    // The keys of a memory depend on weights that training changes, so only evaluation keeps them.
    const bool cached = !step.training && !c10::GradMode::is_enabled() && block.self().places().incremental;
    if (!cached && layer.cache.length() > 0)
      throw Error(Exit::failed, "a memory that evaluation has begun cannot go on in training");
    const int64_t length = x.size(1);
    at::Tensor out = block.forward(x, mask_of(layer.positions, seen, length), step, cached ? &layer.cache : nullptr,
                                   observer, layer.inputs);
    // Without a memory segments stand alone in training; in decoding, which has segments of one token, all is kept.
    const int64_t kept = options_.memory > 0 ? options_.memory
                         : step.training     ? 0
                                             : std::numeric_limits<int64_t>::max();
    auto& positions = layer.positions;
    for (int64_t t = 0; t < length; ++t) positions.push_back(seen + t);
    if (const auto count = static_cast<int64_t>(positions.size()); count > kept)
      positions.erase(positions.begin(), positions.begin() + (count - kept));
    if (cached) {
      layer.inputs = at::Tensor();
      layer.cache.keep_last(kept);
    } else {
      at::Tensor all = layer.inputs.defined() && kept > length ? at::cat({layer.inputs, x.detach()}, 1) : x.detach();
      const auto now = static_cast<int64_t>(positions.size());
      layer.inputs = now > 0 ? all.narrow(1, all.size(1) - now, now) : at::Tensor();
    }
    return out;
  }

  ModelOptions options_;
  int64_t vocabulary_;
  ParameterList parameters_;
  Parameter* embedding_ = nullptr;
  std::deque<Block> blocks_;
  std::unique_ptr<LayerNorm> norm_;
  std::unique_ptr<SoftmaxOutput> output_;
};

class TransformerXlBackbone : public Backbone {
 public:
  std::unique_ptr<LanguageModel> make(const ModelConfig& config, int64_t vocabulary, at::Device device) const override {
    return std::make_unique<TransformerXl>(config, vocabulary, device);
  }
};

const Registered<Backbone, TransformerXlBackbone> entry(backbones(), "transformer-xl",
                                                        "decoder language model with a memory of earlier segments");

}  // namespace

}  // namespace mh::model
