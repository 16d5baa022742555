// Options of rotary positions (transform_rotary.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention/stage.h"

namespace mh::attention {

// The change of the frequencies for texts that are longer than the texts in training.
enum class RotaryScaling { none, linear, dynamic, llama3, yarn, longrope, proportional };

// Returns the name of each scaling in configurations.
const std::vector<std::pair<RotaryScaling, std::string>>& rotary_scaling_names();

struct RotaryOptions : OptionsOf<RotaryOptions> {
  int64_t size = 0;
  double base = 10000;
  RotaryScaling scaling = RotaryScaling::none;
  double factor = 0;
  int64_t original_length = 0;
  double low_factor = 1, high_factor = 4;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  double attention_factor = 0;
  double mscale = 0, mscale_all_dim = 0;
  std::vector<double> short_factors, long_factors;
  void describe(Fields& f) override;

  // Returns r, the number of elements of a head that form pairs: `size`, or the head size if `size` is 0 or the scaling
  // is proportional.
  int64_t rotary_size(int64_t head_size) const {
    return size > 0 && scaling != RotaryScaling::proportional ? size : head_size;
  }
  // Throws Error(usage) if the options contradict each other or the head size, or if the scaling lacks an option.
  void check(const LayerSpec& layer_spec) const;
};

}  // namespace mh::attention
