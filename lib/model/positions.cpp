// Computes sinusoidal position encodings and adds position encodings to token embeddings.
#include "model/positions.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "model/inits.h"

namespace mh::model {

namespace {

// Returns w_k, the frequency of element k of the sines, in radians per position.
double frequency_of(Sinusoids sinusoids, int64_t k, int64_t half_width) {
  const auto divisor =
      static_cast<double>(sinusoids == Sinusoids::fairseq ? std::max<int64_t>(1, half_width - 1) : half_width);
  return std::exp(-static_cast<double>(k) * std::log(10000.0) / divisor);
}

}  // namespace

at::Tensor sinusoidal_positions(Sinusoids sinusoids, int64_t length, int64_t width, at::Device device) {
  const int64_t half_width = width / 2, first_position = sinusoids == Sinusoids::fairseq ? 2 : 0;
  at::Tensor table = at::empty({length, width});
  auto* table_data = table.mutable_data_ptr<float>();
  for (int64_t p = 0; p < length; ++p)
    for (int64_t k = 0; k < half_width; ++k) {
      const double angle = static_cast<double>(first_position + p) * frequency_of(sinusoids, k, half_width);
      table_data[p * width + k] = static_cast<float>(std::sin(angle));
      table_data[p * width + half_width + k] = static_cast<float>(std::cos(angle));
    }
  return table.to(device);
}

PositionEncoding::PositionEncoding(nn::ParameterList& parameters, const ModelOptions& o, const std::string& stack_name)
    : position_kind_(o.positions), sinusoid_formula_(o.sinusoids), max_positions_(o.max_positions) {
  if (position_kind_ == Positions::learned)
    learned_table_ = &parameters.add(stack_name + ".positions.weight", {max_positions_, o.width},
                                     {embedding_init(o, o.width), true, false});
}

// Returns the encodings (n, width) of the first n positions, where n is at least `length`.
at::Tensor PositionEncoding::first_sinusoids(int64_t length, int64_t width, at::Device device) {
  const std::lock_guard lock(grow_mutex_);
  if (!sinusoids_.defined() || sinusoids_.size(0) < length)
    sinusoids_ = sinusoidal_positions(sinusoid_formula_, std::max<int64_t>(2 * length, 256), width, device);
  return sinusoids_;
}

at::Tensor PositionEncoding::add(const at::Tensor& x, int64_t first_position) {
  const int64_t length = x.size(1), width = x.size(2);
  if (position_kind_ == Positions::none) return x;
  if (position_kind_ == Positions::sinusoidal)
    return x + first_sinusoids(first_position + length, width, x.device()).narrow(0, first_position, length);
  if (first_position + length > max_positions_)
    refuse_usage("model.max_positions", str("inputs of at most ", count_of(max_positions_, "token")),
                 str(first_position + length),
                 "use shorter sequences, or build a model with a higher model.max_positions");
  return x + learned_table_->value().narrow(0, first_position, length);
}

}  // namespace mh::model
