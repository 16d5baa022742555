// What tells positions apart: fixed sinusoids, a table that is learned, or nothing.
#pragma once

#include <mutex>
#include <string>

#include "model/model_config.h"
#include "nn/parameter.h"

namespace mh::model {

// (length, d): for position p (the first is `first`), sin(p w_k) for k < d/2, then cos(p w_k), with
// w_k = 10000^(-k / (d/2 - 1)). As fairseq, whose first position is 2.
at::Tensor sinusoidal_positions(int64_t first, int64_t length, int64_t width, at::Device device);

// As model.positions says. A table is the parameter OWNER.positions.weight.
class PositionEncoding {
 public:
  PositionEncoding(nn::ParameterList& parameters, const ModelOptions& options, const std::string& owner);
  // x (B, T, d), whose first position is `first` -> the sum. Several threads may ask at once. Error(usage) beyond the
  // end of a table.
  at::Tensor add(const at::Tensor& x, int64_t first);
  int64_t longest() const { return kind_ == Positions::learned ? most_ : 0; }  // the end of the table; 0: there is none

 private:
  at::Tensor sinusoids(int64_t length, int64_t width, at::Device device);

  Positions kind_;
  int64_t most_;
  nn::Parameter* learned_ = nullptr;
  std::mutex one_grows_;
  at::Tensor sinusoids_;  // as far as they have been needed
};

}  // namespace mh::model
