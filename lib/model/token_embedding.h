// Token embeddings: one table, or adaptive embeddings, whose frequency bands have narrower tables for rarer entries.
#pragma once

#include <memory>
#include <vector>

#include "model/model_config.h"
#include "nn/parameter.h"

namespace mh::model {

class TokenEmbedding {
 public:
  // The parameters of one band, which a tied output layer shares. `projection` is null if all vectors have the width d.
  struct Band {
    nn::Parameter* table;                 // (entries, w)
    nn::Parameter* projection = nullptr;  // (d, w)
  };
  virtual ~TokenEmbedding() = default;

  // Returns the vectors (B, T, d), fp32, of tokens (B, T) int64; multiplied by √d if model.scale_embedding is set.
  virtual at::Tensor operator()(const at::Tensor& tokens) const = 0;

  const std::vector<Band>& bands() const { return bands_; }

 protected:
  std::vector<Band> bands_;
};

// Returns the number of rows of the embedding: model.vocabulary_rows, or, if that is 0, the size of the vocabulary.
int64_t table_rows(const ModelOptions& options, int64_t vocabulary);
// Returns how many of these rows the softmax covers.
int64_t scored_rows(const ModelOptions& options, int64_t vocabulary);

// Creates adaptive embeddings if model.input_cutoffs is not empty and model.cutoff_factor is not 1, otherwise one
// table.
std::unique_ptr<TokenEmbedding> make_token_embedding(nn::ParameterList& parameters, const ModelOptions& options,
                                                     int64_t vocabulary);
// Creates the table of an encoder's input, encoder.embedding.weight. `product`: an output layer is tied to the table
// (nn::Traits::product).
std::unique_ptr<TokenEmbedding> make_encoder_embedding(nn::ParameterList& parameters, const ModelOptions& options,
                                                       int64_t rows, bool product);

}  // namespace mh::model
