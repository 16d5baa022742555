// Uniform samples, without replacement, of the blocks of a text or of the rows of another corpus.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/scoring_options.h"

namespace mh::data {

// Returns `count` distinct indices in [0, population_size), in ascending order.
std::vector<int64_t> draw_sample(int64_t count, int64_t population_size, int64_t seed);

// Returns the size of a sample from a population of `population_size` blocks or rows: sample.blocks, where 0 means no
// sample. If sample.blocks exceeds `population_size`, returns `population_size` if sample.is_default_sample is true
// and `population_size` is above 0, and otherwise throws Error(usage). `description`: phrase for `population_size` in
// the error; `advice`: the part of the error that advises the user.
int64_t sample_size(const SampleOptions& sample, int64_t population_size, const std::string& description,
                    const char* advice);

}  // namespace mh::data
