// Adaptive softmax (Grave et al. 2017). Its head is a softmax over the frequent vocabulary entries (band 0) and one
// class for each band of rarer entries. Each of these bands, called a tail, has a softmax over its own entries:
//
//   log p(i) = log softmax([E_0 h_0 + b_0 ; C h_0 + c])[i]                             for i in band 0
//   log p(i) = log softmax(…)[class b] + log softmax(E_b D(Q_b h) + b_b)[i - first_b]  for i in band b > 0
//
// with h (d) the hidden state, first_b the first entry of band b, E_b (number of entries of band b, w_b), Q_b (w_b, d),
// C (number of tails, d), and D dropout (model.dropout_tail). The class of band b is entry |E_0| + b - 1 of the head,
// as in fairseq; in the code released with Transformer-XL it is the b-th entry from the end. h_0 = h, or Q_0 h with
// model.first_band_projection, as in the code of Transformer-XL. Biases exist only with model.output_bias. With
// model.cutoff_factor=1 all widths w_b are d: there are no projections, and one table holds the rows of all bands.
//
// With model.tied, E_b is the table of band b of the token embedding. With model.tied_projections, Q_b of a tail is the
// transpose of the embedding's projection of band b. Q_0 is never tied (as in Transformer-XL; fairseq has no Q_0).
#include <c10/core/GradMode.h>

#include "base/error.h"
#include "model/bands.h"
#include "model/inits.h"
#include "model/output.h"
#include "nn/device.h"

namespace mh::model {

namespace {

// Returns the values of `parameters` as one tensor per band. `parameters` has one parameter per band, or a single
// parameter with the rows of all bands.
std::vector<at::Tensor> values_of(const std::vector<nn::Parameter*>& parameters, const Bands& bands) {
  // A single split node in the autograd graph assembles the gradient of the table once; one slice per band would
  // assemble it once per band.
  if (parameters.size() < bands.num_bands()) return at::split_with_sizes(parameters[0]->value(), bands.sizes());
  std::vector<at::Tensor> values;
  values.reserve(parameters.size());
  for (const nn::Parameter* p : parameters) values.push_back(p->value());
  return values;
}

class AdaptiveOutput : public OutputLayer {
 public:
  AdaptiveOutput(nn::ParameterList& parameters, const ModelOptions& o, const TokenEmbedding& embedding,
                 int64_t vocabulary_size)
      : options_(o), bands_(o.output_cutoffs, num_table_rows(o, vocabulary_size)), vocabulary_size_(vocabulary_size) {
    const bool has_one_table = o.cutoff_factor == 1;
    const auto name = [&](size_t b, const char* suffix) {
      return has_one_table ? str("decoder.output", suffix) : str("decoder.output.bands.", b, suffix);
    };
    const auto add_matrix = [&](const std::string& full_name, int64_t num_rows, int64_t num_columns,
                                const nn::Init& init) {
      return &parameters.add(full_name, {num_rows, num_columns}, {init, true, true});
    };
    const auto add_bias = [&](const std::string& full_name, int64_t num_rows) {
      return &parameters.add(full_name, {num_rows}, {nn::Init::constant(0), false, false});
    };
    for (size_t b = 0; b < (has_one_table ? 1 : bands_.num_bands()); ++b) {
      const int64_t num_rows = has_one_table ? num_table_rows(o, vocabulary_size) : bands_.size(b);
      tables_.push_back(o.tied ? embedding.bands()[b].table
                               : add_matrix(name(b, ".weight"), num_rows, band_width(o, b), adaptive_output_init(o)));
      if (o.output_bias) biases_.push_back(add_bias(name(b, ".bias"), num_rows));
    }
    for (size_t b = 0; b < bands_.num_bands(); ++b) {
      const bool has_projection = !has_one_table && (b == 0 ? o.first_band_projection : !o.tied_projections);
      projections_.push_back(
          has_projection ? add_matrix(name(b, ".projection.weight"), band_width(o, b), o.width, projection_init(o))
                         : nullptr);
      tied_projections_.push_back(!has_projection && b > 0 && !has_one_table ? embedding.bands()[b].projection
                                                                             : nullptr);
    }
    const auto num_tails = static_cast<int64_t>(bands_.num_bands()) - 1;
    class_weight_ = add_matrix("decoder.output.classes.weight", num_tails, o.width, adaptive_output_init(o));
    if (o.output_bias) class_bias_ = add_bias("decoder.output.classes.bias", num_tails);
  }

