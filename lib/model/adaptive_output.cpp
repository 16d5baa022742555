// Adaptive softmax (Grave et al. 2017): the frequent entries, and a class for each band of rarer ones, share a softmax,
// the head; each band behind the first, a tail, has a softmax of its own over its entries:
//
//   log p(i) = log softmax([E_0 h_0 + b_0 ; C h_0 + c])[i]                             for i in band 0
//   log p(i) = log softmax(…)[class b] + log softmax(E_b D(Q_b h) + b_b)[i - first_b]  for i in band b > 0
//
// with h (d) the hidden state, E_b (entries of band b, w_b), Q_b (w_b, d), C (tails, d), D dropout
// (model.dropout_tail). Class b is column |E_0| + b - 1 of the head, as in fairseq; the code released with
// Transformer-XL counts the classes from the end. h_0 = h, or Q_0 h where model.project_head says so, as that code
// does. Biases with model.output_bias. With model.cutoff_factor=1 all widths are d: there are no projections, and one
// table holds the rows of all bands.
//
// model.tied: E_b is the embedding's table of band b. model.tied_projections: Q_b is the transpose of the embedding's
// projection for the tails; Q_0, where there is one, is always the layer's own (as Transformer-XL's; fairseq has none).
#include <c10/core/GradMode.h>

#include "base/error.h"
#include "model/bands.h"
#include "model/inits.h"
#include "model/output.h"
#include "nn/device.h"

namespace mh::model {

namespace {

// Values of the parameters of all bands: one each, or a single one whose rows are those of the bands.
std::vector<at::Tensor> values_of(const std::vector<nn::Parameter*>& parameters, const Bands& bands) {
  // One node of the graph, so that the gradient of a whole table is put together once and not once for each band.
  if (parameters.size() < bands.count()) return at::split_with_sizes(parameters[0]->value(), bands.sizes());
  std::vector<at::Tensor> all;
  all.reserve(parameters.size());
  for (const nn::Parameter* p : parameters) all.push_back(p->value());
  return all;
}

class AdaptiveOutput : public OutputLayer {
 public:
  AdaptiveOutput(nn::ParameterList& parameters, const ModelOptions& o, const TokenEmbedding& embedding,
                 int64_t vocabulary)
      : options_(o), bands_(o.output_cutoffs, table_rows(o, vocabulary)), vocabulary_(vocabulary) {
    const bool one_table = o.cutoff_factor == 1;
    const auto name = [&](size_t b, const char* part) {
      return one_table ? str("decoder.output", part) : str("decoder.output.bands.", b, part);
    };
    const auto matrix = [&](const std::string& full, int64_t rows, int64_t columns, const nn::Init& init) {
      return &parameters.add(full, {rows, columns}, {init, true, true});
    };
    const auto bias = [&](const std::string& full, int64_t rows) {
      return &parameters.add(full, {rows}, {nn::Init::constant(0), false, false});
    };
    for (size_t b = 0; b < (one_table ? 1 : bands_.count()); ++b) {
      const int64_t rows = one_table ? table_rows(o, vocabulary) : bands_.size(b);
      tables_.push_back(o.tied ? embedding.bands()[b].table
                               : matrix(name(b, ".weight"), rows, band_width(o, b), adaptive_output_init(o)));
      if (o.output_bias) biases_.push_back(bias(name(b, ".bias"), rows));
    }
    for (size_t b = 0; b < bands_.count(); ++b) {
      const bool own = !one_table && (b == 0 ? o.project_head : !o.tied_projections);
      projections_.push_back(own ? matrix(name(b, ".projection.weight"), band_width(o, b), o.width, projection_init(o))
                                 : nullptr);
      tied_.push_back(!own && b > 0 && !one_table ? embedding.bands()[b].projection : nullptr);
    }
    const auto tails = static_cast<int64_t>(bands_.count()) - 1;
    classes_ = matrix("decoder.output.classes.weight", tails, o.width, adaptive_output_init(o));
    if (o.output_bias) class_bias_ = bias("decoder.output.classes.bias", tails);
  }

  // Log-probabilities of all entries, whose softmax is themselves.
  at::Tensor logits(const at::Tensor& hidden) const override {
    const Weights w = weights();
    at::Tensor head = at::log_softmax(nn::linear(projected(hidden, 0), w.head, w.head_bias).to(at::kFloat), -1);
    std::vector<at::Tensor> all{head.narrow(-1, 0, bands_.size(0))};
    for (size_t b = 1; b < bands_.count(); ++b) {
      at::Tensor scores =
          nn::linear(projected(hidden, b), w.tables[b], w.bias(b)).to(at::kFloat).narrow(-1, 0, scored(b));
      all.push_back(at::log_softmax(scores, -1) + head.narrow(-1, class_of(b), 1));
    }
    return at::cat(all, -1).narrow(-1, 0, vocabulary_);
  }

