// Plain token embeddings, and adaptive token embeddings (Baevski & Auli 2019, section 3).
#include "model/token_embedding.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "base/error.h"
#include "model/bands.h"
#include "model/inits.h"
#include "nn/ops.h"

namespace mh::model {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns the traits of an embedding table with rows of `width` elements. `is_product_operand`: whether an output layer
// is tied to the table, so that matrix products use the table.
nn::ParameterTraits table_traits(const ModelOptions& o, int64_t width, bool is_product_operand) {
  nn::ParameterTraits traits{embedding_init(o, width), true, is_product_operand};
  traits.is_lookup_table = true;
  return traits;
}

double scale_of(const ModelOptions& o) { return o.scale_embedding ? std::sqrt(static_cast<double>(o.width)) : 1; }

class SingleTableEmbedding : public TokenEmbedding {
 public:
  // `is_output_weight`: whether an output layer is tied to the table.
  SingleTableEmbedding(nn::ParameterList& parameters, const ModelOptions& o, const std::string& name, int64_t num_rows,
                       bool is_output_weight)
      : scale_(scale_of(o)) {
    bands_.push_back({&parameters.add(name, {num_rows, o.width}, table_traits(o, o.width, is_output_weight))});
  }

  at::Tensor operator()(const at::Tensor& tokens) const override {
    return nn::embedding(tokens, bands_[0].table->lookup_table(), scale_);
  }

 private:
  double scale_;
};

// Scatters `band_rows` (n_k, d) to a tensor (num_rows, d): row `positions[k][i]` of the result is row i of band k. Each
// of 0, …, num_rows - 1 occurs exactly once in `positions`. The arguments are TensorLists because autograd does not
// find tensors in a std::vector.
struct JoinRows : torch::autograd::Function<JoinRows> {
  static at::Tensor forward(AutogradContext* context, at::TensorList band_rows, at::TensorList positions,
                            int64_t num_rows) {
    at::Tensor joined_rows = at::empty({num_rows, band_rows[0].size(1)}, band_rows[0].options());
    for (size_t k = 0; k < band_rows.size(); ++k) joined_rows.index_copy_(0, positions[k], band_rows[k]);
    context->save_for_backward(positions.vec());
    return joined_rows;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    variable_list input_gradients;
    const variable_list positions = context->get_saved_variables();
    for (const at::Tensor& indices : positions) input_gradients.push_back(gradients[0].index_select(0, indices));
    input_gradients.resize(2 * positions.size() + 1);  // undefined gradients for `positions` and `num_rows`
    return input_gradients;
  }
};

// Adaptive embeddings: the vector of entry i of band b is P_b E_b[i], with table E_b (entries of the band, w_b) and
// projection P_b (d, w_b). Band 0 has a projection, too, although its width w_0 is d.
class AdaptiveEmbedding : public TokenEmbedding {
 public:
  AdaptiveEmbedding(nn::ParameterList& parameters, const ModelOptions& o, int64_t num_rows)
      : band_ranges_(o.input_cutoffs, num_rows), scale_(scale_of(o)) {
    for (size_t b = 0; b < band_ranges_.num_bands(); ++b) {
      const std::string name = str("decoder.embedding.bands.", b);
      const int64_t width = band_width(o, b);
      nn::Parameter& table =
          parameters.add(name + ".weight", {band_ranges_.size(b), width}, table_traits(o, width, o.tied));
      bands_.push_back(
          {&table, &parameters.add(name + ".projection.weight", {o.width, width}, {projection_init(o), true, true})});
    }
  }

  // Skips bands without tokens: the parameters of a skipped band get no gradient from the embedding of this batch. If a
  // parameter gets no gradient in a whole update, the optimiser leaves the parameter, its moments and its step count
  // unchanged.
  at::Tensor operator()(const at::Tensor& tokens) const override {
    const at::Device device = bands_[0].table->lookup_table().device();
    const auto band_entries = band_ranges_.split(tokens.flatten());
    variable_list rows, positions;
    for (size_t b = 0; b < band_entries.size(); ++b) {
      if (band_entries[b].positions.numel() == 0) continue;
      at::Tensor x = at::embedding(bands_[b].table->lookup_table(), band_entries[b].offsets.to(device));
      rows.push_back(nn::linear(x, bands_[b].projection->value(), at::Tensor()).to(at::kFloat));
      positions.push_back(band_entries[b].positions.to(device));
    }
    auto shape = tokens.sizes().vec();
    shape.push_back(bands_[0].projection->value().size(0));
    if (rows.empty()) return at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(device));
    at::Tensor embeddings =
        rows.size() == 1 ? rows[0] : JoinRows::apply(at::TensorList(rows), at::TensorList(positions), tokens.numel());
    embeddings = embeddings.view(shape);
    return scale_ == 1 ? embeddings : embeddings * scale_;
  }

 private:
  Bands band_ranges_;
  double scale_;
};

}  // namespace

int64_t num_table_rows(const ModelOptions& o, int64_t vocabulary_size) {
  return o.vocabulary_rows > 0 ? o.vocabulary_rows : vocabulary_size;
}

int64_t num_scored_rows(const ModelOptions& o, int64_t vocabulary_size) {
  return o.score_padded_rows ? num_table_rows(o, vocabulary_size) : vocabulary_size;
}

void check_rows(const char* key, int64_t num_rows, int64_t vocabulary_size) {
  if (num_rows > 0 && num_rows < vocabulary_size)
    refuse_usage(key, str("at least ", vocabulary_size, ", the size of the vocabulary, or 0"), str(num_rows),
                 str("raise ", key, ", or set ", key, "=0"));
}

std::unique_ptr<TokenEmbedding> make_token_embedding(nn::ParameterList& parameters, const ModelOptions& o,
                                                     int64_t vocabulary_size) {
  const int64_t num_rows = num_table_rows(o, vocabulary_size);
  if (o.input_cutoffs.empty() || o.cutoff_factor == 1)
    return std::make_unique<SingleTableEmbedding>(parameters, o, "decoder.embedding.weight", num_rows, o.tied);
  return std::make_unique<AdaptiveEmbedding>(parameters, o, num_rows);
}

std::unique_ptr<TokenEmbedding> make_encoder_embedding(nn::ParameterList& parameters, const ModelOptions& o,
                                                       int64_t num_rows, bool is_output_weight) {
  return std::make_unique<SingleTableEmbedding>(parameters, o, "encoder.embedding.weight", num_rows, is_output_weight);
}

}  // namespace mh::model
