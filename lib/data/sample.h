// Uniform samples, without replacement, of the blocks of a text or of the rows of another corpus.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/scoring_options.h"

namespace mh::data {

// Returns `count` distinct indices in [0, all), in ascending order.
std::vector<int64_t> draw_sample(int64_t count, int64_t all, int64_t seed);

// Returns the size of a sample from a population of `all` blocks or rows. If sample.blocks exceeds `all`, returns `all`
// with sample.at_most, and otherwise throws Error(usage). `what` describes `all` in the error; `next` is its advice.
int64_t sample_size(const Sample& sample, int64_t all, const std::string& what, const char* next);

}  // namespace mh::data