  // The head's cross-entropy with the classes of rarer targets, and that of each tail over its own targets. A tail that
  // has none costs nothing. Where each band has a table of its own its parameters then get no gradient, and the
  // optimiser leaves parameters that got none in a whole update as they are, moments and count of steps included (both
  // are in a training state, so a resume goes on alike). Rows of one table get zeros, as those of other absent entries.
  nn::SlicedLoss loss(const at::Tensor& hidden, const Targets& given, double smoothing,
                      const nn::ForwardContext& step) const override {
    if (smoothing != 0)
      throw Error(Exit::usage, Problem{"label smoothing", "0 with model.output_cutoffs", str(smoothing),
                                       "an adaptive softmax scores no other entries of a tail than its targets'"});
    const at::Tensor& targets = given.values;
    const Weights w = weights();
    const at::Tensor flat = hidden.flatten(0, 1).to(w.head.scalar_type());
    const auto parts = bands_.split(targets.flatten());
    nn::SlicedLoss sum = nn::sliced_cross_entropy(projected(flat, 0), w.head, w.head_bias, head_targets(targets, parts),
                                                  w.head.size(0), 0);
    for (size_t b = 1; b < bands_.count(); ++b) {
      if (parts[b].places.numel() == 0) continue;
      const at::Tensor places = nn::to_device(parts[b].places, flat.device());
      at::Tensor x = dropped(projected(flat.index_select(0, places), b), targets, places, b, step);
      nn::SlicedLoss part = nn::sliced_cross_entropy(x, w.tables[b], w.bias(b), parts[b].entries, scored(b), 0);
      sum.smoothed = sum.smoothed + part.smoothed;
      sum.nll = sum.nll + part.nll;
    }
    return sum;
  }

  at::Tensor target_log_probabilities(const at::Tensor& hidden, const at::Tensor& targets) const override {
    c10::NoGradGuard no_gradient;
    const Weights w = weights();
    const at::Tensor flat = hidden.flatten(0, 1).to(w.head.scalar_type());
    const auto parts = bands_.split(targets.flatten());
    at::Tensor log_p = nn::sliced_log_probabilities(projected(flat, 0), w.head, w.head_bias,
                                                    head_targets(targets, parts), w.head.size(0));
    for (size_t b = 1; b < bands_.count(); ++b) {
      if (parts[b].places.numel() == 0) continue;
      const at::Tensor places = nn::to_device(parts[b].places, flat.device());
      log_p.index_add_(0, places,
                       nn::sliced_log_probabilities(projected(flat.index_select(0, places), b), w.tables[b], w.bias(b),
                                                    parts[b].entries, scored(b)));
    }
    return log_p.view(targets.sizes());
  }

 private:
  // Of all bands, as this pass uses them.
  struct Weights {
    std::vector<at::Tensor> tables, biases;  // biases: empty where there are none
    at::Tensor head, head_bias;              // (band 0 and classes, d) and (band 0 and classes) or undefined
    at::Tensor bias(size_t band) const { return biases.empty() ? at::Tensor() : biases[band]; }
  };

  Weights weights() const {
    Weights w;
    w.tables = values_of(tables_, bands_);
    w.head = at::cat({w.tables[0], classes_->value()});
    if (biases_.empty()) return w;
    w.biases = values_of(biases_, bands_);
    w.head_bias = at::cat({w.biases[0], class_bias_->value()});
    return w;
  }

  int64_t class_of(size_t band) const { return bands_.size(0) + static_cast<int64_t>(band) - 1; }

  // How many entries of a band take part: rows beyond the vocabulary may not.
  int64_t scored(size_t band) const {
    return band + 1 < bands_.count() || options_.score_padded_rows ? bands_.size(band)
                                                                   : vocabulary_ - bands_.first(band);
  }

  // hidden (…, d) -> (…, w_b), what the scores of a band are made from.
  at::Tensor projected(const at::Tensor& hidden, size_t band) const {
    if (tied_[band] != nullptr) return nn::linear(hidden, tied_[band]->value().t(), at::Tensor());
    return projections_[band] != nullptr ? nn::linear(hidden, projections_[band]->value(), at::Tensor()) : hidden;
  }

  // Of x (n, w), whose rows stand at `places` among those of targets (B, T). Decisions follow from a row's place in the
  // batch, whatever else is in the band: splitting an update changes nothing.
  at::Tensor dropped(const at::Tensor& x, const at::Tensor& targets, const at::Tensor& places, size_t band,
                     const nn::ForwardContext& step) const {
    if (!step.training || options_.dropout_tail == 0) return x;
    at::Tensor ones = at::ones({targets.size(0), targets.size(1), x.size(1)}, x.options().dtype(at::kFloat));
    at::Tensor factors = nn::dropout(ones, options_.dropout_tail, step, "output.tail", static_cast<uint32_t>(band));
    return x * factors.flatten(0, 1).index_select(0, places);
  }

  // (N): rarer targets as their classes.
  at::Tensor head_targets(const at::Tensor& targets, const std::vector<Bands::Part>& parts) const {
    at::Tensor head = targets.flatten().to(at::kCPU, at::kLong, false, true);
    for (size_t b = 1; b < parts.size(); ++b) head.index_fill_(0, parts[b].places, class_of(b));
    return head;
  }

  ModelOptions options_;
  Bands bands_;
  int64_t vocabulary_;
  std::vector<nn::Parameter*> tables_, biases_;     // of the bands, or one for all; biases: or none
  std::vector<nn::Parameter*> projections_, tied_;  // (w_b, d) of its own, or (d, w_b) of the embedding; null for none
  nn::Parameter *classes_ = nullptr, *class_bias_ = nullptr;
};

}  // namespace

std::unique_ptr<OutputLayer> adaptive_output(nn::ParameterList& parameters, const ModelOptions& o,
                                             const TokenEmbedding& embedding, int64_t vocabulary) {
  return std::make_unique<AdaptiveOutput>(parameters, o, embedding, vocabulary);
}

}  // namespace mh::model
