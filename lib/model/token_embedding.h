// From entries of the vocabulary to vectors: one table, or bands of tables with fewer numbers for rarer entries.
#pragma once

#include <memory>
#include <vector>

#include "model/model_config.h"
#include "nn/parameter.h"

namespace mh::model {

class TokenEmbedding {
 public:
  // What an output layer that is tied takes over. `projection` is null where entries are as wide as the model.
  struct Band {
    nn::Parameter* table;                 // (entries, w)
    nn::Parameter* projection = nullptr;  // (d, w)
  };
  virtual ~TokenEmbedding() = default;

  // tokens (B, T) int64 -> (B, T, d), times √d where model.scale_embedding says so; fp32.
  virtual at::Tensor operator()(const at::Tensor& tokens) const = 0;

  const std::vector<Band>& bands() const { return bands_; }

 protected:
  std::vector<Band> bands_;
};

// Rows of the tables of a model: model.vocabulary_rows, or as many as the vocabulary has entries.
int64_t table_rows(const ModelOptions& options, int64_t vocabulary);
// How many of them take part in the softmax.
int64_t scored_rows(const ModelOptions& options, int64_t vocabulary);

// Bands where model.input_cutoffs has some and model.cutoff_factor is not 1, and else one table.
std::unique_ptr<TokenEmbedding> make_token_embedding(nn::ParameterList& parameters, const ModelOptions& options,
                                                     int64_t vocabulary);
// One table, of what an encoder reads: encoder.embedding.weight. `product`: scores of entries are tied to it.
std::unique_ptr<TokenEmbedding> make_encoder_embedding(nn::ParameterList& parameters, const ModelOptions& options,
                                                       int64_t rows, bool product);

}  // namespace mh::model
