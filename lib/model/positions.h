// Absolute position encodings (model.positions): fixed sinusoids, a learned table, or none.
#pragma once

#include <mutex>
#include <string>

#include "model/model_config.h"
#include "nn/parameter.h"

namespace mh::model {

// Returns the encodings (length, width) of the positions i = 0, …, length - 1 of a sequence: sin(p w_k) for k <
// width/2, followed by cos(p w_k). fairseq: w_k = 10000^(-k / (width/2 - 1)) and p = i + 2, since fairseq counts from
// the padding index + 1. standard: w_k = 10000^(-2k / width) and p = i, as in Vaswani et al. 2017, section 3.5, with
// all sines before the cosines, as in Marian.
at::Tensor sinusoidal_positions(Sinusoids sinusoids, int64_t length, int64_t width, at::Device device);

// The position encoding that model.positions selects. `stack_name` is "encoder" or "decoder"; the learned table is the
// parameter `stack_name`.positions.weight.
class PositionEncoding {
 public:
  PositionEncoding(nn::ParameterList& parameters, const ModelOptions& options, const std::string& stack_name);
  // Returns x (B, T, d) plus the encodings of positions `first_position`, …, `first_position` + T - 1, counted from 0;
  // x itself for model.positions=none. Thread-safe. Throws Error(usage) if the learned table has fewer than
  // `first_position` + T positions.
  at::Tensor add(const at::Tensor& x, int64_t first_position);
  // Returns the number of learned position embeddings; 0: no such embeddings.
  int64_t max_positions() const { return position_kind_ == Positions::learned ? max_positions_ : 0; }

 private:
  at::Tensor first_sinusoids(int64_t length, int64_t width, at::Device device);

  Positions position_kind_;
  Sinusoids sinusoid_formula_;
  int64_t max_positions_;
  nn::Parameter* learned_table_ = nullptr;  // (max_positions_, d); null unless position_kind_ is `learned`
  std::mutex grow_mutex_;
  at::Tensor sinusoids_;  // (positions, d), enlarged on demand; guarded by grow_mutex_
};

}  // namespace mh::model
