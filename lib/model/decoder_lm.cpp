// The decoder language model: embedding, positions, a stack of blocks, a softmax over the vocabulary. With pre-norm,
// sinusoidal positions and tied embeddings it is fairseq's `transformer_lm`.
#include <c10/core/GradMode.h>

#include <cmath>
#include <deque>

#include "base/error.h"
#include "model/block.h"
#include "model/positions.h"

namespace mh::model {

namespace {

constexpr int64_t kFirstPosition = 2;  // fairseq counts positions from its padding index + 1

class DecoderState : public DecodingState {
 public:
  explicit DecoderState(size_t layers) : caches(layers) {}
  int64_t length() const override { return caches.front().length(); }
  void reorder(const at::Tensor& rows) override {
    for (auto& cache : caches) cache.reorder(rows);
  }
  std::vector<attention::Cache> caches;
};

class DecoderLm : public LanguageModel {
 public:
  DecoderLm(const ModelConfig& config, int64_t vocabulary, at::Device device)
      : options_(config.model), vocabulary_(vocabulary), parameters_(device) {
    const int64_t rows = options_.vocabulary_rows > 0 ? options_.vocabulary_rows : vocabulary;
    Init table = embedding_init(options_);
    embedding_ = &parameters_.add("decoder.embedding.weight", {rows, options_.width},
                                  {table, true, options_.tied, std::nullopt, 0});
    if (options_.positions == Positions::learned)
      positions_ = &parameters_.add("decoder.positions.weight", {options_.max_positions, options_.width},
                                    {table, true, false, std::nullopt, 0});
    for (int64_t i = 0; i < options_.layers; ++i)
      blocks_.emplace_back(parameters_, config, attention::Kind::decoder_self, i, str("decoder.layers.", i));
    if (options_.final_norm && options_.norm == Norm::pre)
      norm_ = std::make_unique<LayerNorm>(parameters_, "decoder.norm", options_);
    output_ = options_.tied ? embedding_
                            : &parameters_.add("decoder.output.weight", {rows, options_.width},
                                               {table, true, true, std::nullopt, 0});
  }

  ParameterList& parameters() override { return parameters_; }
  int64_t vocabulary() const override { return vocabulary_; }
  int64_t max_length() const override { return options_.positions == Positions::learned ? options_.max_positions : 0; }

  at::Tensor hidden(const at::Tensor& tokens, const attention::Step& step, DecodingState* state,
                    attention::Observer* observer) override {
    auto* decoding = static_cast<DecoderState*>(state);
    const int64_t past = decoding != nullptr ? decoding->length() : 0, length = tokens.size(1);
    at::Tensor x = embedding(tokens, embedding_->master(),
                             options_.scale_embedding ? std::sqrt(static_cast<double>(options_.width)) : 1);
    if (options_.positions == Positions::sinusoidal) x = x + positions_from(past, length, x.device());
    if (positions_ != nullptr) {
      if (past + length > options_.max_positions)
        throw Error(Exit::usage,
                    Problem{"model.max_positions", str("inputs of at most ", options_.max_positions, " tokens"),
                            str(past + length), "use shorter blocks or contexts"});
      x = x + positions_->value().narrow(0, past, length);
    }
    x = dropout(x, options_.dropout_embedding, step, "embedding", 0);
    attention::Mask mask;
    mask.causal = true;
    mask.offset = past;
    for (size_t i = 0; i < blocks_.size(); ++i)
      x = blocks_[i].forward(x, mask, step, decoding != nullptr ? &decoding->caches[i] : nullptr, observer);
    return norm_ != nullptr ? (*norm_)(x) : x;
  }

  at::Tensor logits(const at::Tensor& hidden) override {
    const at::Tensor& weight = output_->value();
    return linear(hidden, weight, at::Tensor()).narrow(-1, 0, vocabulary_).to(at::kFloat);
  }

  SlicedLoss loss(const at::Tensor& hidden, const at::Tensor& targets, double smoothing) override {
    return sliced_cross_entropy(hidden.flatten(0, 1), output_->value(), {}, targets.flatten(), scored_rows(),
                                smoothing);
  }

  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) override {
    return sliced_log_probabilities(hidden.flatten(0, 1), output_->value(), {}, targets.flatten(), scored_rows())
        .view(targets.sizes());
  }

  std::unique_ptr<DecodingState> new_state(int64_t) override { return std::make_unique<DecoderState>(blocks_.size()); }

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
  int64_t scored_rows() const { return options_.score_padded_rows ? output_->master().size(0) : vocabulary_; }

  at::Tensor positions_from(int64_t first, int64_t length, at::Device device) {
    if (!table_.defined() || table_.size(0) < first + length)
      table_ =
          sinusoidal_positions(kFirstPosition, std::max<int64_t>(2 * (first + length), 256), options_.width, device);
    return table_.narrow(0, first, length);
  }

  ModelOptions options_;
  int64_t vocabulary_;
  ParameterList parameters_;
  Parameter* embedding_ = nullptr;
  Parameter* positions_ = nullptr;
  Parameter* output_ = nullptr;
  std::deque<Block> blocks_;
  std::unique_ptr<LayerNorm> norm_;
  at::Tensor table_;  // of sinusoidal positions
};

class DecoderBackbone : public Backbone {
 public:
  std::unique_ptr<LanguageModel> make(const ModelConfig& config, int64_t vocabulary, at::Device device) const override {
    return std::make_unique<DecoderLm>(config, vocabulary, device);
  }
};

const Registered<Backbone, DecoderBackbone> entry(backbones(), "decoder", "decoder language model");

}  // namespace

}  // namespace mh::model