  // Returns log-probabilities, which are valid logits: their softmax is the same distribution.
  at::Tensor logits(const at::Tensor& hidden) const override {
    const Weights w = weights();
    at::Tensor head_log_p = at::log_softmax(nn::linear(project(hidden, 0), w.head, w.head_bias).to(at::kFloat), -1);
    std::vector<at::Tensor> log_p{head_log_p.narrow(-1, 0, bands_.size(0))};
    for (size_t b = 1; b < bands_.num_bands(); ++b) {
      at::Tensor scores =
          nn::linear(project(hidden, b), w.tables[b], w.bias(b)).to(at::kFloat).narrow(-1, 0, num_scored_entries(b));
      log_p.push_back(at::log_softmax(scores, -1) + head_log_p.narrow(-1, class_of(b), 1));
    }
    return nn::cat(log_p, -1).narrow(-1, 0, vocabulary_size_);
  }

  // Returns the cross-entropy of the head, in which a target in a tail is replaced by the class of the tail, plus the
  // cross-entropy of each tail over the targets in the tail. A tail without targets is skipped: if each band has its
  // own table, the parameters of the tail get no gradient from this loss; if one table holds all bands, the rows of the
  // tail get zero gradients. If a parameter has no gradient, the optimiser leaves the parameter, its moments and its
  // step count unchanged; a tied table may still get a gradient from the embedding.
  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& all_targets, double label_smoothing,
                      const nn::ForwardContext& forward_context) const override {
    if (label_smoothing != 0)
      refuse_usage(
          "train.label_smoothing", "0 with model.output_cutoffs", str(label_smoothing),
          "set train.label_smoothing=0: an adaptive softmax does not compute the probabilities of all entries");
    const at::Tensor& targets = all_targets.values;
    const Weights w = weights();
    const at::Tensor flat_hidden = hidden.flatten(0, 1).to(w.head.scalar_type());
    const auto band_targets = bands_.split(targets.flatten());
    nn::SlicedLoss total_loss = nn::sliced_cross_entropy(project(flat_hidden, 0), w.head, w.head_bias,
                                                         head_targets(targets, band_targets), w.head.size(0), 0);
    for (size_t b = 1; b < bands_.num_bands(); ++b) {
      if (band_targets[b].positions.numel() == 0) continue;
      const at::Tensor positions = nn::to_device(band_targets[b].positions, flat_hidden.device());
      at::Tensor x =
          apply_dropout(project(flat_hidden.index_select(0, positions), b), targets, positions, b, forward_context);
      nn::SlicedLoss band_loss =
          nn::sliced_cross_entropy(x, w.tables[b], w.bias(b), band_targets[b].offsets, num_scored_entries(b), 0);
      total_loss.smoothed = total_loss.smoothed + band_loss.smoothed;
      total_loss.nll = total_loss.nll + band_loss.nll;
    }
    return total_loss;
  }

  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const override {
    c10::NoGradGuard no_gradient;
    const Weights w = weights();
    const at::Tensor flat_hidden = hidden.flatten(0, 1).to(w.head.scalar_type());
    const auto band_targets = bands_.split(targets.flatten());
    at::Tensor log_p = nn::sliced_log_probabilities(project(flat_hidden, 0), w.head, w.head_bias,
                                                    head_targets(targets, band_targets), w.head.size(0));
    for (size_t b = 1; b < bands_.num_bands(); ++b) {
      if (band_targets[b].positions.numel() == 0) continue;
      const at::Tensor positions = nn::to_device(band_targets[b].positions, flat_hidden.device());
      log_p.index_add_(0, positions,
                       nn::sliced_log_probabilities(project(flat_hidden.index_select(0, positions), b), w.tables[b],
                                                    w.bias(b), band_targets[b].offsets, num_scored_entries(b)));
    }
    return log_p.view(targets.sizes());
  }

