// Token embeddings: a single table, or adaptive embeddings (bands.h), with one table per frequency band and narrower
// tables for rarer entries.
#pragma once

#include <memory>
#include <vector>

#include "model/model_config.h"
#include "nn/parameter.h"

namespace mh::model {

class TokenEmbedding {
 public:
  // The parameters of one frequency band, which a tied output layer shares. A single table is one band without
  // projection.
  struct Band {
    nn::Parameter* table;                 // (entries, w)
    nn::Parameter* projection = nullptr;  // (d, w); null if w = d for all bands
  };
  virtual ~TokenEmbedding() = default;

  // Returns the embeddings (B, T, d), fp32, of tokens (B, T) int64, multiplied by √d if model.scale_embedding is set.
  virtual at::Tensor operator()(const at::Tensor& tokens) const = 0;

  const std::vector<Band>& bands() const { return bands_; }

 protected:
  std::vector<Band> bands_;
};

// Returns the number of rows of the embedding table: model.vocabulary_rows, or the size of the vocabulary if
// model.vocabulary_rows is 0.
int64_t num_table_rows(const ModelOptions& options, int64_t vocabulary_size);
// Returns the number of entries in the softmax: with model.score_padded_rows the number of rows of the embedding table,
// otherwise the size of the vocabulary.
int64_t num_scored_rows(const ModelOptions& options, int64_t vocabulary_size);

// Throws Error(usage) if `num_rows`, the value of the key `key`, is neither 0 nor at least `vocabulary_size`, the size
// of the vocabulary.
void check_rows(const char* key, int64_t num_rows, int64_t vocabulary_size);

// Creates the token embedding of a decoder: adaptive embeddings if model.input_cutoffs is not empty and
// model.cutoff_factor is not 1, otherwise the table decoder.embedding.weight.
std::unique_ptr<TokenEmbedding> make_token_embedding(nn::ParameterList& parameters, const ModelOptions& options,
                                                     int64_t vocabulary_size);
// Creates the token embedding of an encoder, the table encoder.embedding.weight with `num_rows` rows.
// `is_output_weight`: whether an output layer is tied to the table.
std::unique_ptr<TokenEmbedding> make_encoder_embedding(nn::ParameterList& parameters, const ModelOptions& options,
                                                       int64_t num_rows, bool is_output_weight);

}  // namespace mh::model