 private:
  // The weights of all bands in one forward pass.
  struct Weights {
    std::vector<at::Tensor> tables, biases;  // one per band; `biases` is empty without model.output_bias
    // Weight (|E_0| + number of tails, w_0) and bias (|E_0| + number of tails) of the head; `head_bias` is undefined
    // without model.output_bias.
    at::Tensor head, head_bias;
    at::Tensor bias(size_t band) const { return biases.empty() ? at::Tensor() : biases[band]; }
  };

  Weights weights() const {
    Weights w;
    w.tables = values_of(tables_, bands_);
    w.head = nn::cat({w.tables[0], class_weight_->value()});
    if (biases_.empty()) return w;
    w.biases = values_of(biases_, bands_);
    w.head_bias = nn::cat({w.biases[0], class_bias_->value()});
    return w;
  }

  // Returns the index of a tail's class in the head's softmax.
  int64_t class_of(size_t band) const { return bands_.size(0) + static_cast<int64_t>(band) - 1; }

  // Returns the number of entries in the softmax of a band. Table rows past the end of the vocabulary are excluded
  // unless model.score_padded_rows is set.
  int64_t num_scored_entries(size_t band) const {
    return band + 1 < bands_.num_bands() || options_.score_padded_rows ? bands_.size(band)
                                                                       : vocabulary_size_ - bands_.first_entry(band);
  }

  // Returns `hidden` (…, d) mapped to the width of the band, (…, w_b).
  at::Tensor project(const at::Tensor& hidden, size_t band) const {
    if (tied_projections_[band] != nullptr)
      return nn::linear(hidden, tied_projections_[band]->value().t(), at::Tensor());
    return projections_[band] != nullptr ? nn::linear(hidden, projections_[band]->value(), at::Tensor()) : hidden;
  }

  // Returns x (n, w) with dropout. Row i of x is a projected hidden state; its target is element `positions[i]` of the
  // flattened `targets` (B, T). The random numbers of a row depend on its position in the batch and not on the other
  // rows of the band, so that splitting a batch into micro-batches does not change the result.
  at::Tensor apply_dropout(const at::Tensor& x, const at::Tensor& targets, const at::Tensor& positions, size_t band,
                           const nn::ForwardContext& forward_context) const {
    if (!forward_context.training || options_.dropout_tail == 0) return x;
    at::Tensor ones = at::ones({targets.size(0), targets.size(1), x.size(1)}, x.options().dtype(at::kFloat));
    at::Tensor factors =
        nn::dropout(ones, options_.dropout_tail, forward_context, "output.tail", static_cast<uint32_t>(band));
    return x * factors.flatten(0, 1).index_select(0, positions);
  }

  // Returns the targets (N) of the head's softmax: a target in a tail is replaced by the class of the tail; a negative
  // target stays negative.
  at::Tensor head_targets(const at::Tensor& targets, const std::vector<Bands::BandEntries>& band_targets) const {
    at::Tensor result = targets.flatten().to(at::kCPU, at::kLong, false, true);
    for (size_t b = 1; b < band_targets.size(); ++b) result.index_fill_(0, band_targets[b].positions, class_of(b));
    return result;
  }

  ModelOptions options_;
  Bands bands_;
  int64_t vocabulary_size_;
  // One parameter per band, or one for all bands; biases_ is empty without model.output_bias.
  std::vector<nn::Parameter*> tables_, biases_;
  // One pointer per band. `projections_`: projection (w_b, d) of the output layer, or null. `tied_projections_`:
  // projection (d, w_b) of the token embedding, which the band reads with model.tied_projections, or null.
  std::vector<nn::Parameter*> projections_, tied_projections_;
  nn::Parameter *class_weight_ = nullptr, *class_bias_ = nullptr;
};

}  // namespace

std::unique_ptr<OutputLayer> make_adaptive_output(nn::ParameterList& parameters, const ModelOptions& o,
                                                  const TokenEmbedding& embedding, int64_t vocabulary_size) {
  return std::make_unique<AdaptiveOutput>(parameters, o, embedding, vocabulary_size);
}

}  // namespace mh::model
